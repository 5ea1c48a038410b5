"""Objects as they are stored, whole, page by page: for what is judged once and not kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from http import HTTPStatus

from webhook.cluster.api import Api, ApiError
from webhook.cluster.kinds import KINDS, Kind
from webhook.kube.raw import Json, mapping, members, text
from webhook.kube.rbac import BINDINGS, ROLES
from webhook.kube.snapshot import Snapshot

# What policies judge at rest. Of a node they judge who changed its labels, which no stored object tells; whether a
# policy compiles, its condition Ready does.
_NAMES = (
    "ResourceSlice",
    "ResourceClaim",
    "ResourceClaimTemplate",
    "DeviceClass",
    "Pod",
    "DriverRollout",
    *ROLES,
    *BINDINGS,
)
JUDGED = tuple(kind for name in _NAMES for kind in KINDS if kind.name == name)


async def pages(api: Api, kind: Kind) -> AsyncIterator[list[Json]]:
    """All objects of ``kind``, as many at once as a page has; none where the server has no such kind, or nobody may
    read an optional one. Raises ApiError and Unreachable.
    """
    try:
        async for page in listed(api, kind.path, limit=kind.page, fieldSelector=kind.fields):
            # The objects of a list do not say what they are.
            yield [{**obj, "apiVersion": kind.api_version, "kind": kind.name} for obj in page]
    except ApiError as error:
        if not kind.optional or error.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN):
            raise


async def listed(api: Api, path: str, **query: str | int | None) -> AsyncIterator[list[Json]]:
    """The list at ``path``, page by page. Whoever takes longer than the server remembers the beginning gets the rest as
    it is then. Raises ApiError and Unreachable.
    """
    token: str | None = None
    while True:
        try:
            page = await api.get(path, **query, **{"continue": token})
        except ApiError as error:
            if error.status == HTTPStatus.GONE and error.resume not in ("", token):
                token = error.resume
                continue
            raise
        yield members(page.get("items"))
        token = text(mapping(page.get("metadata")).get("continue")) or None
        if token is None:
            return


def seen(obj: Json, snapshot: Snapshot) -> bool:
    """Whether ``snapshot`` has ``obj`` in this very version, as far as it keeps versions of its kind: those of slices
    and claims.
    """
    metadata = mapping(obj.get("metadata"))
    name, version = text(metadata.get("name")), text(metadata.get("resourceVersion"))
    match obj.get("kind"):
        case "ResourceSlice":
            item = snapshot.slices.get(name)
            return item is not None and item.resource_version == version
        case "ResourceClaim":
            claim = snapshot.claims.get((text(metadata.get("namespace")), name))
            return claim is not None and claim.resource_version == version
    return True
