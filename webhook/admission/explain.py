"""One decision as a tree: who asked what, which policies looked, what they read and found, the sums, the answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from webhook.admission.action import Answer, denies, holds, warns
from webhook.admission.decide import Judged, Verdict
from webhook.kube.finding import Finding, one_line
from webhook.policy.evaluate import PolicyResult
from webhook.policy.fact import Fact, known
from webhook.policy.facts import ATTRIBUTES, Facts

Tree = dict[str, Any]

# What the facts of a review hold that is a few lines long, nobody needs whole to see why it was refused.
_MOST_ITEMS = 20


def explain(verdict: Verdict, answer: Answer) -> Tree:
    """The tree of a decision, JSON values only.

    ``review``; ``policies`` that name the resource and operation, each with its match conditions and rules; ``facts``
    that were read, with their values; ``sums`` behind a fit; ``verdict``; ``fix``: what to do about each refusal.
    """
    request = verdict.request
    resource = f"{request.resource.name}/{request.sub_resource}" if request.sub_resource else request.resource.name
    return {
        "review": {
            "uid": request.uid,
            "endpoint": verdict.endpoint,
            "operation": request.operation,
            "resource": resource,
            "namespace": request.namespace,
            "name": request.name,
            "user": request.user,
            "dryRun": request.dry_run,
        },
        "revision": verdict.revision,
        "policies": [_policy(result) for result in verdict.evaluation.policies],
        "facts": _facts(verdict.evaluation.facts),
        "sums": _sums(verdict.evaluation.facts),
        "verdict": {
            "allowed": answer.allowed,
            "held": answer.held,
            "message": answer.message,
            "warnings": list(answer.warnings),
            "patch": list(answer.patch),
            "auditAnnotations": dict(answer.annotations),
        },
        "fix": fixes(verdict),
    }


def fixes(verdict: Verdict) -> list[str]:
    """What to do about each refusal and warning."""
    found = [each.finding.fix for each in verdict.judged if each.finding.fix and (denies(each) or warns(each))]
    return list(dict.fromkeys(map(one_line, found)))


def _policy(result: PolicyResult) -> Tree:
    validations = {each.validation.name: each.program.source for each in result.compiled.validations}
    return {
        "policy": result.policy,
        "action": result.action,
        "matched": result.matched,
        "skipped": result.skipped,
        "exception": result.exception,
        "conditions": [{"name": c.name, "value": c.value, "error": c.error} for c in result.conditions],
        "rules": [
            {
                "name": rule.name,
                "expression": " ".join(validations.get(rule.name, "").split()),
                "error": rule.error,
                "findings": [_finding(result, finding) for finding in rule.findings],
            }
            for rule in result.rules
        ],
        "mutations": [" ".join(each.program.source.split()) for each in result.compiled.mutations],
        "patch": list(result.patch),
    }


def _finding(result: PolicyResult, finding: Finding) -> Tree:
    judged = Judged(result.policy, result.action, finding)
    return {
        "policy": result.policy,
        "rule": finding.rule,
        "origin": finding.origin,
        "severity": finding.severity,
        "path": one_line(finding.path),
        "message": finding.message,
        "fix": one_line(finding.fix),
        "does": _does(judged),
    }


def _does(judged: Judged) -> str:
    if denies(judged):
        return "denies"
    return "holds" if holds(judged) else "warns" if warns(judged) else "is audited"


def _facts(facts: Facts) -> Tree:
    read: Tree = {}
    for each in (facts, *facts.later):
        for name, attribute in ATTRIBUTES.items():
            value = vars(each).get(attribute)
            if value is not None and name != "request":
                read[name] = read.get(name, {}) | _value(value)
        for writer in each.writers:
            # What is known of somebody rests on more than the request shows: DriverRollouts, params, the token.
            read["writer"] = read.get("writer", {}) | {"evidence": writer.evidence} | _value(writer)
    read.get("claim", {}).pop("fit", None)  # these are the sums
    return {name: fields for name, fields in read.items() if fields}


def _value(value: object) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case list() | tuple() | frozenset() | set():
            items = [_value(item) for item in list(value)[:_MOST_ITEMS]]
            return items if len(value) <= _MOST_ITEMS else [*items, f"and {len(value) - _MOST_ITEMS} more"]
        case Finding():
            return value.rule
        case Mapping():
            return {str(key): _value(item) for key, item in list(value.items())[:_MOST_ITEMS]}
        case _ if any(isinstance(field, Fact) for field in vars(type(value)).values()):
            return {name: _value(item) for name, item in known(value).items()}
        case _:
            return str(value)


def _sums(facts: Facts) -> list[Tree]:
    claim = vars(facts).get("claim")
    if claim is None or not {"fit", "fit_problems"} & vars(claim).keys():
        return []
    return [
        {"resource": row.resource, "zone": row.zone, "equation": row.equation, "free": row.free} for row in claim.fit
    ]


def lines(tree: Tree) -> list[str]:
    """The tree as indented lines of text, the answer first: it is what somebody came for."""
    return [one_line(line) for line in _lines(tree)]


def _lines(tree: Tree) -> Iterator[str]:
    review, verdict = tree["review"], tree["verdict"]
    name = "/".join(filter(None, (review["namespace"], review["name"])))
    asked = " ".join(filter(None, (review["operation"], review["resource"], name)))
    yield f"{'denied' if not verdict['allowed'] else 'allowed, to wait' if verdict['held'] else 'allowed'}: {asked}"
    if verdict["message"]:
        yield f"  {verdict['message']}"
    yield from (f"  warning: {warning}" for warning in verdict["warnings"])
    yield from (f"  patch: {_operation(each)}" for each in verdict["patch"])
    yield from (f"  fix: {fix}" for fix in tree["fix"])
    dry = " as a dry run" if review["dryRun"] else ""
    yield f"asked by {review['user'] or 'nobody named'}{dry}, in review {review['uid']}"
    yield f"judged at {review['endpoint']} by revision {tree['revision']}"
    if not tree["policies"]:
        yield "no policy is about this resource and operation"
    for policy in tree["policies"]:
        yield from _policy_lines(policy)
    if tree["sums"]:
        yield "sums"
        for row in tree["sums"]:
            zone = f" in zone {row['zone']}" if row["zone"] else ""
            yield f"  {row['resource']}{zone}: {row['equation']}"
    if tree["facts"]:
        yield "facts that were read"
        for fact, fields in tree["facts"].items():
            yield from _fact_lines(fact, fields, "  ")


def _policy_lines(policy: Tree) -> Iterator[str]:
    if policy["skipped"]:
        yield f"policy {policy['policy']}: does not match, {policy['skipped']}"
    else:
        under = f", excepted by {policy['exception']}" if policy["exception"] else ""
        yield f"policy {policy['policy']} ({policy['action']}{under})"
    for condition in policy["conditions"]:
        yield f"  condition {condition['name']}: {condition['error'] or str(condition['value']).lower()}"
    for rule in policy["rules"]:
        found = len(rule["findings"])
        told = f"{found} finding{'s' if found > 1 else ''}" if found else "passes"
        yield f"  rule {rule['name']}: {'failed, ' + rule['error'] if rule['error'] else told}"
        for finding in rule["findings"][:_MOST_ITEMS]:
            yield f"    {finding['severity']} {finding['rule']} {finding['does']}: {finding['path']}"
            yield f"      {finding['message']}"
        if found > _MOST_ITEMS:
            yield f"    and {found - _MOST_ITEMS} more"
    if policy["mutations"]:
        yield f"  mutations: {_changes(policy)}"
        yield from (f"    {_operation(each)}" for each in policy["patch"])


def _changes(policy: Tree) -> str:
    if policy["patch"]:
        return "only audited" if policy["action"] == "Audit" else "change the object"
    return "change nothing"


def _operation(operation: Tree) -> str:
    """``add /spec/x: value``, the value as JSON."""
    source = f" from {operation['from']}" if "from" in operation else ""
    shown = f": {orjson.dumps(operation['value']).decode()}" if "value" in operation else ""
    return f"{operation['op']} {operation['path']}{source}{shown}"


def _fact_lines(name: str, value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _fact_lines(f"{name}.{key}", item, indent)
    elif isinstance(value, list) and value:
        yield f"{indent}{name}: {', '.join(map(str, value))}"
    else:
        shown = str(value).lower() if isinstance(value, bool) else value
        yield f"{indent}{name}: {'none' if value in (None, '', [], {}) else shown}"
