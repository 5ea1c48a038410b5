"""Who may change what in the status of a ResourceClaim: a driver what it tells of its devices, allocators the rest.

The API server asks for permissions (``resourceclaims/binding``, ``resourceclaims/driver``) where its release and gates
do, and by what the roles say; here the named writers count, whatever their roles let them do.
"""

from __future__ import annotations

from webhook.facts.claim_changes import Changes, allocated_drivers, allocated_node, claim_changes
from webhook.facts.drivers import claim_drivers
from webhook.facts.writers import CLAIM_CONTROLLERS, Writer, listed
from webhook.kube.claims import read_claim
from webhook.kube.finding import Finding, Severity
from webhook.kube.raw import Json, mapping
from webhook.kube.rollout import SEVERAL_NODES
from webhook.kube.snapshot import Snapshot

_DEVICES, _ALLOCATION, _RESERVED = "status.devices", "status.allocation", "status.reservedFor"


def claim_writer_problems(writer: Writer, old: Json, new: Json, snapshot: Snapshot) -> list[Finding]:
    """What a write changes in the status of a raw claim and is not this writer's to change.

    Of drivers whose writers are named (DriverRollout, params), errors. Device statuses: ``status-devices-other-node``,
    ``-several-nodes`` and ``-without-node`` for an account that writes for its node only, ``-other-driver``,
    ``-unallocated`` and ``-by-stranger``. ``allocation-by-stranger`` and ``reserved-for-by-stranger`` for whoever
    neither schedules nor allocates all devices of the claim; the claim controller may clear and release. Statuses that
    go with their allocation belong to its change. Of other drivers warnings: ``status-devices-other-node`` for whoever
    is on another node, and the two about allocations for whoever allocates for no driver at all.
    """
    if writer.exempt:
        return []
    changes = claim_changes(old, new)
    found = [_status_problem(writer, driver, new, snapshot) for driver in changes.drivers]
    found += _binding_problems(writer, changes, old, new, snapshot)
    return [each for each in found if each is not None]


def _status_problem(writer: Writer, driver: str, new: Json, snapshot: Snapshot) -> Finding | None:
    """What is wrong with ``writer`` changing statuses of devices of ``driver``."""
    named = writer.named(driver, snapshot)
    by = f"a status of {driver}, by {writer.shown}"
    if not named:
        return _of_other_node(writer, driver, by, allocated_node(new), "warning")
    if mapping(new.get("status")).get("allocation") is None:
        needs = "an allocation: there is no device to tell about"
        return Finding("status-devices-unallocated", _DEVICES, f"{by}, of a claim without allocation", needs)
    profile = writer.profiles.get(driver)
    if profile in SEVERAL_NODES:
        return None
    if profile is not None and profile != "Allocator":
        return _node_local(writer, driver, by, allocated_node(new))
    needs = f"one of the driver's writers: {listed(named)}"
    if profile is None and writer.profiles:
        has = f"{by}, which writes for {', '.join(sorted(writer.profiles))}"
        return Finding("status-devices-other-driver", _DEVICES, has, needs)
    has = f"{by}, which has profile Allocator" if profile else by
    return Finding("status-devices-by-stranger", _DEVICES, has, needs)


def _node_local(writer: Writer, driver: str, by: str, node: str) -> Finding | None:
    if not node:
        has = f"{by}, of an allocation that names no single node"
        fix = f"leave it to a writer of {driver} with profile MultiNode"
        return Finding("status-devices-several-nodes", _DEVICES, has, "an allocation to the writer's own node", fix)
    if not writer.node:
        has, needs = f"{by}, {writer.without_node}", f"a writer on node {node}"
        return Finding("status-devices-without-node", _DEVICES, has, needs, writer.node_fix)
    return _of_other_node(writer, driver, by, node, "error")


def _of_other_node(writer: Writer, driver: str, by: str, node: str, severity: Severity) -> Finding | None:
    if not writer.node or not node or writer.node == node:
        return None
    has = f"{by} on node {writer.node}, of an allocation to node {node}"
    if severity == "warning":
        fix = f"name the writers of {driver} in its DriverRollout"
        return Finding("status-devices-other-node", _DEVICES, has, f"a writer on node {node}", fix, severity)
    return Finding("status-devices-other-node", _DEVICES, has, f"the driver's writer on node {node}")


def _binding_problems(writer: Writer, changes: Changes, old: Json, new: Json, snapshot: Snapshot) -> list[Finding]:
    if not (changes.allocation or changes.reserved_for) or writer.allocates:
        return []
    # An allocation of no devices keeps them from the claim all the same.
    held = allocated_drivers(old) | allocated_drivers(new)
    drivers = sorted(held or claim_drivers(read_claim(new), snapshot))
    barred = [name for name in drivers if writer.profiles.get(name) != "Allocator" and writer.named(name, snapshot)]
    severity: Severity = "error"
    if barred:
        needs = f"a scheduler, or an account with profile Allocator for {barred[0]}"
        fix = f"name it in params.schedulers or params.allocators, or in spec.writers of DriverRollout {barred[0]}"
    elif drivers and "Allocator" not in writer.profiles.values():
        # Nobody said who else allocates.
        barred, severity, needs = drivers, "warning", "a scheduler or another allocator"
        fix = "name it in params.schedulers or params.allocators where it is one"
    else:
        return []
    by = f"devices of {', '.join(barred)}, by {writer.shown}"
    controls = writer.kind in CLAIM_CONTROLLERS
    found = []
    after = mapping(new.get("status")).get("allocation")
    if changes.allocation and not (controls and after is None):
        what = "cleared" if after is None else "set"
        found.append(
            Finding("allocation-by-stranger", _ALLOCATION, f"an allocation {what}, of {by}", needs, fix, severity)
        )
    if changes.reserved_for and not controls:
        found.append(Finding("reserved-for-by-stranger", _RESERVED, f"other consumers of {by}", needs, fix, severity))
    return found
