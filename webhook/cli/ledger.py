"""``allocguard ledger``: what every node has, and who is charged for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from webhook.cli import sources
from webhook.cli.console import out
from webhook.cli.ledger_explain import explain
from webhook.cli.ledger_history import diff, export, replay
from webhook.cli.options import Where, cluster_options, output_option
from webhook.kube.raw import mapping, text

if TYPE_CHECKING:
    from webhook.kube.claims import Claim
    from webhook.kube.core import Pod
    from webhook.kube.finding import Finding
    from webhook.kube.raw import Json
    from webhook.kube.release import Release
    from webhook.kube.snapshot import Snapshot


@click.group(
    epilog="""\b
Examples:
  allocguard ledger show --cluster cluster.yaml --node kiln-01
  allocguard ledger explain default/claim --context prod
  allocguard ledger fit --claim claim.yaml --cluster cluster.yaml
  allocguard ledger export --context prod > prod.json
  allocguard ledger replay prod.json"""
)
def ledger() -> None:
    """Accounts of nodes and NUMA zones: what is charged and why, what would fit, and whether it comes out again."""


for _command in (explain, export, replay, diff):
    ledger.add_command(_command)


@ledger.command(
    short_help="What each node has, and who is charged for it.",
    epilog="""\b
Examples:
  allocguard ledger show --cluster cluster.yaml
  allocguard ledger show --cluster cluster.yaml --node kiln-01 -o json | jq '.nodes[].resources.cpu'
\b
free = allocatable - pods - claims - overhead - reserved; below zero the node is overcommitted.""",
)
@click.option("--node", "nodes", multiple=True, metavar="NAME", help="Only this node (repeatable).")
@cluster_options
@output_option("text", "json", "yaml")
def show(
    nodes: tuple[str, ...],
    where: Where,
    at: datetime,
    output: str,
) -> int:
    """Show each node's account, zones, charges, pools, and what does not agree."""
    from webhook.cli.ledger_text import render
    from webhook.cli.output import dump
    from webhook.ledger import views
    from webhook.ledger.book import Book

    sources.check_stdin(where.clusters)
    snapshot = sources.cluster(where).snapshot
    for name in nodes:
        if name not in snapshot.nodes:
            raise click.UsageError(f"--node {name}: the cluster has no such node")
    value = views.show(Book(), snapshot, at, nodes or None)
    out(render(value) if output == "text" else dump(value, output))
    return 0


@ledger.command(
    short_help="Which nodes could take a claim, and what would help.",
    epilog="""\b
Examples:
  allocguard ledger fit --claim claim.yaml --cluster cluster.yaml
  allocguard ledger fit --claim claim.yaml --pod pod.yaml --cluster cluster.yaml -o json
  allocguard ledger fit --claim template.yaml --pod pods.yaml --cluster cluster.yaml
\b
Exit code 1: it fits nowhere.""",
)
@click.option("--claim", "claims", multiple=True, required=True, metavar="F", help="Claims or templates (repeatable).")
@click.option(
    "--pod",
    "pods",
    multiple=True,
    metavar="F",
    help="The pod that uses the claims: its request counts too (several: each its own).",
)
@cluster_options
@output_option("text", "json", "yaml")
def fit(
    claims: tuple[str, ...],
    pods: tuple[str, ...],
    where: Where,
    at: datetime,
    output: str,
) -> int:
    """Which nodes could take the claims together, why not the others, and the smallest change that would help.

    With several pods: whether there is room for all of them at once, each with the claims that it names.
    """
    from webhook.cli.ledger_text import render_fit
    from webhook.cli.output import dump
    from webhook.facts.fleet_fit import UnknownClaimError, wanted_of
    from webhook.kube.claims import read_claim, read_template
    from webhook.kube.core import read_pod
    from webhook.ledger import views
    from webhook.ledger.book import Book

    sources.check_stdin(claims, pods, where.clusters)
    world = sources.cluster(where)
    readers = {"ResourceClaim": read_claim, "ResourceClaimTemplate": read_template}
    asked = sources.of_kinds(claims, tuple(readers), beside=("Pod",))
    using = sources.of_kinds(pods, ("Pod",), beside=tuple(readers))
    _check_names((*asked, *using))
    read = [(text(each["kind"]), readers[text(each["kind"])](each)) for each in asked]
    wanted = [claim for _, claim in read]
    users = [read_pod(each) for each in using]
    if not wanted:
        raise click.exceptions.Exit(2)
    refused = [each for obj in (*asked, *using) for each in _undecodable(obj, world.snapshot.release)]
    refused += [each for pod in users for each in _negative(pod)]
    unknown = [] if refused else [each for claim in wanted for each in _without_class(claim, world.snapshot)]
    if refused or unknown:
        value = views.refused_view(world.snapshot, refused or unknown, *(["schema"] if refused else []))
    elif len(users) > 1:
        real = [claim for kind, claim in read if kind == "ResourceClaim"]
        try:
            rows = wanted_of(users, real, [claim for kind, claim in read if kind != "ResourceClaim"], world.snapshot)
        except UnknownClaimError as error:
            raise click.UsageError(str(error)) from None
        value = views.fleet_view(Book(), world.snapshot, rows, real, at)
    else:
        value = views.fit_view(Book(), world.snapshot, wanted, at, *users)
    out(render_fit(value) if output == "text" else dump(value, output))
    return 1 if value["verdict"] == "nowhere" else 0


def _check_names(objs: Iterable[Json]) -> None:
    """Raises UsageError where two objects, which cannot both be there, would count as one or twice."""
    seen: set[tuple[str, str, str]] = set()
    for obj in objs:
        metadata = mapping(obj.get("metadata"))
        namespace, name = text(metadata.get("namespace")), text(metadata.get("name"))
        key = (text(obj["kind"]), namespace, name)
        if name and key in seen:
            shown = f"{namespace}/{name}".strip("/")
            raise click.UsageError(f"two of {key[0]} {shown} are given: leave one out, or give each a name of its own")
        seen.add(key)


def _undecodable(obj: Json, release: Release) -> Iterator[Finding]:
    from webhook.kube.schema import problems

    name = text(mapping(obj.get("metadata")).get("name"))
    for each in problems(obj, release):
        if each.severity == "error":
            yield replace(each, has=f"in {' '.join(filter(None, (obj['kind'], name)))} {each.has}")


def _negative(pod: Pod) -> Iterator[Finding]:
    """What a pod asks for less than nothing, which would leave room for others."""
    from webhook.kube.finding import Finding
    from webhook.kube.quantity import of_resource

    asked = [("spec.resources.requests", pod.pod_requests or {}), ("spec.overhead", pod.overhead)]
    for member, containers in (("containers", pod.containers), ("initContainers", pod.init_containers)):
        asked += [
            (f"spec.{member}[{index}].resources.requests", each.requests) for index, each in enumerate(containers)
        ]
    for path, amounts in asked:
        for name, amount in amounts.items():
            if amount < 0:
                has = f"in Pod {pod.name} {of_resource(name, amount)}"
                yield Finding("decode", f"{path}[{name}]", has, "zero or more")


def _without_class(claim: Claim, snapshot: Snapshot) -> Iterator[Finding]:
    """What names a class that is not there, where some are: the scheduler refuses the whole claim, also for a class of
    an alternative that it would not need.
    """
    from webhook.facts.requests import unknown_class

    for group in claim.groups:
        for request in group.alternatives:
            for each in unknown_class(request, f"spec.devices.{request.path}", snapshot):
                if each.severity != "info":
                    yield replace(each, has=f"for claim {claim.key} {each.has}")
