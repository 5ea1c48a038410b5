"""``allocguard explain``: one review as a tree."""

from __future__ import annotations

import shlex
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from webhook.cli import sources
from webhook.cli.console import out
from webhook.cli.explain_access import access_told
from webhook.cli.options import Where, cluster_options, output_option, policies_option
from webhook.cli.reviewing import Bench, Write, requests, review_options

if TYPE_CHECKING:
    from webhook.admission.decide import Verdict


@click.command(
    epilog="""\b
Examples:
  allocguard explain review.json --cluster cluster.yaml
  allocguard explain --object claim.yaml --cluster cluster.yaml -o json | jq .sums
  allocguard explain --claim studio/render --context prod"""
)
@click.argument("files", nargs=-1, metavar="[FILE...]")
@click.option(
    "--claim", metavar="NAMESPACE/NAME|UID", help="Tell the story of this claim instead; also by its trace id."
)
@review_options
@cluster_options
@policies_option
@output_option("text", "json", "yaml")
def explain(
    files: tuple[str, ...],
    claim: str | None,
    endpoint: str,
    described: Write,
    where: Where,
    at: datetime,
    policies: tuple[str, ...],
    output: str,
) -> int:
    """Show how a review is judged: match conditions, each rule, the facts it read, the sum it made, verdict and fix.

    FILE holds AdmissionReview requests; or --object names an object, and the review of writing it is built. With a live
    cluster, what its API server allows the writer is asked and shown where a policy complains about who writes.

    With --claim: what happened to that claim, moment by moment, what it is charged, what it waits for now, and what
    would help. A claim that is gone is told from its events. Without --cluster it is the live cluster's.
    """
    from webhook.cli.explain_text import render
    from webhook.cli.output import dump

    if claim is not None:
        if files or described.objects:
            raise click.UsageError("--claim is told without a FILE or --object; leave them out")
        return _story(claim, where, at, output)
    if not files and not described.objects:
        raise click.UsageError("needs a FILE with an AdmissionReview, --object, or --claim")
    described.check()
    sources.check_stdin(files, described.objects, described.old, where.clusters)
    bench = Bench(policies, where, at)
    for number, request in enumerate(requests(files, described)):
        verdict = bench.verdict(request, endpoint)
        value = tree(verdict)
        value["next"] = _named(value["next"], where)
        if told := access_told(verdict, where):
            value["access"] = told
        if output != "text":
            separator = "---\n" if number and output == "yaml" else ""
            out(separator + dump(value, output))
            continue
        out(("\n" if number else "") + render(value))
    return 0


def _story(claim: str, where: Where, at: datetime, output: str) -> int:
    from webhook.cli.explain_claim import render, story
    from webhook.cli.output import dump

    value = story(claim, where, at)
    value["next"] = _named(value["next"], where)
    out(render(value) if output == "text" else dump(value, output))
    return 0


def tree(verdict: Verdict) -> dict[str, Any]:
    """The tree of a decision, with ``remedy``: what would make it fit."""
    from webhook.admission.action import apply
    from webhook.admission.explain import explain as explained
    from webhook.admission.remedy import remedy

    answer = apply(verdict)
    return {**explained(verdict, answer), "remedy": remedy(verdict, answer)}


def _named(commands: list[dict[str, str]], where: Where) -> list[dict[str, str]]:
    return [{**each, "run": f"{each['run']}{_naming(each['run'], where)}"} for each in commands]


def _naming(command: str, where: Where) -> str:
    """What makes ``command`` ask the same cluster; ``-`` is read once."""
    if not command.startswith("allocguard "):
        return ""
    named = [("--cluster", path) for path in where.clusters if path != "-"]
    named += [(name, each) for name, each in (("--kubeconfig", where.kubeconfig), ("--context", where.context)) if each]
    return "".join(f" {option} {shlex.quote(value)}" for option, value in named)
