"""Publishes the NodeLedger of every node whose devices cost it something: what was reserved becomes a charge once it is
seen, what was released goes, and the sums are there for people. Runs where the leader is.

Each write goes over the version that it was computed from. What a view alone cannot tell is asked of the API server:
that a claim is gone, and that what was reserved will not come any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from itertools import chain
from typing import Protocol

import orjson
from msgspec.structs import replace

from webhook.cluster.api import Api, ApiError, Unreachable
from webhook.cluster.ledgers import PATH, Ledgers
from webhook.cluster.live import Changed
from webhook.cluster.reflector import Key
from webhook.controllers.trouble import Once, Trouble
from webhook.facts.bookings import allocated_as
from webhook.kube.claims import Claim, read_claim
from webhook.kube.node_ledger import PLACE, BookedCharge, NodeLedger, Reservation, node_ledger_object
from webhook.kube.raw import Json, mapping, members, text
from webhook.kube.resource_version import version
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book
from webhook.ledger.booking import advance
from webhook.ledger.charges import Difference
from webhook.ledger.differences import claim_unplaced, concerned
from webhook.ledger.events import Event
from webhook.ledger.moments import Moment
from webhook.ledger.reserve import LIFE
from webhook.ledger.touched import touched
from webhook.ledger.transitions import transitions
from webhook.ledger.views import account_json
from webhook.telemetry.log import Log

# Seconds: in which events are gathered, between two looks at what only time changes, between two writes of sums alone,
# and at most between two tries while writes fail.
GATHER, LOOK, SUMS, LONGEST = 0.2, 5.0, 10.0, 30.0
# Nodes that are written at once, and allocations whose end is remembered.
_AT_ONCE, _ENDED = 8, 10_000
# Ledgers in one answer to a list.
_PAGE = 50
_LIFE = LIFE.total_seconds()
_EPOCH = datetime.fromtimestamp(0, UTC)

# Claim, allocation, pod and time of a reservation.
_Name = tuple[str, str, str, str]


class Cluster(Protocol):
    """What is read of the live view."""

    on_change: list[Changed]

    @property
    def snapshot(self) -> Snapshot:
        """The objects."""


class NodeLedgers:
    """The controller. Times that others wrote are never compared with a clock: a reservation is as old as it is known
    here. ``on_moments`` is told what each write means for the claims in it, at the time of ``clock``; ``on_differing``
    at each look at a node the UID of every claim and pod of which something there disagrees with the book. Neither
    blocks.
    """

    def __init__(self, api: Api, cluster: Cluster, log: Log, clock: Callable[[], datetime]) -> None:
        self._api = api
        self._ledgers = Ledgers(api)
        self._cluster = cluster
        self._clock = clock
        self.on_moments: Callable[[Sequence[Moment]], None] = lambda moments: None
        self.on_differing: Callable[[str], None] = lambda uid: None
        self._unwritten = Once(log, "node ledgers not written")
        self._begin()
        self._problem = ""

    def _begin(self) -> None:
        self._book = Book()
        self._changed: set[str] = set()
        self._wake = asyncio.Event()
        self._written: dict[str, tuple[NodeLedger, float]] = {}
        # Writes that nobody knows whether they were done, by node: over what, and when.
        self._unsure: dict[str, tuple[NodeLedger | None, datetime]] = {}
        self._later: set[str] = set()
        self._look = 0.0
        # Of the sums that were written their hash, of 15,000 nodes.
        self._sums: dict[str, tuple[int, float]] = {}
        self._noticed: dict[str, dict[_Name, float]] = {}
        # Where claims have places, by UID: what becomes of them elsewhere frees these.
        self._places: dict[str, str] = {}
        self._ended: dict[tuple[str, str], int] = {}
        self._unreadable: dict[str, str] = {}

    async def run(self) -> None:
        """Publish whenever something has changed, until cancelled."""
        self._begin()
        self._cluster.on_change.append(self._heard)
        snapshot = self._cluster.snapshot
        self._changed = {*snapshot.nodes, *snapshot.ledgers}
        pause = 0.0
        try:
            with contextlib.suppress(ApiError, Unreachable):
                await self._recall()
            while True:
                await self._something()
                await asyncio.sleep(GATHER + pause)
                problem = await self._round()
                if problem:
                    self._unwritten.tell(problem)
                else:
                    self._unwritten.over()
                self._problem = problem
                pause = min(max(pause * 2, 1.0), LONGEST) * random.uniform(0.8, 1.2) if problem else 0.0
        finally:
            self._cluster.on_change.remove(self._heard)
            # Somebody else leads, perhaps for good.
            self._begin()

    def checks(self) -> list[tuple[str, bool, str]]:
        """For ``/readyz``: a ledger that cannot be written keeps nobody from serving."""
        told = [self._problem] if self._problem else []
        told += [
            f"the ledger of node {node} cannot be read: {why}; delete it" for node, why in self._unreadable.items()
        ]
        return [("node ledgers", True, f"ok, but {'; '.join(told[:5])}" if told else "ok")]

    async def _recall(self) -> None:
        """Take the sums that are stored for written, which the view does not keep: a new leader has them all as new."""
        token: str | None = ""
        while token is not None:
            page = await self._api.get(PATH, limit=_PAGE, **{"continue": token or None})
            for obj in members(page.get("items")):
                status = mapping(obj.get("status"))
                sums: Json = {name: status[name] for name in ("resources", "zones", "differences") if name in status}
                self._sums[text(mapping(obj.get("metadata")).get("name"))] = _hash(sums), time.monotonic()
            token = text(mapping(page.get("metadata")).get("continue")) or None

    async def _something(self) -> None:
        """Wait for an event, or for what becomes due without one."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0 if self._changed else LOOK):
                await self._wake.wait()
        self._wake.clear()
        if time.monotonic() >= self._look:
            self._look = time.monotonic() + LOOK
            self._changed |= self._later | self._noticed.keys()
            self._later = set()

    def _heard(self, kind: str, key: Key, before: Snapshot, after: Snapshot) -> None:
        """Note the nodes that a change concerns, and allocations that ended."""
        nodes = touched(Event("put", kind, *key, "", "", _EPOCH, "", None), before, after, after.ledgers)
        match kind:
            case "Node" | "NodeResourceTopology":
                nodes.add(key[1])
            case "Pod":
                nodes |= {pod.node for pod in (before.pods.get(key), after.pods.get(key)) if pod is not None}
            case "ResourceSlice":
                slices = (before.slices.get(key[1]), after.slices.get(key[1]))
                nodes |= {item.node for item in slices if item is not None}
            case "ResourceClaim":
                claims = before.claims.get(key), after.claims.get(key)
                self._note_end(*claims)
                nodes |= {self._places.get(claim.id, "") for claim in claims if claim is not None}
        nodes.discard("")
        if nodes:
            self._changed |= nodes
            self._wake.set()

    def _note_end(self, before: Claim | None, after: Claim | None) -> None:
        """Note an allocation that was seen and is no more, with the last version that had it."""
        allocation = before.allocation if before is not None else None
        if before is None or allocation is None:
            return
        if after is None or after.id != before.id or not allocated_as(after, allocation.identity):
            if len(self._ended) >= _ENDED:
                del self._ended[next(iter(self._ended))]
            self._ended[before.id, allocation.identity] = version(before.resource_version)

    async def _round(self) -> str:
        """Write the ledgers that have changed; the first problem, empty where there is none."""
        changed, self._changed = self._changed, set()
        places = asyncio.Semaphore(_AT_ONCE)
        problems: list[str] = []

        async def one(node: str) -> None:
            async with places:
                try:
                    done = await self._publish(node)
                except ApiError as error:
                    missing = error.status == HTTPStatus.NOT_FOUND
                    problems.append("the API server has no NodeLedgers" if missing else Trouble(node, error))
                    done = False
                except Unreachable as error:
                    problems.append(str(error))
                    done = False
                except Exception as error:  # noqa: BLE001 - a mistake of ours about one node must not keep the others
                    problems.append(f"{node}: {type(error).__name__}: {error}")
                    done = False
                if not done:
                    self._changed.add(node)
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            for node in sorted(changed):
                group.create_task(one(node))
        return problems[0] if problems else ""

    async def _publish(self, node: str) -> bool:
        """Write the ledger of ``node`` if it is another one now; False when that is to be tried again."""
        held = self._cluster.snapshot.ledgers.get(node)
        self._make_sure(node, held)
        if self._behind(node, held):
            return False
        self._unreadable.pop(node, None)
        if held is not None and held.problem:
            self._unreadable[node] = held.problem
            return True
        alive = await self._alive(held, self._cluster.snapshot)
        snapshot = self._cluster.snapshot
        if snapshot.ledgers.get(node) is not held:
            return False
        known = self._known_for(node, held)
        ledger = advance(held, snapshot, node, alive=alive)
        held_on = [each for each in ledger.reservations if not await self._over(each, known[_name(each)])]
        counted = _counted(held, ledger, snapshot, known)
        order = list(known)
        reservations = sorted((*held_on, *counted), key=lambda each: order.index(_name(each)))
        ledger = replace(ledger, reservations=tuple(reservations))
        same = held is not None and ledger == held
        if node not in snapshot.nodes:
            return await self._leave(held, ledger, snapshot)
        if held is None and not _wanted(snapshot, ledger):
            return True
        sums = self._summed(snapshot.with_ledger(ledger), node)
        told, at = self._sums.get(node, (None, -SUMS))
        if same and _hash(sums) == told:
            return True
        # That a pod is counted now changes nothing for anybody but those who follow its claims.
        calm = held is not None and _uncounted(ledger) == _uncounted(held)
        if calm and time.monotonic() - at < (SUMS if same else LOOK):
            self._later.add(node)
            return True
        return await self._write(held, ledger, snapshot, sums)

    async def _write(self, held: NodeLedger | None, ledger: NodeLedger, snapshot: Snapshot, sums: Json) -> bool:
        obj = node_ledger_object(ledger, sums.get("resources"), sums.get("zones", ()), sums.get("differences", 0))
        begun, unsure = self._clock(), ledger.node in self._unsure
        self._unsure.setdefault(ledger.node, (held, begun))
        written = await self._ledgers.publish(ledger, obj)
        if written.done or not unsure:
            del self._unsure[ledger.node]
        if written.done:
            self._sums[ledger.node] = _hash(sums), time.monotonic()
            self._tell(held, ledger, snapshot, begun)
        self._written[ledger.node] = written.ledger, time.monotonic()
        return written.done

    def _make_sure(self, node: str, held: NodeLedger | None) -> None:
        """Tell what a write did whose answer was lost, once the view shows what is stored since."""
        before, begun = self._unsure.get(node, (None, None))
        if begun is None or held is None:
            return
        if version(held.resource_version) > version(before.resource_version if before is not None else ""):
            del self._unsure[node]
            self._tell(before, held, self._cluster.snapshot, begun)

    def _tell(self, before: NodeLedger | None, after: NodeLedger, snapshot: Snapshot, begun: datetime) -> None:
        moments = transitions(before, after, snapshot, begun, self._clock())
        if moments:
            self.on_moments(moments)

    async def _leave(self, held: NodeLedger | None, ledger: NodeLedger, snapshot: Snapshot) -> bool:
        """The node is gone: so is its ledger, once nothing is booked there."""
        if held is None:
            return True
        if ledger.charges or ledger.reservations:
            here = [snapshot.claims_by_uid.get(row.claim_uid) for row in ledger.charges]
            self._differ(chain.from_iterable(claim_unplaced(each, snapshot) for each in here if each), snapshot)
            return ledger == held or await self._write(held, ledger, snapshot, {})
        begun = self._clock()
        removed = await self._ledgers.remove(held)
        if removed:
            self._tell(held, ledger, snapshot, begun)
        return removed

    def _behind(self, node: str, held: NodeLedger | None) -> bool:
        """Whether the view does not show yet what we wrote. That somebody has deleted it is no reason to wait long."""
        ours, at = self._written.get(node, (None, 0.0))
        seen = ours is None or (held is not None and version(held.resource_version) >= version(ours.resource_version))
        if seen or time.monotonic() - at > LOOK:
            self._written.pop(node, None)
            return False
        return True

    def _summed(self, snapshot: Snapshot, node: str) -> Json:
        page = self._book.page(snapshot, node)
        if page is None:
            return {}
        self._differ(page.differences, snapshot)
        return {**account_json(page.account), "differences": len(page.differences)}

    def _differ(self, differences: Iterable[Difference], snapshot: Snapshot) -> None:
        for uid in concerned(differences, snapshot):
            self.on_differing(uid)

    async def _alive(self, held: NodeLedger | None, snapshot: Snapshot) -> frozenset[str]:
        """The claims on ``held`` that the view does not have, and the API server does."""
        rows: list[BookedCharge | Reservation] = []
        if held is not None:
            rows += [*held.charges, *(each for each in held.reservations if each.seen)]
        unknown = {row.claim_uid: row for row in rows if row.claim_uid not in snapshot.claims_by_uid}
        return frozenset([uid for uid, row in unknown.items() if await self._stored(row.namespace, row.name, uid)])

    async def _stored(self, namespace: str, name: str, uid: str) -> Claim | None:
        """The claim as the API server has it, None where there is none with this UID."""
        try:
            obj = await self._api.get(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}")
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return None
        claim = read_claim(obj)
        return claim if claim.uid == uid else None

    def _known_for(self, node: str, held: NodeLedger | None) -> dict[_Name, float]:
        """For how long each reservation of ``held`` has been known here, seconds."""
        now, before = time.monotonic(), self._noticed.pop(node, {})
        noticed = {_name(each): before.get(_name(each), now) for each in (held.reservations if held else ())}
        if noticed:
            self._noticed[node] = noticed
        here = {uid for uid, allocation, *_ in noticed if allocation == PLACE}
        for uid in [uid for uid, place in self._places.items() if place == node and uid not in here]:
            del self._places[uid]
        self._places |= dict.fromkeys(here, node)
        return {name: now - since for name, since in noticed.items()}

    async def _over(self, reservation: Reservation, known_for: float) -> bool:
        """Whether the allocation of a reservation was seen to end between two rounds, or will not come any more."""
        if reservation.seen:
            return False
        ended = self._ended.get((reservation.claim_uid, reservation.allocation))
        if ended is not None and ended >= version(reservation.claim_version):
            return True
        if known_for < _LIFE:
            return False
        claim = await self._stored(reservation.namespace, reservation.name, reservation.claim_uid)
        if claim is None or not allocated_as(claim, reservation.allocation):
            return True
        consumers = {consumer.uid for consumer in claim.reserved_for}
        return bool(reservation.pod_uid) and reservation.pod_uid not in consumers


def _counted(
    held: NodeLedger | None, ledger: NodeLedger, snapshot: Snapshot, known_for: Mapping[_Name, float]
) -> list[Reservation]:
    """What ``held`` has for pods that ``ledger`` holds nothing for any more, since they are counted on the node: other
    replicas may not see that yet. None of them is as far behind as a reservation lasts, or no pool is fresh for it.
    """
    going = {_name(each) for each in ledger.reservations}
    kept = []
    for each in held.reservations if held is not None else ():
        pod = snapshot.pods_by_uid.get(each.pod_uid)
        counted = pod is not None and pod.node == ledger.node and not pod.terminal
        if counted and each.allocation != PLACE and _name(each) not in going and known_for[_name(each)] < _LIFE:
            kept.append(replace(each, charges=(), siblings={}, seen=True, counted=True))
    return kept


def _uncounted(ledger: NodeLedger) -> NodeLedger:
    return replace(ledger, reservations=tuple([replace(each, counted=False) for each in ledger.reservations]))


def _wanted(snapshot: Snapshot, ledger: NodeLedger) -> bool:
    """Whether a node that has no ledger yet is to have this one."""
    slices = snapshot.node_slices.get(ledger.node, ())
    return bool(ledger.charges) or any(item.mapped for item in slices)


def _hash(sums: Json) -> int:
    return hash(orjson.dumps(sums, option=orjson.OPT_SORT_KEYS))


def _name(reservation: Reservation) -> _Name:
    return reservation.claim_uid, reservation.allocation, reservation.pod_uid, reservation.taken
