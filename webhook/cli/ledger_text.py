"""The account book as tables for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from webhook.cli.console import paint, severity, table, wrapped
from webhook.cli.report import plural
from webhook.kube.finding import one_line

_PHASES = {"Fresh": "green", "Rebuilding": "yellow", "Unknown": "yellow", "Invalid": "red", "Gone": "red"}
_ZONE_COLUMNS = ("capacity", "claims", "reserved", "free")
_COLUMNS = ("allocatable", "pods", "claims", "overhead", "reserved", "free")


def render(value: dict[str, Any]) -> str:
    """The text of what ``ledger show`` prints as JSON."""
    lines = [paint(f"at {value['at']}", dim=True)]
    for node in value["nodes"]:
        lines += ["", *_node(node)]
    if value["differences"]:
        lines += ["", *(line for each in value["differences"] for line in wrapped(_difference(each), "", "  "))]
    lines += ["", _summary(value)]
    return "\n".join(lines)


def render_fit(value: dict[str, Any]) -> str:
    """The text of what ``ledger fit`` prints as JSON."""
    nodes = value["nodes"]
    if "placements" in value:
        lines = _placements(value["placements"])
    else:
        count = sum(node["fits"] for node in nodes)
        colour = "green" if count else "red"
        lines = [paint(f"fits {value['verdict']}: {count} of {plural(len(nodes), 'node')}", colour, bold=True)]
        lines += _node_fits(nodes, "  ")
    if value["smallestChange"]:
        lines.append("what would help, each alone:")
        lines += [f"  {change_text(each)}" for each in value["smallestChange"]]
    return "\n".join(lines)


def _placements(placements: list[dict[str, Any]]) -> list[str]:
    count = sum(bool(each["node"]) for each in placements)
    whole = count == len(placements)
    lines = [
        paint(
            f"{'fits' if whole else 'does not fit'}: {count} of {len(placements)} have room at once",
            "green" if whole else "red",
            bold=True,
        )
    ]
    told: dict[bytes, str] = {}
    for each in placements:
        claims = ", ".join(map(one_line, each["claims"]))
        who = (
            f"pod {one_line(each['pod'])}" + (f" with {claims}" if claims else "") if each["pod"] else f"claim {claims}"
        )
        if each["node"]:
            unsure = "" if each["sure"] else " (it may: not everything could be judged)"
            lines.append(f"  {who}: {paint(one_line(each['node']), 'green')}{unsure}")
        else:
            unsure = "" if each["sure"] else " after the others; another order may fit"
            lines.append(f"  {who}: {paint('no node', 'red')}{unsure}")
            first = told.setdefault(orjson.dumps(each["nodes"]), who)
            again = wrapped(f"for the same reasons as {first}", "    ", " " * 8)
            lines += _node_fits(each["nodes"], "    ") if first is who else again
    return lines


def _node_fits(nodes: list[dict[str, Any]], indent: str) -> list[str]:
    lines: list[str] = []
    size = max((len(node["node"]) for node in nodes), default=0)
    for node in nodes:
        verdict = paint("yes", "green") if node["fits"] else paint("no", "red")
        unsure = " (it may: not everything could be judged)" if node["fits"] and not node["sure"] else ""
        lines.append(f"{indent}{one_line(node['node']):<{size}}  {verdict}{unsure}")
        for reason in node["reasons"]:
            place = f"{one_line(reason['path'])}: " if reason["path"] else ""
            fix = f"; {one_line(reason['fix'])}" if reason["fix"] else ""
            text = f"{reason['rule']}: {place}{reason['message']}{fix}"
            lines += wrapped(text, f"{indent}    ", f"{indent}        ")
    return lines


def change_text(change: dict[str, Any]) -> str:
    """A change that would help, as somebody may be asked for it."""
    claim, node, amount = one_line(change["claim"]), one_line(change["node"]), change["amount"]
    resource = one_line(change["resource"])
    match change["kind"]:
        case "release":
            return f"release {claim}, which holds {amount} of {resource} on {node}"
        case "shrink":
            return f"ask for {amount} less of {resource} in {claim}, for {node}"
        case _:
            return f"give {node} {amount} more of {resource}"


def _summary(value: dict[str, Any]) -> str:
    nodes = value["nodes"]
    charges = sum(len(node["charges"]) for node in nodes)
    differences = sum(len(part["differences"]) for part in (value, *nodes))
    text = f"{plural(len(nodes), 'node')}, {plural(charges, 'charge')}, {plural(differences, 'difference')}"
    return paint(text, "yellow" if differences else "green")


def _node(node: dict[str, Any]) -> Iterator[str]:
    yield paint(f"node {one_line(node['node'])}", bold=True)
    rows = [[name, *(amount[column] for column in _COLUMNS)] for name, amount in node["resources"].items()]
    if rows:
        yield from table(["resource", *_COLUMNS], rows, "  ")
    rows = [
        [f"zone {zone['zone']}", name, *(amount[column] or "unknown" for column in _ZONE_COLUMNS)]
        for zone in node["zones"]
        for name, amount in zone["resources"].items()
    ]
    if rows:
        yield from ["", *table(["zone", "resource", *_ZONE_COLUMNS], rows, "  ", left=2)]
    if node["charges"]:
        yield from ["", *table(_CHARGE_HEAD, list(_charges(node["charges"])), "  ", left=len(_CHARGE_HEAD))]
    if node["pools"]:
        yield ""
    for pool in node["pools"]:
        phase = paint(f"{pool['phase']:<10}", _PHASES.get(pool["phase"]))
        age = paint(f", made {pool['age']} ago", dim=True) if pool["age"] else ""
        yield f"  pool {phase} {one_line(pool['driver'])} {one_line(pool['pool'])}{age}"
        for reason in pool["reasons"]:
            yield from wrapped(one_line(reason), " " * 7, " " * 7)
    for each in node["differences"]:
        yield from wrapped(_difference(each), "  ", "    ")


def _difference(each: dict[str, Any]) -> str:
    name = "/".join(filter(None, (each["namespace"], each["name"])))
    path = f"{one_line(each['path'])}: " if each["path"] else ""
    fix = f"; {one_line(each['fix'])}" if each["fix"] else ""
    label = one_line(f"{each['kind']} {name}")
    return f"{severity(each['severity'])} {each['rule']}: {label}: {path}{each['message']}{fix}"


_CHARGE_HEAD = ("claim", "for", "state", "resource", "amount", "formula", "zone", "device")


def _charges(charges: list[dict[str, Any]]) -> Iterator[list[str]]:
    """The rows of the charges; what they share with the row above is not said again."""
    above: list[str] = []
    for charge in charges:
        claim, key = charge["claim"], charge["key"]
        whom = [f"{claim['namespace']}/{claim['name']}", " ".join(charge["pods"]), charge["state"]]
        what = [
            charge["resource"],
            charge["amount"],
            charge["formula"],
            "" if charge["zone"] is None else str(charge["zone"]),
            f"{key['driver']}/{key['pool']}/{key['device']}",
        ]
        yield [one_line(cell) for cell in (["", "", ""] if whom == above else whom) + what]
        above = whom
