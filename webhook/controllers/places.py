"""Chooses nodes for gated pods whose NUMA zones somebody has to choose, and holds a place for each before it is let go.

A pod is offered every node where its claims fit whichever devices the scheduler takes. Where only some zones of a node
have room, the devices of the others are tainted first, for as long as a gated pod or a place needs it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Protocol

from webhook.cluster.api import Api, ApiError
from webhook.cluster.ledgers import Ledgers
from webhook.facts.account import Account
from webhook.facts.pod_needs import wanted_claims
from webhook.facts.pool_survey import Reason
from webhook.facts.steering import hostnames_patch
from webhook.facts.taints import TaintWanted
from webhook.facts.zone_choice import RULE, must_choose
from webhook.facts.zone_places import Place, allowed, better, nodes_for, place_on
from webhook.kube.claims import Claim
from webhook.kube.core import Pod
from webhook.kube.node_ledger import PLACE, NodeLedger
from webhook.kube.raw import Json, mapping, text
from webhook.kube.resource_version import version
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book
from webhook.ledger.place import place_reservations, placed

# The rule of pods whose claims are just being made.
UNMADE = "claim-not-made"
# Nodes that a pod is offered, and devices that are tainted for all pods.
MOST_NODES, MOST_TAINTS = 64, 256
# Waiting pods that are read at one moment, to see which nodes they may have.
MOST_READS = 50
# Nodes looked at after which other work of the event loop has its turn; tries to hold a place.
_BREATH, _TRIES = 8, 5
# Seconds after which a node is looked at again although nothing has happened there: holds end by time alone.
AGAIN = 30.0
# A ledger that cannot be had is no reason to leave a gate: the allocation will be refused in its own words.
_WITHOUT = frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY})

_Key = tuple[object, ...]


class View(Protocol):
    """What is read of the live view."""

    @property
    def snapshot(self) -> Snapshot:
        """The objects."""


class Tainting(Protocol):
    """What keeps schedulers off devices, see :class:`webhook.controllers.taints.Taints`."""

    @property
    def possible(self) -> bool:
        """Whether a taint is heeded."""

    def want(self, full: Sequence[TaintWanted]) -> None:
        """Have these devices tainted, and no others of those wanted before."""

    def stands(self, wanted: TaintWanted) -> bool:
        """Whether the taint is there."""


class _Need:
    """What equal pods need: where they fit is looked at once for all. ``keep`` are the objects that its key names,
    ``changed`` the nodes whose ledgers were written since ``places`` were found.
    """

    def __init__(self, keep: object) -> None:
        self.keep = keep
        self.found: dict[str, tuple[Account, Place | Reason]] = {}
        self.nodes: list[str] = []
        self.places: list[Place] | None = None
        self.reason = _unfit()
        self.changed: set[str] = set()


class Places:
    """Belongs to the event loop of ``api``. :meth:`begin` and :meth:`end` enclose what is asked about one moment."""

    def __init__(self, api: Api, view: View, taints: Tainting, clock: Callable[[], datetime], holder: str) -> None:
        self._api = api
        self._ledgers = Ledgers(api)
        self._view = view
        self._taints = taints
        self._clock = clock
        self._holder = holder
        self._book = Book()
        self._turn = asyncio.Lock()
        self._snapshot = view.snapshot
        self._ours: dict[str, NodeLedger] = {}
        self._needs: dict[_Key, _Need] = {}
        self._asked: dict[_Key, _Need] = {}
        self._fresh = 0.0
        # By UID: pods as they were read with what the view had then; where pods have places; what they were offered.
        self._raw: dict[str, tuple[Pod, Json]] = {}
        self._placed: dict[str, str] = {}
        self._offered: dict[str, tuple[str, ...]] = {}
        self._wanted: dict[str, TaintWanted] = {}
        self._accounts: dict[str, Account | None] = {}
        self._reads = 0

    def begin(self) -> None:
        """Go by what the view shows now, and by what was written and is not shown yet."""
        snapshot = self._view.snapshot
        for node, ours in list(self._ours.items()):
            known = snapshot.ledgers.get(node)
            if known is not None and version(known.resource_version) >= version(ours.resource_version):
                del self._ours[node]
            else:
                snapshot = snapshot.with_ledger(ours)
        self._snapshot = snapshot
        if time.monotonic() - self._fresh > AGAIN:
            self._fresh, self._needs = time.monotonic(), {}
        for need in self._needs.values():
            need.places = None
        self._asked, self._wanted, self._accounts, self._reads = {}, {}, {}, MOST_READS
        self._placed = {
            each.pod_uid: node
            for node, ledger in snapshot.ledgers.items()
            for each in ledger.reservations
            if each.allocation == PLACE and each.pod_uid
        }
        self._offered = {uid: nodes for uid, nodes in self._offered.items() if uid in self._placed}
        self._raw = {uid: row for uid, row in self._raw.items() if uid in snapshot.pods_by_uid}

    async def end(self) -> None:
        """Say which devices are to be tainted: for pods that were asked about, and for those that have places."""
        for uid, node in self._placed.items():
            pod = self._snapshot.pods_by_uid.get(uid)
            if pod is None or pod.node:
                continue
            claims = self._claims(pod)
            need = self._need(pod, claims)
            for name in self._offered.get(uid, (node,)):
                found = self._own(pod, claims, name) if name == node else self._look(need, pod, claims, name)
                if isinstance(found, Place):
                    self._want(found)
            await asyncio.sleep(0)
        self._needs = self._asked
        self._taints.want(tuple(self._wanted.values()))

    def idle(self) -> None:
        """Have nothing tainted, where no policy has zones chosen."""
        self._taints.want(())

    async def reason(self, pod: Pod) -> Reason | None:
        """Why ``pod`` has to wait for a zone: none of its nodes has room whichever devices are taken. None where one
        has, and where nothing has to be chosen.
        """
        if must_choose(pod, self._snapshot) is None:
            return None
        claims = self._claims(pod)
        unmade = next((claim for claim in claims if not claim.uid), None)
        if unmade is not None:
            return Reason(UNMADE, f"claim {unmade.name}, which is not made yet", "the claim, to hold a place for it")
        places, reason = await self._judged(pod, claims)
        if any(map(self._usable, places)):
            return None
        if places and self._taints.possible and (pod.uid in self._raw or self._reads):
            # Which of them it may have is to be known before any device is tainted.
            self._reads -= pod.uid not in self._raw
            chosen = self._chosen(places, reason, await self._read(pod))
            return chosen if isinstance(chosen, Reason) else None
        return reason

    async def take(self, pod: Pod) -> list[Json] | Reason:
        """What narrows ``pod`` to the nodes where it fits, once a place is held on one of them; nothing where nothing
        has to be chosen; the reason where there is no node for it now. Raises ApiError and Unreachable.
        """
        if must_choose(pod, self._snapshot) is None:
            return []
        raw = await self._read(pod)
        claims = self._claims(pod)
        async with self._turn:
            for _ in range(_TRIES):
                offered = self._chosen(*await self._judged(pod, claims), raw)
                if isinstance(offered, Reason):
                    return offered
                # A place that it has already costs no other.
                mine = self._placed.get(pod.uid)
                offered.sort(key=lambda each: each.node != mine)
                if await self._hold(pod, claims, offered[0]):
                    break
            else:
                return Reason(RULE, "nodes whose ledgers others were writing", "a place on one of them")
        del offered[MOST_NODES:]
        self._offered[pod.uid] = tuple(each.node for each in offered)
        seen = text(mapping(raw.get("metadata")).get("resourceVersion"))
        unchanged = {"op": "test", "path": "/metadata/resourceVersion", "value": seen}
        return [unchanged, *hostnames_patch(raw, [each.hostname for each in offered])]

    def _chosen(self, places: list[Place], reason: Reason, raw: Json) -> list[Place] | Reason:
        """Those of ``places`` that the raw pod may have, or why it has none now; what has to be tainted for it is
        wanted.
        """
        nodes = self._snapshot.nodes
        may = [each for each in places if allowed(raw, nodes[each.node])]
        usable = [each for each in may if self._usable(each)]
        if usable:
            return usable
        if may:
            if self._taints.possible:
                self._want(may[0])
            return may[0].full[0].reason
        return _unfit() if places else reason

    async def _hold(self, pod: Pod, claims: tuple[Claim, ...], place: Place) -> bool:
        """Hold ``place`` for ``pod``; False when the ledger was another one meanwhile."""
        reservations = place_reservations(pod, claims, place, self._clock(), self._holder)
        if not reservations:
            return True
        node = self._snapshot.nodes[place.node]
        ledger = self._snapshot.ledgers.get(node.name) or NodeLedger(node.name, node.uid)
        try:
            written = await self._ledgers.reserve(placed(ledger, reservations))
        except ApiError as error:
            if error.status not in _WITHOUT:
                raise
            return True
        self._ours[node.name] = written.ledger
        self._snapshot = self._snapshot.with_ledger(written.ledger)
        self._accounts.pop(node.name, None)
        for need in self._asked.values():
            need.changed.add(node.name)
        if written.done:
            self._placed[pod.uid] = node.name
        return written.done

    async def _read(self, pod: Pod) -> Json:
        """The pod as the API server has it; read once as long as the view shows no other."""
        known, raw = self._raw.get(pod.uid, (None, {}))
        if known is not pod:
            raw = await self._api.get(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}")
            self._raw[pod.uid] = pod, raw
        return raw

    def _claims(self, pod: Pod) -> tuple[Claim, ...]:
        return tuple(claim for claim in wanted_claims(pod, self._snapshot) if claim.allocation is None)

    def _usable(self, place: Place) -> bool:
        return not place.full or (self._taints.possible and all(map(self._taints.stands, place.full)))

    def _want(self, place: Place) -> None:
        if len(self._wanted) + len(place.full) <= MOST_TAINTS:
            self._wanted |= {each.name: each for each in place.full}

    def _need(self, pod: Pod, claims: tuple[Claim, ...]) -> _Need:
        """What ``pod`` needs, the same for all that ask for the same. Snapshots keep what is equal once."""
        snapshot = self._snapshot
        asked = [part for claim in claims for part in (id(claim.groups), id(claim.constraints))]
        # Where a claim is that has its devices, the pod has to go.
        known = [snapshot.claims.get((pod.namespace, name)) for name in pod.claim_names.values()]
        given = [claim for claim in known if claim is not None and claim.allocation is not None]
        key: _Key = (
            *asked,
            id(pod.containers),
            id(pod.init_containers),
            repr((pod.overhead, pod.pod_requests, [each.name for each in pod.claims])),
            tuple(map(id, given)),
            id(snapshot.classes),
            id(snapshot.free_slices),
        )
        need = self._asked.get(key) or self._needs.get(key)
        if need is None:
            need = _Need((claims, pod, given, snapshot.classes, snapshot.free_slices))
        self._asked[key] = need
        return need

    async def _judged(self, pod: Pod, claims: tuple[Claim, ...]) -> tuple[list[Place], Reason]:
        """The places for ``pod``, best first, and the reason to tell where there is none."""
        need = self._need(pod, claims)
        if need.places is None:
            found: list[Place | Reason] = []
            need.nodes = nodes_for(claims, pod, self._snapshot)
            for number, node in enumerate(need.nodes):
                if number % _BREATH == _BREATH - 1:
                    await asyncio.sleep(0)
                found.append(self._look(need, pod, claims, node))
            need.places = sorted((each for each in found if isinstance(each, Place)), key=better)
            need.reason, need.changed = _why(found, need.places), set()
        if need.changed:
            again = [self._look(need, pod, claims, node) for node in need.nodes if node in need.changed]
            need.places = _with(need.places, again, need.changed)
            need.reason, need.changed = _why([*again, need.reason], need.places), set()
        mine = self._placed.get(pod.uid)
        if mine is None:
            return need.places, need.reason
        # What is held for the pod itself stands in its way nowhere.
        return _with(need.places, [self._own(pod, claims, mine)], {mine}), need.reason

    def _look(self, need: _Need, pod: Pod, claims: tuple[Claim, ...], node: str) -> Place | Reason:
        account = self._account(node)
        before, found = need.found.get(node, (None, None))
        if account is not None and (found is None or before is not account):
            found = place_on(pod, claims, self._snapshot, account, self._clock())
            need.found[node] = account, found
        return found or _unfit()

    def _own(self, pod: Pod, claims: tuple[Claim, ...], node: str) -> Place | Reason:
        account = self._account(node)
        return _unfit() if account is None else place_on(pod, claims, self._snapshot, account, self._clock())

    def _account(self, node: str) -> Account | None:
        if node not in self._accounts:
            self._accounts[node] = self._book.account(self._snapshot, node)
        return self._accounts[node]


def _with(places: list[Place], found: Sequence[Place | Reason], nodes: set[str]) -> list[Place]:
    """``places`` with what was ``found`` on ``nodes``, best first."""
    kept = [each for each in places if each.node not in nodes]
    return sorted([*kept, *(each for each in found if isinstance(each, Place))], key=better)


def _why(found: Sequence[Place | Reason], places: Sequence[Place]) -> Reason:
    """Why nothing can be had as it is: what a zone lacks, before anything else."""
    if places and places[0].full:
        return places[0].full[0].reason
    reasons = [each for each in found if isinstance(each, Reason)]
    return next((each for each in reasons if each.rule == "zone-overcommit"), reasons[0] if reasons else _unfit())


def _unfit() -> Reason:
    has = "no node that it may have and that has devices for its claims"
    return Reason(RULE, has, "one where they fit their zones")
