"""What the book says at one time, so that it can be compared with what it says at another, or somewhere else."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from webhook.facts.account import Amounts
from webhook.kube.core import Pod
from webhook.kube.finding import Finding
from webhook.kube.quantity import of_resource
from webhook.kube.raw import Json, mapping, members, text
from webhook.kube.resource import Entry
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book
from webhook.ledger.charges import Category, Difference
from webhook.ledger.views import account_json, charge_json

_CLAIM, _POD, _NODE = ("resource.k8s.io/v1", "ResourceClaim"), ("v1", "Pod"), ("v1", "Node")
# What a charge is compared by; which pods use it and how far it is are the cluster's affair, not the account's.
_COMPARED = ("amount", "zone", "formula", "mapping", "state")


def amounts_json(amounts: Amounts) -> Json:
    """Amounts by resource as canonical quantities, zeros left out."""
    return {name: of_resource(name, amount) for name, amount in sorted(amounts.items()) if amount}


def entry_json(entry: Entry) -> Json:
    """One entry of ``nodeAllocatableResourceClaimStatuses``, whatever its shape."""
    return {
        "claim": entry.claim,
        "containers": sorted(set(entry.containers)),
        "amounts": amounts_json(entry.amounts),
        "perPod": amounts_json(entry.per_pod),
        "perContainer": amounts_json(entry.per_container),
    }


def statement(book: Book, snapshot: Snapshot, only: Collection[str] | None = None) -> Json:
    """The accounts of all nodes (or of those named) and their zones with the charges behind them, and what pod statuses
    book there.
    """
    nodes: list[Json] = []
    for name in sorted(snapshot.nodes if only is None else only):
        page = book.page(snapshot, name)
        if page is not None:
            charges = [charge_json(charge) for charge in page.charges]
            nodes.append({"node": name, "uid": page.account.uid, **account_json(page.account), "charges": charges})
    pods = [
        {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid, "node": pod.node, "entries": entries}
        for pod in sorted(_pods(snapshot, only), key=lambda pod: (pod.namespace, pod.name))
        if (entries := [entry_json(entry) for entry in pod.entries])
    ]
    return {"nodes": nodes, "pods": pods}


def _pods(snapshot: Snapshot, only: Collection[str] | None) -> Iterable[Pod]:
    if only is None:
        return snapshot.pods.values()
    return (pod for node in only for pod in snapshot.node_pods.get(node, ()))


def compared(one: Json, other: Json, names: tuple[str, str]) -> list[Difference]:
    """What differs between two statements; ``names`` say where each of them is from (``as recorded``, ``here``)."""
    return [*_Comparison(one, other, names).differences()]


class _Comparison:
    def __init__(self, one: Json, other: Json, names: tuple[str, str]) -> None:
        self.one, self.other = one, other
        self.names = names

    def differences(self) -> Iterator[Difference]:
        before, after = _by(self.one, "nodes", "node"), _by(self.other, "nodes", "node")
        for (name,) in _union(before, after):
            mine, theirs = before.get((name,)), after.get((name,))
            if mine is None or theirs is None:
                yield self._absent(_NODE, "", name, mine, "node-account", "account")
                continue
            if mine == theirs:
                continue
            found = self._unlike("", _leaves(mine, "uid", "resources"), _leaves(theirs, "uid", "resources"))
            yield from _about(_NODE, "", name, "node-account-differs", "amount", found)
            zones = (_zones(each) for each in (mine, theirs))
            yield from _about(_NODE, "", name, "zone-account-differs", "amount", self._unlike("", *zones))
            yield from self._charges(mine, theirs)
        before, after = (_by(each, "pods", "namespace", "name") for each in (self.one, self.other))
        for namespace, name in _union(before, after):
            mine, theirs = before.get((namespace, name)), after.get((namespace, name))
            if mine is None or theirs is None:
                yield self._absent(_POD, namespace, name, mine, "pod-status", "status entry")
                continue
            if mine == theirs:
                continue
            found = self._unlike("", _leaves(mine, "uid", "node", "entries"), _leaves(theirs, "uid", "node", "entries"))
            yield from _about(_POD, namespace, name, "pod-status-differs", "pod-status", found)

    def _charges(self, one: Json, other: Json) -> Iterator[Difference]:
        before, after = _charges(one), _charges(other)
        for key in _union(before, after):
            mine, theirs = before.get(key), after.get(key)
            claim = mapping((mine or theirs or {}).get("claim"))
            namespace, name = text(claim.get("namespace")), text(claim.get("name"))
            path = f"charges[{key[-1]} of {key[3]}/{key[4]}/{key[5]}]"
            if mine is None or theirs is None:
                yield self._absent(_CLAIM, namespace, name, mine, "charge", "charge", path)
                continue
            found = self._unlike(f"{path}.", _leaves(mine, *_COMPARED), _leaves(theirs, *_COMPARED))
            yield from _about(_CLAIM, namespace, name, "charge-differs", "amount", found)

    def _unlike(self, path: str, one: Mapping[str, str], other: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
        for name in dict.fromkeys((*one, *other)):
            mine, theirs = one.get(name, "nothing"), other.get(name, "nothing")
            if mine != theirs:
                yield f"{path}{name}", f"{theirs} {self.names[1]}", f"{mine} {self.names[0]}"

    def _absent(
        self, of: tuple[str, str], namespace: str, name: str, mine: Json | None, rule: str, what: str, path: str = ""
    ) -> Difference:
        one, other = self.names
        if mine is not None:
            finding = Finding(f"{rule}-missing", path, f"no {what} {other}", f"the one {one}")
        else:
            finding = Finding(f"{rule}-surplus", path, f"a {what} {other}", f"none {one}")
        return Difference("missing" if mine is not None else "surplus", *of, namespace, name, finding)


def _about(
    of: tuple[str, str],
    namespace: str,
    name: str,
    rule: str,
    category: Category,
    found: Iterable[tuple[str, str, str]],
) -> Iterator[Difference]:
    for path, has, needs in found:
        yield Difference(category, *of, namespace, name, Finding(rule, path, has, needs))


def _by(value: Json, member: str, *names: str) -> dict[tuple[str, ...], Json]:
    return {tuple(text(row.get(name)) for name in names): row for row in members(value.get(member))}


def _union(one: Iterable[tuple[str, ...]], other: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return sorted({*one, *other})


def _charges(node: Json) -> dict[tuple[str, ...], Json]:
    found: dict[tuple[str, ...], Json] = {}
    for row in members(node.get("charges")):
        key = mapping(row.get("key"))
        names = ("claimUID", "allocation", "request", "driver", "pool", "device", "shareID")
        found[(*(text(key.get(name)) for name in names), text(row.get("resource")))] = row
    return found


def _zones(node: Json) -> dict[str, str]:
    found: dict[str, str] = {}
    for zone in members(node.get("zones")):
        for path, value in _leaves(zone, "resources").items():
            found[f"zones[{zone.get('zone')}].{path}"] = value
    return found


def _leaves(value: Json, *names: str) -> dict[str, str]:
    """The values below ``names`` by their path, as text."""
    found: dict[str, str] = {}
    for name in names:
        found.update(_paths(name, value.get(name)))
    return found


def _paths(path: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        keyed = path in ("resources",) or path.endswith((".amounts", ".perPod", ".perContainer"))
        for name, part in value.items():
            yield from _paths(f"{path}[{name}]" if keyed else f"{path}.{name}", part)
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _paths(f"{path}[{index}]", part)
    else:
        yield path, "unknown" if value is None else str(value)
