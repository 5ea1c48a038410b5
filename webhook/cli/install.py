"""``allocguard install``: what runs in a cluster, printed or applied."""

from __future__ import annotations

import asyncio
from functools import partial
from http import HTTPStatus
from pathlib import Path
from posixpath import normpath
from typing import TYPE_CHECKING, Any

import click

from webhook.cli.console import Unreachable, Unusable, note, out
from webhook.cli.deploying import (
    EVERY,
    Name,
    connected,
    elsewhere,
    files,
    found,
    namespace_option,
    patiently,
    printed,
    show,
    title,
    waiting,
)
from webhook.cli.options import live_options, policies_option
from webhook.cli.output import dump
from webhook.cli.serve import Url
from webhook.kube.names import NEEDS_DRIVER, driver_name
from webhook.registration.manifests import IMAGE, MODES

if TYPE_CHECKING:
    from webhook.cluster.api import Api
    from webhook.kube.raw import Json

MANAGER = "allocguard-install"
_FOLDER = "/etc/kubernetes/allocguard"


def _image(name: str) -> str | None:
    """Why no container runtime takes ``name`` as an image, as far as one can tell without one."""
    if not name:
        return "is empty"
    return "has white space" if any(each.isspace() for each in name) else None


class Folder(click.ParamType[str]):
    """An absolute path on the hosts of API servers, without a slash too many; not the root, where files of ours would
    lie among those of everybody.
    """

    name = "folder"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The path as it is written into the files."""
        folder = str(value)
        if not folder.startswith("/"):
            self.fail(f"{folder!r} is not absolute, needs an absolute path", param, ctx)
        if not folder.isprintable():
            self.fail(f"{folder!r} has a control character, needs a path without", param, ctx)
        plain = normpath(f"/{folder.lstrip('/')}")
        if plain == "/":
            self.fail(f"{folder!r} is the root, needs a folder of its own", param, ctx)
        return plain


@click.command(
    epilog="""\b
Examples:
  allocguard install --mode audit | kubectl apply --server-side -f -
  allocguard install --image registry.example/allocguard:0.1.0 --apply
  allocguard install --static --url https://127.0.0.1:8443 --ca-file ca.crt"""
)
@namespace_option
@click.option(
    "--image",
    type=Name("an image reference", _image),
    default=IMAGE,
    show_default=True,
    help="The image made by deploy/Containerfile.",
)
@click.option(
    "--mode", type=click.Choice(MODES), default=MODES[0], show_default=True, help="audit refuses nothing, fails open."
)
@click.option("--apply", is_flag=True, help="Apply instead of printing; with --static, write the files.")
@click.option("--static", is_flag=True, help="The registration as files of the API server, without the API.")
@click.option("--url", type=Url("https"), help="With --static: where the API server reaches the guard.")
@click.option(
    "--ca-file", type=click.Path(path_type=Path), metavar="F", help="With --static: who issued its certificate."
)
@click.option(
    "--folder",
    type=Folder(),
    default=_FOLDER,
    show_default=True,
    metavar="D",
    help="With --static: where the API server has them.",
)
@click.option(
    "--driver",
    "drivers",
    type=Name(NEEDS_DRIVER, driver_name),
    multiple=True,
    help="With --static: a driver whose claims wait for the guard while it is away (repeatable).",
)
@policies_option
@live_options
@printed
def install(
    namespace: str,
    image: str,
    mode: str,
    apply: bool,
    static: bool,
    url: str | None,
    ca_file: Path | None,
    folder: str,
    drivers: tuple[str, ...],
    policies: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
    output: str,
) -> int:
    """Print what runs in a cluster (definitions, roles, service, deployment), or apply it.

    The guard registers itself once it is ready, and keeps the registration as its policies need it.
    """
    if static:
        return _static(policies, url, ca_file, folder, frozenset(drivers), mode == "audit", namespace, apply, output)
    if url or ca_file or drivers or policies:
        raise click.UsageError("--url, --ca-file, --driver and --policies go with --static")
    from webhook.registration.manifests import Target, manifests

    objects = manifests(files(), Target(mode, namespace, image))
    if apply:
        return connected(kubeconfig, context, lambda api: _apply(api, objects, namespace), installing=True)
    show(objects, output)
    return 0


def _static(
    policies: tuple[str, ...],
    url: str | None,
    ca_file: Path | None,
    folder: str,
    drivers: frozenset[str],
    audit: bool,
    namespace: str,
    apply: bool,
    output: str,
) -> int:
    from certs.error import CertificateError
    from certs.files import read_certificates
    from webhook.policy.compile import PolicyErrors
    from webhook.registration.static import static_files
    from webhook.store.policies import read, shipped

    if url is None or ca_file is None:
        raise click.UsageError("--static needs --url https://HOST:PORT and --ca-file")
    try:
        read_certificates(ca_file)
        revision = read(policies or [shipped()])
    except CertificateError as error:
        raise Unusable(str(error)) from error
    except PolicyErrors as errors:
        for each in errors.problems:
            note(each.text)
        raise Unusable("policies: have problems; make them compile") from errors
    documents = static_files(revision, url, ca_file.read_bytes(), folder, drivers, audit, namespace)
    if not drivers and not audit:
        note("no --driver: while the guard is away claims are allocated unjudged; slices with mappings wait")
    if not apply:
        if output == "json":
            out(dump({f"{folder}/{place}": document for place, document in documents.items()}, "json"))
        else:
            out("\n---\n".join(f"# {folder}/{place}\n{dump(each, 'yaml')}" for place, each in documents.items()))
        return 0
    for place, document in documents.items():
        path = Path(folder) / place
        path.parent.mkdir(parents=True, exist_ok=True)
        # The API server may read at any moment: it sees the old file or the new one.
        fresh = path.with_name(f".{path.name}")
        fresh.write_text(dump(document, "yaml") + "\n")
        fresh.replace(path)
        out(f"{path} written")
    return 0


async def _apply(api: Api, objects: list[Json], namespace: str) -> int:
    from webhook.cluster.api import ApiError
    from webhook.cluster.api import Unreachable as Lost

    applied, refused = 0, 0
    awaited: list[Json] = []
    if other := await elsewhere(api, namespace):
        note(
            f"namespace {other} has a guard, whose rights go to the one in {namespace}: a cluster has one; when this "
            f"one is ready, take the other away: kubectl --namespace {other} delete deployment allocguard"
        )
    for obj in objects:
        try:
            # What needs a new kind comes after it is served.
            if obj["kind"] != "CustomResourceDefinition":
                while awaited:
                    await _established(api, awaited.pop(0))
            if await _applied(api, obj):
                out(f"{title(obj)} applied")
                applied += 1
                awaited += [obj] if obj["kind"] == "CustomResourceDefinition" else []
        except ApiError as error:
            note(f"{title(obj)} not applied: the API server refuses: {error}")
            refused += 1
        except (Lost, Unreachable) as error:
            done = f"{applied} of {len(objects)} objects are applied and stay; run it again, which applies the rest"
            raise Unreachable(f"{title(obj)} not applied: {error}; {done}") from error
    if refused:
        fix = "get the rights, and run it again, which applies the rest"
        raise Unreachable(f"{refused} of {len(objects)} objects were refused, {applied} are applied and stay; {fix}")
    return 0


async def _applied(api: Api, obj: Json) -> bool:
    """Apply it, but for a namespace of somebody else."""
    from webhook.registration.manifests import ours, path

    if obj["kind"] == "Namespace" and (there := await found(api, obj)) and not ours(there):
        note(f"{title(obj)} was there before and stays as it is; give it the label for restricted pods yourself")
        return False
    await patiently(partial(api.apply, path(obj), obj, MANAGER))
    return True


async def _established(api: Api, definition: Json) -> None:
    """Return once the definition is served, or where that may not be seen."""
    from webhook.cluster.api import ApiError
    from webhook.kube.raw import mapping, members
    from webhook.registration.manifests import path

    async with waiting(f"{title(definition)} to be served"):
        while True:
            try:
                status = mapping((await api.get(path(definition))).get("status"))
            except ApiError as error:
                if error.status != HTTPStatus.FORBIDDEN:
                    raise
                return
            conditions = {each.get("type"): each.get("status") for each in members(status.get("conditions"))}
            if conditions.get("Established") == "True":
                return
            await asyncio.sleep(EVERY)
