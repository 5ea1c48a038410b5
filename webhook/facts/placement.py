"""Where things are: the slice that offers an allocated device, and the node an allocation is on."""

from __future__ import annotations

from collections.abc import Iterator

from webhook.facts.matching import device_applies
from webhook.facts.pool_survey import survey, view
from webhook.kube.claims import Allocation, Claim, Result
from webhook.kube.core import Pod
from webhook.kube.raw import text
from webhook.kube.resource import Device, Slice
from webhook.kube.snapshot import Snapshot


def offers(item: Slice, device: Device) -> str:
    """The one node that ``device`` of the slice belongs to, empty where that is not one named node."""
    return item.node or text(device.nodes.get("nodeName"))


def find_device(snapshot: Snapshot, result: Result, node: str) -> tuple[Slice, Device] | None:
    """The slice and device that ``result`` names, None when no slice has it.

    The rule of the 1.37 scheduler: driver, pool and device name must match, only slices that apply to ``node``
    (empty: any) count; of those the current generation comes first.
    """
    seen = view(snapshot, result.driver, result.pool, node or None)
    for slices in (seen.kept, *((item,) for item in sorted(seen.older, key=_newest_first))):
        found = survey(slices).devices.get(result.device)
        # A node that is not known cannot rule a device out.
        if found is not None and not (node and device_applies(*found, node, snapshot) is False):
            return found
    return None


def _newest_first(item: Slice) -> tuple[int, str]:
    return -item.generation, item.name


def namesakes(snapshot: Snapshot, result: Result, node: str) -> Iterator[tuple[Slice, Device]]:
    """Devices of **other** drivers on ``node`` with the same pool and device name: the 1.36 scheduler, which does not
    compare drivers, may take one of them for the device of ``result``.
    """
    for item in snapshot.node_slices.get(node, ()):
        if item.pool == result.pool and item.driver != result.driver:
            # No survey: what is remembered of pools would be pushed out by those that nobody allocates from.
            yield from [(item, device) for device in item.devices if device.name == result.device]


def consumers(claim: Claim, snapshot: Snapshot) -> list[Pod]:
    """The pods in the claim's ``reservedFor`` that are known, matched by UID (by name only where one has no UID)."""
    found: list[Pod] = []
    for consumer in claim.reserved_for:
        if not consumer.is_pod:
            continue
        pod = snapshot.pods_by_uid.get(consumer.uid) if consumer.uid else None
        if pod is None:
            named = snapshot.pods.get((claim.namespace, consumer.name))
            pod = named if named is not None and not (named.uid and consumer.uid) else None
        if pod is not None and pod.namespace == claim.namespace:
            found.append(pod)
    return found


def destination(pod: Pod) -> str:
    """The node of a pod: where it is bound, else where its scheduler says that it goes (``nominatedNodeName``, which it
    writes before it allocates anything); may be empty.
    """
    return pod.node or pod.nominated


def claim_node(claim: Claim, snapshot: Snapshot, consumer: Pod | None = None) -> str:
    """The node a claim is allocated on: the one its allocation names, else the one node of its devices' slices, else
    that of ``consumer``, or of the first pod using it that has one (a claim that :func:`roams`); empty when it is not
    allocated or nothing tells.
    """
    if claim.allocation is None:
        return ""
    if claim.allocation.node:
        return claim.allocation.node
    nodes = _device_nodes(claim.allocation, snapshot)
    if nodes:
        return nodes.pop() if len(nodes) == 1 else ""
    pods = _users(claim, snapshot) if consumer is None else (consumer,)
    return next((name for name in map(destination, pods) if name), "")


def _users(claim: Claim, snapshot: Snapshot) -> Iterator[Pod]:
    """The pods that have not ended, for which the claim is reserved and which name it: who writes a claim's status may
    reserve it for any pod.
    """
    for pod in consumers(claim, snapshot):
        if not pod.terminal and claim.name in pod.claim_names.values():
            yield pod


def roams(claim: Claim, snapshot: Snapshot) -> bool:
    """Whether the claim is allocated and neither that nor its devices name a node (network-attached devices, pools that
    choose nodes by labels): its mapping is charged where its pod is, overhead where each of its pods is.
    """
    allocation = claim.allocation
    return allocation is not None and not allocation.node and not _device_nodes(allocation, snapshot)


def moved(claim: Claim, node: str, snapshot: Snapshot) -> bool:
    """Whether a claim that :func:`roams` is charged on another node than ``node`` by now: its pod is bound there."""
    bound = next((pod.node for pod in _users(claim, snapshot) if pod.node), node)
    return bound != node and roams(claim, snapshot)


def _device_nodes(allocation: Allocation, snapshot: Snapshot) -> set[str]:
    """The nodes that devices of the allocation belong to, each to one."""
    nodes: set[str] = set()
    for result in allocation.results:
        named = {
            offers(item, device)
            for item in snapshot.pools.get((result.driver, result.pool), ())
            for device in item.devices
            if device.name == result.device
        }
        if len(named) == 1:
            nodes |= named
    nodes.discard("")
    return nodes
