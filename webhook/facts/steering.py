"""What is written into a pod that steers it: node affinity for canary nodes or chosen ones, and the scheduling gate.

Patches are lists of JSON patch operations (RFC 6902). They only add: what the user asks for stays as it is, so that a
pod never gets a node that the user has not allowed. Asked again about the patched pod they are empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, product

from webhook.facts.drivers import drivers_of
from webhook.facts.matching import device_applies
from webhook.facts.placement import offers
from webhook.facts.pod_needs import wanted_claims
from webhook.facts.rollout import qualifies, rollout_of
from webhook.kube import labels
from webhook.kube.claims import RequestGroup
from webhook.kube.core import MIRROR, Node, Pod
from webhook.kube.finding import Finding
from webhook.kube.raw import Json, mapping, members, sequence, text
from webhook.kube.rollout import DriverRollout
from webhook.kube.snapshot import Snapshot

MOST_TERMS = 16
# Nodes of a driver that a review looks at: it must cost the same in any cluster.
MOST_LOOKS = 128
HOSTNAME = "kubernetes.io/hostname"

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

# (key, operator, values): what an entry of matchExpressions says, to compare by.
_Expression = tuple[str, str, tuple[str, ...]]
_Term = frozenset[_Expression]


def canary_terms(pod: Pod, snapshot: Snapshot) -> tuple[tuple[Json, ...], ...]:
    """The canary nodes that the claims of ``pod`` need: alternatives, each a list of ``matchExpressions`` that have to
    match together. Empty when the pod may go anywhere, and when there would be more than ``MOST_TERMS`` alternatives
    (:func:`canary_problems` tells).

    A request needs canary nodes when every driver that can serve it is at stage Canary or Expanding; a driver that also
    has devices without node costs on other nodes serves it there as before.
    """
    terms = _terms(pod, snapshot)
    if terms is None:
        return ()
    ordered = sorted(tuple(sorted(term)) for term in terms)
    return tuple(tuple(_row(expression) for expression in term) for term in ordered)


def canary_problems(pod: Pod, snapshot: Snapshot) -> list[Finding]:
    """``canary-terms`` (warning) for a pod that is not steered because its requests need too many combinations of
    canary nodes.
    """
    if _terms(pod, snapshot) is not None:
        return []
    has = f"more than {MOST_TERMS} combinations of canary nodes for the requests of its claims"
    needs = f"at most {MOST_TERMS}; the pod is not steered"
    fix = "let the requests name fewer drivers, or give the drivers one canaryNodeSelector"
    return [Finding("canary-terms", "spec.resourceClaims", has, needs, fix, "warning")]


def _terms(pod: Pod, snapshot: Snapshot) -> list[_Term] | None:
    """The alternatives as sets, nothing when the pod may go anywhere; None when they are too many."""
    groups = [g for claim in wanted_claims(pod, snapshot) if claim.allocation is None for g in claim.groups]
    needs = {frozenset(terms) for group in groups if (terms := _canaries(group, snapshot))}
    found: list[_Term] = [frozenset()]
    for need in sorted(needs, key=len):
        found = _least(one | other for one, other in product(found, need))
        if len(found) > MOST_TERMS:
            return None
    return [] if found == [frozenset()] else found


def _least(terms: Iterable[_Term]) -> list[_Term]:
    """Without those that ask for more than another one does: they let no further node in."""
    every = set(terms)
    return [term for term in every if not any(other < term for other in every)]


def _canaries(group: RequestGroup, snapshot: Snapshot) -> set[_Term]:
    """The canary nodes of the drivers that can serve a request; nothing when it can be served elsewhere too, or no
    canary node could be chosen by a selector.
    """
    found: set[_Term] = set()
    for alternative in group.alternatives:
        drivers = drivers_of(alternative, snapshot)
        if not drivers:
            return set()
        for driver in drivers:
            rollout = rollout_of(snapshot, driver)
            if rollout is None or rollout.stage == "General" or _elsewhere(rollout, snapshot):
                return set()
            selector = rollout.canary_selector
            if rollout.stage != "Off" and selector is not None and not any(labels.problems(selector, "")):
                found.add(_expressions(selector))
    return set() if frozenset() in found else found


def _elsewhere(rollout: DriverRollout, snapshot: Snapshot) -> bool:
    """Whether the driver has devices that no stage concerns on nodes that are not canary nodes. Looks at some of them,
    which stand for all; where it does not find enough of them, they may be anywhere.
    """
    seen = list(islice(_costless_nodes(rollout.driver, snapshot), MOST_LOOKS))
    if len(seen) == MOST_LOOKS and None in seen:
        return True
    return any(node is not None and not qualifies(rollout, node) for node in seen)


def _costless_nodes(driver: str, snapshot: Snapshot) -> Iterator[Node | None]:
    """The nodes that have devices without node costs; None for each other one that was looked at."""
    for name in snapshot.costless_slices.get(driver, ()):
        item = snapshot.slices[name]
        devices = (device for device in item.devices if not device.costs)
        for device in devices if item.nodes.get("perDeviceNodeSelection") is True else islice(devices, 1):
            named = offers(item, device)
            for node in [snapshot.nodes.get(named)] if named else snapshot.nodes.values():
                applies = node is not None and device_applies(item, device, node.name, snapshot)
                yield node if applies else None


def _expressions(selector: Json) -> _Term:
    equal = [(key, "In", (value,)) for key, value in mapping(selector.get("matchLabels")).items()]
    return frozenset([*equal, *map(_expression, members(selector.get("matchExpressions")))])


def _expression(row: Json) -> _Expression:
    values = (value for value in sequence(row.get("values")) if isinstance(value, str))
    return (text(row.get("key")), text(row.get("operator")), tuple(sorted(set(values))))


def _row(expression: _Expression) -> Json:
    key, operator, values = expression
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def affinity_patch(pod_raw: Json, terms: Sequence[Sequence[Json]]) -> list[Json]:
    """The patch after which the raw pod only gets nodes that match one of ``terms`` (as of :func:`canary_terms`), too.

    Each is joined to every required node selector term that says something; a term without requirements matches nothing
    and stays; where no term is required, ``terms`` become the required ones. Nothing when the terms are joined already,
    for mirror pods, and for pods that have a node.
    """
    if not all(terms) or not terms or not _free(pod_raw):
        return []
    at, path = mapping(pod_raw.get("spec")), "/spec"
    names = ("affinity", "nodeAffinity", _REQUIRED)
    for depth, name in enumerate(names):
        below, path = at.get(name), f"{path}/{name}"
        if below is None:
            value: Json = {"nodeSelectorTerms": [{"matchExpressions": list(term)} for term in terms]}
            for outer in reversed(names[depth + 1 :]):
                value = {outer: value}
            return [{"op": "add", "path": path, "value": value}]
        if not isinstance(below, dict):
            return []
        at = below
    return list(_joined(sequence(at.get("nodeSelectorTerms")), terms, f"{path}/nodeSelectorTerms"))


def _joined(rows: Sequence[object], terms: Sequence[Sequence[Json]], path: str) -> Iterator[Json]:
    wanted = [frozenset(map(_expression, term)) for term in terms]
    for index, row in enumerate(rows):
        own = mapping(row).get("matchExpressions")
        if not isinstance(row, dict) or not (own or row.get("matchFields")) or not isinstance(own, list | None):
            continue
        said = frozenset(map(_expression, members(own)))
        if any(each <= said for each in wanted):
            continue
        # The term itself takes the first alternative, copies of it the others.
        for term in terms[1:]:
            yield {"op": "add", "path": f"{path}/-", "value": {**row, "matchExpressions": [*(own or ()), *term]}}
        where = f"{path}/{index}/matchExpressions"
        if own:
            yield from ({"op": "add", "path": f"{where}/-", "value": expression} for expression in terms[0])
        else:
            yield {"op": "add", "path": where, "value": list(terms[0])}


def hostnames_patch(pod_raw: Json, hostnames: Sequence[str]) -> list[Json]:
    """As :func:`affinity_patch` for the nodes with these ``kubernetes.io/hostname`` labels: one expression, which is
    what a gated pod may still get. ValueError when there are none: no pod is let loose for want of a node.
    """
    if not hostnames:
        raise ValueError("has no hostname, needs one or more")
    return affinity_patch(pod_raw, [[{"key": HOSTNAME, "operator": "In", "values": list(hostnames)}]])


def gate_patch(pod_raw: Json, gate: str) -> list[Json]:
    """The patch that adds the scheduling ``gate`` to a raw pod that is being created. Nothing when it has it, for
    mirror pods, and for pods that have a node, which may have no gate.
    """
    gates = mapping(pod_raw.get("spec")).get("schedulingGates")
    if not _free(pod_raw) or _place(gates, gate) is not None:
        return []
    path = "/spec/schedulingGates"
    if gates:
        return [{"op": "add", "path": f"{path}/-", "value": {"name": gate}}]
    return [{"op": "add", "path": path, "value": [{"name": gate}]}]


def ungate_patch(pod_raw: Json, gate: str) -> list[Json]:
    """The patch that takes the scheduling ``gate`` away, and fails where another one is in its place by now. Nothing
    when the raw pod does not have it.
    """
    place = _place(mapping(pod_raw.get("spec")).get("schedulingGates"), gate)
    if place is None:
        return []
    path = f"/spec/schedulingGates/{place}"
    return [{"op": "test", "path": f"{path}/name", "value": gate}, {"op": "remove", "path": path}]


def _place(gates: object, gate: str) -> int | None:
    return next((index for index, row in enumerate(sequence(gates)) if mapping(row).get("name") == gate), None)


def _free(pod_raw: Json) -> bool:
    """Whether a scheduler will choose the pod's node."""
    annotations = mapping(mapping(pod_raw.get("metadata")).get("annotations"))
    spec = pod_raw.get("spec")
    return isinstance(spec, dict) and not spec.get("nodeName") and MIRROR not in annotations
