"""Whether the feature gate is on in the API server, the scheduler and the kubelets, as far as each of them shows it.

A gate is each component's own. Off in the API server, mappings are dropped without a word; off in the scheduler, pods
are bound uncounted; off in a kubelet, nothing is checked there, and 1.37 admits no mapping for its node.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest

from msgspec import Struct

from webhook.facts.coverage import slice_nodes
from webhook.facts.footprint import footprint
from webhook.facts.placement import claim_node, consumers
from webhook.facts.rollout import qualifies
from webhook.kube.claims import Claim
from webhook.kube.core import Node
from webhook.kube.release import NODE_ALLOCATABLE
from webhook.kube.snapshot import Snapshot

API_SERVER, SCHEDULER, KUBELETS = "kube-apiserver", "kube-scheduler", "kubelet"
COMPONENTS = (API_SERVER, SCHEDULER, KUBELETS)
# Of the newest allocations so many are looked at: what the scheduler did long ago says nothing about it now.
_NEWEST = 64


class Component(Struct, frozen=True):
    """One component: ``on`` None where nothing tells, ``how`` is what it is known by, or why it is not."""

    name: str
    on: bool | None
    how: str

    @property
    def state(self) -> str:
        """``on``, ``off`` or ``unknown``."""
        return "unknown" if self.on is None else "on" if self.on else "off"


class GateEvidence(Struct, frozen=True):
    """What was tried and seen beside the snapshot: ``probe`` is whether a dry-run write of a slice kept what its device
    costs, ``carried`` whether slices are stored as their writers sent them, which ``slice`` is an example of; None
    where that is not known.
    """

    probe: bool | None = None
    carried: bool | None = None
    slice: str = ""


def gate_state(snapshot: Snapshot, evidence: GateEvidence) -> tuple[Component, ...]:
    """API server, scheduler and kubelets, in this order."""
    server = _api_server(snapshot, evidence)
    return server, _scheduler(snapshot, server), _kubelets(snapshot)


def gate_differs(components: Iterable[Component]) -> str:
    """What is to be said where the gate is on in one component and off in another; empty where it is not."""
    on = [each.name for each in components if each.on]
    off = [each for each in components if each.on is False]
    if not on or not off:
        return ""
    listed = " and ".join(f"{each.name} ({each.how})" for each in off)
    return f"{NODE_ALLOCATABLE} on in {' and '.join(on)}, off in {listed}"


def _api_server(snapshot: Snapshot, evidence: GateEvidence) -> Component:
    kept = "with" if evidence.carried else "without"
    told = {
        "its metrics": snapshot.release.gates.get(NODE_ALLOCATABLE),
        "a dry-run write of a slice": evidence.probe,
        f"slice {evidence.slice}, stored {kept} the costs that were sent": evidence.carried,
    }
    on = [source for source, value in told.items() if value is True]
    off = [source for source, value in told.items() if value is False]
    if on and off:
        how = f"off by {' and '.join(off)}, on by {' and '.join(on)}: replicas differ, or it was just restarted"
        return Component(API_SERVER, False, how)
    if not on and not off:
        return Component(API_SERVER, None, "its metrics cannot be read, and nothing was written that would tell")
    return Component(API_SERVER, bool(on), f"by {' and '.join(on or off)}")


def _scheduler(snapshot: Snapshot, server: Component) -> Component:
    """By the newest pod that was bound with a claim that costs something: the scheduler writes an entry for it, which
    an API server whose own gate is off drops.
    """
    if server.on is False:
        return Component(SCHEDULER, None, f"the gate is off in {API_SERVER}, which drops what a scheduler writes")
    for claim in nlargest(_NEWEST, _allocated(snapshot), key=_when):
        for pod in consumers(claim, snapshot):
            if not pod.node or not footprint(claim, snapshot, claim_node(claim, snapshot)).mapped:
                continue
            if any(entry.claim == claim.name for entry in pod.entries):
                return Component(SCHEDULER, True, f"by pod {pod.key}, bound with an entry for claim {claim.name}")
            return Component(SCHEDULER, False, f"by pod {pod.key}, bound without an entry for claim {claim.name}")
    return Component(SCHEDULER, None, "no pod with a claim that costs something is bound yet")


def _allocated(snapshot: Snapshot) -> Iterable[Claim]:
    for (driver, _), claims in snapshot.pool_claims.items():
        if driver in snapshot.mapped_slices:
            yield from claims


def _when(claim: Claim) -> tuple[str, str]:
    return (claim.allocation.timestamp if claim.allocation is not None else "", claim.key)


def _kubelets(snapshot: Snapshot) -> Component:
    """By what the nodes declare that mappings are for: those of every stage under way, and those that have some."""
    if snapshot.release.minor < 37:
        return Component(KUBELETS, None, "kubelets before 1.37 do not tell")
    nodes = _concerned(snapshot)
    if not nodes:
        return Component(KUBELETS, None, "no node has mappings, or is to have some")
    lacking = sorted(node.name for node in nodes if NODE_ALLOCATABLE not in node.declared)
    if not lacking:
        return Component(KUBELETS, True, f"declared by {_count(len(nodes))}")
    named = ", ".join(lacking[:3]) + (f" and {len(lacking) - 3} more" if len(lacking) > 3 else "")
    return Component(KUBELETS, False, f"not declared by {len(lacking)} of {_count(len(nodes))}: {named}")


def _concerned(snapshot: Snapshot) -> list[Node]:
    """The nodes that some stage is about, and those with mappings, in no order."""
    under_way = [each for each in snapshot.rollouts.values() if each.stage in ("Canary", "Expanding")]
    general = {each.driver for each in snapshot.rollouts.values() if each.stage == "General"} & {
        *snapshot.mapped_slices
    }
    found = {
        node.name: node
        for node in snapshot.nodes.values()
        if any(item.mapped or item.driver in general for item in snapshot.node_slices.get(node.name, ()))
        or any(qualifies(rollout, node) for rollout in under_way)
    }
    for driver in general:
        for name in snapshot.free_slices.get(driver, ()):
            found.update((node.name, node) for node in slice_nodes(snapshot.slices[name], snapshot))
    return [*found.values()]


def _count(number: int) -> str:
    return f"{number} node{'s' if number != 1 else ''}"
