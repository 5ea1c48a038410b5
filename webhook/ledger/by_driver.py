"""What does not agree with the book, by the driver whose devices it is about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from msgspec import Struct

from webhook.kube.snapshot import Key, Snapshot
from webhook.ledger.book import Book, NodeBook
from webhook.ledger.charges import Difference
from webhook.ledger.differences import unplaced

_OVERCOMMIT = "node-overcommit"


class Disagreement(Struct, frozen=True):
    """By driver: how many differences concern its devices, and how many nodes with charges of them have more charged
    than they have.
    """

    differences: Counter[str]
    overcommitted: Counter[str]


def disagreement(snapshot: Snapshot, book: Book, only: Collection[str] | None = None) -> Disagreement:
    """The differences of every node that devices cost something, and of claims on no known node; or those of the nodes
    ``only``. What is wrong with a node as a whole concerns every driver that is charged there. Looks at every node and
    every claim.
    """
    found = Disagreement(Counter(), Counter())
    for node in sorted(_nodes(snapshot) if only is None else only):
        page = book.page(snapshot, node)
        if page is None or not page.differences:
            continue
        charged = _charged(page)
        everybody = frozenset().union(*charged.values())
        over: set[str] = set()
        for difference in page.differences:
            drivers = _drivers(difference, snapshot, charged, everybody)
            found.differences.update(drivers)
            if difference.finding.rule == _OVERCOMMIT:
                over |= drivers
        found.overcommitted.update(over)
    for difference in unplaced(snapshot) if only is None else ():
        found.differences.update(_drivers(difference, snapshot, {}, frozenset()))
    return found


def _nodes(snapshot: Snapshot) -> set[str]:
    nodes = {*snapshot.node_claims, *snapshot.ledgers}
    for names in snapshot.mapped_slices.values():
        nodes |= {snapshot.slices[name].node for name in names}
    return nodes & {*snapshot.nodes}


def _charged(page: NodeBook) -> dict[Key, frozenset[str]]:
    """The drivers that each claim on the page is charged for."""
    found: dict[Key, frozenset[str]] = {}
    for charge in page.charges:
        claim = (charge.namespace, charge.name)
        found[claim] = found.get(claim, frozenset()) | {charge.key.driver}
    return found


def _drivers(
    difference: Difference, snapshot: Snapshot, charged: dict[Key, frozenset[str]], everybody: frozenset[str]
) -> frozenset[str]:
    name = (difference.namespace, difference.name)
    if difference.kind == "ResourceClaim":
        return _of_claims([name], snapshot, charged)
    if difference.kind != "Pod":
        return everybody
    pod = snapshot.pods.get(name)
    if pod is None:
        return frozenset()
    claims = {*pod.claim_names.values(), *(entry.claim for entry in pod.entries)}
    # An entry for a claim that nobody knows may be about any driver on the node.
    return _of_claims([(pod.namespace, claim) for claim in claims], snapshot, charged) or everybody


def _of_claims(names: Iterable[Key], snapshot: Snapshot, charged: dict[Key, frozenset[str]]) -> frozenset[str]:
    found: set[str] = set()
    for name in names:
        claim = snapshot.claims.get(name)
        if claim is not None and claim.allocation is not None:
            found.update(result.driver for result in claim.allocation.results)
        found |= charged.get(name, frozenset())
    return frozenset(found)
