"""``allocguard uninstall``: removes what ``install`` made, in an order in which nothing is left standing in the way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

import click

from webhook.cli.console import Unreachable, Unusable, note, out
from webhook.cli.deploying import (
    EVERY,
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
from webhook.cli.lifting import release_pods, remove_reports, remove_taints
from webhook.cli.options import live_options
from webhook.cli.report import plural

if TYPE_CHECKING:
    from webhook.cluster.api import Api
    from webhook.kube.raw import Json


_DEFINITION = "CustomResourceDefinition"
# Who may make the registration, who may have claims wait, and who may write reports.
_RIGHT = ("ClusterRoleBinding", "allocguard-registration")
_REPORTING = ("ClusterRoleBinding", "allocguard")
_STEERING = ("ClusterRoleBinding", "allocguard-steering")
# Conditions of namespaces and definitions that say why they are not gone.
_ENDING = ("Namespace", "Terminating")


@click.command(
    epilog="""\b
Examples:
  allocguard uninstall
  allocguard uninstall --apply"""
)
@namespace_option
@click.option("--apply", is_flag=True, help="Remove it; without, print what would be removed, in order.")
@live_options
@printed
def uninstall(namespace: str, apply: bool, kubeconfig: str | None, context: str | None, output: str) -> int:
    """Remove what `install` made, the registration first; then pods that wait with the scheduling gate of the guard go
    on, and its DeviceTaintRules and its reports of the audit scan are deleted.

    The definitions of policies and rollouts stay while there are objects of them. Exit code 1: a server that runs
    elsewhere registered itself again; 3: something was refused, or is not gone yet.
    """
    from webhook.registration.manifests import Target, manifests

    objects = _removal(manifests(files(), Target(namespace=namespace)), namespace)
    if apply:
        return connected(kubeconfig, context, lambda api: _remove(api, objects, namespace), installing=True)
    show([_reference(obj) for obj in objects if not _of_users(obj)], output)
    note("pods that wait with the scheduling gate go on; DeviceTaintRules and reports of the guard are deleted, too")
    note("the definitions of policies and rollouts are left out: who deletes them deletes your policies and rollouts")
    return 0


def _removal(objects: list[Json], namespace: str) -> list[Json]:
    """In the order of removal: who would put the registration back loses the right to, the registration goes while the
    guard still answers, the right to have claims wait, then everything else, the last applied first.
    """
    from webhook.registration.manifests import made_by_it

    first, steering = ([obj for obj in objects if _identity(obj) == right] for right in (_RIGHT, _STEERING))
    *rest, last = (obj for obj in reversed(objects) if obj not in first and obj not in steering)
    registration, kept = made_by_it(namespace)
    return [*first, *registration, *steering, *rest, *kept, last]


async def _remove(api: Api, objects: list[Json], namespace: str) -> int:
    from webhook.cluster.api import ApiError

    if other := await elsewhere(api, namespace):
        raise Unusable(
            f"the guard of this cluster is in namespace {other}, not in {namespace}; nothing is removed: give "
            f"--namespace {other}, or delete what is left in {namespace} with kubectl"
        )
    ending, refused, lasting = [], 0, 0
    for obj in objects:
        try:
            if _identity(obj) == _STEERING:
                await _let_go(release_pods(api), "pod", "released")
            if await _removed(api, obj):
                out(f"{title(obj)} removed")
                ending.append(obj)
            if _identity(obj) == _STEERING:
                await _let_go(remove_taints(api), "DeviceTaintRule", "removed")
            if _identity(obj) == _REPORTING:
                await _let_go(remove_reports(api), "report", "removed")
        except ApiError as error:
            note(f"{title(obj)} not removed: the API server refuses: {error}")
            if _registers(obj):
                # What is registered must not outlive who answers: writes would wait for nobody.
                raise Unreachable(
                    "the registration stays, and so does the guard; get the rights and run it again"
                ) from error
            refused += 1
    for obj in ending:
        try:
            await _gone(api, obj)
        except Unreachable as error:
            note(str(error))
            lasting += 1
    again = [obj for obj in objects if obj["kind"].endswith("WebhookConfiguration") and await _deleted(api, obj)]
    for obj in again:
        note(f"{title(obj)} was there again, and is removed again; stop the server that makes it")
    if refused:
        raise Unreachable(
            f"not removed: {plural(refused, 'object')}; get the rights and run it again, which removes the rest"
        )
    if lasting:
        raise Unreachable(
            f"not gone yet: {plural(lasting, 'object')}; what is named above keeps them, and they go without it"
        )
    return 1 if again else 0


async def _let_go(letting: Awaitable[int], what: str, done: str) -> None:
    """Have ``letting`` done, which nobody does once the guard is gone, and say what it gave. Raises Unreachable."""
    from webhook.cluster.api import ApiError

    try:
        count = await letting
    except ApiError as error:
        raise Unreachable(
            f"not every {what} is {done}: the API server refuses: {error}; what is not removed yet stays, get the "
            "rights and run it again"
        ) from error
    if count:
        out(f"{plural(count, what)} {done}")


def _registers(obj: Json) -> bool:
    """Whether it is a part of the registration, or the right to make it."""
    return obj["kind"].endswith("WebhookConfiguration") or _identity(obj) == _RIGHT


def _of_users(obj: Json) -> bool:
    """Whether it is the definition of something that users write. Ledgers are the guard's own, and go with theirs."""
    return obj["kind"] == _DEFINITION and not obj["metadata"]["name"].startswith("nodeledgers.")


def _identity(obj: Json) -> tuple[str, str]:
    return obj["kind"], obj["metadata"]["name"]


async def _removed(api: Api, obj: Json) -> bool:
    """Delete it unless something that is not ours would go with it; whether that was done."""
    from webhook.registration.manifests import ours

    if _of_users(obj) and (kept := await _instances(api, obj)):
        note(f"{title(obj)} stays with {kept}; delete it when its objects may go too")
        return False
    if obj["kind"] == "Namespace" and (there := await found(api, obj)) and not ours(there):
        note(f"{title(obj)} was there before and stays")
        return False
    return await _deleted(api, obj)


async def _deleted(api: Api, obj: Json) -> bool:
    """Delete it; whether it was there."""
    from webhook.cluster.api import ApiError
    from webhook.registration.manifests import path

    try:
        await patiently(partial(api.delete, path(obj)))
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return False
    return True


async def _gone(api: Api, obj: Json) -> None:
    """Return once it is no longer there; another of its name that was made meanwhile is not waited for."""
    from webhook.cluster.api import ApiError

    seen: Json = {}
    async with waiting(f"{title(obj)} to be gone", lambda: _keeps(seen)):
        try:
            while (seen := await found(api, obj) or {}) and seen["metadata"].get("deletionTimestamp"):
                await asyncio.sleep(EVERY)
        except ApiError as error:
            raise Unreachable(f"{title(obj)}: whether it is gone cannot be seen: {error}") from error


def _keeps(obj: Json) -> str:
    """What keeps an object that is being deleted: what its conditions say, or its finalizers."""
    from webhook.kube.raw import mapping, members, sequence, text

    conditions = members(mapping(obj.get("status")).get("conditions"))
    ending = [
        each for each in conditions if text(each.get("type")).startswith(_ENDING) and each.get("status") == "True"
    ]
    told = [text(each.get("message")) for each in ending]
    finalizers = [str(each) for each in sequence(mapping(obj.get("metadata")).get("finalizers"))]
    told += [f"it has the finalizer {each}" for each in finalizers]
    return "; ".join(told)


async def _instances(api: Api, definition: Json) -> str:
    """What would go with a definition, as "2 objects"; empty where that is nothing. Objects are there in whatever
    version is served, and also where none is.
    """
    from webhook.kube.raw import mapping, members, text

    there = mapping(mapping(await found(api, definition)).get("spec"))
    if not there:
        return ""
    served = [text(each.get("name")) for each in members(there.get("versions")) if each.get("served")]
    if not served:
        return "objects that cannot be counted: none of its versions is served"
    where = f"/apis/{there['group']}/{served[0]}/{mapping(there.get('names')).get('plural')}"
    listed = await patiently(partial(api.get, where))
    count = len(members(listed.get("items")))
    return plural(count, "object") if count else ""


def _reference(obj: Json) -> Json:
    metadata = {key: obj["metadata"][key] for key in ("namespace", "name") if key in obj["metadata"]}
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": metadata}
