"""Reservations, live: what admission allows on a node is written into the node's NodeLedger before it is told.

A write goes over the very version of the ledger that the decision was made on. Where another replica, or the leader,
was faster, the decision is made again on what is there now: of two claims that want the last cpu one gets it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from http import HTTPStatus
from typing import Any, Protocol
from weakref import WeakValueDictionary

from msgspec import Struct
from msgspec.structs import replace

from webhook.admission.action import denies
from webhook.admission.decide import Judged, Verdict
from webhook.admission.record import Reserved
from webhook.cluster.api import ApiError, Unreachable
from webhook.cluster.ledgers import Ledgers, Written
from webhook.kube.finding import Finding
from webhook.kube.node_ledger import NodeLedger, Reservation
from webhook.kube.resource_version import version
from webhook.kube.snapshot import Snapshot
from webhook.ledger.reserve import LIFE, reservation, taken

# Seconds after which what we wrote no longer goes before what the watch shows; a swap tells when that is too old.
OURS = 5.0
# What an account is summed up from.
_COUNTED = ("Node", "Pod", "ResourceClaim")
# The gravest first: the action of the policies that judged the write is what a missing reservation comes under.
_ACTIONS = ("Deny", "Warn", "Audit")


class Wanted(Struct, frozen=True):
    """A reservation that a verdict needs, and the ledger that it was judged by."""

    ledger: NodeLedger
    reservation: Reservation


class World(Protocol):
    """The live view."""

    @property
    def snapshot(self) -> Snapshot:
        """What is known at this moment."""


class Submit(Protocol):
    """Begins a coroutine in the loop of the API server's connections."""

    def __call__(self, coroutine: Coroutine[Any, Any, Written]) -> Future[Written]:
        """Its future."""


class Counting(Protocol):
    """The metrics."""

    def conflict(self) -> None:
        """Count a write that somebody else was faster than."""


class Reserving:
    """The reservations of one server; ``holder`` is its name in them. All but what ``submit`` runs belongs to the event
    loop that decides.
    """

    def __init__(self, ledgers: Ledgers, submit: Submit, world: World, metrics: Counting, holder: str) -> None:
        self._ledgers = ledgers
        self._submit = submit
        self._world = world
        self._metrics = metrics
        self._holder = holder
        self._ours: dict[str, tuple[NodeLedger, float]] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def view(self) -> Snapshot:
        """The live view, with the ledgers that we wrote and the watch has not brought yet."""
        snapshot = self._world.snapshot
        ledgers = snapshot.ledgers
        for node, (ledger, until) in list(self._ours.items()):
            known = snapshot.ledgers.get(node)
            if time.monotonic() > until or (known is not None and not _newer(ledger, known)):
                del self._ours[node]
            else:
                ledgers = ledgers.set(node, ledger)
        return snapshot if ledgers is snapshot.ledgers else replace(snapshot, ledgers=ledgers)

    def wanted(self, verdict: Verdict) -> Wanted | None:
        """What has to be held before ``verdict`` is told; None where it refuses, where no policy judged the write, for
        a dry run, and where nothing is to be held that is not.
        """
        request = verdict.request
        if request.dry_run or verdict.endpoint != "validate" or request.resource.name != "resourceclaims":
            return None
        facts = verdict.evaluation.facts
        claim = facts.claim
        if claim is None or claim.old is None or not (claim.allocating or claim.adds_consumers):
            return None
        account = facts.account
        if account is None or _judge(verdict) is None or any(map(denies, verdict.judged)):
            return None
        held = reservation(
            claim.model,
            claim.newcomer,
            claim.fitted,
            claim.cost,
            facts.snapshot,
            account,
            facts.now,
            self._holder,
            claim.old,
        )
        if held is None:
            return None
        ledger = facts.snapshot.ledgers.get(account.node)
        return Wanted(ledger if ledger is not None else NodeLedger(account.node, account.uid), held)

    async def settle(
        self, verdict: Verdict, wanted: Wanted, judge: Callable[[], Verdict], until: float
    ) -> tuple[Verdict, Reserved]:
        """The verdict to tell: ``verdict`` once ``wanted`` is written; where the ledger has changed, what ``judge``
        then says; one with a finding when nothing can be written, or not before ``until`` (perf_counter). And how that
        went.
        """
        begun, node, told = time.perf_counter(), wanted.ledger.node, verdict
        lost: list[str] = []
        taken = False
        turn = self._turns.get(node)
        if turn is None:
            # One after the other on a node: those of one server need not lose races to one another.
            turn = self._turns[node] = asyncio.Lock()
        try:
            async with asyncio.timeout(until - begun), turn:
                problem = _stale(verdict)
                if not problem:
                    told, problem, taken = await self._take(verdict, wanted, judge, lost)
        except TimeoutError:
            problem = "the time of the request was spent"
        except Unreachable as error:
            problem = f"the API server does not answer: {error}"
        except ApiError as error:
            problem = f"the API server refuses it: {error}"
            if error.status == HTTPStatus.NOT_FOUND:
                problem = "the API server has no NodeLedgers; install the definitions of this release"
        if told is not verdict:
            verdict.evaluation.facts.release()
        seconds = time.perf_counter() - begun
        return _refused(told, node, problem) if problem else told, Reserved(node, seconds, len(lost), taken, problem)

    async def _take(
        self, verdict: Verdict, wanted: Wanted, judge: Callable[[], Verdict], lost: list[str]
    ) -> tuple[Verdict, str, bool]:
        """The verdict once what it needs is written, what stands in the way, if anything does, and whether something
        was written; ``lost`` gets the
        version of each ledger that somebody else wrote over. ``verdict`` itself stays as it is: when the time is up it
        is the one to tell.
        """
        first, node = verdict, wanted.ledger.node
        while True:
            if self.view().ledgers.get(node, wanted.ledger).resource_version != wanted.ledger.resource_version:
                if verdict is not first:
                    verdict.evaluation.facts.release()
                verdict = judge()
                again = self.wanted(verdict)
                if again is None:
                    return verdict, "", False
                if again.ledger.node != node:
                    return verdict, f"its devices are on node {again.ledger.node} now", False
                wanted = again
            if wanted.ledger.problem:
                return verdict, f"its NodeLedger cannot be read: {wanted.ledger.problem}; delete it", False
            asked = self._submit(self._ledgers.reserve(taken(wanted.ledger, wanted.reservation)))
            written = await asyncio.wrap_future(asked)
            self._ours[node] = written.ledger, time.monotonic() + OURS
            if written.done:
                return verdict, "", True
            lost.append(wanted.ledger.resource_version)
            self._metrics.conflict()


def _newer(ledger: NodeLedger, known: NodeLedger) -> bool:
    return version(ledger.resource_version) > version(known.resource_version)


def _judge(verdict: Verdict) -> tuple[str, str] | None:
    """The policy, with its action, in whose name a missing reservation is told: the strictest that judged the write."""
    judges = [(each.policy, each.action) for each in verdict.evaluation.policies if each.matched]
    return min(judges, key=lambda each: _ACTIONS.index(each[1]), default=None)


def _stale(verdict: Verdict) -> str:
    """What of the view that ``verdict`` was made on is older than reservations last: they hold pods and claims for no
    longer, since everybody has seen them then. For a driver the view may be older.
    """
    facts = verdict.evaluation.facts
    old = [kind for kind in _COUNTED if (at := facts.snapshot.seen.get(kind)) is not None and facts.now - at > LIFE]
    return f"what is known of {' and '.join(old)} is more than {LIFE.total_seconds():.0f} seconds old" if old else ""


def _refused(verdict: Verdict, node: str, problem: str) -> Verdict:
    """``verdict`` with the finding that nothing is reserved."""
    policy, action = _judge(verdict) or ("", "Deny")
    finding = Finding(
        "not-reserved",
        "status.allocation",
        f"no reservation on node {node}: {problem}",
        "one before it is allowed, so that nobody else is given the same",
        "try again",
    )
    return replace(verdict, judged=(*verdict.judged, Judged(policy, action, finding)))
