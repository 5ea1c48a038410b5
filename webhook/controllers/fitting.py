"""Where gated pods fit their zones, node by node, at one moment: very many pods may wait, and most of them alike."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from webhook.facts.account import Account
from webhook.facts.assignment import InZones
from webhook.facts.pod_needs import wanted_claims
from webhook.facts.pool_survey import Reason
from webhook.facts.zone_choice import RULE
from webhook.facts.zone_places import Place, better, nodes_for, place_on
from webhook.kube.claims import Claim
from webhook.kube.core import Pod
from webhook.kube.node_ledger import NodeLedger
from webhook.kube.quantity import Number
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book

# Seconds after which a node is looked at again although nothing has happened there: holds end by time alone.
AGAIN = 30.0
# Nodes looked at after which other work of the event loop has its turn.
_BREATH = 8

_Key = tuple[object, ...]


def unfit() -> Reason:
    """Why a pod waits that no node could serve."""
    has = "no node that it may have and that has devices for its claims"
    return Reason(RULE, has, "one where they fit their zones")


class _Need:
    """What equal pods need. ``keep`` are the objects that its key names, ``changed`` the nodes for which somebody was
    let go since ``places`` were found.
    """

    def __init__(self, keep: object) -> None:
        self.keep = keep
        self.found: dict[str, tuple[Account, Place | Reason]] = {}
        self.nodes: list[str] = []
        self.places: list[Place] | None = None
        self.reason = unfit()
        self.changed: set[str] = set()


class Fitting:
    """What was found about a node is kept as long as its account is the very same one."""

    def __init__(self, snapshot: Snapshot, clock: Callable[[], datetime]) -> None:
        self.snapshot = snapshot
        self._clock = clock
        self._book = Book()
        self._accounts: dict[str, Account | None] = {}
        self._needs: dict[_Key, _Need] = {}
        self._asked: dict[_Key, _Need] = {}
        self._fresh = 0.0
        # By node and UID what pods that were let go may come to take of its zones.
        self._coming: dict[str, dict[str, InZones]] = {}

    def begin(self, snapshot: Snapshot) -> None:
        """Go by ``snapshot``; nobody is on the way."""
        self.snapshot = snapshot
        if time.monotonic() - self._fresh > AGAIN:
            self._fresh, self._asked = time.monotonic(), {}
        # What nobody asked about at the last moment is forgotten.
        self._needs, self._asked = self._asked, {}
        for need in self._needs.values():
            need.places = None
        self._accounts, self._coming = {}, {}

    def write(self, ledger: NodeLedger) -> None:
        """Go by ``ledger``, which was just written."""
        self.snapshot = self.snapshot.with_ledger(ledger)
        self._accounts.pop(ledger.node, None)
        self._change(ledger.node)

    def come(self, uid: str, nodes: Mapping[str, InZones]) -> None:
        """Count what the pod may come to take of the zones of ``nodes``."""
        for node, asked in nodes.items():
            self._coming.setdefault(node, {})[uid] = asked
            self._change(node)

    def _change(self, node: str) -> None:
        for need in self._asked.values():
            need.changed.add(node)

    def claims(self, pod: Pod) -> tuple[Claim, ...]:
        """The claims of ``pod`` that have no devices."""
        return tuple(claim for claim in wanted_claims(pod, self.snapshot) if claim.allocation is None)

    async def places(self, pod: Pod, claims: tuple[Claim, ...], mine: str = "") -> tuple[list[Place], Reason]:
        """The places for ``claims`` of ``pod``, best first, and the reason to tell where there is none. ``mine`` is the
        node where the pod has a place already, which stands in its own way nowhere.
        """
        need = self._need(pod, claims)
        if need.places is None:
            found: list[Place | Reason] = []
            need.nodes = nodes_for(claims, pod, self.snapshot)
            for number, node in enumerate(need.nodes):
                if number % _BREATH == _BREATH - 1:
                    await asyncio.sleep(0)
                found.append(self._beside(need, pod, claims, node))
            need.places = _with((), found, ())
            need.reason, need.changed = _why(found, need.places), set()
        if need.changed:
            again = [self._beside(need, pod, claims, node) for node in need.nodes if node in need.changed]
            need.places = _with(need.places, again, need.changed)
            need.reason, need.changed = _why([*again, need.reason], need.places), set()
        if not mine:
            return need.places, need.reason
        return _with(need.places, [self.own(pod, claims, mine)], {mine}), need.reason

    def own(self, pod: Pod, claims: tuple[Claim, ...], node: str) -> Place | Reason:
        """The place on a node that holds one for the pod."""
        account = self._account(node)
        return unfit() if account is None else place_on(pod, claims, self.snapshot, account, self._clock())

    def alone(self, pod: Pod, claims: tuple[Claim, ...], node: str) -> Place | Reason:
        """The place on ``node`` for a pod that has none there, if nobody else were let go to it."""
        return self._alone(self._need(pod, claims), pod, claims, node)

    def _alone(self, need: _Need, pod: Pod, claims: tuple[Claim, ...], node: str) -> Place | Reason:
        account = self._account(node)
        before, found = need.found.get(node, (None, None))
        if account is not None and (found is None or before is not account):
            found = place_on(pod, claims, self.snapshot, account, self._clock())
            need.found[node] = account, found
        return found or unfit()

    def _beside(self, need: _Need, pod: Pod, claims: tuple[Claim, ...], node: str) -> Place | Reason:
        """The place on ``node`` beside all that may come there."""
        found, account, coming = self._alone(need, pod, claims, node), self._account(node), self._coming.get(node)
        if account is None or not coming or not isinstance(found, Place):
            return found
        more: dict[tuple[int, str], Number] = {}
        for asked in coming.values():
            for key, amount in asked.items():
                more[key] = more.get(key, 0) + amount
        return found if found.bears(more) else place_on(pod, claims, self.snapshot, account, self._clock(), more)

    def _account(self, node: str) -> Account | None:
        if node not in self._accounts:
            self._accounts[node] = self._book.account(self.snapshot, node)
        return self._accounts[node]

    def _need(self, pod: Pod, claims: tuple[Claim, ...]) -> _Need:
        """What ``pod`` needs, the same for all that ask for the same. Snapshots keep what is equal once."""
        snapshot = self.snapshot
        # Where a claim is that has its devices, the pod has to go.
        known = [snapshot.claims.get((pod.namespace, name)) for name in pod.claim_names.values()]
        given = [claim for claim in known if claim is not None and claim.allocation is not None]
        key: _Key = (
            *(part for claim in claims for part in (id(claim.groups), id(claim.constraints))),
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


def _with(places: Iterable[Place], found: Sequence[Place | Reason], nodes: Iterable[str]) -> list[Place]:
    """``places`` with what was ``found`` on ``nodes``, best first."""
    again = frozenset(nodes)
    kept = [each for each in places if each.node not in again]
    return sorted([*kept, *(each for each in found if isinstance(each, Place))], key=better)


def _why(found: Sequence[Place | Reason], places: Sequence[Place]) -> Reason:
    """Why nothing can be had as it is: what a zone lacks, before anything else."""
    if places and places[0].full:
        return places[0].full[0].reason
    reasons = [each for each in found if isinstance(each, Reason)]
    return next((each for each in reasons if each.rule == "zone-overcommit"), reasons[0] if reasons else unfit())
