"""Where things are: the slice that offers an allocated device, and the node an allocation is on."""

from __future__ import annotations

from collections.abc import Iterator

from webhook.facts.matching import device_applies
from webhook.facts.pool_survey import survey, view
from webhook.kube.claims import Claim, Result
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
        if item.pool == result.pool and item.driver != result.driver and result.device in survey((item,)).devices:
            for device in item.devices:
                if device.name == result.device:
                    yield item, device


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


def claim_node(claim: Claim, snapshot: Snapshot) -> str:
    """The node a claim is allocated on: the one its allocation names, else the one node of its devices' slices, else
    the one node of the pods it is reserved for; empty when it is not allocated or on no one node.
    """
    allocation = claim.allocation
    if allocation is None:
        return ""
    if allocation.node:
        return allocation.node
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
    if not nodes:
        nodes = {pod.node for pod in consumers(claim, snapshot) if pod.node and not pod.terminal}
    return nodes.pop() if len(nodes) == 1 else ""
