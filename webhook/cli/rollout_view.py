"""What `rollout status`, `check` and `drill` print: the values for scripts, and their text and Markdown for people."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from webhook.cli.console import paint, table, wrapped
from webhook.cli.formats.markdown import escaped
from webhook.cli.report import plural
from webhook.facts.promotion import Report, latest
from webhook.facts.rollout import held
from webhook.facts.times import stamp
from webhook.kube.finding import one_line
from webhook.kube.rollout import Drill, DriverRollout
from webhook.ledger.drills import DrillResult

if TYPE_CHECKING:
    from webhook.cli.rollout_evidence import Day
    from webhook.controllers.rollout_figures import Figures

Json = dict[str, Any]

_MARKS = {True: "pass", False: "fail", None: "-"}
# Pools that are named in the text for each mapping.
_NAMED = 20
_COLOURS = {True: "green", False: "red", None: None}


def driver_json(
    rollout: DriverRollout, known: bool, found: Figures, pools: Mapping[str, Collection[str]], now: datetime
) -> Json:
    """One driver of `rollout status`; ``known`` is whether it has a DriverRollout, ``pools`` the digests of each."""
    hold, seen = rollout.hold, rollout.status
    standing = held(rollout, hold.bad_mappings, now) if hold is not None else None
    return {
        "driver": rollout.driver,
        "rollout": known,
        "stage": rollout.stage,
        "hold": None
        if hold is None
        else {
            "reason": hold.reason,
            "by": hold.by,
            "since": hold.since,
            "until": hold.until,
            "badMappings": sorted(hold.bad_mappings),
            "standing": standing is not None,
        },
        "resumeAt": sorted(rollout.resume_digests),
        "coverage": {
            "nodes": found.coverage.nodes,
            "fresh": found.coverage.fresh,
            "percent": found.coverage.percent,
            "lacking": list(found.coverage.lacking),
        },
        "pools": {phase: found.phases[phase] for phase in sorted(found.phases)},
        "heldPools": [
            {"name": name, "reason": f"has {reason.has}, needs {reason.needs}"} for name, reason in found.held
        ],
        "heldCount": found.held_count,
        "claims": {"waiting": len(found.waiting), "bound": len(found.bound)},
        "digests": {each: [pool for pool, there in pools.items() if each in there] for each in found.digests},
        "differences": found.differences,
        "overcommitted": found.overcommitted,
        "quietSince": seen.quiet_since,
        "observedSince": seen.observed_since,
        "pending": {"count": seen.pending_count, "p99": seen.pending_p99},
        "drills": [drill_record_json(each) for each in latest(seen.drills)],
    }


def drill_record_json(drill: Drill) -> Json:
    """A drill that was done, as the status has it."""
    return {
        "name": drill.name,
        "at": drill.at,
        "passed": drill.passed,
        "by": drill.by,
        "message": one_line(drill.message),
    }


def status_text(value: Json) -> str:
    """The text of what `rollout status` prints as JSON."""
    lines = [paint(f"at {value['at']}", dim=True)]
    for row in value["drivers"]:
        doubtful = (row["hold"] and row["hold"]["standing"]) or row["differences"] or row["overcommitted"]
        lines += ["", paint(_head(row), "yellow" if doubtful else "green", bold=True)]
        for depth, line in _driver(row):
            lines += wrapped(line, "  " * (depth + 1), "  " * (depth + 2))
    return "\n".join([*lines, "", plural(len(value["drivers"]), "driver")])


def status_markdown(value: Json) -> str:
    """The same for a change ticket."""
    lines = [f"at {value['at']}"]
    for row in value["drivers"]:
        lines += ["", f"**{escaped(_head(row))}**", ""]
        lines += [f"{'  ' * depth}- {escaped(line)}" for depth, line in _driver(row)]
    return "\n".join(lines)


def _head(row: Json) -> str:
    stage = f"stage {row['stage']}" + ("" if row["rollout"] else " (it has no DriverRollout)")
    return f"{one_line(row['driver'])}: {stage}"


def _driver(row: Json) -> Iterator[tuple[int, str]]:
    """The lines about a driver, and how deep each is: 1 for what is said about the line above."""
    if row["hold"]:
        yield 0, f"{'held' if row['hold']['standing'] else 'hold is over'}: {_hold(row['hold'])}"
    for digest in row["resumeAt"]:
        yield 0, f"resumed at {one_line(digest)}"
    cover = row["coverage"]
    lacking = f", not {', '.join(map(one_line, cover['lacking']))}" if cover["lacking"] else ""
    nodes = plural(cover["nodes"], "node")
    yield 0, f"coverage: {cover['fresh']} of {nodes} with a Fresh mapped pool ({cover['percent']}%){lacking}"
    phases = ", ".join(f"{count} {phase}" for phase, count in row["pools"].items()) or "none"
    yield 0, f"pools: {phases}" + (f"; {row['heldCount']} held" if row["heldCount"] else "")
    for pool in row["heldPools"]:
        yield 1, one_line(f"{pool['name']}: {pool['reason']}")
    yield 0, f"claims: {row['claims']['bound']} bound, {row['claims']['waiting']} waiting"
    for digest, pools in row["digests"].items():
        yield 0, f"mapping {one_line(digest)}"
        if len(row["digests"]) > 1:
            yield 1, f"on {_some(pools)}"
    if row["differences"] or row["overcommitted"]:
        yield 0, f"{plural(row['differences'], 'difference')}, {plural(row['overcommitted'], 'overcommitted node')}"
    for drill in row["drills"]:
        verdict = "passed" if drill["passed"] else "failed"
        by = f" by {drill['by']}" if drill["by"] else ""
        yield 0, one_line(f"drill {drill['name']} {verdict} at {drill['at']}{by}: {drill['message']}")


def _some(pools: Sequence[str]) -> str:
    more = f" and {len(pools) - _NAMED} more" if len(pools) > _NAMED else ""
    return (", ".join(map(one_line, pools[:_NAMED])) or "no pool any more") + more


def _hold(hold: Json) -> str:
    parts = [hold["reason"], *(f"{name} {hold[name]}" for name in ("by", "since", "until") if hold[name])]
    if hold["badMappings"]:
        parts.append(f"on pools with {', '.join(hold['badMappings'])}")
    return one_line(", ".join(filter(None, parts)))


def report_json(report: Report, now: datetime, days: Sequence[Day] | None) -> Json:
    """What `rollout check` prints; ``days`` are those of a history."""
    return {
        "at": stamp(now),
        "driver": report.driver,
        "stage": report.stage,
        "nextStage": report.next_stage,
        "passed": report.passed,
        "gates": [
            {"name": each.name, "passed": each.passed, "has": one_line(each.has), "needs": one_line(each.needs)}
            for each in report.gates
        ],
        **(
            {} if days is None else {"days": [{"day": str(each.day), "differences": each.differences} for each in days]}
        ),
    }


def report_text(value: Json) -> str:
    """The report as text."""
    verdict = paint(_verdict(value), "green" if value["passed"] else "red", bold=True)
    lines = [verdict]
    size = max(len(gate["name"]) for gate in value["gates"])
    for gate in value["gates"]:
        mark = paint(f"{_MARKS[gate['passed']]:<4}", _COLOURS[gate["passed"]])
        first = f"  {mark}  {gate['name']:<{size}}  "
        rest = " " * (10 + size)
        told = wrapped(f"has {gate['has']}, needs {gate['needs']}", rest, f"{rest}  ")
        lines += [first + told[0].strip(), *told[1:]]
    if value.get("days"):
        rows = [[each["day"], str(each["differences"])] for each in value["days"]]
        lines += ["", *table(["day (UTC)", "differences"], rows, "  ")]
    return "\n".join(lines)


def report_markdown(value: Json) -> str:
    """The report for a change ticket."""
    lines = [
        f"**{escaped(_verdict(value))}** ({value['at']})",
        "",
        "| Gate | Result | Has | Needs |",
        "|---|---|---|---|",
    ]
    for gate in value["gates"]:
        row = (gate["name"], _MARKS[gate["passed"]], gate["has"], gate["needs"])
        lines.append(f"| {' | '.join(map(escaped, row))} |")
    if value.get("days"):
        lines += ["", "| Day (UTC) | Differences |", "|---|---|"]
        lines += [f"| {each['day']} | {each['differences']} |" for each in value["days"]]
    return "\n".join(lines)


def _verdict(value: Json) -> str:
    failed = sum(gate["passed"] is False for gate in value["gates"])
    follows = f", next {value['nextStage']}" if value["nextStage"] else ", the last one"
    return f"{one_line(value['driver'])} at stage {value['stage']}{follows}: " + (
        f"{plural(failed, 'gate')} failed" if failed else "every gate passed"
    )


def drill_json(result: DrillResult, now: datetime) -> Json:
    """What `rollout drill` prints."""
    return {
        "at": stamp(now),
        "name": result.name,
        "driver": result.driver,
        "passed": result.passed,
        "steps": [{"what": step.what, "passed": step.passed, "detail": one_line(step.detail)} for step in result.steps],
    }


def drill_text(value: Json) -> str:
    """The drill as text."""
    lines = [paint(_drilled(value), "green" if value["passed"] else "red", bold=True)]
    for step in value["steps"]:
        mark = paint(_MARKS[step["passed"]], _COLOURS[step["passed"]])
        told = wrapped(f"{step['what']}: {step['detail']}", " " * 8, " " * 10)
        lines += [f"  {mark}  {told[0].strip()}", *told[1:]]
    return "\n".join(lines)


def drill_markdown(value: Json) -> str:
    """The drill for a change ticket."""
    lines = [f"**{escaped(_drilled(value))}** ({value['at']})", "", "| Step | Result | Detail |", "|---|---|---|"]
    lines += [
        f"| {escaped(step['what'])} | {_MARKS[step['passed']]} | {escaped(step['detail'])} |" for step in value["steps"]
    ]
    return "\n".join(lines)


def _drilled(value: Json) -> str:
    return f"drill {value['name']} of {one_line(value['driver'])}: {'passed' if value['passed'] else 'failed'}"
