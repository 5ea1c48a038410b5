"""``allocguard ledger``: what every node has, and who is charged for it."""

from __future__ import annotations

from datetime import datetime

import click

from webhook.cli import sources
from webhook.cli.console import out
from webhook.cli.options import cluster_options, output_option


@click.group()
def ledger() -> None:
    """Accounts of nodes and NUMA zones, computed from the objects of the cluster."""


@ledger.command(
    epilog="""\b
Examples:
  allocguard ledger show --cluster cluster.yaml
  allocguard ledger show --cluster cluster.yaml --node kiln-01 -o json | jq '.nodes[].resources.cpu'
\b
free = allocatable - pods - claims - overhead - reserved; below zero the node is overcommitted."""
)
@click.option("--node", "nodes", multiple=True, metavar="NAME", help="Only this node (repeatable).")
@cluster_options
@output_option("text", "json", "yaml")
def show(
    nodes: tuple[str, ...],
    clusters: tuple[str, ...],
    at: datetime,
    minor: int | None,
    gates: dict[str, bool],
    output: str,
) -> int:
    """Show each node's account, zones, charges, pools, and what does not agree."""
    from webhook.cli.ledger_text import render
    from webhook.cli.output import dump
    from webhook.ledger import views
    from webhook.ledger.book import Book

    sources.check_stdin(clusters)
    snapshot = sources.needed_cluster(clusters, minor, gates).snapshot
    for name in nodes:
        if name not in snapshot.nodes:
            raise click.UsageError(f"--node {name}: the cluster has no such node")
    value = views.show(Book(), snapshot, at, nodes or None)
    out(render(value) if output == "text" else dump(value, output))
    return 0
