"""A DriverRollout that is changed: in files it is printed as it would be, in a live cluster it is written."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from textwrap import indent
from typing import TYPE_CHECKING

from webhook.cli.console import Unreachable, Unusable, note, out
from webhook.cli.deploying import connected
from webhook.cli.output import dump
from webhook.cli.rollout_edit import Edit, in_files, merged, new, to_apply
from webhook.kube.raw import Json, mapping, text
from webhook.kube.rollout import API_VERSION

if TYPE_CHECKING:
    from webhook.cli.options import Where
    from webhook.cluster.api import Api

PATH = f"/apis/{API_VERSION}/driverrollouts"
_REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
# How often a document is read again that somebody else wrote meanwhile.
_TRIES = 5

Make = Callable[[Json], Edit]


def printed(document: Json | None, make: Make, driver: str, output: str, then: str = "apply what is printed") -> int:
    """Print the DriverRollout from files as ``make`` changes it; what that comes to, and what to do ``then``, is told
    on standard error.
    """
    before = document if document is not None else new(driver)
    edit = make(before)
    out(_document(in_files(merged(before, edit.patch)), output))
    note(f"{edit.said}; nothing is written: {then}" if edit.patch else edit.said)
    return 0


def written(where: Where, driver: str, make: Make, output: str, create: bool = False, status: bool = False) -> int:
    """Change the DriverRollout in the live cluster as ``make`` does (with ``create``: where there is none too) and tell
    what was done, or print the document. Exit code 1: the API server does not take it.

    What somebody else writes at the same time is not written over: ``make`` is asked again about what there is then.
    """
    return connected(where.kubeconfig, where.context, lambda api: _written(api, driver, make, output, create, status))


async def _written(api: Api, driver: str, make: Make, output: str, create: bool, status: bool) -> int:
    from webhook.cluster.api import ApiError

    for _ in range(_TRIES):
        document = await found(api, driver)
        if document is None and not create:
            raise Unusable(f"{driver}: has no DriverRollout; write one")
        before = document if document is not None else new(driver)
        edit = make(before)
        if not edit.patch:
            _tell(edit, before, output)
            return 0
        try:
            _tell(edit, await _put(api, document, driver, edit, status), output)
            return 0
        except ApiError as error:
            if error.status == HTTPStatus.CONFLICT:
                continue
            if error.status == HTTPStatus.NOT_FOUND and document is None:
                raise Unreachable("the cluster has no kind DriverRollout; run `allocguard install --apply`") from error
            if error.status not in (HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.FORBIDDEN):
                raise
            note(f"{driver} stays as it is: the API server refuses: {error}")
            return 1
    raise Unreachable(f"{driver}: was written by others {_TRIES} times meanwhile; run it again")


async def _put(api: Api, document: Json | None, driver: str, edit: Edit, status: bool) -> Json:
    if document is None:
        return await api.create(PATH, merged(new(driver), edit.patch))
    version = text(mapping(document.get("metadata")).get("resourceVersion"))
    path = f"{PATH}/{driver}/status" if status else f"{PATH}/{driver}"
    return await api.patch(path, {**edit.patch, "metadata": {"resourceVersion": version}}, "merge")


def _tell(edit: Edit, document: Json, output: str) -> None:
    if output == "note":
        note(edit.said)
    else:
        out(edit.said if output == "text" else _document(to_apply(document), output))


def _document(document: Json, output: str) -> str:
    made = dump(document, "json" if output == "json" else "yaml")
    # No text of a hold ends a block that is made by its indent.
    return indent(made, "    ") if output == "markdown" else made


def stored(where: Where, driver: str) -> tuple[Json | None, str]:
    """The live DriverRollout, None where there is none, and who asks."""
    got: list[tuple[Json | None, str]] = []

    async def look(api: Api) -> int:
        got.append((await found(api, driver), await user(api)))
        return 0

    connected(where.kubeconfig, where.context, look)
    return got[0]


async def found(api: Api, driver: str) -> Json | None:
    """The live DriverRollout of ``driver``; None where there is none, or not even the kind."""
    from webhook.cluster.api import ApiError

    try:
        return await api.get(f"{PATH}/{driver}")
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return None


async def user(api: Api) -> str:
    """Who the API server takes us for; empty where it does not say."""
    from webhook.cluster.api import ApiError

    try:
        review = await api.create(_REVIEW, {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
    except ApiError:
        return ""
    return text(mapping(mapping(review.get("status")).get("userInfo")).get("username"))[:253]
