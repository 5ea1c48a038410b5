"""``allocguard ledger export``, ``replay``, ``diff``: the history of the accounts, and whether it comes out again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from webhook.cli import sources
from webhook.cli.console import Unusable, note, out, paint, wrapped
from webhook.cli.options import Where, cluster_options, now, output_option
from webhook.cli.report import plural
from webhook.kube.finding import one_line

if TYPE_CHECKING:
    from webhook.admission.history import Decision
    from webhook.cluster.recorder import Kept
    from webhook.kube.snapshot import Snapshot
    from webhook.ledger.charges import Difference
    from webhook.ledger.export import Export

Json = dict[str, Any]

# What is printed of differences; a book that came out wrong has as many as it has charges.
_MOST_LINES = 200


@click.command(
    short_help="Objects, events and accounts as one document.",
    epilog="""\b
Examples:
  allocguard ledger export --context prod > prod.json
  allocguard ledger export --cluster cluster/ > cluster.json
  allocguard ledger export --journal /var/lib/allocguard/journal > history.json
\b
No secret, environment variable, annotation or parameter for a driver is ever in it.""",
)
@click.option("--journal", type=click.Path(path_type=Path), metavar="DIR", help="The events of this journal.")
@cluster_options
def export(journal: Path | None, where: Where, at: datetime) -> int:
    """Print what is needed to fold the accounts again from zero, and what they say now, with a digest.

    With --journal the events are those that `serve --journal` has written; the accounts are then those of the cluster
    that is named, or, without one, what the events give.

    An export of a live cluster is an event about each DriverRollout that is held.
    """
    from webhook.cli.output import dump
    from webhook.ledger.export import export_json

    sources.check_stdin(where.clusters)
    begun = now()
    made, snapshot = _of_cluster(where, at) if journal is None else _of_journal(journal, where, at)
    value = export_json(made)
    out(dump(value, "json"))
    if where.named_live or (journal is None and not where.clusters):
        from webhook.cli import rollout_told

        rollout_told.exported(where, snapshot, value["digest"], begun)
    return 0


@click.command(
    short_help="Fold an export again from zero and compare.",
    epilog="""\b
Examples:
  allocguard ledger replay prod.json
  allocguard ledger replay prod.json --edited slice.yaml -o json | jq '.differences[].message'
  allocguard ledger replay prod.json --policies my-policies
\b
Exit code 1: what came out is not what was recorded, or an allocation would have been refused.""",
)
@click.argument("file", metavar="FILE")
@click.option(
    "--edited",
    "edits",
    multiple=True,
    metavar="F",
    help="Objects in place of those of the same name, as if they had been so all along (repeatable).",
)
@click.option(
    "--policies",
    multiple=True,
    metavar="PATH",
    help="Have these policies decide about each allocation at its moment (repeatable).",
)
@output_option("text", "json", "yaml")
def replay(file: str, edits: tuple[str, ...], policies: tuple[str, ...], output: str) -> int:
    """Prove that the same accounts of nodes and zones and the same pod statuses come out of the events of an export.

    What happened in it that no state shows is told too: a device given on while its last container may still run,
    reservations and pools that come and go.

    With --edited or --policies: what would have come out, and which allocations would have been refused, those that
    stood when the export begins too; --edited alone is decided by the shipped policies.
    """
    from webhook.admission.history import decisions
    from webhook.ledger import replay as replays
    from webhook.ledger.incidents import incidents

    sources.check_stdin([file], edits)
    made = read(file)
    objects = [document.value for document in sources.documents(edits)]
    try:
        history = replays.edited(made, objects) if objects else made.history()
    except ValueError as error:
        raise Unusable(f"{', '.join(edits)}: {error}; edit an object that accounts depend on") from error
    done = replays.replay(made, history)
    asked = bool(edits or policies)
    judged = [*decisions(history, made.release, sources.revision(policies), made.begins)] if asked else []
    value = {
        "equal": not done.differences and all(each.answer.allowed for each in judged),
        "events": done.events,
        "nodes": len(done.ledger.snapshot.nodes),
        "gaps": list(made.gaps),
        "stale": dict(done.ledger.stale),
        "duplicates": dict(done.ledger.duplicates),
        "incidents": _differences(incidents(history)),
        "differences": _differences(done.differences),
        **({"decisions": [_decision(each) for each in judged]} if asked else {}),
    }
    return _tell(value, output)


@click.command(
    short_help="Compare two exports, or one with a cluster.",
    epilog="""\b
Examples:
  allocguard ledger diff monday.json tuesday.json
  allocguard ledger diff prod.json --context prod -o json
\b
Exit code 1: they differ.""",
)
@click.argument("a", metavar="A")
@click.argument("b", metavar="[B]", required=False)
@cluster_options
@output_option("text", "json", "yaml")
def diff(a: str, b: str | None, where: Where, at: datetime, output: str) -> int:
    """Compare the accounts of export A with those of export B, or with a cluster as it is now."""
    from webhook.ledger.statement import compared

    sources.check_stdin([a], [b] if b is not None else [], where.clusters)
    if b is not None and (where.clusters or where.named_live):
        raise click.UsageError("two exports are given, and a cluster too; leave one of them out")
    one = read(a)
    other = read(b) if b is not None else _of_cluster(where, at)[0]
    names = (f"as in {a}", f"in {b or 'the cluster'}")
    value = {
        "equal": not (found := compared(one.statement, other.statement, names)),
        "events": len(other.objects) + len(other.events),
        "nodes": len(other.statement.get("nodes", ())),
        "differences": _differences(found),
    }
    return _tell(value, output)


def _of_cluster(where: Where, at: datetime) -> tuple[Export, Snapshot]:
    from webhook.cluster.recorder import Kept

    recorder = Kept()
    snapshot = sources.cluster(where, recorder).snapshot
    return of_snapshot(snapshot, recorder, at), snapshot


def of_snapshot(snapshot: Snapshot, kept: Kept, at: datetime) -> Export:
    """The export of a cluster as it is at ``at``, whose objects are ``kept``: without a history."""
    from webhook.ledger.book import Book
    from webhook.ledger.export import Export, kept_objects
    from webhook.ledger.statement import statement

    said = statement(Book(), snapshot)
    return Export(at, snapshot.release, at, kept_objects(kept.objects), (), said)


def _of_journal(folder: Path, where: Where, at: datetime) -> tuple[Export, Snapshot]:
    from webhook.ledger.book import Book
    from webhook.ledger.export import Export
    from webhook.ledger.fold import fold
    from webhook.ledger.statement import statement
    from webhook.store.history import UnreadableJournalError, read_history

    try:
        found = read_history(folder)
    except UnreadableJournalError as error:
        raise Unusable(str(error)) from error
    for gap in found.gaps:
        lost = ", ".join(f"{count} of {kind}" for kind, count in gap["lost"].items())
        note(f"{folder}: events were lost about {gap['observed']}: {lost}")
    release = found.release
    if where.clusters or where.named_live:
        snapshot = sources.cluster(where).snapshot
    else:
        snapshot = fold([*found.begins, *found.events], release).snapshot
    objects = tuple(event.object for event in found.begins if event.object is not None)
    begins = max((event.observed for event in (found.begins or found.events[:1])), default=at)
    said = statement(Book(), snapshot)
    made = Export(at, release, begins, objects, tuple(found.events), said, tuple(found.gaps), found.digest)
    return made, snapshot


def read(file: str) -> Export:
    """The export in ``file``. Raises Unusable for anything else."""
    from webhook.ledger.export import read_export

    found = sources.documents([file])
    if len(found) != 1:
        raise Unusable(f"{file}: has {plural(len(found), 'document')}, needs one export of `ledger export`")
    try:
        return read_export(found[0].value)
    except ValueError as error:
        line, column = found[0].position(str(error).partition(": ")[0])
        raise Unusable(f"{file}:{line}:{column}: {error}") from error


def _differences(found: Sequence[Difference]) -> list[Json]:
    from webhook.ledger.views import difference_json

    return [difference_json(each) for each in found]


def _decision(each: Decision) -> Json:
    from webhook.facts.times import stamp
    from webhook.ledger.views import finding_json

    return {
        "observed": stamp(each.event.observed),
        "claim": {"namespace": each.claim.namespace, "name": each.claim.name, "uid": each.claim.uid},
        "node": each.node,
        "allowed": each.answer.allowed,
        "message": each.answer.message,
        "findings": [finding_json(judged.finding, judged.policy) for judged in each.verdict.judged],
    }


def _tell(value: Json, output: str) -> int:
    from webhook.cli.output import dump

    out("\n".join(_lines(value)) if output == "text" else dump(value, output))
    return 0 if value["equal"] else 1


def _lines(value: Json) -> Iterator[str]:
    for each in value.get("decisions", ()):
        claim = one_line(f"{each['claim']['namespace']}/{each['claim']['name']} on {each['node'] or 'no one node'}")
        verdict = paint("allowed", "green") if each["allowed"] else paint("denied ", "red")
        yield f"{verdict}  {each['observed']}  {claim}"
        if each["message"]:
            yield from wrapped(one_line(each["message"]), " " * 9, " " * 11)
    found = value["differences"]
    for each in (*value.get("incidents", ()), *found[:_MOST_LINES]):
        name = "/".join(filter(None, (each["namespace"], each["name"])))
        path = f"{each['path']}: " if each["path"] else ""
        yield from wrapped(one_line(f"{each['rule']}: {each['kind']} {name}: {path}{each['message']}"), "", "  ")
    if len(found) > _MOST_LINES:
        yield f"and {len(found) - _MOST_LINES} more; -o json has them all"
    for gap in value.get("gaps", ()):
        yield f"events were lost about {gap['observed']}: what happened then is not in it"
    denied = sum(not each["allowed"] for each in value.get("decisions", ()))
    counts = [plural(value["events"], "event"), plural(value["nodes"], "node"), plural(len(found), "difference")]
    if "decisions" in value:
        counts.append(f"{denied} of {plural(len(value['decisions']), 'allocation')} denied")
    word = paint("equal", "green", bold=True) if value["equal"] else paint("not equal", "red", bold=True)
    yield f"{word}: {', '.join(counts)}"
