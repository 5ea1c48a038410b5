"""What ``install`` and ``uninstall`` share: the deployed objects, how they are printed, and the cluster they go to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from webhook.cli.console import Unreachable, Unusable, out
from webhook.cli.output import dump
from webhook.registration.manifests import NAMESPACE

if TYPE_CHECKING:
    from webhook.cluster.api import Api
    from webhook.kube.raw import Json

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

# Seconds: until a new kind is served, what is removed is gone, a server that is busy is not; and between two looks.
PATIENCE, EVERY = 60.0, 0.2
_BUSY = (429, 503)


class Name(click.ParamType[str]):
    """A name that ``reason`` has no complaint about."""

    name = "name"

    def __init__(self, needs: str, reason: Callable[[str], str | None]) -> None:
        self._needs, self._reason = needs, reason

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name itself."""
        if reason := self._reason(str(value)):
            self.fail(f"{value!r} {reason}, needs {self._needs}", param, ctx)
        return str(value)


def namespace_option(function: F) -> F:
    """``--namespace``."""
    from webhook.kube.names import NEEDS_LABEL, dns_label

    kind = Name(NEEDS_LABEL, dns_label)
    return click.option("--namespace", type=kind, default=NAMESPACE, show_default=True, help="Where the guard runs.")(
        function
    )


def printed(function: F) -> F:
    """``-o``."""
    choice = click.Choice(("yaml", "json"))
    return click.option("-o", "--output", type=choice, default="yaml", show_default=True, help="How to print.")(
        function
    )


def files() -> dict[str, bytes]:
    """The files of the folder ``deploy``: in the package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "_shipped" / "deploy"
    root = installed if installed.is_dir() else package.parent / "deploy"
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*.yaml"))}


def show(objects: list[Json], output: str) -> None:
    """Print objects, as kubectl takes them."""
    if output == "json":
        out(dump({"apiVersion": "v1", "kind": "List", "items": objects}, "json"))
    else:
        out("\n---\n".join(dump(obj, "yaml") for obj in objects))


def title(obj: Json) -> str:
    """``Deployment allocguard-system/allocguard``."""
    metadata = obj["metadata"]
    name = "/".join(metadata[key] for key in ("namespace", "name") if key in metadata)
    return f"{obj['kind']} {name}"


def connected(
    kubeconfig: str | None, context: str | None, work: Callable[[Api], Awaitable[int]], installing: bool = False
) -> int:
    """The exit code of ``work`` on the cluster; Unreachable where there is none, or where it refuses. While
    ``installing``, our own roles are written by the rights of who runs it.
    """
    from webhook.cluster import api as live
    from webhook.cluster.access import CannotConnect, NoCluster, connect

    async def run() -> int:
        api = await connect(kubeconfig, context)
        api.installing = installing
        try:
            return await work(api)
        finally:
            await api.close()

    try:
        return asyncio.run(run())
    except NoCluster as error:
        raise Unreachable(str(error)) from error
    except CannotConnect as error:
        raise Unusable(str(error)) from error
    except live.ApiError as error:
        raise Unreachable(f"the API server refuses: {error}") from error
    except live.Unreachable as error:
        raise Unreachable(f"the API server does not answer: {error}") from error


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """What ``ask`` gives, asked again while the API server is busy, as with a definition that it has just taken in."""
    from webhook.cluster.api import ApiError

    async with waiting("the API server to answer"):
        while True:
            try:
                return await ask()
            except ApiError as error:
                if error.status not in _BUSY:
                    raise
                await asyncio.sleep(max(EVERY, min(error.retry_after or 0.0, 5.0)))
    raise AssertionError("a loop that returns or raises")


async def found(api: Api, obj: Json) -> Json | None:
    """The object as it is stored; None where it is not there."""
    from webhook.cluster.api import ApiError
    from webhook.registration.manifests import path

    try:
        return await patiently(partial(api.get, path(obj)))
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return None


async def elsewhere(api: Api, namespace: str) -> str:
    """The namespace of the guard whose rights are installed, where it is another one than ``namespace``; empty where
    there is none, or where that may not be seen.
    """
    from webhook.cluster.api import ApiError
    from webhook.kube.raw import members, text
    from webhook.registration.manifests import RIGHTS

    try:
        binding = await found(api, RIGHTS) or {}
    except ApiError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return ""
    named = [text(each.get("namespace")) for each in members(binding.get("subjects"))]
    return "" if namespace in named else next(filter(None, named), "")


@asynccontextmanager
async def waiting(what: str, why: Callable[[], str] = str) -> AsyncIterator[None]:
    """A limit to how long something is waited for; ``why`` gives what is known to keep it back, asked at the end."""
    try:
        async with asyncio.timeout(PATIENCE):
            yield
    except TimeoutError:
        known = why() or "look at the API server"
        raise Unreachable(f"waited {PATIENCE:.0f} seconds for {what}; {known}") from None
