"""``allocguard rollout``: how far a driver's mappings are rolled out, and what stops or resumes it."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import click

from webhook.cli import rollout_read, sources
from webhook.cli.console import Unusable, note, out
from webhook.cli.options import Time, Where, cluster_options, now, output_option
from webhook.kube.rollout import DRILLS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from webhook.cli.rollout_edit import Edit
    from webhook.kube.raw import Json

_by = click.option("--by", metavar="NAME", help="Who does it; default: who the API server takes you for.")

_output = output_option("text", "json", "yaml", "markdown")


@click.group(
    epilog="""\b
Examples:
  allocguard rollout status
  allocguard rollout hold gpu.example.com --reason "mapping v7 books half"
  allocguard rollout drill gpu.example.com Rollback --cluster cluster.yaml
  allocguard rollout resume gpu.example.com --at-mapping sha256:2c26...
  allocguard rollout check gpu.example.com -o markdown
\b
With --cluster nothing is written: what a DriverRollout would be is printed, for `kubectl apply`."""
)
def rollout() -> None:
    """Stages, holds, drills and promotion of a driver. What is bound is never touched, and releases always go on."""


@rollout.command(
    short_help="How far each driver is, and what holds it.",
    epilog="""\b
Examples:
  allocguard rollout status
  allocguard rollout status gpu.example.com --cluster cluster.yaml -o json""",
)
@click.argument("drivers", nargs=-1, metavar="[DRIVER...]")
@cluster_options
@_output
def status(drivers: tuple[str, ...], where: Where, at: datetime, output: str) -> int:
    """Show stage, hold, coverage, pools, claims, mappings and drills of the drivers named, or of all that have node
    costs or a DriverRollout.
    """
    from msgspec import structs

    from webhook.cli.rollout_edit import pool_digests
    from webhook.cli.rollout_view import driver_json, status_markdown, status_text
    from webhook.controllers.rollout_figures import figures
    from webhook.facts.times import stamp
    from webhook.kube.rollout import DriverRollout
    from webhook.ledger.book import Book

    sources.check_stdin(where.clusters)
    snapshot = sources.cluster(where).snapshot
    for driver in drivers:
        rollout_read.check_known(driver, snapshot)
    wanted = sorted({*drivers} or {*snapshot.rollouts, *snapshot.mapped_slices})
    known = snapshot.rollouts
    every = known.update({driver: known.get(driver) or DriverRollout(driver) for driver in wanted})
    found = figures(structs.replace(snapshot, rollouts=every), Book(), wanted, at)
    rows = [
        driver_json(every[driver], driver in known, found[driver], pool_digests(driver, snapshot), at)
        for driver in wanted
    ]
    value = {"at": stamp(at), "drivers": rows}
    _show(value, output, status_text, status_markdown)
    return 0


@rollout.command(
    short_help="Let no new claims have devices of a driver.",
    epilog="""\b
Examples:
  allocguard rollout hold gpu.example.com --reason "mapping v7 books half"
  allocguard rollout hold gpu.example.com --reason "wrong on A100" --bad-mapping sha256:2c26...
  allocguard rollout hold gpu.example.com --reason "firmware night" --until 2026-11-21T06:00:00Z""",
)
@click.argument("driver", metavar="DRIVER")
@click.option("--reason", required=True, metavar="TEXT", help="What people read while their claims wait.")
@click.option("--until", type=Time(), help="When the hold ends by itself (RFC 3339).")
@click.option(
    "--bad-mapping", "bad", multiple=True, metavar="DIGEST", help="Only pools with this mapping digest (repeatable)."
)
@_by
@cluster_options
@_output
def hold(
    driver: str,
    reason: str,
    until: datetime | None,
    bad: tuple[str, ...],
    by: str | None,
    where: Where,
    at: datetime,
    output: str,
) -> int:
    """Hold DRIVER: new claims wait, bound ones keep running and stay charged, releases go on.

    Said again, nothing changes. A DriverRollout is made where there is none.
    """
    from webhook.cli import rollout_edit
    from webhook.cli.rollout_live import printed, stored, written

    sources.check_stdin(where.clusters)
    make = partial(rollout_edit.hold, reason=reason, until=until, bad=bad, now=at)
    if where.clusters:
        snapshot, kept = rollout_read.read(where, driver)
        done = printed(rollout_read.document_of(driver, kept), partial(make, by=by or ""), driver, output)
        rollout_read.tell_unheld(driver, bad, snapshot)
        return done
    document, user = stored(where, driver)
    # In an emergency everything is read only where it is needed.
    seen = sources.live(where).snapshot if document is None or bad else None
    if seen is not None:
        rollout_read.check_known(driver, seen)
    code = written(where, driver, partial(make, by=by or user), output, create=True)
    if seen is not None and code == 0:
        rollout_read.tell_unheld(driver, bad, seen)
    return code


@rollout.command(
    short_help="Take a hold back, or let pools with known mappings go on.",
    epilog="""\b
Examples:
  allocguard rollout resume gpu.example.com --at-mapping sha256:2c26...   # the repaired mapping alone
  allocguard rollout resume gpu.example.com""",
)
@click.argument("driver", metavar="DRIVER")
@click.option(
    "--at-mapping",
    "digests",
    multiple=True,
    metavar="DIGEST",
    help="Only pools all of whose mapping digests are given, now or before (repeatable).",
)
@cluster_options
@_output
def resume(driver: str, digests: tuple[str, ...], where: Where, at: datetime, output: str) -> int:
    """Take the hold of DRIVER back. With --at-mapping it stays, for all pools but those with these mappings: digests
    have no order, none is newer than another.
    """
    from webhook.cli import rollout_edit
    from webhook.cli.rollout_live import printed, written

    sources.check_stdin(where.clusters)
    snapshot, kept = rollout_read.read(where, driver)
    make = partial(rollout_edit.resume, digests=digests, snapshot=snapshot, now=at)
    document = rollout_read.document_of(driver, kept)
    if document is None:
        return _no_rollout(driver, digests, make)
    return printed(document, make, driver, output) if where.clusters else written(where, driver, make, output)


@rollout.command(
    short_help="Whether a driver may go on to the next stage, and why.",
    epilog="""\b
Examples:
  allocguard rollout check gpu.example.com
  allocguard rollout check gpu.example.com --history prod.json -o markdown
\b
Exit code 1: a gate failed. What spec.promotion does not ask for is told, and decides nothing.""",
)
@click.argument("driver", metavar="DRIVER")
@click.option(
    "--history",
    metavar="EXPORT",
    help="Take pending time, days without a difference, capacity and the replay from this `ledger export`, not from "
    "the status and the moment.",
)
@cluster_options
@_output
def check(driver: str, history: str | None, where: Where, at: datetime, output: str) -> int:
    """The promotion report of DRIVER: coverage, hold, drills, replay, days without a difference, capacity, pending
    time, duplicates and zone failures, each with what there is and what is needed. That of a live cluster is an event
    about the DriverRollout, too.
    """
    from webhook.cli.rollout_view import report_json, report_markdown, report_text

    sources.check_stdin([history] if history is not None else [], where.clusters)
    begun = now()
    snapshot, kept = rollout_read.read(where, driver)
    report, days = rollout_read.report(driver, snapshot, kept, at, history)
    _show(report_json(report, at, days), output, report_text, report_markdown)
    if not where.clusters:
        from webhook.cli import rollout_told

        rollout_told.checked(where, snapshot, report, begun)
    return 0 if report.passed else 1


@rollout.command(
    short_help="Practise an emergency on the ledger, without touching the cluster.",
    epilog="""\b
Examples:
  allocguard rollout drill gpu.example.com Rollback
  allocguard rollout drill gpu.example.com NodeRestart --cluster cluster.yaml -o json
  allocguard rollout drill gpu.example.com DriverUpgrade --record
  allocguard rollout drill gpu.example.com Rollback --cluster cluster.yaml --record > drilled.yaml
  allocguard rollout check gpu.example.com --cluster cluster.yaml --cluster drilled.yaml
\b
Exit code 1: a step failed.""",
)
@click.argument("driver", metavar="DRIVER")
@click.argument("name", type=click.Choice(DRILLS), metavar=f"{{{'|'.join(DRILLS)}}}")
@click.option(
    "--record",
    is_flag=True,
    help="Write how it went into the status of the live DriverRollout, or of the one that is printed of files.",
)
@_by
@cluster_options
@_output
def drill(driver: str, name: str, record: bool, by: str | None, where: Where, at: datetime, output: str) -> int:
    """Go through a drill of DRIVER on the accounts of the cluster as it is, by events that are made up; nothing of it
    is written to the cluster.

    Rollback: hold, change a mapping, resume at it, release, resume. NodeRestart: every node of the driver in turn comes
    back with its slices wiped. DriverUpgrade: every pool in turn is published anew.
    """
    from webhook.cli import rollout_edit
    from webhook.cli.rollout_live import printed, stored, written
    from webhook.cli.rollout_view import drill_json, drill_markdown, drill_text
    from webhook.ledger import drills
    from webhook.ledger.export import kept_objects

    sources.check_stdin(where.clusters)
    snapshot, kept = rollout_read.read(where, driver)
    if record and driver not in snapshot.rollouts:
        raise Unusable(f"{driver}: has no DriverRollout to record a drill in; write one, or leave out --record")
    result = drills.drill(name, driver, kept_objects(kept.objects), snapshot.release, at)
    done = partial(rollout_edit.record, name=name, passed=result.passed, message=result.message, now=at)
    if record and where.clusters:
        note(f"drill {name} of {driver}: {'passed' if result.passed else 'failed'}; {result.message}")
        then = "name what is printed as one more --cluster"
        printed(rollout_read.document_of(driver, kept), partial(done, by=by or ""), driver, output, then)
        return 0 if result.passed else 1
    _show(drill_json(result, at), output, drill_text, drill_markdown)
    if record:
        make = partial(done, by=by or stored(where, driver)[1])
        if code := written(where, driver, make, "note", status=True):
            return code
    return 0 if result.passed else 1


@rollout.command(
    short_help="Go on to the next stage when the gates pass.",
    epilog="""\b
Examples:
  allocguard rollout promote gpu.example.com
  allocguard rollout promote gpu.example.com --override dana --reason "CHG-1042: drill is booked for Monday"
\b
Exit code 1: a gate failed, and nobody overrides it; or the API server does not take it.""",
)
@click.argument("driver", metavar="DRIVER")
@click.option("--override", "by", metavar="NAME", help="Who answers for going on although gates failed.")
@click.option("--reason", metavar="TEXT", help="Why, with --override.")
@cluster_options
@_output
def promote(driver: str, by: str | None, reason: str | None, where: Where, at: datetime, output: str) -> int:
    """Set the stage of DRIVER to the next one: Off, Canary, Expanding, General. Its gates have to pass (see `rollout
    check`), or somebody has to answer for it by name.
    """
    from webhook.cli import rollout_edit
    from webhook.cli.rollout_live import printed, written
    from webhook.cli.rollout_view import report_json, report_markdown, report_text

    sources.check_stdin(where.clusters)
    if (by, reason) != (None, None) and not ((by or "").strip() and (reason or "").strip()):
        raise click.UsageError("--override and --reason belong together: who answers for it, and why")
    snapshot, kept = rollout_read.read(where, driver)
    document = rollout_read.document_of(driver, kept)
    if document is None:
        out(f"{driver} has no DriverRollout, and so is at stage General, the last one: nothing to promote")
        return 0
    report, _ = rollout_read.report(driver, snapshot, kept, at, None)
    if report.next_stage and not report.passed and by is None:
        _show(report_json(report, at, None), output, report_text, report_markdown)
        note(f"{driver} stays at stage {report.stage}; see to the gates, or say --override NAME --reason TEXT")
        return 1
    overridden = ("", "") if report.passed or by is None else (by, (reason or "").strip())
    if by is not None and report.passed and report.next_stage:
        note("every gate passed: the override is not needed, and not written")

    def make(current: Json) -> Edit:
        from webhook.kube.rollout import read_rollout

        if (stage := read_rollout(current).stage) != report.stage:
            return rollout_edit.Edit({}, f"{driver} is at stage {stage} meanwhile: nothing to change")
        return rollout_edit.promote(current, *overridden, at)

    return printed(document, make, driver, output) if where.clusters else written(where, driver, make, output)


def _show(value: Json, output: str, text: Callable[[Json], str], markdown: Callable[[Json], str]) -> None:
    from webhook.cli.output import dump

    ways = {"text": text, "markdown": markdown}
    out(ways[output](value) if output in ways else dump(value, output))


def _no_rollout(driver: str, digests: Sequence[str], make: Callable[[Json], Edit]) -> int:
    from webhook.cli.rollout_edit import new

    if digests:
        make(new(driver))
    out(f"{driver} has no DriverRollout, and so no hold: nothing to resume")
    return 0
