"""Whether a driver may go on to the next stage: every gate with what it has and what it needs.

What was asked for and is not known has not passed. What nobody asked for, and nothing speaks against, is told and
decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from webhook.facts.coverage import Coverage, coverage
from webhook.facts.rollout import held
from webhook.facts.times import duration, instant, stamp
from webhook.kube.labels import matches
from webhook.kube.rollout import STAGES, Drill, DriverRollout, Promotion, RolloutStatus
from webhook.kube.snapshot import Snapshot

_DASHED = re.compile(r"(?<=[a-z])(?=[A-Z])")


class Evidence(Struct, frozen=True):
    """What is known of a driver beside the cluster as it is.

    ``quiet_since`` is since when there is no difference (RFC 3339; empty: there is one, or nobody looked),
    ``observed_since`` since when somebody looks (empty: nobody), ``observed_until`` until when (empty: still).
    ``pending_p99`` is how many seconds 99 of 100 claims waited at most, of ``pending_count`` (None: none was seen).
    ``duplicates`` are charges that were refused as such, ``zone_failures`` placements that did not fit their zone,
    ``replays_equal`` whether the accounts came out of their history again, ``overcommitted`` how many nodes with
    charges of the driver have more charged than they have, or had between ``observed_since`` and a given
    ``observed_until``; None where nobody looked.
    """

    quiet_since: str = ""
    observed_since: str = ""
    pending_p99: int | None = None
    pending_count: int = 0
    drills: tuple[Drill, ...] = ()
    duplicates: int | None = None
    zone_failures: int | None = None
    replays_equal: bool | None = None
    overcommitted: int | None = None
    observed_until: str = ""


class GateResult(Struct, frozen=True):
    """One gate; ``passed`` is None where it decides nothing: not asked for, or not measured at this stage."""

    name: str
    passed: bool | None
    has: str
    needs: str


class Report(Struct, frozen=True):
    """The gates of ``driver`` at ``stage``; ``next_stage`` is empty at the last one. ``passed``: no gate failed."""

    driver: str
    stage: str
    next_stage: str
    gates: tuple[GateResult, ...]
    passed: bool


def recorded(status: RolloutStatus, replays_equal: bool | None = None, overcommitted: int | None = None) -> Evidence:
    """The evidence that the status of a DriverRollout holds, and what was looked at beside it."""
    return Evidence(
        status.quiet_since,
        status.observed_since,
        status.pending_p99,
        status.pending_count,
        status.drills,
        status.duplicates if status.observed_since else None,
        status.zone_failures if status.observed_since else None,
        replays_equal,
        overcommitted,
    )


def next_stage(stage: str) -> str:
    """The stage after ``stage``, empty after the last one."""
    return next(iter(STAGES[STAGES.index(stage) + 1 :]), "")


def promotion(
    rollout: DriverRollout, snapshot: Snapshot, evidence: Evidence, now: datetime, covered: Coverage | None = None
) -> Report:
    """The promotion report of the driver of ``rollout``. Looks at every node of the stage, unless it is told what they
    come to (``covered``).

    At stage Off nothing of the driver is in use, so there are canary nodes to have and nothing to measure.
    """
    asked = rollout.promotion or Promotion(None, None, (), None)
    gates = [
        _canaries(rollout, snapshot)
        if rollout.stage == "Off"
        else _coverage(rollout, asked, covered or coverage(rollout, snapshot, now)),
        _hold(rollout, now),
        *_asked(asked),
    ]
    measured = [
        *(_drill(name, evidence.drills, now) for name in dict.fromkeys(asked.drills)),
        _replays(evidence),
        _quiet(asked, evidence, now),
        _capacity(evidence),
        _pending(asked, evidence),
        _none("duplicates", evidence.duplicates, "duplicate charge"),
        _none("zones", evidence.zone_failures, "zone failure"),
    ]
    if rollout.stage == "Off":
        measured = [GateResult(each.name, None, each.has, "nothing at stage Off") for each in measured]
    gates += measured
    passed = all(each.passed is not False for each in gates)
    return Report(rollout.driver, rollout.stage, next_stage(rollout.stage), tuple(gates), passed)


def latest(drills: tuple[Drill, ...]) -> Iterator[Drill]:
    """Of each drill that was done the last time, in order of their names."""
    newest: dict[str, Drill] = {}
    for each in drills:
        known = newest.get(each.name)
        if known is None or _moment(each.at) >= _moment(known.at):
            newest[each.name] = each
    for name in sorted(newest):
        yield newest[name]


def _moment(text: str) -> float:
    moment = instant(text)
    return moment.timestamp() if moment is not None else float("-inf")


def _canaries(rollout: DriverRollout, snapshot: Snapshot) -> GateResult:
    selector = rollout.canary_selector
    chosen = [each for each in snapshot.nodes.values() if selector is not None and matches(selector, each.labels)]
    needs = "a node that canaryNodeSelector chooses"
    return GateResult("coverage", bool(chosen), _many(len(chosen), "canary node"), needs)


def _coverage(rollout: DriverRollout, asked: Promotion, found: Coverage) -> GateResult:
    has = f"{found.fresh} of {_many(found.nodes, 'node')} with a Fresh mapped pool ({found.percent}%)"
    if found.lacking:
        more = found.nodes - found.fresh - len(found.lacking)
        has += f", not {', '.join(found.lacking)}" + (f" and {more} more" if more else "")
    if not found.nodes:
        # Nothing of nothing proves nothing, whatever percentage it is.
        needs = "a node that canaryNodeSelector chooses" if rollout.stage != "General" else "a node with its slices"
        return GateResult("coverage", False, has, needs)
    least = asked.min_coverage
    if least is None:
        return GateResult("coverage", None, has, "nothing: minCoverage is not set")
    return GateResult("coverage", found.fresh * 100 >= least * found.nodes, has, f"at least {least}%")


def _hold(rollout: DriverRollout, now: datetime) -> GateResult:
    standing = held(rollout, rollout.hold.bad_mappings if rollout.hold is not None else frozenset(), now)
    if standing is None:
        return GateResult("hold", True, "no hold", "none")
    return GateResult("hold", False, standing.has, "none: resume first")


def _asked(asked: Promotion) -> list[GateResult]:
    """That something is asked for of which nobody can tell what it is."""
    if not asked.unread:
        return []
    fields = ", ".join(f"spec.{each}" if each == "promotion" else f"spec.promotion.{each}" for each in asked.unread)
    needs = "values that can be read, which allocguard check tells"
    return [GateResult("asked", False, f"{fields}, which cannot be read", needs)]


def _drill(name: str, drills: tuple[Drill, ...], now: datetime) -> GateResult:
    gate = f"drill-{_DASHED.sub('-', name).lower()}"
    known = [each for each in drills if each.name == name]
    # What has no time, or one that is to come, was not done.
    past = tuple(each for each in known if (at := instant(each.at)) is not None and at <= now)
    done = next(latest(past), None)
    needs = f"drill {name} passed"
    if done is None and known:
        has = f"a time of {known[0].at or 'nothing'}, and it is {stamp(now)}"
        return GateResult(gate, False, has, f"{needs} before now")
    if done is None:
        return GateResult(gate, False, "never done", needs)
    has = f"{'passed' if done.passed else 'failed'} at {done.at}"
    has += f" by {done.by}" if done.by else ""
    return GateResult(gate, done.passed, f"{has}: {done.message}" if done.message else has, needs)


def _replays(evidence: Evidence) -> GateResult:
    equal = evidence.replays_equal
    if equal is None:
        return GateResult("replays", None, "not replayed", "nothing: there is no history to replay")
    has = "the same accounts" if equal else "other accounts than were recorded"
    return GateResult("replays", equal, f"{has} after a replay", "the same accounts")


def _quiet(asked: Promotion, evidence: Evidence, now: datetime) -> GateResult:
    days = asked.quiet_days
    since, observed = instant(evidence.quiet_since), instant(evidence.observed_since)
    quiet = timedelta(0)
    if observed is None:
        has = "nobody who looked for differences"
    elif since is None:
        has = f"a difference now, looked at since {evidence.observed_since}"
    else:
        begun = max(since, observed)
        # A clock that was set back has seen nothing yet.
        quiet = max(min(now, instant(evidence.observed_until) or now) - begun, timedelta(0))
        text = evidence.quiet_since if since >= observed else evidence.observed_since
        has = f"no difference for {duration(quiet.total_seconds())}, since {text}"
    if days is None:
        return GateResult("quiet", None, has, "nothing: quietDays is not set")
    known = observed is not None and since is not None
    return GateResult("quiet", known and quiet // timedelta(days=1) >= days, has, _many(days, "day"))


def _pending(asked: Promotion, evidence: Evidence) -> GateResult:
    p99, most = evidence.pending_p99, asked.pending_p99
    if p99 is None:
        has = "no claim whose waiting was seen"
    else:
        count = evidence.pending_count
        has = f"99 of 100 claims allocated within {duration(p99)}, of {_many(count, 'claim')}"
    if most is None:
        return GateResult("pending", None, has, "nothing: pendingP99 is not set")
    return GateResult("pending", p99 is not None and p99 <= most, has, f"within {duration(most)}")


def _capacity(evidence: Evidence) -> GateResult:
    found = _none("capacity", evidence.overcommitted, "overcommitted node")
    # A history tells of other nodes than those of now: who reads it is to know of which time.
    return replace(found, has=f"{found.has} since {evidence.observed_since}") if evidence.observed_until else found


def _none(gate: str, count: int | None, noun: str) -> GateResult:
    if count is None:
        return GateResult(gate, None, "not looked at", "nothing: nobody has counted yet")
    return GateResult(gate, count == 0, _many(count, noun), "none")


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
