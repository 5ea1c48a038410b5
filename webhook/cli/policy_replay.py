"""``allocguard policy replay``: recorded decisions, judged again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from webhook.cli import sources
from webhook.cli.console import Unusable, note, out, paint, problem, wrapped
from webhook.cli.options import Where, cluster_options, output_option, policies_option
from webhook.cli.report import plural
from webhook.kube.finding import one_line

if TYPE_CHECKING:
    from webhook.admission.replay import Past, Recorded, Told
    from webhook.kube.raw import Json as Object
    from webhook.policy.revision import Revision

Json = dict[str, Any]

# What is printed of differences; where policies are another set, nearly all may differ.
_MOST_LINES = 200
# Of the findings of one side of a difference.
_MOST_FINDINGS = 5
# No account depends on them, so the journal leaves them out, but lints of roles do.
_NOT_KEPT = ("rbac.authorization.k8s.io",)


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a recording: its time, where it stands, and the line itself, which is parsed again when it is judged:
    recordings are larger than what fits into memory as objects.
    """

    at: datetime
    file: str
    number: int
    data: bytes

    @property
    def place(self) -> str:
        """``FILE:LINE``."""
        return f"{self.file}:{self.number}"


@dataclass(slots=True)
class _Result:
    total: int = 0
    same: int = 0
    different: list[Json] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)


@click.command(
    short_help="Judge recorded decisions again; tell what differs.",
    epilog="""\b
Examples:
  allocguard policy replay recording/ --journal journal/
  allocguard policy replay a/ b/ --journal a-journal/ --policies my-policies/ -o json | jq '.different[].claim'
  allocguard policy replay recording/recording-00000007.json --cluster cluster.yaml
\b
Exit code 1: a decision comes out differently; 2: a line cannot be read. docs/recording.md says more.""",
)
@click.argument("paths", nargs=-1, required=True, metavar="RECORDING...")
@click.option(
    "--journal",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Judge each by what `serve --journal` had seen at its moment.",
)
@cluster_options
@policies_option
@output_option("text", "json", "yaml")
def replay(
    paths: tuple[str, ...],
    journal: Path | None,
    where: Where,
    at: datetime,
    policies: tuple[str, ...],
    output: str,
) -> int:
    """Judge the decisions that `serve --record` has written again, each at its own time: by the policies that decided
    then, which the recording has, to prove that they come out again; with --policies, to see what would come out.

    With --journal by what had been seen of the cluster at that moment; with --cluster or a live one by what is there
    now, but for the object that was written, which is as it was before.
    """
    from webhook.cli.output import dump

    sources.check_stdin(paths, where.clusters, policies)
    if click.get_current_context().get_parameter_source("at") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--at is given, but each decision is judged at its own time; leave it out")
    if journal is not None and (where.minor is not None or where.gates):
        raise click.UsageError(
            "--kubernetes-version and --feature-gates are for a cluster, a recording has them itself"
        )
    named = bool(where.clusters) or where.named_live
    if named == (journal is not None):
        raise click.UsageError("needs --journal DIR, or --cluster or --kubeconfig: what to judge decisions by")
    lines = sorted(_lines(paths), key=lambda each: each.at)
    by = _Then(journal) if journal is not None else _Now(where)
    judges = _Judges(policies, by.policies)
    result = _judged(lines, judges, by)
    judges.tell()
    value = {
        "revisions": sorted(judges.used),
        "total": result.total,
        "same": result.same,
        "different": result.different,
        "skipped": dict(result.skipped),
    }
    out("\n".join(_text(value)) if output == "text" else dump(value, output))
    return 1 if result.different else 0


class _Judges:
    """The policies that judge: those named; else those that a recording has beside it; else the shipped ones, and
    ``objects`` of a live cluster.
    """

    def __init__(self, named: Sequence[str], objects: Mapping[str, Object]) -> None:
        self._objects = objects
        self._fixed = sources.revision(named, objects) if named else None
        self._known: dict[tuple[str, str], Revision | None] = {}
        self._missing: Counter[str] = Counter()
        self.used: set[str] = set()

    def of(self, line: _Line, recorded: Recorded) -> Revision | None:
        """Those for a decision; None where the recording has them and they cannot be read, which is told."""
        found = self._fixed or self._recorded(line, recorded.revision.partition("-")[0])
        if found is not None:
            self.used.add(found.hash)
        return found

    def tell(self) -> None:
        """Tell of the decisions that others made, which are not there."""
        if self._missing:
            told = ", ".join(f"{plural(count, 'decision')} by {name}" for name, count in sorted(self._missing.items()))
            note(f"policies that are not in the recording: {told}; the shipped ones judge, name others with --policies")

    def _recorded(self, line: _Line, revision: str) -> Revision | None:
        from webhook.store.recording import policies_of

        folder = Path(line.file).parent
        key = (str(folder), revision)
        if key not in self._known:
            path = policies_of(folder, revision)
            try:
                named, objects = ([str(path)], None) if path.exists() else ([], self._objects)
                self._known[key] = sources.revision(named, objects)
            except click.exceptions.Exit:
                self._known[key] = None
        found = self._known[key]
        if found is not None and found.hash != revision:
            self._missing[revision] += 1
        return found


class _Then:
    """What there was, by a journal."""

    policies: Mapping[str, Object] = {}

    def __init__(self, folder: Path) -> None:
        from webhook.admission.replay import Past
        from webhook.store.history import UnreadableJournalError, read_history

        try:
            found = read_history(folder)
        except UnreadableJournalError as error:
            raise Unusable(str(error)) from error
        for gap in found.gaps:
            lost = ", ".join(f"{count} of {kind}" for kind, count in gap["lost"].items())
            note(f"{folder}: events were lost about {gap['observed']}: {lost}")
        every = [*found.begins, *found.events]
        self._begins = max((event.observed for event in (found.begins or every[:1])), default=None)
        self._past: Past = Past(every)

    def view(self, recorded: Recorded) -> tuple[Any, tuple[str, ...]]:
        """The snapshot, and what of it is not known to be as it was."""
        return self._past.view(recorded)

    def skips(self, recorded: Recorded) -> str:
        """Why a decision cannot be judged, empty where it can."""
        if recorded.request.resource.group in _NOT_KEPT:
            return "the journal has no roles and bindings"
        if self._begins is None or recorded.at < self._begins:
            return "older than the journal"
        return ""


class _Now:
    """What there is."""

    def __init__(self, where: Where) -> None:
        from webhook.cluster.files import Cluster

        self._cluster = sources.cluster(where)
        self.policies: Mapping[str, Object] = {} if isinstance(self._cluster, Cluster) else self._cluster.policies

    def view(self, recorded: Recorded) -> tuple[Any, tuple[str, ...]]:
        """The snapshot; everything in it may be otherwise than it was."""
        from webhook.admission.replay import before

        return before(recorded.request, self._cluster.snapshot_for(recorded.request.object)), ()

    def skips(self, recorded: Recorded) -> str:
        """Nothing is skipped."""
        return ""


def _lines(paths: Sequence[str]) -> Iterator[_Line]:
    """The lines of recordings; what is none is told, with its place."""
    for name, data in sources.contents(paths):
        start = number = 0
        while start < len(data):
            end = data.find(b"\n", start)
            whole, end = end >= 0, len(data) if end < 0 else end
            number += 1
            each, start = data[start:end], end + 1
            if not each.strip():
                continue
            place = f"{name}:{number}"
            try:
                yield _Line(_read(each).at, name, number, each)
            except ValueError as error:
                fix = "" if whole else "; it may be cut off"
                problem(f"{place}: {error}{fix}; a line is what `serve --record` writes")


def _read(data: bytes) -> Recorded:
    import orjson

    from webhook.admission.replay import read_recorded

    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"is no JSON: {str(error).partition(':')[0]}") from error
    return read_recorded(value)


def _judged(lines: Sequence[_Line], judges: _Judges, by: _Then | _Now) -> _Result:
    from webhook.admission.replay import again
    from webhook.facts.times import stamp
    from webhook.ledger.book import Book

    book, result = Book(), _Result()
    for line in lines:
        recorded = _read(line.data)
        result.total += 1
        if reason := by.skips(recorded):
            result.skipped[reason] += 1
            continue
        revision = judges.of(line, recorded)
        if revision is None:
            result.skipped["their policies cannot be read, name others with --policies"] += 1
            continue
        try:
            snapshot, unknown = by.view(recorded)
            told = again(recorded, revision, snapshot, book)
        except Exception as error:  # noqa: BLE001 - a mistake of ours about one decision must not keep the others
            problem(f"{line.place}: the guard fails at it: {type(error).__name__}: {error}; report it with the line")
            result.skipped["the guard fails at them"] += 1
            continue
        if told.same(recorded.was):
            result.same += 1
            continue
        request = recorded.request
        claim = f"{request.namespace}/{request.name}" if request.kind.name == "ResourceClaim" else ""
        result.different.append(
            {
                "uid": request.uid,
                "claim": claim,
                "what": " ".join((request.operation, "/".join(filter(None, (request.resource.name, request.name))))),
                "endpoint": recorded.endpoint,
                "at": stamp(recorded.at, "microseconds"),
                "place": line.place,
                "revision": recorded.revision,
                "was": _side(recorded.was),
                "now": _side(told),
                "unknown": list(unknown),
            }
        )
    return result


def _side(told: Told) -> Json:
    return {
        "outcome": told.outcome,
        "findings": list(told.findings),
        "errors": list(told.errors),
        "patch": list(told.patch),
    }


def _text(value: Json) -> Iterator[str]:
    different = value["different"]
    groups = _alike(different)
    for first, *more in groups[:_MOST_LINES]:
        told = one_line(f"{first['at']}  {_name(first)} (review {first['uid']}, {first['place']})")
        yield f"{paint('different', 'yellow')}  {told}"
        if more:
            yield f"  and {plural(len(more), 'decision')} alike, the last at {more[-1]['at']}"
        for side in ("was", "now"):
            yield from _side_lines(side, first[side])
        if first["unknown"]:
            yield f"  not in the journal as it was seen: {one_line(', '.join(first['unknown'][:_MOST_FINDINGS]))}"
    left = sum(len(group) for group in groups[_MOST_LINES:])
    if left:
        yield f"and {left} more; -o json has them all"
    for reason, count in value["skipped"].items():
        yield f"not judged again: {plural(count, 'decision')}, {reason}"
    judged = value["same"] + len(different)
    if not judged:
        # Nothing is proved by it, and green would say so.
        yield paint("no decision was judged again", "yellow", bold=True)
        return
    word = paint("the same", "green", bold=True) if not different else paint("not the same", "red", bold=True)
    yield f"{word}: {plural(judged, 'decision')}, {len(different) or 'none'} different"


def _alike(different: Sequence[Json]) -> list[list[Json]]:
    """Differences of one object in the same words: a scheduler that is refused tries again every few seconds."""
    groups: dict[str, list[Json]] = {}
    for each in different:
        key = repr((_name(each), each["endpoint"], each["was"], each["now"], each["unknown"]))
        groups.setdefault(key, []).append(each)
    return list(groups.values())


def _name(each: Json) -> str:
    return f"claim {each['claim']}" if each["claim"] else each["what"]


def _side_lines(side: str, told: Json) -> Iterator[str]:
    yield f"  {side}: {one_line(told['outcome'])}"
    for each in told["findings"][:_MOST_FINDINGS]:
        path = f": {each.get('path')}" if each.get("path") else ""
        text = f"{each.get('policy')}/{each.get('rule')}{path}: {each.get('message') or each.get('does')}"
        yield from wrapped(one_line(text), " " * 7, " " * 9)
    if len(told["findings"]) > _MOST_FINDINGS:
        yield f"       and {len(told['findings']) - _MOST_FINDINGS} more"
    if told["errors"]:
        yield f"       failed: {one_line(', '.join(told['errors'][:_MOST_FINDINGS]))}"
    if told["patch"]:
        yield f"       patch: {one_line(', '.join(told['patch'][:_MOST_FINDINGS]))}"
