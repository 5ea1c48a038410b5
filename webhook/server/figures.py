"""The figures of every node and pool as lines of the text format: as many as the cluster is large, so they are kept,
and only those of what has changed are made again.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime

from immutables import Map
from msgspec import Struct

from webhook.facts.account import Account
from webhook.facts.pools import pool_state, stale_view
from webhook.facts.times import instant
from webhook.kube.quantity import Number
from webhook.kube.resource import Slice
from webhook.kube.snapshot import Key, Snapshot
from webhook.ledger.book import Book, NodeBook
from webhook.telemetry.lines import heading, series, shown

SOURCES = ("pods", "claims", "overhead", "reserved")

# Lines of one family: in all, twice what 5,000 nodes have, of one node, and pools of one driver. Names of zones,
# resources and pools are as many as drivers make up.
MAX_SERIES, MAX_OF_NODE, MAX_POOLS = 250_000, 1_000, 20_000

CAPACITY, USED, PHASE, AGE = "ledger_capacity", "ledger_used", "pool_phase", "mapping_age_seconds"
_TEXTS = {
    CAPACITY: "What there is to charge",
    USED: "What is charged, by source",
    PHASE: "1 for the current phase",
    AGE: "Since the newest slice of the pool was made",
}


class _Lines(Struct, frozen=True):
    """Some lines of a family, how many they are, and how many more were left out."""

    text: bytes
    count: int
    left_out: int


class _Node(Struct, frozen=True):
    page: NodeBook
    capacity: _Lines
    used: _Lines


class _Pool(Struct, frozen=True):
    """A pool's line by its phase, and the beginning of that by its age, empty where it has none; both are empty where
    its names cannot be shown. ``inputs`` are what the phase was made from, None where that is not all.
    """

    inputs: tuple[object, ...] | None
    phase: str
    since: str
    line: bytes
    age: str
    made: float


class _Shown(Struct, frozen=True):
    """What a scrape takes: pieces as they are, the beginnings of ages with the time they count from, and by family how
    many lines are missing.
    """

    pieces: list[bytes]
    ages: list[tuple[str, float]]
    left_out: Counter[str]


_NOTHING = _Lines(b"", 0, 0)


class Figures:
    """What :meth:`refresh` saw last; ``differences`` by category, and the first ``problem``, empty without one. One
    thread at a time may refresh, any may ask.
    """

    def __init__(self) -> None:
        # A book is one thread's, and that of decisions is theirs.
        self._book = Book()
        self._nodes: dict[str, _Node] = {}
        self._pools: dict[Key, _Pool] = {}
        self._sorted: tuple[Map[Key, tuple[Slice, ...]], list[Key]] = (Map(), [])
        self._shown = _Shown([], [], Counter())
        self.differences: Counter[str] = Counter()
        self.problem = ""

    def refresh(self, snapshot: Snapshot, now: datetime, pause: Callable[[], object] = tuple) -> None:
        """Take in ``snapshot`` as it is ``now``; ``pause`` is called between nodes and pools. One at which we fail is
        left out, with a problem, and the others are not.
        """
        problems: list[str] = []
        left_out: Counter[str] = Counter()
        self._nodes, differences = self._seen_nodes(snapshot, pause, problems)
        if problems:
            left_out[CAPACITY] = left_out[USED] = len(problems)
        failed = len(problems)
        self._pools = self._seen_pools(snapshot, now, pause, problems)
        failed = len(problems) - failed
        pieces = [heading(CAPACITY, _TEXTS[CAPACITY])]
        pieces += _bounded(CAPACITY, [each.capacity for each in self._nodes.values()], left_out)
        pieces.append(heading(USED, _TEXTS[USED]))
        pieces += _bounded(USED, [each.used for each in self._nodes.values()], left_out)
        kept = _fair(self._pools)
        if lost := len(self._pools) - len(kept) + failed:
            left_out[PHASE] = left_out[AGE] = lost
        pieces += [heading(PHASE, _TEXTS[PHASE]), *(each.line for each in kept), heading(AGE, _TEXTS[AGE])]
        self._shown = _Shown(pieces, [(each.age, each.made) for each in kept if each.age], left_out)
        self.differences = differences
        self.problem = problems[0] if problems else ""

    def _seen_nodes(
        self, snapshot: Snapshot, pause: Callable[[], object], problems: list[str]
    ) -> tuple[dict[str, _Node], Counter[str]]:
        nodes: dict[str, _Node] = {}
        differences: Counter[str] = Counter()
        for node in sorted(snapshot.nodes):
            # What other nodes use, everybody else's metrics tell; with them this would grow with the whole cluster.
            try:
                page = self._book.page(snapshot, node) if _of_interest(snapshot, node) else None
                if page is not None:
                    known = self._nodes.get(node)
                    nodes[node] = known if known is not None and known.page is page else _node(page)
                    differences.update(difference.category for difference in page.differences)
            except Exception as error:  # noqa: BLE001 - a mistake of ours about one node must not keep the others
                problems.append(f"node {node}: {type(error).__name__}: {error}")
            pause()
        return nodes, differences

    def _seen_pools(
        self, snapshot: Snapshot, now: datetime, pause: Callable[[], object], problems: list[str]
    ) -> dict[Key, _Pool]:
        pools: dict[Key, _Pool] = {}
        unsteady = {driver: _unsteady(snapshot, driver, now) for driver in snapshot.mapped_slices}
        if snapshot.pools is not self._sorted[0]:
            self._sorted = snapshot.pools, sorted(snapshot.pools)
        for key in self._sorted[1]:
            if key[0] in unsteady:
                try:
                    pools[key] = self._seen_pool(key, snapshot, now, unsteady[key[0]])
                except Exception as error:  # noqa: BLE001 - a mistake of ours about one pool must not keep the others
                    problems.append(f"pool {key[1]} of {key[0]}: {type(error).__name__}: {error}")
                pause()
        return pools

    def _seen_pool(self, key: Key, snapshot: Snapshot, now: datetime, unsteady: bool) -> _Pool:
        driver, pool = key
        steady = not unsteady and all(item.node for item in snapshot.pools[key])
        inputs = (*_inputs(snapshot, key),) if steady else None
        held = self._pools.get(key)
        if held is None or inputs is None or not _same(held.inputs, inputs):
            state = pool_state(snapshot, driver, pool, None, now)
            held = _pool(driver, pool, inputs, state.phase, state.since)
        return held

    def lines(self, now: datetime, dropped: Callable[[str, int], object]) -> Iterable[bytes]:
        """Everything, in pieces, ages as they are ``now``; ``dropped`` is told of which family lines are left out, and
        how many.
        """
        shown, at = self._shown, now.timestamp()
        for name, count in shown.left_out.items():
            dropped(name, count)
        return *shown.pieces, "".join([f"{age}{at - made:.3f}\n" for age, made in shown.ages]).encode()


def _of_interest(snapshot: Snapshot, node: str) -> bool:
    if node in snapshot.node_claims or node in snapshot.ledgers:
        return True
    if any(item.mapped for item in snapshot.node_slices.get(node, ())):
        return True
    return any(pod.claim_names for pod in snapshot.node_pods.get(node, ()))


def _bounded(name: str, parts: list[_Lines], left_out: Counter[str]) -> Iterator[bytes]:
    left = MAX_SERIES
    for each in parts:
        fits = each.count <= left
        if fits:
            left -= each.count
            yield each.text
        lost = each.left_out + (0 if fits else each.count)
        if lost:
            left_out[name] += lost


def _unsteady(snapshot: Snapshot, driver: str, now: datetime) -> bool:
    """Whether time alone may change the phases of the driver's pools."""
    rollout = snapshot.rollouts.get(driver)
    return (rollout is not None and rollout.heartbeat > 0) or stale_view(snapshot, rollout, now) is not None


def _inputs(snapshot: Snapshot, key: Key) -> Iterator[object]:
    """Every object that the phase of a pool is made from whose slices are each of one node, the time and the view's age
    left out, in an order that depends on these objects only.
    """
    slices, claims = snapshot.pools[key], snapshot.pool_claims.get(key, ())
    rollout = snapshot.rollout_specs.get(key[0])
    yield slices
    yield rollout
    for item in slices:
        yield snapshot.nodes.get(item.node)
        if item.owner_node != item.node:
            yield snapshot.nodes.get(item.owner_node)
        if rollout is not None and "DriverPodReady" in rollout.evidence:
            yield snapshot.node_pods.get(item.node)
    if not claims:
        return
    yield claims
    for item in slices:
        yield snapshot.ledgers.get(item.node)
    for claim in claims:
        for holder in claim.reserved_for:
            yield snapshot.pods_by_uid.get(holder.uid)
        # On a node of none of the slices the claim has no device of this pool, and its other ones are not looked at.
        for result in claim.allocation.results if claim.allocation is not None else ():
            if (result.driver, result.pool) != key:
                yield snapshot.pools.get((result.driver, result.pool))


def _same(one: tuple[object, ...] | None, other: tuple[object, ...]) -> bool:
    return one is not None and len(one) == len(other) and all(map(operator.is_, one, other))


def _fair(pools: Mapping[Key, _Pool]) -> list[_Pool]:
    """The pools that have lines: of none whose names cannot be shown, and no more of one driver than there may be."""
    kept: list[_Pool] = []
    of: Counter[str] = Counter()
    for (driver, _), each in pools.items():
        if each.line and of[driver] < MAX_POOLS and len(kept) < MAX_SERIES:
            of[driver] += 1
            kept.append(each)
    return kept


def _pool(driver: str, pool: str, inputs: tuple[object, ...] | None, phase: str, since: str) -> _Pool:
    line = series(PHASE, {"driver": driver, "pool": pool, "phase": phase})
    age = series(AGE, {"driver": driver, "pool": pool})
    if line is None or age is None:
        return _Pool(inputs, phase, since, b"", "", 0.0)
    made = instant(since)
    at = 0.0 if made is None else made.timestamp()
    return _Pool(inputs, phase, since, f"{line}1.0\n".encode(), age if made is not None else "", at)


def _node(page: NodeBook) -> _Node:
    account = page.account
    return _Node(page, _gathered(_capacity(account)), _gathered(_used(account)))


def _gathered(rows: Iterator[tuple[str | None, Number]]) -> _Lines:
    lines: list[str] = []
    left_out = 0
    for begin, amount in rows:
        if begin is None or len(lines) >= MAX_OF_NODE:
            left_out += 1
        else:
            lines.append(f"{begin}{shown(amount)}\n")
    return _Lines("".join(lines).encode(), len(lines), left_out) if lines or left_out else _NOTHING


def _capacity(account: Account) -> Iterator[tuple[str | None, Number]]:
    node = account.node
    for resource, amount in account.resources.items():
        yield series(CAPACITY, {"node": node, "zone": "", "resource": resource}), amount.allocatable
    for zone, resources in account.zones.items():
        for resource, part in resources.items():
            if part.capacity is not None:
                yield series(CAPACITY, {"node": node, "zone": str(zone), "resource": resource}), part.capacity


def _used(account: Account) -> Iterator[tuple[str | None, Number]]:
    node = account.node
    for resource, amount in account.resources.items():
        for source in SOURCES:
            labels = {"node": node, "zone": "", "resource": resource, "source": source}
            yield series(USED, labels), getattr(amount, source)
    for zone, resources in account.zones.items():
        for resource, part in resources.items():
            for source, charged in (("claims", part.claims), ("reserved", part.reserved)):
                labels = {"node": node, "zone": str(zone), "resource": resource, "source": source}
                yield series(USED, labels), charged
