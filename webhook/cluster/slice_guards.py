"""What keeps accounts to slices of their own, as the API server has it at this moment."""

from __future__ import annotations

from http import HTTPStatus
from typing import Protocol

from webhook.cluster.api import ApiError
from webhook.kube.raw import Json, members
from webhook.policy.revision import Revision
from webhook.registration.configurations import API_VERSION, NAME, VALIDATING
from webhook.registration.slice_guards import BINDING, POLICY, SliceGuards, slice_guards

_PATH = f"/apis/{API_VERSION}"
_PLURALS = {POLICY: "validatingadmissionpolicies", BINDING: "validatingadmissionpolicybindings"}


class Server(Protocol):
    """What is used of the API server."""

    async def get(self, path: str, **params: object) -> Json:
        """GET."""


async def read_slice_guards(api: Server, revision: Revision) -> SliceGuards:
    """The guards of the cluster, with ``revision`` as what we serve; a registration in files of the API servers is not
    seen. Raises ApiError and Unreachable.
    """
    objects: list[Json] = []
    for kind, plural in _PLURALS.items():
        listed = await api.get(f"{_PATH}/{plural}")
        objects += [{**each, "kind": kind} for each in members(listed.get("items"))]
    try:
        ours = await api.get(f"{_PATH}/{VALIDATING.lower()}s/{NAME}")
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
    else:
        objects.append({**ours, "kind": VALIDATING})
    return slice_guards(objects, revision)
