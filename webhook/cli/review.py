"""``allocguard review``: AdmissionReviews in, the server's answers out."""

from __future__ import annotations

from datetime import datetime

import click

from webhook.cli import sources
from webhook.cli.console import out
from webhook.cli.options import Where, cluster_options, policies_option
from webhook.cli.reviewing import Bench, Write, requests, review_options


@click.command(
    epilog="""\b
Examples:
  allocguard review review.json --cluster cluster.yaml
  allocguard review reviews/ --cluster cluster.yaml --at 2026-11-20T09:00:00Z --exit-code
  allocguard review --object slice.yaml --cluster nodes.yaml | jq .response.status.message
  allocguard review --object new.yaml --old old.yaml --operation UPDATE --subresource status --cluster cluster.yaml"""
)
@click.argument("files", nargs=-1, metavar="FILES...")
@review_options
@click.option("--exit-code", is_flag=True, help="Exit with 1 when a write is denied.")
@cluster_options
@policies_option
def review(
    files: tuple[str, ...],
    endpoint: str,
    described: Write,
    exit_code: bool,
    where: Where,
    at: datetime,
    policies: tuple[str, ...],
) -> int:
    """Answer AdmissionReviews: one JSON document a line, exactly the bytes that the server would answer.

    FILES hold AdmissionReview requests, as JSON or YAML, many in one file where wanted; or --object names an object,
    and the review of writing it is built.
    """
    from webhook.admission.action import apply
    from webhook.admission.respond import respond

    if not files and not described.objects:
        raise click.UsageError("needs FILES with AdmissionReviews, or --object")
    described.check()
    sources.check_stdin(files, described.objects, described.old, where.clusters)
    bench = Bench(policies, where, at)
    denied = False
    for request in requests(files, described):
        answer = apply(bench.verdict(request, endpoint))
        denied = denied or not answer.allowed
        out(respond(answer).decode(), exact=True)
    return 1 if denied and exit_code else 0
