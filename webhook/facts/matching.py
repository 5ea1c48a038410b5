"""Which nodes a node selector chooses, and on which nodes a slice or a device applies.

Semantics of ``NodeSelector`` (core/v1) and of the node fields of a ResourceSlice (resource.k8s.io). What is malformed
matches nothing: a selector that cannot be read must not let anything through.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from webhook.kube.core import Node
from webhook.kube.raw import Json, mapping, sequence
from webhook.kube.resource import Device, Slice
from webhook.kube.snapshot import Snapshot


def _expression(key: str, row: Json, labels: Mapping[str, str]) -> bool:
    operator, values, value = row.get("operator"), sequence(row.get("values")), labels.get(key)
    match operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return bool(values) and value not in values
        case "Exists":
            return value is not None and not values
        case "DoesNotExist":
            return value is None and not values
        case "Gt" | "Lt":
            return _compare(operator, value, values)
    return False


def _compare(operator: str, value: str | None, values: list[object]) -> bool:
    if value is None or len(values) != 1:
        return False
    try:
        left, right = int(value), int(str(values[0]))
    except ValueError:
        return False
    return left > right if operator == "Gt" else left < right


def _expressions(rows: object, labels: Mapping[str, str]) -> bool:
    if rows is None:
        return True
    if not isinstance(rows, list):
        return False
    return all(
        isinstance(row, dict) and isinstance(row.get("key"), str) and _expression(row["key"], row, labels)
        for row in rows
    )


def node_selected(selector: object, node: Node) -> bool:
    """Whether a raw ``NodeSelector`` matches ``node``: any of its terms; a term without requirements matches none."""
    fields = {"metadata.name": node.name}
    for term in sequence(mapping(selector).get("nodeSelectorTerms")):
        rows = mapping(term)
        if not (rows.get("matchExpressions") or rows.get("matchFields")):
            continue
        if _expressions(rows.get("matchExpressions"), node.labels) and _expressions(rows.get("matchFields"), fields):
            return True
    return False


def _applies(name: str, nodes: Json, node: str, snapshot: Snapshot) -> bool | None:
    if name:
        return name == node
    if nodes.get("allNodes") is True:
        return True
    selector = nodes.get("nodeSelector")
    if selector is None:
        return False
    known = snapshot.nodes.get(node)
    return None if known is None else node_selected(selector, known)


def device_applies(item: Slice, device: Device, node: str, snapshot: Snapshot) -> bool | None:
    """Whether ``device`` of ``item`` can be used on the node called ``node``; None when that node is not known
    and the slice chooses by labels.
    """
    if item.nodes.get("perDeviceNodeSelection") is True:
        return _applies(str(device.nodes.get("nodeName") or ""), device.nodes, node, snapshot)
    return _applies(item.node, item.nodes, node, snapshot)


def slice_applies(item: Slice, node: str, snapshot: Snapshot) -> bool | None:
    """Whether ``item`` belongs to what an allocator sees from ``node``: shared counters are seen from everywhere,
    a slice that selects per device where one of its devices does. None as for :func:`device_applies`.
    """
    if item.counter_sets:
        return True
    if item.nodes.get("perDeviceNodeSelection") is True:
        unknown = False
        for device in item.devices:
            applies = device_applies(item, device, node, snapshot)
            if applies:
                return True
            unknown = unknown or applies is None
        return None if unknown else False
    return _applies(item.node, item.nodes, node, snapshot)


def target_nodes(name: str, nodes: Json, snapshot: Snapshot) -> Iterator[Node]:
    """The known nodes that ``nodeName``, or the other node fields of a slice or device, choose.

    Walks the nodes of the cluster for ``allNodes`` and ``nodeSelector``; stop early where one answer is enough.
    """
    if name:
        node = snapshot.nodes.get(name)
        if node is not None:
            yield node
        return
    everywhere, selector = nodes.get("allNodes") is True, nodes.get("nodeSelector")
    if everywhere or selector is not None:
        for node in snapshot.nodes.values():
            if everywhere or node_selected(selector, node):
                yield node
