"""The account book as tables for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from webhook.cli.console import paint, severity, table
from webhook.cli.report import plural
from webhook.kube.finding import one_line

_PHASES = {"Fresh": "green", "Rebuilding": "yellow", "Unknown": "yellow", "Invalid": "red", "Gone": "red"}
_COLUMNS = ("allocatable", "pods", "claims", "overhead", "reserved", "free")


def render(value: dict[str, Any]) -> str:
    """The text of what ``ledger show`` prints as JSON."""
    lines = [paint(f"at {value['at']}", dim=True)]
    for node in value["nodes"]:
        lines += ["", *_node(node)]
    lines += ["", _summary(value["nodes"])]
    return "\n".join(lines)


def _summary(nodes: list[dict[str, Any]]) -> str:
    charges = sum(len(node["charges"]) for node in nodes)
    differences = sum(len(node["differences"]) for node in nodes)
    text = f"{plural(len(nodes), 'node')}, {plural(charges, 'charge')}, {plural(differences, 'difference')}"
    return paint(text, "yellow" if differences else "green")


def _node(node: dict[str, Any]) -> Iterator[str]:
    yield paint(f"node {one_line(node['node'])}", bold=True)
    rows = [[name, *(amount[column] for column in _COLUMNS)] for name, amount in node["resources"].items()]
    if rows:
        yield from table(["resource", *_COLUMNS], rows, "  ")
    rows = [
        [f"zone {zone['zone']}", name, *(amount[column] or "unknown" for column in ("capacity", "claims", "free"))]
        for zone in node["zones"]
        for name, amount in zone["resources"].items()
    ]
    if rows:
        yield from ["", *table(["zone", "resource", "capacity", "claims", "free"], rows, "  ", left=2)]
    if node["charges"]:
        yield from ["", *table(_CHARGE_HEAD, [_charge(each) for each in node["charges"]], "  ", left=len(_CHARGE_HEAD))]
    if node["pools"]:
        yield ""
    for pool in node["pools"]:
        phase = paint(f"{pool['phase']:<10}", _PHASES.get(pool["phase"]))
        age = paint(f" for {pool['age']}", dim=True) if pool["age"] else ""
        yield f"  pool {phase} {one_line(pool['driver'])} {one_line(pool['pool'])}{age}"
        for reason in pool["reasons"]:
            yield f"       {one_line(reason)}"
    for each in node["differences"]:
        name = "/".join(filter(None, (each["namespace"], each["name"])))
        path = f"{one_line(each['path'])}: " if each["path"] else ""
        fix = f"; {one_line(each['fix'])}" if each["fix"] else ""
        label = one_line(f"{each['kind']} {name}")
        yield f"  {severity(each['severity'])} {each['rule']}: {label}: {path}{each['message']}{fix}"


_CHARGE_HEAD = ("claim", "for", "device", "zone", "resource", "amount", "formula", "state")


def _charge(charge: dict[str, Any]) -> list[str]:
    claim, key = charge["claim"], charge["key"]
    zone = "" if charge["zone"] is None else str(charge["zone"])
    cells = [
        f"{claim['namespace']}/{claim['name']}",
        " ".join(charge["pods"]),
        f"{key['driver']}/{key['pool']}/{key['device']}",
        zone,
        charge["resource"],
        charge["amount"],
        charge["formula"],
        charge["state"],
    ]
    return [one_line(cell) for cell in cells]
