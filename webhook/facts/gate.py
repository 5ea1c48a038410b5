"""What feature gates do to a slice with node costs: dropped in silence, or refused for nodes that do not declare it."""

from __future__ import annotations

from webhook.facts.matching import target_nodes
from webhook.kube.finding import Finding
from webhook.kube.raw import Json, mapping, sequence, text
from webhook.kube.release import NODE_ALLOCATABLE
from webhook.kube.resource import FIELD_136, FIELD_137, Slice, device_fields
from webhook.kube.snapshot import Snapshot


def slice_gate_problems(obj: Json, item: Slice, snapshot: Snapshot, old: Slice | None = None) -> list[Finding]:
    """Gate problems of a slice as its writer sent it (``obj`` raw, ``item`` its model, ``old`` what is stored).

    ``gate-off-fields-dropped`` (warning): the gate is off, as the server says or as the last slice shows, the API
    server removes the costs and answers 201, unless the stored slice already has some. ``node-not-declaring``: on 1.37
    admission refuses costs for a node that does not list the feature in ``status.declaredFeatures``; a 1.36 kubelet
    never does, so 1.36 is not judged.
    """
    release = snapshot.release
    field = FIELD_137 if release.minor >= 37 else FIELD_136
    version = text(mapping(obj).get("apiVersion"))
    if release.drops_costs or not release.enabled(NODE_ALLOCATABLE):
        return _dropped(obj, field, version) if old is None or not old.mapped else []
    if release.minor < 37 or not release.enabled("NodeDeclaredFeatures"):
        return []
    return _undeclared(obj, item, snapshot, version)


def _place(version: str, index: int, field: str) -> str:
    basic = ".basic" if version == "resource.k8s.io/v1beta1" else ""
    return f"spec.devices[{index}]{basic}.{field}"


def _carriers(obj: Json, field: str) -> list[int]:
    devices = sequence(mapping(mapping(obj).get("spec")).get("devices"))
    return [index for index, device in enumerate(devices) if device_fields(device).get(field)]


def _dropped(obj: Json, field: str, version: str) -> list[Finding]:
    carriers = _carriers(obj, field)
    if not carriers:
        return []
    # A warning has room for 120 characters; what happens has to stand in them.
    has = f"costs in {len(carriers)} device{'s' if len(carriers) > 1 else ''}, dropped while {NODE_ALLOCATABLE} is off"
    needs = "the gate on in the API server: without it the devices book nothing, and nobody is told"
    fix = "turn the gate on in API server, scheduler and kubelet, then write the slice again"
    path = _place(version, carriers[0], field)
    return [Finding("gate-off-fields-dropped", path, has, needs, fix, "warning")]


def _undeclared(obj: Json, item: Slice, snapshot: Snapshot, version: str) -> list[Finding]:
    carriers = _carriers(obj, FIELD_137)
    if not carriers:
        return []
    # Without the gate the field is gone before admission looks.
    per_device = snapshot.release.enabled("DRAPartitionableDevices")
    own = per_device and item.nodes.get("perDeviceNodeSelection") is True
    if not own:
        reason = _lacking(item.node, item.nodes, snapshot)
        return [_refused(_place(version, carriers[0], FIELD_137), reason)] if reason else []
    found: list[Finding] = []
    for index in carriers:
        nodes = item.devices[index].nodes
        reason = _lacking(text(nodes.get("nodeName")), nodes, snapshot)
        if reason:
            found.append(_refused(_place(version, index, FIELD_137), reason))
    return found


def _lacking(name: str, nodes: Json, snapshot: Snapshot) -> str:
    """Which chosen node does not declare the feature, empty when all known ones do. A selector that matches no node is
    fine; without any known node nothing can be said.
    """
    if name and name not in snapshot.nodes:
        return f"the unknown node {name}" if snapshot.nodes else ""
    for node in target_nodes(name, nodes, snapshot):
        if NODE_ALLOCATABLE not in node.declared:
            kubelet = f" (kubelet {node.kubelet})" if node.kubelet else ""
            return f"node {node.name}{kubelet}, which does not declare {NODE_ALLOCATABLE}"
    return ""


def _refused(path: str, reason: str) -> Finding:
    needs = f"nodes with {NODE_ALLOCATABLE} in status.declaredFeatures"
    fix = "upgrade the kubelet to 1.37 with the gate on, or leave the costs out"
    return Finding("node-not-declaring", path, reason, needs, fix, origin="apiserver")
