"""``allocguard uninstall``: removes what ``install`` made, in an order in which nothing is left standing in the way."""

from __future__ import annotations

import asyncio
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

import click

from webhook.cli.console import note, out
from webhook.cli.deploying import (
    EVERY,
    connected,
    files,
    found,
    namespace_option,
    patiently,
    printed,
    show,
    title,
    waiting,
)
from webhook.cli.options import live_options

if TYPE_CHECKING:
    from webhook.cluster.api import Api
    from webhook.kube.raw import Json


_DEFINITION = "CustomResourceDefinition"


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
    """Remove what `install` made, the registration first.

    The definitions of policies and rollouts stay while there are objects of them. Exit code 1: a server that runs
    elsewhere registered itself again.
    """
    from webhook.registration.manifests import Target, manifests

    objects = _removal(manifests(files(), Target(namespace=namespace)), namespace)
    if apply:
        return connected(kubeconfig, context, lambda api: _remove(api, objects))
    show([_reference(obj) for obj in objects if obj["kind"] != _DEFINITION], output)
    note("the two definitions are not listed: policies and rollouts would go with them")
    return 0


def _removal(objects: list[Json], namespace: str) -> list[Json]:
    """In the order of removal: who would put the registration back loses the right to, the registration goes while the
    guard still answers, then everything else, the last applied first.
    """
    from webhook.registration.configurations import NAME
    from webhook.registration.manifests import made_by_it

    right = ("ClusterRoleBinding", f"{NAME}-registration")
    first = [obj for obj in objects if (obj["kind"], obj["metadata"]["name"]) == right]
    *rest, last = (obj for obj in reversed(objects) if obj not in first)
    registration, kept = made_by_it(namespace)
    return [*first, *registration, *rest, *kept, last]


async def _remove(api: Api, objects: list[Json]) -> int:
    from webhook.registration.manifests import ours

    ending = []
    for obj in objects:
        if obj["kind"] == _DEFINITION and (kept := await _instances(api, obj)):
            note(f"{title(obj)} stays with {kept} objects; delete it when they may go too")
        elif obj["kind"] == "Namespace" and (there := await found(api, obj)) and not ours(there):
            note(f"{title(obj)} was there before and stays")
        elif await _deleted(api, obj):
            out(f"{title(obj)} removed")
            ending.append(obj)
    for obj in ending:
        async with waiting(f"{title(obj)} to be gone"):
            await _gone(api, obj)
    again = [obj for obj in objects if obj["kind"].endswith("WebhookConfiguration") and await _deleted(api, obj)]
    for obj in again:
        note(f"{title(obj)} was there again, and is removed again; stop the server that makes it")
    return 1 if again else 0


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
    while (there := await found(api, obj)) and there["metadata"].get("deletionTimestamp"):
        await asyncio.sleep(EVERY)


async def _instances(api: Api, definition: Json) -> int:
    from webhook.cluster.api import ApiError
    from webhook.kube.raw import members
    from webhook.kube.rollout import API_VERSION

    where = f"/apis/{API_VERSION}/{definition['spec']['names']['plural']}"
    try:
        listed = await patiently(partial(api.get, where))
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return 0
    return len(members(listed.get("items")))


def _reference(obj: Json) -> Json:
    metadata = {key: obj["metadata"][key] for key in ("namespace", "name") if key in obj["metadata"]}
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": metadata}
