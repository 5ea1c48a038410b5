"""Chooses nodes for gated pods whose NUMA zones somebody has to choose, and holds a place for each before it is let go.

A pod is offered every node where its claims fit whichever devices the scheduler takes, and whoever else was let go
comes there. Where only some zones of a node have room, the devices of the others are tainted first, for as long as a
gated pod or a place needs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Protocol

from webhook.cluster.api import Api, ApiError
from webhook.cluster.ledgers import Ledgers
from webhook.cluster.reflector import Key
from webhook.controllers.fitting import Fitting, unfit
from webhook.facts.assignment import InZones
from webhook.facts.pool_survey import Reason
from webhook.facts.steering import hostnames_patch
from webhook.facts.taints import TaintWanted
from webhook.facts.zone_choice import RULE, Choosing
from webhook.facts.zone_places import Place, allowed
from webhook.kube.claims import Claim
from webhook.kube.core import Pod
from webhook.kube.node_ledger import PLACE, NodeLedger
from webhook.kube.raw import Json, mapping, text
from webhook.kube.resource_version import version
from webhook.kube.snapshot import Snapshot
from webhook.ledger.place import place_reservations, placed

# The rule of pods whose claims are just being made.
UNMADE = "claim-not-made"
# Nodes that a pod is offered: of a crowd each gets its share of them, or the pods would go one after the other, since
# each may come to any of its nodes.
MOST_NODES, LEAST_NODES = 64, 8
# Devices that are tainted for all pods.
MOST_TAINTS = 256
# Waiting pods that are read at one moment, to see which nodes they may have.
MOST_READS = 50
# Tries to hold a place.
_TRIES = 5
# A ledger that cannot be had is no reason to leave a gate: the allocation will be refused in its own words.
_WITHOUT = frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY})


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


class Places:
    """Belongs to the event loop of ``api``. :meth:`begin` and :meth:`end` enclose what is asked about one moment."""

    def __init__(self, api: Api, view: View, taints: Tainting, clock: Callable[[], datetime], holder: str) -> None:
        self._api = api
        self._ledgers = Ledgers(api)
        self._view = view
        self._taints = taints
        self._clock = clock
        self._holder = holder
        self._turn = asyncio.Lock()
        self._fitting = Fitting(view.snapshot, clock)
        self._choosing = Choosing(view.snapshot)
        # Ledgers that were written and that the view does not show yet.
        self._ours: dict[str, NodeLedger] = {}
        # By UID: pods as they were read with what the view had then; where pods have places; and on which other nodes
        # they may take what of zones, since they were let go there, too.
        self._raw: dict[str, tuple[Pod, Json]] = {}
        self._placed: dict[str, str] = {}
        self._offered: dict[str, dict[str, InZones]] = {}
        self._wanted: dict[str, TaintWanted] = {}
        self._awaited: set[tuple[str, Key]] = set()
        self._reads = self._due = 0

    def awaits(self, kind: str, key: Key) -> bool:
        """Whether a change of this object may let a pod go on: a claim that is to get its devices, a pod whose claims
        are being made.
        """
        return (kind, key) in self._awaited

    def begin(self) -> None:
        """Go by what the view shows now, and by what was written and is not shown yet."""
        snapshot = self._view.snapshot
        for node, ours in list(self._ours.items()):
            known = snapshot.ledgers.get(node)
            if known is not None and version(known.resource_version) >= version(ours.resource_version):
                del self._ours[node]
            else:
                snapshot = snapshot.with_ledger(ours)
        self._fitting.begin(snapshot)
        self._choosing = Choosing(snapshot)
        self._wanted, self._awaited, self._reads, self._due = {}, set(), MOST_READS, 0
        self._placed = {
            each.pod_uid: node
            for node, ledger in snapshot.ledgers.items()
            for each in ledger.reservations
            if each.allocation == PLACE and each.pod_uid
        }
        self._offered = {uid: nodes for uid, nodes in self._offered.items() if uid in self._placed}
        self._raw = {uid: row for uid, row in self._raw.items() if uid in snapshot.pods_by_uid}
        for uid in self._placed:
            self._let_go(uid)

    async def end(self) -> None:
        """Say which devices are to be tainted: for pods that were asked about, and for those that have places."""
        for uid, node in self._placed.items():
            pod = self._fitting.snapshot.pods_by_uid.get(uid)
            if pod is None or pod.node:
                continue
            claims = self._fitting.claims(pod)
            around = [self._fitting.alone(pod, claims, name) for name in self._offered.get(uid, ())]
            for found in (self._fitting.own(pod, claims, node), *around):
                if isinstance(found, Place):
                    self._want(found)
            await asyncio.sleep(0)
        self._taints.want(tuple(self._wanted.values()))

    def idle(self) -> None:
        """Have nothing tainted, where no policy has zones chosen."""
        self._awaited.clear()
        self._taints.want(())

    async def reason(self, pod: Pod) -> Reason | None:
        """Why ``pod`` has to wait for a zone: none of its nodes has room whichever devices are taken. None where one
        has, and where nothing has to be chosen. Raises ApiError and Unreachable.
        """
        if self._choosing.pod(pod) is None:
            return None
        claims = self._fitting.claims(pod)
        unmade = next((claim for claim in claims if not claim.uid), None)
        if unmade is not None:
            self._awaited.add(("Pod", (pod.namespace, pod.name)))
            return Reason(UNMADE, f"claim {unmade.name}, which is not made yet", "the claim, to hold a place for it")
        places, reason = await self._places(pod, claims)
        if any(map(self._usable, places)):
            self._due += 1
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
        if self._choosing.pod(pod) is None:
            return []
        raw = await self._read(pod)
        claims = self._fitting.claims(pod)
        async with self._turn:
            for _ in range(_TRIES):
                offered = self._chosen(*await self._places(pod, claims), raw)
                if isinstance(offered, Reason):
                    return offered
                # A place that it has already costs no other.
                mine = self._placed.get(pod.uid)
                offered.sort(key=lambda each: each.node != mine)
                if await self._hold(pod, claims, offered[0]):
                    break
            else:
                return Reason(RULE, "nodes whose ledgers others were writing", "a place on one of them")
            share = len(offered) // max(1, self._due)
            del offered[min(MOST_NODES, max(LEAST_NODES, share)) :]
            if pod.uid in self._placed:
                self._offered[pod.uid] = {each.node: each.asked for each in offered[1:]}
                self._let_go(pod.uid)
        seen = text(mapping(raw.get("metadata")).get("resourceVersion"))
        unchanged = {"op": "test", "path": "/metadata/resourceVersion", "value": seen}
        return [unchanged, *hostnames_patch(raw, [each.hostname for each in offered])]

    async def _places(self, pod: Pod, claims: tuple[Claim, ...]) -> tuple[list[Place], Reason]:
        return await self._fitting.places(pod, claims, self._placed.get(pod.uid, ""))

    def _chosen(self, places: list[Place], reason: Reason, raw: Json) -> list[Place] | Reason:
        """Those of ``places`` that the raw pod may have, or why it has none now; what has to be tainted for it is
        wanted.
        """
        nodes = self._fitting.snapshot.nodes
        may = [each for each in places if allowed(raw, nodes[each.node])]
        usable = [each for each in may if self._usable(each)]
        if usable:
            return usable
        if may:
            if self._taints.possible:
                self._want(may[0])
            return may[0].full[0].reason
        return unfit() if places else reason

    async def _hold(self, pod: Pod, claims: tuple[Claim, ...], place: Place) -> bool:
        """Hold ``place`` for ``pod``; False when the ledger was another one meanwhile."""
        reservations = place_reservations(pod, claims, place, self._clock(), self._holder)
        if not reservations:
            return True
        snapshot = self._fitting.snapshot
        node = snapshot.nodes[place.node]
        ledger = snapshot.ledgers.get(node.name) or NodeLedger(node.name, node.uid)
        try:
            written = await self._ledgers.reserve(placed(ledger, reservations))
        except ApiError as error:
            if error.status not in _WITHOUT:
                raise
            return True
        self._ours[node.name] = written.ledger
        self._fitting.write(written.ledger)
        if written.done:
            self._placed[pod.uid] = node.name
        return written.done

    def _let_go(self, uid: str) -> None:
        """Count what the pod may come to take on the nodes that it was offered, until its claims have devices."""
        pod = self._fitting.snapshot.pods_by_uid.get(uid)
        claims = self._fitting.claims(pod) if pod is not None and not pod.node else ()
        if claims:
            self._awaited |= {("ResourceClaim", (claim.namespace, claim.name)) for claim in claims}
            self._fitting.come(uid, self._offered.get(uid, {}))

    async def _read(self, pod: Pod) -> Json:
        """The pod as the API server has it; read once as long as the view shows no other."""
        known, raw = self._raw.get(pod.uid, (None, {}))
        if known is not pod:
            raw = await self._api.get(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}")
            self._raw[pod.uid] = pod, raw
        return raw

    def _usable(self, place: Place) -> bool:
        return not place.full or (self._taints.possible and all(map(self._taints.stands, place.full)))

    def _want(self, place: Place) -> None:
        if len(self._wanted) + len(place.full) <= MOST_TAINTS:
            self._wanted |= {each.name: each for each in place.full}
