"""Metrics of the present state: policies, pools, rollouts, accounts, and what waits.

Computing them takes longer than a scrape may. So somebody keeps them up beside, and a scrape takes what is there; only
where that is quick, or nobody does, it looks itself.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import get_args

from prometheus_client.core import Metric

from webhook.facts.gates_found import GateEvidence, gate_state
from webhook.facts.pending import pending
from webhook.facts.rollout import standing
from webhook.facts.waiting import Waiting
from webhook.facts.zone_choice import Choosing
from webhook.kube.snapshot import Snapshot
from webhook.ledger.charges import Category
from webhook.ledger.differences import unplaced
from webhook.server.figures import Figures
from webhook.store.policies import PolicyStore
from webhook.telemetry.metrics import gauge

# The reason of pods that nothing keeps back any more: they go on one after the other.
DUE = "due"
CATEGORIES: tuple[Category, ...] = get_args(Category)

# Seconds of work of a look that a scrape may wait for; and seconds after which nobody asks any more, or nobody looks
# beside.
QUICK, GIVEN_UP = 0.05, 300.0
# Seconds between two looks beside, and how many for each of work that one takes: with the rests within a look that is
# 4% of a core, however large the cluster is and however much of it changes.
EVERY, _APART = 1.0, 20.0
# Whoever keeps them up works so long, seconds, and then rests for that many times as long: decisions have one
# interpreter with it.
_WORK, _REST = 0.0005, 4


class Gauges:
    """``clock`` gives the time of a look, ``ages`` tells by kind how old the view of it is, seconds, ``refused`` by
    claim which rule refused its last allocation, ``evidence`` what is known of feature gates beside the snapshot.
    For any thread.
    """

    def __init__(
        self,
        policies: PolicyStore,
        snapshot: Callable[[], Snapshot],
        clock: Callable[[], datetime],
        ages: Callable[[], Mapping[str, float]],
        refused: Callable[[], Mapping[str, str]],
        evidence: Callable[[], GateEvidence],
    ) -> None:
        self._policies, self._snapshot, self._clock, self._ages = policies, snapshot, clock, ages
        self._refused, self._evidence = refused, evidence
        self._figures = Figures()
        self._seen: list[Metric] = []
        self._looking = threading.Lock()
        self._took = 0.0
        self._asked = self._kept = self._looked = float("-inf")
        self.ended = False

    def keep(self) -> float:
        """Look, if anybody has asked lately, at the leisure of whoever decides meanwhile but for the first time; gives
        the seconds until it is worth another look. Gives up once ``ended`` is set.
        """
        if time.monotonic() - self._asked > GIVEN_UP and self._seen:
            return EVERY
        try:
            self._look(_Pause(self, _REST if self._seen else 0))
        except _EndedError:
            return EVERY
        self._kept = time.monotonic()
        return max(EVERY, self._took * _APART)

    def families(self) -> Iterator[Metric]:
        """The families that are small; ages as they are now."""
        self._asked = asked = time.monotonic()
        if self._took < QUICK or asked - self._kept > GIVEN_UP:
            self._look(tuple, asked)
        policies = self._policies
        yield gauge("policy_revision_info", "The revision that serves", ["revision"], [([policies.revision.hash], 1)])
        yield gauge("policy_problems", "What is wrong with the latest edits", [], [([], len(policies.problems))])
        rows = [([kind], round(age, 3)) for kind, age in self._ages().items()]
        yield gauge("snapshot_age_seconds", "Since the view of the kind was last known to be current", ["kind"], rows)
        yield from self._seen

    @property
    def problem(self) -> str:
        """What the last look failed at and left out, empty where it saw everything."""
        return self._figures.problem

    def lines(self, dropped: Callable[[str, int], object]) -> Iterable[bytes]:
        """The lines of the large families, in pieces, as they were seen at the last look; as :meth:`Figures.lines`."""
        return self._figures.lines(self._clock(), dropped)

    def _look(self, pause: Callable[[], object], since: float = float("inf")) -> None:
        """Look, unless somebody else's look has ended ``since``."""
        with self._looking:
            if self._looked > since:
                return
            begun = time.thread_time()
            snapshot, now = self._snapshot(), self._clock()
            self._figures.refresh(snapshot, now, pause)
            self._seen = [*self._small(snapshot, now, pause)]
            self._took = time.thread_time() - begun
            self._looked = time.monotonic()

    def _small(self, snapshot: Snapshot, now: datetime, pause: Callable[[], object]) -> Iterator[Metric]:
        rollouts = sorted(snapshot.rollouts.items())
        yield gauge("rollout_stage", "1 for the stage", ["driver", "stage"], [([d, r.stage], 1) for d, r in rollouts])
        rows: list[tuple[list[str], float]] = [([driver], standing(each, now)) for driver, each in rollouts]
        yield gauge("rollout_hold", "1 while held", ["driver"], rows)
        states = [([each.name, each.state], 1) for each in gate_state(snapshot, self._evidence())]
        yield gauge("feature_gate", "1 for the state of the gate in the component", ["component", "state"], states)
        differences = dict.fromkeys(CATEGORIES, 0) | self._figures.differences
        for difference in unplaced(snapshot):
            differences[difference.category] += 1
        kinds = [([kind], count) for kind, count in differences.items()]
        yield gauge("ledger_differences", "What does not agree with the ledger", ["kind"], kinds)
        yield from _pending(snapshot, now, self._refused(), pause)
        rows = [([reason], count) for reason, count in sorted(_gated(snapshot, now, pause).items())]
        yield gauge("pods_gated", "Pods with the scheduling gate, and why they wait", ["reason"], rows)


class _EndedError(Exception):
    """Nobody needs the look any more."""


class _Pause:
    """Rests whenever it was long enough at work, that many ``times`` as long."""

    def __init__(self, gauges: Gauges, times: int) -> None:
        self._gauges, self._times = gauges, times
        self._begun = time.perf_counter()

    def __call__(self) -> None:
        begun = time.perf_counter()
        if begun - self._begun < _WORK:
            return
        if self._gauges.ended:
            raise _EndedError
        time.sleep((begun - self._begun) * self._times)
        self._begun = time.perf_counter()


def _pending(
    snapshot: Snapshot, now: datetime, refused: Mapping[str, str], pause: Callable[[], object]
) -> Iterator[Metric]:
    counts: Counter[tuple[str, str]] = Counter()
    oldest: dict[tuple[str, str], float] = {}
    for each in pending(snapshot.claims.values(), snapshot, now, refused):
        key = each.driver, each.reason
        counts[key] += 1
        if each.since is not None:
            oldest[key] = max(oldest.get(key, 0.0), (now - each.since).total_seconds())
        pause()
    rows: list[tuple[list[str], float]] = [([*key], counts[key]) for key in sorted(counts)]
    yield gauge("claims_pending", "Claims that pods wait for, and why", ["driver", "reason"], rows)
    rows = [([*key], oldest[key]) for key in sorted(oldest)]
    text = "How long the claim has waited that waits longest"
    yield gauge("claims_pending_oldest_seconds", text, ["driver", "reason"], rows)


def _gated(snapshot: Snapshot, now: datetime, pause: Callable[[], object]) -> Counter[str]:
    waits, zones = Waiting(snapshot, now), Choosing(snapshot)
    found: Counter[str] = Counter()
    for pod in snapshot.gated_pods.values():
        reason = waits.pod(pod) or zones.pod(pod)
        found[DUE if reason is None else reason.rule] += 1
        pause()
    return found
