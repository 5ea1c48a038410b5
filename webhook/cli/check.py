"""``allocguard check``: judge manifests at rest."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

import click

from webhook.cli import sources
from webhook.cli.console import note, out
from webhook.cli.formats import FORMATS
from webhook.cli.options import Where, cluster_options, output_option, policies_option

if TYPE_CHECKING:
    from webhook.cli.report import Report
    from webhook.kube.documents import Document


@click.command(
    epilog="""\b
Examples:
  allocguard check slices.yaml
  allocguard check manifests/ --cluster cluster.yaml -o markdown
  kubectl get resourceslices -o yaml | allocguard check - --cluster nodes.yaml
  allocguard check slice.yaml --kubernetes-version 1.37 --feature-gates DRAListTypeAttributes=true
  allocguard check --live -o markdown                    # all that the cluster has stored that kubectl would take
\b
Exit code 1: an error was found."""
)
@click.argument("files", nargs=-1, metavar="[FILES...]")
@cluster_options
@policies_option
@click.option("--live", is_flag=True, help="Judge everything that the cluster has stored, instead of FILES.")
@click.option("--alone", is_flag=True, help="Judge each object without the other files.")
@output_option(*FORMATS)
def check(
    files: tuple[str, ...],
    where: Where,
    at: datetime,
    policies: tuple[str, ...],
    live: bool,
    alone: bool,
    output: str,
) -> int:
    """Judge manifests: slices, claims, templates, classes, pods, rollouts, policies, recorded reviews.

    Each object is judged as if it were created now, and its status, where it has one, as if it were written now,
    with the API server's own rules too. The files count as part of the cluster, unless --alone.

    With --live everything that is stored and would be refused today, what does not agree with the ledger, leftovers
    and stale reservations.
    """
    from webhook.cli.formats import render

    if live == bool(files):
        raise click.UsageError("needs FILES, or --live for all that is stored")
    if live and alone:
        raise click.UsageError("--alone is for FILES: what is stored is judged together")
    if live:
        from webhook.cli.scan import scanned

        report = scanned(where, policies, at)
    else:
        report = _files(files, where, at, policies, alone)
    out(render(report, output))
    return 1 if report.counts["error"] else 0


def _files(files: tuple[str, ...], where: Where, at: datetime, policies: tuple[str, ...], alone: bool) -> Report:
    from msgspec.structs import replace

    from webhook.cli.judge import Judge
    from webhook.cli.report import Report
    from webhook.cluster.files import choose_release, shapes_of

    sources.check_stdin(files, where.clusters)
    there = sources.live(where) if where.named_live else None
    revision = sources.revision(policies, there.policies if there is not None else None)
    found = sources.documents(files)
    if there is not None:
        snapshot = there.snapshot
    else:
        world = sources.in_files(where)
        shapes = world.shapes + shapes_of(each.value for each in found)
        snapshot = replace(world.snapshot, release=choose_release(shapes, where.minor, where.gates))
    if not alone:
        _tell_repeated(found)
        for document in found:
            snapshot = snapshot.put(document.value)
    judge = Judge(revision, snapshot, at)
    return Report(tuple(judge.judge(document) for document in found), str(snapshot.release))


def _tell_repeated(found: Iterable[Document]) -> None:
    from webhook.cli.report import Judgement

    seen: dict[tuple[str, ...], Document] = {}
    for document in found:
        each = Judgement(document)
        key = (each.api_version.rpartition("/")[0], each.kind, each.namespace, each.name)
        if each.name and key in seen and each.kind != "AdmissionReview":
            earlier = seen[key]
            place = f"document {earlier.index}" + (f" of {earlier.file}" if earlier.file != document.file else "")
            note(
                f"{document.file}: document {document.index}: {each.label} stands in {place} too, the later one counts"
            )
        seen[key] = document
