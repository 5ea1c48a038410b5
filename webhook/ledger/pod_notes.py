"""Notes on how pods use their claims: nothing disagrees with the book, and somebody may want to know."""

from __future__ import annotations

from collections.abc import Iterable

from webhook.facts.account import add
from webhook.facts.footprint import footprint
from webhook.facts.placement import find_device
from webhook.facts.pods import pod_claims, reserved_to
from webhook.facts.zones import device_zone
from webhook.kube.claims import Claim
from webhook.kube.core import Container, Pod
from webhook.kube.finding import Finding
from webhook.kube.quantity import Number
from webhook.kube.snapshot import Snapshot
from webhook.ledger.charges import Difference
from webhook.ledger.differences import said

_MOST_NAMES = 3


def pod_notes(node: str, snapshot: Snapshot) -> list[Difference]:
    """About the pods on ``node``, one note for all that it concerns.

    ``cpus-apart``: whole CPUs of their own beside devices of one NUMA zone, on a node of several.
    ``init-only-overhead``: 1.37 overhead of claims that init containers alone use, which stays with the pod.
    """
    apart: list[str] = []
    early: list[str] = []
    total: dict[str, Number] = {}
    for pod in snapshot.node_pods.get(node, ()):
        if pod.terminal or not pod.claims:
            continue
        claims = [(local, claim) for local, claim in pod_claims(pod, snapshot) if reserved_to(pod, claim)]
        if _pinned(pod) and (zone := _one_zone(node, (claim for _, claim in claims), snapshot)) is not None:
            apart.append(f"{pod.key}, zone {zone}")
        overhead = _early(pod, claims, snapshot)
        if overhead:
            early.append(pod.key)
            add(total, overhead)
    found: list[Finding] = []
    if apart and _zones(node, snapshot) > 1:
        found.append(
            Finding(
                "cpus-apart",
                "pods",
                f"CPUs of their own beside devices of one NUMA zone: {_listed(apart)}",
                "CPUs of that zone; the kubelet gets no hint from claims and may pin elsewhere",
                "ask for the CPUs as devices too, in one claim with matchAttribute on the NUMA attribute",
                "info",
            )
        )
    if early:
        found.append(
            Finding(
                "init-only-overhead",
                "pods",
                f"{said(total)} of overhead for claims that init containers alone use: {_listed(early)}",
                "no room for it once they have ended; it stays charged with the pod, as the scheduler counts it",
                "prepare in a pod of its own, if the node needs the room",
                "info",
            )
        )
    return [Difference("surplus", "v1", "Node", "", node, finding) for finding in found]


def _zones(node: str, snapshot: Snapshot) -> int:
    """How many NUMA zones of the node are known of."""
    topology = snapshot.topologies.get(node)
    if topology is not None and topology.zones:
        return len(topology.zones)
    zones = {
        device_zone(device, item.driver, snapshot.rollouts.get(item.driver))
        for item in snapshot.node_slices.get(node, ())
        for device in item.devices
    }
    return len(zones - {None})


def _pinned(pod: Pod) -> bool:
    """Whether a kubelet that pins CPUs pins some for the pod: QoS Guaranteed, and a container with whole CPUs."""
    everyone = (*pod.containers, *pod.init_containers)
    return all(map(_guaranteed, everyone)) and any(
        cpu == int(cpu) for container in pod.containers for cpu in [container.requests["cpu"]]
    )


def _guaranteed(container: Container) -> bool:
    return all(
        container.limits.get(name, 0) > 0 and container.requests.get(name) == container.limits[name]
        for name in ("cpu", "memory")
    )


def _one_zone(node: str, claims: Iterable[Claim], snapshot: Snapshot) -> int | None:
    """The one zone of the devices of ``claims``, as far as it is known of them; None when they are of several."""
    zones: set[int | None] = set()
    for claim in claims:
        for result in claim.allocation.results if claim.allocation is not None else ():
            found = find_device(snapshot, result, node)
            zones.add(device_zone(found[1], result.driver, snapshot.rollouts.get(result.driver)) if found else None)
    known = zones - {None}
    return known.pop() if len(known) == 1 else None


def _early(pod: Pod, claims: Iterable[tuple[str, Claim]], snapshot: Snapshot) -> dict[str, Number]:
    """The overhead of those of the pod's claims that init containers alone use, sidecars not among them."""
    ending = {container.name for container in pod.init_containers if not container.sidecar}
    total: dict[str, Number] = {}
    for local, claim in claims:
        users = pod.users(local)
        if users and ending.issuperset(users):
            add(total, footprint(claim, snapshot, pod.node).overhead(len(users)))
    return total


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"{'; '.join(sorted(names)[:_MOST_NAMES])}{more}"
