"""Tries whether the API server keeps what devices cost their nodes: a slice is written as a dry run and comes back.

For where its metrics cannot be read, and for replicas that differ. It takes the right to create ResourceSlices, which
the guard has by a component of its own only; without it nothing is tried, and nothing is wrong.
"""

from __future__ import annotations

from http import HTTPStatus

from webhook.cluster.api import Api, ApiError, Unreachable
from webhook.kube.raw import Json, mapping, sequence
from webhook.kube.release import NODE_ALLOCATABLE
from webhook.kube.resource import FIELD_136, FIELD_137, device_fields

# Seconds between two tries, and after one that was refused for want of the right.
EVERY, REFUSED = 60.0, 600.0
PATH = "/apis/resource.k8s.io/v1/resourceslices"
DRIVER = "gate-probe.allocguard.dev"


class GateProbe:
    """Tries it from time to time. ``kept`` is what came of the last try: None where it told nothing."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._next = 0.0
        self.kept: bool | None = None

    async def look(self, minor: int, at: float) -> None:
        """Try it on a server of release 1.``minor``, if it is time for that at ``at`` (monotonic)."""
        if at < self._next:
            return
        self._next = at + EVERY
        try:
            made = await self._api.create(PATH, probe(minor), dryRun="All")
        except ApiError as error:
            # Admission of 1.37 looks at costs that are still there, and only where the gate is on.
            self.kept = True if NODE_ALLOCATABLE in error.message else None
            if error.status == HTTPStatus.FORBIDDEN and self.kept is None:
                self._next = at + REFUSED
        except Unreachable:
            self.kept = None
        else:
            self.kept = _costs(made)


def probe(minor: int) -> Json:
    """A slice for no node, whose device costs a cpu in the words of release 1.``minor``."""
    cost: Json = {FIELD_136: {"cpu": {"allocationMultiplier": "1"}}}
    if minor >= 37:
        cost = {FIELD_137: {"cpu": {"mapping": {"deviceMultiplier": "1"}}}}
    nowhere = {"key": DRIVER, "operator": "In", "values": ["nowhere"]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": DRIVER},
        "spec": {
            "driver": DRIVER,
            "pool": {"name": "probe", "generation": 1, "resourceSliceCount": 1},
            "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [nowhere]}]},
            "devices": [{"name": "probe", **cost}],
        },
    }


def _costs(made: Json) -> bool:
    devices = map(device_fields, sequence(mapping(made.get("spec")).get("devices")))
    return any(fields.get(FIELD_136) or fields.get(FIELD_137) for fields in devices)
