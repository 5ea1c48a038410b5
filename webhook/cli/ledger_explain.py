"""``allocguard ledger explain``: every charge of a claim, a pod or a node with its reason."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import click

from webhook.cli import sources
from webhook.cli.console import out, paint, severity, table, wrapped
from webhook.cli.options import Where, cluster_options, output_option
from webhook.kube.finding import one_line

Json = dict[str, Any]


@click.command(
    short_help="Every charge of a claim, pod or node, with its reason.",
    epilog="""\b
Examples:
  allocguard ledger explain studio/render --cluster cluster.yaml
  allocguard ledger explain claim/studio/render --context prod -o json
  allocguard ledger explain kiln-01 --cluster cluster.yaml
\b
Where a claim and a pod have the same name, write claim/NAMESPACE/NAME or pod/NAMESPACE/NAME.""",
)
@click.argument("name", metavar="CLAIM|POD|NODE")
@cluster_options
@output_option("text", "json", "yaml")
def explain(name: str, where: Where, at: datetime, output: str) -> int:
    """Explain what is charged for a claim or pod (NAMESPACE/NAME or UID), or on a node (NAME): each charge with where
    its amount comes from, the version of the mapping, its zone, and what ends it.
    """
    from webhook.cli.output import dump
    from webhook.ledger.book import Book
    from webhook.ledger.explained import explained, find

    sources.check_stdin(where.clusters)
    snapshot = sources.cluster(where).snapshot
    found = find(snapshot, name)
    if not found:
        raise click.UsageError(f"{name}: the cluster has no such claim, pod or node; name it NAMESPACE/NAME, or NODE")
    if len(found) > 1:
        names = " or ".join("/".join(filter(None, each)) for each in found)
        raise click.UsageError(f"{name}: may be more than one; write {names}")
    value = explained(Book(), snapshot, found[0], at)
    out("\n".join(_lines(value)) if output == "text" else dump(value, output))
    return 0


def _lines(value: Json) -> Iterator[str]:
    match value["kind"]:
        case "claim":
            yield from claim_lines(value, "")
        case "pod":
            yield from _pod(value)
        case _:
            yield from _node(value)


def claim_lines(value: Json, indent: str) -> Iterator[str]:
    """What is charged and reserved for a claim, each with its reason."""
    allocation = value["allocation"]
    where = f" on {allocation['node'] or 'no one node'}" if allocation else ""
    since = f", allocated {allocation['time']}" if allocation and allocation["time"] else ""
    name = one_line(f"claim {value['namespace']}/{value['name']}")
    yield f"{indent}{paint(name, bold=True)}: {one_line(value['state'] + where + since)}"
    if not value["known"]:
        yield f"{indent}  the cluster has no such claim any more; the ledger of its node still holds it"
    if value["reason"]:
        yield from wrapped(f"nothing is charged: {one_line(value['reason'])}", f"{indent}  ", f"{indent}    ")
    for charge in value["charges"]:
        yield from _charge(charge, f"{indent}  ")
    for each in value["reservations"]:
        pod = f" for pod {each['pod']}" if each["pod"] else ""
        was = "was " if each["over"] else ""
        line = f"{was}reserved on {each['node']} at {each['taken']} by {each['holder'] or 'a replica'}{pod}"
        held = [f"{amount} {name}" for name, amount in each["podRequest"].items()]
        yield from wrapped(
            one_line(f"{line}; with the pod's own {', '.join(held)}" if held else line), f"{indent}  ", f"{indent}    "
        )
    for pod in value["pods"]:
        yield from wrapped(one_line(_consumer(pod)), f"{indent}  ", f"{indent}    ")
    yield from _differences(value["differences"], f"{indent}  ")


def _charge(charge: Json, indent: str) -> Iterator[str]:
    key, mapping = charge["key"], charge["mapping"]
    head = f"{charge['amount']} {charge['resource']} = {charge['formula']} on {charge['node']}, {charge['state']}"
    yield f"{indent}{paint(one_line(head), 'green' if charge['state'] == 'bound' else 'yellow')}"
    version = "not known any more"
    if mapping["slice"]:
        version = f"slice {mapping['slice']} (uid {mapping['sliceUID']}, version {mapping['resourceVersion']})"
        version += f", pool generation {mapping['generation']}, {mapping['digest']}"
    share = f", share {key['shareID']}" if key["shareID"] else ""
    rows = {
        "why": charge["reason"],
        "device": f"{key['driver']}/{key['pool']}/{key['device']}{share}",
        "mapping": version,
        "zone": charge["zoneReason"],
        "life": f"{charge['stateReason']}; since {charge['since'] or 'an unknown time'}",
    }
    for name, text in rows.items():
        yield from wrapped(f"{name:<8}{one_line(text)}", f"{indent}  ", f"{indent}{' ' * 10}")


def _consumer(pod: Json) -> str:
    line = f"pod {pod['namespace']}/{pod['name']} uses it"
    if pod["overhead"]:
        line += f", which adds {_amounts(pod['overhead'])} of overhead"
    status = pod["status"]
    if status is None:
        return f"{line}; its status has no entry for it"
    parts = (_amounts(status["amounts"]), _amounts(status["perPod"]), _amounts(status["perContainer"]))
    said = [f"{part}{how}" for part, how in zip(parts, ("", " a pod", " a container"), strict=True) if part]
    return f"{line}; its status books {', '.join(said) or 'nothing'}"


def _amounts(amounts: Json) -> str:
    return ", ".join(f"{amount} {name}" for name, amount in amounts.items())


def _pod(value: Json) -> Iterator[str]:
    name = one_line(f"pod {value['namespace']}/{value['name']}")
    where = f" on {value['node']}" if value["node"] else ""
    yield f"{paint(name, bold=True)}: {one_line(value['state'] + where)}"
    if value["reason"]:
        yield f"  nothing is charged: {one_line(value['reason'])}"
    else:
        yield from _requests(value["requests"], "  ")
    for claim in value["claims"]:
        yield from claim_lines(claim, "  ")
    yield from _differences(value["differences"], "  ")


def _requests(requests: Json, indent: str) -> Iterator[str]:
    if not requests:
        yield f"{indent}nothing of its own"
    for resource, part in requests.items():
        extra = f" and {part['overhead']} of overhead" if part["overhead"] != "0" else ""
        yield from wrapped(
            one_line(f"{part['pods']} {resource} of its own{extra}: {part['reason']}"), indent, f"{indent}  "
        )


def _node(value: Json) -> Iterator[str]:
    yield paint(f"node {one_line(value['name'])}", bold=True)
    for resource, total in value["sums"].items():
        yield f"  {one_line(resource)}: {total}"
    rows = [
        [f"zone {zone['zone']}", name, *(amount[column] or "unknown" for column in ("capacity", "claims", "free"))]
        for zone in value["zones"]
        for name, amount in zone["resources"].items()
    ]
    if rows:
        yield from table(["zone", "resource", "capacity", "claims", "free"], rows, "  ", left=2)
    claims: dict[str, list[Json]] = {}
    for charge in value["charges"]:
        claims.setdefault(f"{charge['claim']['namespace']}/{charge['claim']['name']}", []).append(charge)
    for name, charges in claims.items():
        yield f"  {paint(one_line(f'claim {name}'), bold=True)}"
        for charge in charges:
            yield from _charge(charge, "    ")
    for pod in value["pods"]:
        name = one_line(f"pod {pod['namespace']}/{pod['name']}")
        yield f"  {paint(name, bold=True)}"
        yield from _requests(pod["requests"], "    ")
    yield from _differences(value["differences"], "  ")


def _differences(found: list[Json], indent: str) -> Iterator[str]:
    for each in found:
        path = f"{one_line(each['path'])}: " if each["path"] else ""
        fix = f"; {one_line(each['fix'])}" if each["fix"] else ""
        label = each["severity"]
        first, *rest = wrapped(f"{label} {each['rule']}: {path}{each['message']}{fix}", indent, f"{indent}  ")
        yield from (first.replace(label, severity(label), 1), *rest)
