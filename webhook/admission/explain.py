"""One decision as a tree: who asked what, which policies looked, what they read and found, the sums, the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from webhook.admission.action import Answer, denies, holds, warns
from webhook.admission.decide import Judged, Verdict
from webhook.admission.subject import asked
from webhook.admission.sums import fit_rows
from webhook.admission.terms import Terms
from webhook.admission.where_next import runbooks, where_next
from webhook.kube.finding import Finding, one_line
from webhook.kube.quantity import of_resource
from webhook.ledger.views import account_json
from webhook.policy.evaluate import PolicyResult
from webhook.policy.fact import Fact, known
from webhook.policy.facts import ATTRIBUTES, Facts

Tree = dict[str, Any]

# What the facts of a review hold that is a few lines long, nobody needs whole to see why it was refused.
_MOST_ITEMS = 20


def explain(verdict: Verdict, answer: Answer) -> Tree:
    """The tree of a decision, JSON values only.

    ``review``; ``asked``: for which claim, pods, devices and node; ``ledger``: the account of the node that was looked
    at, before the write; ``sums`` behind a fit, with what is behind each of their terms; ``policies`` that name the
    resource and operation, each with its match conditions and rules; ``facts`` that were read, with their values;
    ``verdict``; ``fix``: what to do about each refusal; ``next``: what to look at;
    ``runbooks``.
    """
    request = verdict.request
    # First: what is looked at below would count as read.
    facts = _facts(verdict.evaluation.facts)
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
        "asked": asked(verdict),
        "ledger": _ledger(verdict.evaluation.facts),
        "policies": [_policy(result) for result in verdict.evaluation.policies],
        "facts": facts,
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
        "next": where_next(verdict),
        "runbooks": runbooks(verdict),
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
            shown = {str(key): _value(item) for key, item in list(value.items())[:_MOST_ITEMS]}
            return shown if len(value) <= _MOST_ITEMS else {**shown, "and more": len(value) - _MOST_ITEMS}
        case _ if any(isinstance(field, Fact) for field in vars(type(value)).values()):
            return {name: _value(item) for name, item in known(value).items()}
        case _:
            return str(value)


def _ledger(facts: Facts) -> Tree | None:
    """The account of the node, of the resources that the sums are about; None where no policy looked at it."""
    account = vars(facts).get("account")
    if account is None:
        return None
    told = account_json(account)
    wanted = {row.resource for row in fit_rows(facts)}
    return {
        "node": account.node,
        "resources": {name: amount for name, amount in told["resources"].items() if name in wanted},
        "zones": [
            {
                "zone": zone["zone"],
                "resources": {name: row for name, row in zone["resources"].items() if name in wanted},
            }
            for zone in told["zones"]
        ],
    }


def _sums(facts: Facts) -> list[Tree]:
    rows = fit_rows(facts)
    if not rows:
        return []
    terms = Terms(facts)
    return [
        {
            "resource": row.resource,
            "zone": "" if row.zone is None else str(row.zone),
            "equation": row.equation(),
            "free": "" if row.free is None else of_resource(row.resource, row.free),
            "fits": row.fits,
            "terms": terms.of(row),
        }
        for row in rows
    ]
