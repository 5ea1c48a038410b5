"""Which drivers the registration lists: those whose writes wait for us, and fail, while we are away."""

from __future__ import annotations

from webhook.kube.raw import Json, mapping, text
from webhook.kube.snapshot import Snapshot
from webhook.registration.configurations import DRIVERS


def listed_drivers(snapshot: Snapshot, registered: frozenset[str]) -> frozenset[str]:
    """The drivers with a DriverRollout, those whose slices have a mapping, and those that were ``registered`` before
    and still have slices or allocated devices: a driver that lost its mappings is the one to look at.
    """
    found = {*snapshot.rollouts, *snapshot.mapped_slices}
    left = {name for name in registered - found if name not in snapshot.driver_slices}
    # Only for them the many pools of claims are gone through.
    held = {driver for driver, _ in snapshot.pool_claims if driver in left} if left else set()
    return frozenset(name for name in found | (registered - left) | held if name)


def registered_drivers(configuration: Json | None) -> frozenset[str]:
    """The drivers that a stored validating configuration was made for."""
    annotations = mapping(mapping(mapping(configuration).get("metadata")).get("annotations"))
    return frozenset(name for name in text(annotations.get(DRIVERS)).split(",") if name)
