"""Inventory: what a node says that it has, beside what drivers publish of it. Neither is wrong; they disagree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from webhook.facts.account import add
from webhook.facts.slice_sums import most_together
from webhook.facts.zones import current
from webhook.kube.core import Node
from webhook.kube.finding import Finding
from webhook.kube.quantity import Number, of_resource
from webhook.kube.resource import Slice
from webhook.kube.snapshot import Snapshot
from webhook.ledger.charges import Charge, Difference

_CPU = "cpu"


def inventory(node: str, charges: Iterable[Charge], snapshot: Snapshot) -> list[Difference]:
    """What drivers publish on ``node`` otherwise than the node does; ``charges`` are those of the node.

    ``published-below-allocatable``: a driver gives away most of the node's CPUs as devices, and not all of them; a
    warning once claims have all that it gives away, while other pods ask for some. ``double-inventory``: a device
    plugin and a driver of the same vendor have as many devices each.
    """
    known = snapshot.nodes.get(node)
    if known is None:
        return []
    drivers: dict[str, list[Slice]] = {}
    for item in current(snapshot.node_slices.get(node, ())):
        drivers.setdefault(item.driver, []).append(item)
    taken: dict[str, Number] = {}
    for charge in charges:
        if charge.key.resource == _CPU:
            add(taken, {charge.key.driver: charge.amount})
    found: list[Finding] = []
    for driver, slices in sorted(drivers.items()):
        found += _below(known, driver, slices, taken.get(driver, 0), snapshot)
        found += _twice(known, driver, slices)
    return [Difference("amount", "v1", "Node", "", node, finding) for finding in found]


def _below(node: Node, driver: str, slices: list[Slice], taken: Number, snapshot: Snapshot) -> Iterator[Finding]:
    pools: dict[str, list[Slice]] = {}
    for item in slices:
        if item.mapped:
            pools.setdefault(item.pool, []).append(item)
    published = sum((most_together(pool).get(_CPU, 0) for pool in pools.values()), 0)
    allocatable = node.allocatable.get(_CPU, 0)
    # Whose devices cost the smaller part of the CPUs gives away something else, and costs CPUs beside it.
    if not published < allocatable < 2 * published:
        return
    others = [
        pod.key
        for pod in snapshot.node_pods.get(node.name, ())
        if not pod.terminal and any(container.requests.get(_CPU) for container in pod.containers)
    ]
    short = taken >= published and bool(others)
    left = f"; claims have all of these, and pods that ask for cpu themselves none ({min(others)})" if short else ""
    yield Finding(
        "published-below-allocatable",
        f"status.allocatable[{_CPU}]",
        f"{of_resource(_CPU, allocatable)} cpu, of which {driver} publishes {of_resource(_CPU, published)}{left}",
        "one number: a driver that pins has no other CPUs for the containers that share",
        "reserve the same CPUs in kubelet and driver, or keep a headroom of cpu free (claim-allocation)",
        "warning" if short else "info",
    )


def _twice(node: Node, driver: str, slices: list[Slice]) -> Iterator[Finding]:
    count = sum(len(item.devices) for item in slices)
    for name, amount in sorted(node.allocatable.items()):
        vendor, _, what = name.partition("/")
        if what and amount == count and (driver == vendor or driver.endswith(f".{vendor}")):
            yield Finding(
                "double-inventory",
                f"status.allocatable[{name}]",
                f"{count} of a device plugin, and {driver} publishes as many devices",
                "devices that one of them hands out: neither knows what the other gave away",
                "take the device plugin off the node, if they are the same devices",
                "info",
            )
