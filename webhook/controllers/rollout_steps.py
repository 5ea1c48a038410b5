"""The steps of a rollout, each told once, as an event about the DriverRollout and as a span of its trace: holds and
resumptions, stages, drills, and gates that went off.

What was told is in the stored status: in its stage and conditions, and for what those do not tell apart in ``told``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Literal

from webhook.controllers.events import event
from webhook.controllers.rollout_conditions import GATE, HELD, Said
from webhook.facts.times import instant
from webhook.kube.raw import Json, mapping, members, text
from webhook.kube.rollout import API_VERSION, Drill, DriverRollout, Hold
from webhook.kube.trace import trace_id
from webhook.telemetry.spans import (
    DIGEST_KEY,
    DRILL,
    DRILL_KEY,
    DRIVER_KEY,
    HOLD,
    HOLD_REASON_KEY,
    MESSAGE_KEY,
    RESUME,
    STAGE,
    STAGE_KEY,
    VERDICT_KEY,
    Attributes,
)
from webhook.telemetry.tracing import Tracing

_HOLD, _RESUME_AT = "hold", "resumeAt"
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Step:
    """What is new: reason and message of the event, and what tells it from another one of that reason; the span's name,
    empty where it has none, the moment (RFC 3339) from which it was wanted, empty where the object does not say, and
    what is said of it alone.
    """

    reason: str
    message: str
    mark: object
    span: str = ""
    wanted: str = ""
    attributes: Attributes = field(default_factory=dict)
    kind: Literal["Normal", "Warning"] = "Normal"


def steps(stored: Json, say: Sequence[Said], rollout: DriverRollout) -> list[Step]:
    """What ``rollout`` and the conditions as they ``say`` have otherwise than the ``stored`` status."""
    before = {text(each.get("type")): each for each in members(stored.get("conditions"))}
    now = {kind: (state, message) for kind, state, _, message in say}
    found = [*_holds(stored, before.get(HELD, {}), now[HELD], rollout), *_resumed_at(stored, rollout)]
    state, message = now[GATE]
    if state == "False" and before.get(GATE, {}).get("status") != "False":
        mark = before.get(GATE, {}).get("lastTransitionTime")
        found.append(Step("GateOff", message, mark, kind="Warning"))
    stage = text(stored.get("stage"))
    if stage and stage != rollout.stage:
        found.append(Step("StageChanged", _moved(rollout, stage), stored.get("observedSince"), STAGE))
    known = mapping(stored.get("told"))
    found += [_drill(each) for each in rollout.status.drills if known.get(each.name) != _mark(each.at)]
    return found


def told(stored: Json, rollout: DriverRollout) -> Json:
    """``told`` as the status is to have it, None for what is over; nothing where there never was a step to tell."""
    marks: dict[str, str | None] = dict.fromkeys(mapping(stored.get("told")))
    if rollout.hold is not None:
        marks[_HOLD] = _hold_mark(rollout.hold)
    if rollout.resume_digests:
        marks[_RESUME_AT] = _mark(*sorted(rollout.resume_digests))
    marks |= {each.name: _mark(each.at) for each in rollout.status.drills}
    return {"told": marks} if marks else {}


def step_event(step: Step, rollout: DriverRollout, now: datetime) -> Json:
    """The event of ``step``. The same step has the same name, so that a second one is refused."""
    involved = {"apiVersion": API_VERSION, "kind": "DriverRollout", "name": rollout.driver, "uid": rollout.uid}
    return event(involved, step.reason, step.message, now, step.kind, once=str(step.mark))


def trace(tracing: Tracing, step: Step, rollout: DriverRollout, now: datetime) -> None:
    """Write the span of ``step``: from when it was wanted, as far as that is known, until ``now``, when the guard knows
    of it.
    """
    if not step.span:
        return
    wanted = instant(step.wanted)
    said = {DRIVER_KEY: rollout.driver, STAGE_KEY: rollout.stage, MESSAGE_KEY: step.message, **step.attributes}
    tracing.span(step.span, trace_id(rollout.uid), min(wanted or now, now), now, said)


def _holds(stored: Json, before: Json, present: tuple[str, str], rollout: DriverRollout) -> Iterator[Step]:
    was, (state, message), hold = before.get("status") == "True", present, rollout.hold
    since = before.get("lastTransitionTime")
    if state == "True" and hold is not None:
        mark = _hold_mark(hold)
        known = mapping(stored.get("told")).get(_HOLD, mark)
        said: dict[str, str | list[str]] = {HOLD_REASON_KEY: hold.reason}
        if hold.bad_mappings:
            said[DIGEST_KEY] = sorted(hold.bad_mappings)
        if not was:
            yield Step("Held", message, since, HOLD, hold.since, said)
        elif known != mark:
            yield Step("Held", message, f"{rollout.generation}/{mark}", HOLD, hold.since, said)
    elif was:
        yield Step("Resumed", message or "the hold was taken back: new claims go on", since, RESUME)


def _resumed_at(stored: Json, rollout: DriverRollout) -> Iterator[Step]:
    digests = sorted(rollout.resume_digests)
    mark = _mark(*digests)
    if not digests or mapping(stored.get("told")).get(_RESUME_AT) == mark:
        return
    names = ", ".join(each[:19] for each in digests[:_NAMED])
    if len(digests) > _NAMED:
        names += f" and {len(digests) - _NAMED} more"
    message = f"claims that were booked by another mapping are taken for good at {names}"
    if rollout.hold is not None:
        message = f"pools that have no other mappings than {names} take claims again"
    yield Step("ResumedAt", message, f"{rollout.generation}/{mark}", RESUME, attributes={DIGEST_KEY: digests})


def _drill(drill: Drill) -> Step:
    verdict = "passed" if drill.passed else "failed"
    by = f" by {drill.by}" if drill.by else ""
    return Step(
        "DrillPassed" if drill.passed else "DrillFailed",
        f"drill {drill.name}{by} {verdict}" + (f": {drill.message}" if drill.message else ""),
        f"{drill.name}/{drill.at}",
        DRILL,
        drill.at,
        {DRILL_KEY: drill.name, VERDICT_KEY: verdict},
        "Normal" if drill.passed else "Warning",
    )


def _moved(rollout: DriverRollout, stage: str) -> str:
    told = f"stage {rollout.stage} after {stage}"
    word = rollout.override
    if word is None or word.stage != stage:
        return told
    return f"{told}, by the word of {word.by}: {word.reason}"


def _hold_mark(hold: Hold) -> str:
    # Whoever says it again need not be who said it first.
    return _mark(hold.reason, hold.until, *sorted(hold.bad_mappings))


def _mark(*parts: str) -> str:
    return sha256("\0".join(parts).encode()).hexdigest()[:16]
