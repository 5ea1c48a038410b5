"""The tree of ``explain`` for people, from top to bottom: what came of it, what was asked, what the ledger had, the
sum, the rules, what would help, and where to look next.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from webhook.cli.console import paint, table, wrapped
from webhook.cli.explain_access import access_lines
from webhook.cli.ledger_text import change_text
from webhook.cli.report import plural
from webhook.kube.finding import one_line

Tree = dict[str, Any]

_COLOURS = {"allowed": "green", "denied": "red", "warning": "yellow", "error": "red", "fix": "green", "info": "blue"}
_FIRST = re.compile(rf"( *)({'|'.join(_COLOURS)})\b")
_COLUMNS = ("allocatable", "pods", "claims", "overhead", "reserved", "free")
_ZONE_COLUMNS = ("capacity", "claims", "reserved", "free")
_MOST_FINDINGS = 20
_MOST_PATHS = 4


def render(tree: Tree) -> str:
    """The text of a tree, with ``remedy`` and ``access`` where it has them."""
    return "\n".join(_lines(tree))


def _lines(tree: Tree) -> Iterator[str]:
    yield from folded(_head(tree))
    yield from folded(_asked(tree))
    if tree["ledger"] is not None and tree["ledger"]["resources"]:
        yield from _ledger(tree["ledger"])
    yield from folded(_sums(tree["sums"]))
    yield from folded(_policies(tree))
    yield from folded(access_lines(tree.get("access", [])))
    if tree.get("remedy") is not None:
        yield from folded(remedy_lines(tree["remedy"], tree["asked"]["node"], _here(tree)))
    yield from next_lines(tree["next"], tree["asked"]["trace"], tree["runbooks"])
    yield from folded(_facts(tree["facts"]))


def folded(lines: Iterator[str] | list[str]) -> Iterator[str]:
    """Lines as wide as the terminal, their heads in bold and the words that matter in colour."""
    for line in map(one_line, lines):
        indent = line[: len(line) - len(line.lstrip())]
        first, *rest = wrapped(line.lstrip(), indent, f"{indent}    ") or [""]
        yield _painted(first)
        yield from rest


def _painted(line: str) -> str:
    first = _FIRST.match(line)
    if first is not None:
        word = first[2]
        bold = word in ("allowed", "denied")
        return f"{first[1]}{paint(word, _COLOURS[word], bold=bold)}{line[first.end() :]}"
    return line if line.startswith(" ") else paint(line, bold=True)


def _head(tree: Tree) -> Iterator[str]:
    review, verdict = tree["review"], tree["verdict"]
    name = "/".join(filter(None, (review["namespace"], review["name"])))
    asked = " ".join(filter(None, (review["operation"], review["resource"], name)))
    yield f"{'denied' if not verdict['allowed'] else 'allowed, to wait' if verdict['held'] else 'allowed'}: {asked}"
    if verdict["message"]:
        yield f"  {verdict['message']}"
    yield from (f"  warning: {warning}" for warning in verdict["warnings"])
    yield from (f"  patch: {_operation(each)}" for each in verdict["patch"])
    yield from (f"  fix: {fix}" for fix in tree["fix"])


def _asked(tree: Tree) -> Iterator[str]:
    review, asked = tree["review"], tree["asked"]
    dry = " as a dry run" if review["dryRun"] else ""
    yield "what was asked"
    yield f"  by {review['user'] or 'nobody named'}{dry}, in review {review['uid']}"
    yield f"  judged at {review['endpoint']} by revision {tree['revision']}"
    if asked["claim"] is not None:
        yield f"  claim {_named(asked['claim'])}"
    yield from (f"  pod {_named(pod)}" for pod in asked["pods"])
    yield from _more(asked, "pod")
    if asked["slice"] is not None:
        item = asked["slice"]
        where = f" on node {item['node']}" if item["node"] else ""
        devices = plural(item["devices"], "device")
        yield f"  generation {item['generation']} of pool {item['driver']}/{item['pool']}{where}, {devices}"
    elif asked["node"]:
        yield f"  on node {asked['node']}"
    for device in asked["devices"]:
        yield f"  request {device['request']} gets {_device(device)}"
    yield from _more(asked, "device")
    if not asked["devices"]:
        yield from (f"  request {_request(each)}" for each in asked["requests"])
        yield from _more(asked, "request")
    for each in asked["claims"]:
        source = each["claim"] or f"one that template {each['template']} will give"
        yield f"  its claim {each['name']}: {source}"
    yield from _more(asked, "claim")


def _more(asked: Tree, what: str) -> Iterator[str]:
    if count := asked["more"].get(f"{what}s"):
        yield f"  and {plural(count, f'more {what}')}"


def _named(ref: Tree) -> str:
    uid = f" (uid {ref['uid']})" if ref["uid"] else ""
    return "/".join(filter(None, (ref["namespace"], ref["name"] or "without a name yet"))) + uid


def _device(device: Tree) -> str:
    consumed = ", ".join(f"{amount} of {name}" for name, amount in device["consumed"].items())
    share = f", share {device['shareID']}" if device["shareID"] else ""
    name = f"{device['driver']}/{device['pool']}/{device['device']}"
    return f"{name}{share}{f', {consumed}' if consumed else ''}"


def _request(each: Tree) -> str:
    many = "all devices" if each["count"] == "All" else plural(each["count"], "device")
    capacity = ", ".join(f"{amount} of {name}" for name, amount in each["capacity"].items())
    chosen = f", where {' and '.join(each['selectors'])}" if each["selectors"] else ""
    return f"{each['request']}: {many} of class {each['class']}{f' with {capacity}' if capacity else ''}{chosen}"


def _ledger(ledger: Tree) -> Iterator[str]:
    yield paint(one_line(f"what the ledger had for node {ledger['node']}"), bold=True)
    rows = [[name, *(amount[column] for column in _COLUMNS)] for name, amount in ledger["resources"].items()]
    yield from table(["resource", *_COLUMNS], [[one_line(cell) for cell in row] for row in rows], "  ")
    zones = [
        [f"zone {zone['zone']}", one_line(name), *(amount[column] or "unknown" for column in _ZONE_COLUMNS)]
        for zone in ledger["zones"]
        for name, amount in zone["resources"].items()
    ]
    if zones:
        yield from table(["zone", "resource", *_ZONE_COLUMNS], zones, "  ", left=2)


def _sums(sums: list[Tree]) -> Iterator[str]:
    if sums:
        yield "sums"
    told: set[str] = set()
    for row in sums:
        zone = f" in zone {row['zone']}" if row["zone"] else ""
        yield f"  {row['resource']}{zone}: {row['equation']}{'' if row['fits'] else ', does not fit'}"
        for term in row["terms"]:
            yield from _term(term, row["resource"], told)


def _term(term: Tree, resource: str, told: set[str]) -> Iterator[str]:
    """The parts of a term; the version of a mapping is not ``told`` twice."""
    for part in term["of"]:
        if "formula" not in part:
            yield f"    {part['amount']} {term['term']}: pod {part['pod']}"
            continue
        whose = f"claim {part['claim']}, {part['state']}" if "claim" in part else f"request {part['request']}"
        zone = "" if part["zone"] is None else f", zone {part['zone']}"
        yield f"    {part['amount']} {term['term']}: {whose}: {part['formula']} of {part['device']}{zone}"
        mapping = _mapping(part["mapping"])
        if mapping not in told:
            told.add(mapping)
            yield f"      by {mapping}"
    if term["rest"] is not None:
        yield f"    {term['rest']['amount']} {term['term']}: {term['rest']['count']} more, each with less {resource}"


def _mapping(mapping: Tree) -> str:
    if not mapping["slice"]:
        return "a mapping that is not known any more"
    version = f"generation {mapping['generation']}, version {mapping['resourceVersion'] or 'unknown'}"
    return f"slice {mapping['slice']}, {version}, mapping {mapping['digest']}"


def _policies(tree: Tree) -> Iterator[str]:
    if not tree["policies"]:
        yield "no policy is about this resource and operation"
    for policy in tree["policies"]:
        yield from _policy(policy)


def _policy(policy: Tree) -> Iterator[str]:
    if policy["skipped"]:
        yield f"policy {policy['policy']}: does not match, {policy['skipped']}"
    else:
        under = f", excepted by {policy['exception']}" if policy["exception"] else ""
        yield f"policy {policy['policy']} ({policy['action']}{under})"
    for condition in policy["conditions"]:
        if condition["error"] or not policy["skipped"]:
            yield f"  condition {condition['name']}: {condition['error'] or str(condition['value']).lower()}"
    for rule in policy["rules"]:
        if (rule["findings"] or rule["error"]) and not policy["skipped"]:
            yield from _rule(rule)
    passed = [rule["name"] for rule in policy["rules"] if not rule["findings"] and not rule["error"]]
    if passed:
        yield f"  passed: {', '.join(passed)}"
    if policy["mutations"]:
        yield f"  mutations: {_changes(policy)}"
        yield from (f"    {_operation(each)}" for each in policy["patch"])


def _rule(rule: Tree) -> Iterator[str]:
    told = f"failed, {rule['error']}" if rule["error"] else plural(len(rule["findings"]), "finding")
    yield f"  rule {rule['name']}: {told}"
    alike: dict[tuple[str, ...], list[str]] = {}
    for finding in rule["findings"]:
        what = (finding["severity"], finding["rule"], finding["does"], finding["message"])
        alike.setdefault(what, []).append(finding["path"])
    for (severity, name, does, message), paths in list(alike.items())[:_MOST_FINDINGS]:
        yield f"    {severity} {name} {does}{f': {paths[0]}' if paths[0] else ''}"
        yield f"      {message}"
        if len(paths) > 1:
            more = f" and {len(paths) - 1 - _MOST_PATHS} more" if len(paths) - 1 > _MOST_PATHS else ""
            yield f"      the same at {', '.join(paths[1 : _MOST_PATHS + 1])}{more}"
    if len(alike) > _MOST_FINDINGS:
        yield f"    and {len(alike) - _MOST_FINDINGS} more"


def _changes(policy: Tree) -> str:
    if policy["patch"]:
        return "only audited" if policy["action"] == "Audit" else "change the object"
    return "change nothing"


def _operation(operation: Tree) -> str:
    """``add /spec/x: value``, the value as JSON."""
    source = f" from {operation['from']}" if "from" in operation else ""
    shown = f": {orjson.dumps(operation['value']).decode()}" if "value" in operation else ""
    return f"{operation['op']} {operation['path']}{source}{shown}"


def _here(tree: Tree) -> str:
    """What it means that there is room on the node that was asked for: a condition that a policy has of its own refuses
    whatever devices are chosen there, which a finding of a fact does not.
    """
    node = tree["asked"]["node"]
    own = [
        f"{policy['policy']}/{rule['name']}"
        for policy in tree["policies"]
        for rule in policy["rules"]
        if any(each["does"] == "denies" and each["rule"] == rule["name"] for each in rule["findings"])
    ]
    if own:
        return f"node {node} has room for it, and it is refused there by {', '.join(own)}"
    return f"node {node} takes it now, if it gets other devices there"


def remedy_lines(remedy: Tree, node: str, here: str) -> Iterator[str]:
    """What would make it fit, on ``node`` or elsewhere; ``here`` is said where there is room on ``node``."""
    yield "what would make it fit"
    others = [name for name in remedy["fit"] if name != node]
    more = remedy["fits"] - len(remedy["fit"])
    if remedy["here"]:
        yield f"  {here}"
    if others:
        names = f"{', '.join(others)}{f' and {more} more' if more else ''}"
        yield f"  elsewhere: {names} {'take' if len(others) + more > 1 else 'takes'} it as things are now"
    elif not remedy["here"]:
        why = ", ".join(f"{rule} on {count}" for rule, count in remedy["why"].items())
        tried = plural(remedy["looked"], "node")
        yield f"  as things are now no node takes it; {tried} with such devices tried{f': {why}' if why else ''}"
    if remedy["nodes"] > remedy["looked"]:
        yield f"  {plural(remedy['nodes'] - remedy['looked'], 'node')} more with such devices not tried"
    yield from (f"  {change_text(each)}" for each in remedy["smallestChange"])


def next_lines(commands: list[Tree], trace: str, runbooks: Sequence[str] = ()) -> Iterator[str]:
    """What to look at next, not folded: commands are there to be copied."""
    if not commands and not trace and not runbooks:
        return
    yield paint("where to look next", bold=True)
    for each in commands:
        yield one_line(f"  {each['why']}:")
        yield one_line(f"    {each['run']}")
    if runbooks:
        yield f"  what to do about it: {', '.join(runbooks)}"
    if trace:
        yield f"  everything that is decided and charged for it: trace {trace}"


def _facts(facts: Tree) -> Iterator[str]:
    if not facts:
        return
    yield "facts that were read"
    nothing: list[str] = []
    for name, value in _values("", facts):
        if value == "none":
            nothing.append(name)
        else:
            yield f"  {name}: {value}"
    if nothing:
        yield f"  nothing found by {', '.join(nothing)}"


def _values(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _values(f"{name}.{key}" if name else key, item)
    elif isinstance(value, list) and value:
        counts = Counter(map(str, value))
        yield name, ", ".join(f"{each} ({count} times)" if count > 1 else each for each, count in counts.items())
    else:
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        yield name, "none" if value in (None, "", [], {}) else shown
