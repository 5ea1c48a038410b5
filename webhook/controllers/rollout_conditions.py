"""What the status of a DriverRollout says: the figures, and the conditions ``Valid``, ``Held``, ``GateEnabled`` and
``Promotable``.

Ages are left out of what is said: a status is not written anew because time goes by.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import get_args

from webhook.controllers.rollout_figures import Figures
from webhook.facts.coverage import selector_problems
from webhook.facts.gates_found import API_SERVER, Component, gate_differs
from webhook.facts.pools import Phase
from webhook.facts.promotion import Report
from webhook.facts.rollout import held
from webhook.facts.rollout_document import document_problems
from webhook.facts.times import instant, stamp
from webhook.kube.finding import one_line
from webhook.kube.raw import Json, mapping, members, text
from webhook.kube.rollout import DriverRollout

VALID, HELD, GATE, PROMOTABLE = "Valid", "Held", "GateEnabled", "Promotable"
CONDITIONS = (VALID, HELD, GATE, PROMOTABLE)

# Type, status, reason, message.
Said = tuple[str, str, str, str]

_PHASES: tuple[Phase, ...] = get_args(Phase)
_AGO = re.compile(r" \(\S+ ago\)")
_MOST_DIGESTS, _MOST_PROBLEMS = 256, 5
# What the schema of the status has room for: a reason of a pool, and what a gate has and needs.
_REASON, _GATE_TEXT, _MESSAGE = 2048, 1024, 8192


def began(stored: Json, rollout: DriverRollout, now: datetime) -> datetime:
    """Since when the present stage of ``rollout`` is looked at, as the ``stored`` status has it; ``now`` for another
    stage, and where the clock was set back.
    """
    since = instant(text(stored.get("observedSince")))
    same = stored.get("stage") == rollout.stage
    return since if same and since is not None and since <= now else now


def quiet(stored: Json, rollout: DriverRollout, differences: int, now: datetime) -> datetime | None:
    """Since when nothing disagrees with the ledger at this stage; None while something does."""
    if differences:
        return None
    since = instant(text(stored.get("quietSince")))
    return since if since is not None and began(stored, rollout, now) <= since <= now else now


def status(
    rollout: DriverRollout, found: Figures, since: datetime, calm: datetime | None, waits: tuple[int, int | None]
) -> Json:
    """The figures as the status has them, None for what it is to have no more. ``since`` and ``calm`` are of
    :func:`began` and :func:`quiet`, ``waits`` of :meth:`webhook.controllers.rollout_figures.Waits.told`.
    """
    count, p99 = waits
    return {
        "observedGeneration": rollout.generation,
        "stage": rollout.stage,
        "coverage": {
            "nodes": found.coverage.nodes,
            "fresh": found.coverage.fresh,
            "percent": found.coverage.percent,
        },
        "pools": {**{phase.lower(): found.phases[phase] for phase in _PHASES}, "held": found.held_count},
        "claims": {"waiting": len(found.waiting), "bound": len(found.bound)},
        "digests": list(found.digests[:_MOST_DIGESTS]),
        "heldPools": [{"name": pool, "reason": _ageless(reason.text)[:_REASON]} for pool, reason in found.held],
        "observedSince": stamp(since),
        "quietSince": None if calm is None else stamp(calm),
        "pending": {"count": count, "p99": None if p99 is None else f"{p99}s"},
        "differences": found.differences,
    }


def promotion_json(report: Report) -> Json:
    """The promotion report as the status has it."""
    gates = [
        {
            "name": gate.name,
            **({} if gate.passed is None else {"passed": gate.passed}),
            "has": one_line(gate.has)[:_GATE_TEXT],
            "needs": one_line(gate.needs)[:_GATE_TEXT],
        }
        for gate in report.gates
    ]
    return {"stage": report.stage, "passed": report.passed, "gates": gates}


def said(
    obj: Json,
    rollout: DriverRollout,
    found: Figures,
    nodes: int,
    components: Sequence[Component],
    report: Report,
    now: datetime,
) -> list[Said]:
    """What the conditions of the DriverRollout ``obj`` (raw, ``rollout`` its model) say in a cluster of so many
    ``nodes``, in the order of CONDITIONS.
    """
    return [
        _valid(obj, rollout, found, nodes),
        _held(rollout, found, now),
        _gate(components),
        _promotable(report),
    ]


def conditions(obj: Json, wanted: Iterable[Said], now: datetime) -> list[Json]:
    """The conditions of ``obj`` with what is ``wanted``; those of others stay. The time of a transition moves with the
    status only.
    """
    metadata = mapping(obj.get("metadata"))
    present = {text(each.get("type")): each for each in members(mapping(obj.get("status")).get("conditions"))}
    for kind, state, reason, message in wanted:
        before = present.get(kind, {})
        since = text(before.get("lastTransitionTime")) if before.get("status") == state else ""
        present[kind] = {
            "type": kind,
            "status": state,
            "reason": reason,
            "message": one_line(message)[:_MESSAGE],
            "observedGeneration": metadata.get("generation", 0),
            "lastTransitionTime": since or stamp(now),
        }
    return list(present.values())


def _valid(obj: Json, rollout: DriverRollout, found: Figures, nodes: int) -> Said:
    problems = document_problems({name: value for name, value in obj.items() if name != "status"})
    errors = [each for each in problems if each.severity == "error"]
    doubts = [*selector_problems(rollout, found.coverage.nodes, nodes), *problems]
    texts = "; ".join(f"{each.path}: {each.message}" for each in (errors or doubts)[:_MOST_PROBLEMS])
    return (VALID, "False", "Invalid", texts) if errors else (VALID, "True", "Valid", texts)


def _held(rollout: DriverRollout, found: Figures, now: datetime) -> Said:
    hold = rollout.hold
    if hold is None:
        return HELD, "False", "NoHold", ""
    reason = held(rollout, hold.bad_mappings, now)
    if reason is None:
        return HELD, "False", "HoldEnded", f"ended at {hold.until}"
    pools = sum(found.phases.values())
    parts = [_ageless(reason.text), f"{found.held_count} of {pools} pools held"]
    known = frozenset(found.digests)
    for member, digests in (("hold.badMappings", hold.bad_mappings), ("resumeAt", rollout.resume_digests)):
        nobody = sorted(digests - known)
        if nobody:
            more = f" and {len(nobody) - 1} more" if len(nobody) > 1 else ""
            parts.append(f"spec.{member} has {nobody[0][:19]}{more}, which no slice has")
    return HELD, "True", "Held", "; ".join(parts)


def _gate(components: Sequence[Component]) -> Said:
    differs = gate_differs(components)
    if differs:
        return GATE, "False", "GatesDiffer", differs
    off = [f"{each.name} off {each.how}" for each in components if each.on is False]
    if off:
        return GATE, "False", "GateOff", "; ".join(off)
    states = ", ".join(f"{each.name} {each.state}" for each in components)
    if any(each.name == API_SERVER and each.on for each in components):
        return GATE, "True", "GateOn", states
    return GATE, "Unknown", "NothingTells", states


def _promotable(report: Report) -> Said:
    if not report.next_stage:
        return PROMOTABLE, "False", "LastStage", f"stage {report.stage} is the last"
    failed = [gate.name for gate in report.gates if gate.passed is False]
    if failed or not report.passed:
        return PROMOTABLE, "False", "GatesNotPassed", f"not passed: {', '.join(failed)}"
    return PROMOTABLE, "True", "GatesPassed", f"stage {report.next_stage} may be next"


def _ageless(line: str) -> str:
    return _AGO.sub("", line)
