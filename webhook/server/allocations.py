"""What is counted and remembered about the allocations of claims that were judged."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterable, Mapping

from webhook.admission.action import denies
from webhook.admission.decide import Judged, Verdict
from webhook.admission.record import DUPLICATES
from webhook.admission.subject import claim_trace
from webhook.cluster.reflector import Key
from webhook.facts.zone_checks import zone_checks
from webhook.kube.snapshot import Snapshot
from webhook.policy.claim_fact import ClaimFact
from webhook.telemetry.metrics import Metrics

_RESULT = re.compile(r"^status\.allocation\.devices\.results\[(\d+)\]")

# More claims than wait at one moment; the oldest is forgotten first.
_MOST_REFUSED = 4096


class Allocations:
    """The allocations that one server judged. ``refused`` tells by claim id which rule refused its last one.
    :meth:`judged` belongs to the server's event loop, :meth:`hear` to that of the view, the rest to any thread.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._refused: dict[str, str] = {}
        self._changing = threading.Lock()
        self._duplicates: Counter[str] = Counter()
        self._unfit: Counter[str] = Counter()

    @property
    def refused(self) -> Mapping[str, str]:
        """A copy, for other threads."""
        return self._refused.copy()

    def refusals(self) -> dict[str, tuple[int, int]]:
        """By driver how many charges were refused as a second one, and how many allocations did not fit a zone."""
        duplicates, unfit = self._duplicates.copy(), self._unfit.copy()
        return {driver: (duplicates[driver], unfit[driver]) for driver in duplicates.keys() | unfit.keys()}

    def judged(self, verdict: Verdict, allowed: bool) -> None:
        """Count what ``verdict`` says of an allocation, if it is about one; ``allowed`` is what was answered. A dry run
        allocates nothing: nobody waits for what it was refused.
        """
        claim = vars(verdict.evaluation.facts).get("claim")
        if claim is None or verdict.request.sub_resource != "status" or not claim.allocating:
            return
        if verdict.request.dry_run:
            return
        trace = claim_trace(verdict)
        broken = any(each.rule == "numa-constraint-broken" for each in claim.constraint_problems)
        for driver, outcome in zone_checks(claim.cost, claim.fitted.rows, broken).items():
            self._metrics.placement(driver, outcome, trace)
            if outcome == "unfit":
                self._unfit[driver] += 1
        for driver in _duplicates(claim, verdict.judged):
            self._metrics.duplicate(driver, trace)
            self._duplicates[driver] += 1
        name = claim.model.id
        with self._changing:
            self._refused.pop(name, None)
            if not allowed:
                rule = next((each.finding.rule for each in verdict.judged if denies(each)), "")
                self._refused[name] = rule or "not-judged"
                if len(self._refused) > _MOST_REFUSED:
                    del self._refused[next(iter(self._refused))]

    def hear(self, kind: str, key: Key, before: Snapshot, after: Snapshot) -> None:
        """Forget what refused a claim once the view has it allocated, whichever server let that through; see
        :attr:`webhook.cluster.live.LiveCluster.on_change`.
        """
        claim = after.claims.get(key) if kind == "ResourceClaim" else None
        if claim is not None and claim.allocation is not None:
            with self._changing:
                self._refused.pop(claim.id, None)


def _duplicates(claim: ClaimFact, judged: Iterable[Judged]) -> list[str]:
    """The drivers of the devices whose charge was refused as a second one."""
    results = claim.model.allocation.results if claim.model.allocation is not None else ()
    drivers = {result.index: result.driver for result in results}
    found: list[str] = []
    for each in judged:
        place = _RESULT.match(each.finding.path)
        if each.finding.rule in DUPLICATES and denies(each) and place is not None:
            found.append(drivers[int(place[1])])
    return found
