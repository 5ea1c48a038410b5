"""The spans of a decision: the review, and below it what each policy and rule said and how the reservation went.

A refusal is no error of ours, as a server's answer 403 is none in OpenTelemetry's terms: the verdict tells it, and the
status of a span is ERROR where a policy could not be judged or a reservation could not be written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta

from webhook.admission.decide import Judged
from webhook.admission.record import Record, Ref
from webhook.facts.podstatus import DISAGREES
from webhook.facts.times import instant
from webhook.facts.waits import delay
from webhook.kube.core import GATE
from webhook.kube.finding import Finding
from webhook.kube.raw import text
from webhook.kube.trace import trace_id
from webhook.policy.claim_fact import ClaimFact
from webhook.policy.evaluate import PolicyResult
from webhook.policy.pod_fact import PodFact
from webhook.telemetry.sampling import waited
from webhook.telemetry.spans import (
    AMOUNTS_KEY,
    CLAIM_KEY,
    CLAIM_UID_KEY,
    CONFLICTS_KEY,
    DEVICE_KEY,
    DIGEST_KEY,
    DRIVER_KEY,
    DRY_RUN_KEY,
    ENDPOINT_KEY,
    ERROR_KEY,
    EVALUATE,
    EXCEPTION_KEY,
    FIX_KEY,
    MESSAGE_KEY,
    MOST_ITEMS,
    NAMESPACE_KEY,
    OPERATION_KEY,
    PATH_KEY,
    POD_KEY,
    POD_UID_KEY,
    PODS_KEY,
    POLICY_KEY,
    POOL_KEY,
    RESERVE,
    RESERVED_KEY,
    RESOURCE_KEY,
    REVIEW,
    REVIEW_UID_KEY,
    REVISION_KEY,
    RULE_KEY,
    SEVERITY_KEY,
    SUMS_KEY,
    USER_KEY,
    VERDICT_KEY,
    Attributes,
    Span,
    SpanId,
    anchor,
    on_node,
    one_or_all,
)
from webhook.telemetry.tracing import Tracing, new_span

# A caller's span that is kept (W3C Trace Context): what is not kept is nowhere to be found.
_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f][13579bdf](-.*)?")

_NOT_JUDGED, _NOT_RESERVED = "evaluation-failed", "not-reserved"


class ReviewSpans:
    """Traces decisions about claims and pods, each in the trace of its object, as far as ``tracing`` keeps that."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing

    def tell(self, record: Record) -> None:
        """Queue the spans of a decision that is to be kept; never blocks."""
        subject = _subject(record)
        if subject is None:
            return
        sampling = self._tracing.sampling
        if _kept(record):
            if record.in_vain:
                sampling.pass_by(subject.uid)
            else:
                for uid in (subject.uid, *(each.uid for each in record.pods), *_claims_of_pod(record)):
                    sampling.keep(uid)
        elif not subject.uid or not sampling.wanted(subject.uid):
            return
        for span in spans(record, subject):
            self._tracing.send(span)


def spans(record: Record, subject: Ref) -> Iterator[Span]:
    """The spans of ``record`` in the trace of ``subject``, or, where that has no UID yet, in one of the review."""
    request, reserved = record.request, record.reserved
    if subject.uid and record.creates and record.endpoint == "validate":
        review = anchor(subject.uid)
    else:
        review = SpanId(trace_id(subject.uid or request.uid), new_span())
    begun = record.ended - timedelta(seconds=record.seconds)
    errors = record.verdict.errors
    yield Span(
        REVIEW,
        review,
        begun,
        record.ended,
        {**_asked(record), **_about(record, subject), **({ERROR_KEY: _NOT_JUDGED} if errors else {})},
        tuple(dict.fromkeys(_links(record))),
        failed=errors[0] if errors else "",
        serves=True,
    )
    decided = record.ended if reserved is None else record.ended - timedelta(seconds=reserved.seconds)
    for attributes, failed in _evaluations(record):
        made = SpanId(review.trace, new_span())
        yield Span(EVALUATE, made, begun, decided, attributes, parent=review.span, failed=failed)
    if reserved is not None:
        attributes = {**on_node(reserved.node), RESERVED_KEY: reserved.taken, CONFLICTS_KEY: reserved.conflicts}
        if reserved.problem:
            attributes |= {MESSAGE_KEY: reserved.problem, ERROR_KEY: _NOT_RESERVED}
        made = SpanId(review.trace, new_span())
        yield Span(RESERVE, made, decided, record.ended, attributes, parent=review.span, failed=reserved.problem)


def _subject(record: Record) -> Ref | None:
    if record.claim is not None:
        return record.claim
    return next(iter(record.pods), None)


def _kept(record: Record) -> bool:
    if record.troubled or _gated(record):
        return True
    if any(_grave(each.finding) and not each.exception for each in record.judged):
        return True
    return waited(_delay(record))


def _delay(record: Record) -> timedelta:
    """How long after it was made the claim of the write got the devices that it has or had, or gets them now."""
    fact = _claim(record)
    for claim in (fact.model, fact.old) if fact is not None else ():
        if fact is not None and claim is not None and claim.allocation is not None:
            now = record.request.sub_resource == "status" and fact.allocating
            return delay(claim, record.at if now else instant(claim.allocation.timestamp))
    return timedelta()


def _grave(finding: Finding) -> bool:
    """Whether it would refuse, were its policy not one that only warns or audits, or disagrees with the ledger; where
    that is an info the view may only be behind.
    """
    return finding.severity == "error" or (finding.rule in DISAGREES and finding.severity == "warning")


def _gated(record: Record) -> bool:
    """Whether the write makes a pod that waits for us: it was given our gate in another review, that had no UID."""
    pod = _pod(record)
    return pod is not None and record.creates and GATE in pod.model.gates


def _asked(record: Record) -> dict[str, str | bool | tuple[str, ...]]:
    """Who asked for what, and what came of it."""
    request, answer = record.request, record.answer
    told: dict[str, str | bool | tuple[str, ...]] = {
        ENDPOINT_KEY: record.endpoint,
        RESOURCE_KEY: record.resource,
        OPERATION_KEY: request.operation,
        REVIEW_UID_KEY: request.uid,
        USER_KEY: request.user,
        REVISION_KEY: record.revision,
        VERDICT_KEY: record.outcome,
    }
    if record.rule:
        told[RULE_KEY] = record.rule
    if request.dry_run:
        told[DRY_RUN_KEY] = True
    if _gated(record):
        told[VERDICT_KEY] = "held"
        pod = _pod(record)
        waits = pod.waiting_problems if pod is not None else []
        told[MESSAGE_KEY] = tuple([each.text("").removeprefix("/") for each in waits[:MOST_ITEMS]])
    elif message := answer.message or answer.annotations.get("held", ""):
        told[MESSAGE_KEY] = message
    elif answer.warnings:
        told[MESSAGE_KEY] = answer.warnings[:MOST_ITEMS]
    if record.sums:
        told[SUMS_KEY] = record.sums[:MOST_ITEMS]
    return told


def _about(record: Record, subject: Ref) -> Attributes:
    """The claim or pod, its devices and its node."""
    told: dict[str, str | tuple[str, ...]] = {NAMESPACE_KEY: subject.namespace}
    pods = record.pods
    if len(pods) == 1:
        told |= {POD_KEY: pods[0].name} | ({POD_UID_KEY: pods[0].uid} if pods[0].uid else {})
    claim = _claim(record)
    if claim is None:
        return {**told, **on_node(record.node)}
    told |= {CLAIM_KEY: subject.name, CLAIM_UID_KEY: subject.uid}
    if pods:
        told[PODS_KEY] = one_or_all([pod.key for pod in pods])
    allocation = claim.model.allocation
    if allocation is not None and allocation.results:
        named = zip(*(result.identity for result in allocation.results), strict=True)
        told |= dict(zip((DRIVER_KEY, POOL_KEY, DEVICE_KEY), map(one_or_all, named), strict=True))
    if "cost" in vars(claim) and claim.cost.charges:
        told[DIGEST_KEY] = one_or_all([charge.digest for charge in claim.cost.charges])
        told[AMOUNTS_KEY] = tuple([f"{resource} {amount}" for resource, amount in sorted(claim.footprint.items())])
    return {**told, **on_node(record.node)}


def _links(record: Record) -> Iterator[SpanId]:
    """The API server's own span; of a claim its pods, of a pod its claims."""
    if (parent := _PARENT.fullmatch(record.parent)) and parent[1] != "ff":
        version, trace, span, more = parent.groups()
        if int(trace, 16) and int(span, 16) and (version != "00" or not more):
            yield SpanId(trace, span)
    claim = _claim(record)
    uids = [each.uid for each in record.pods] if claim is not None else []
    if claim is not None:
        uids += [text(owner.get("uid")) for owner in claim.model.owners if owner.get("kind") == "Pod"]
    for uid in (*uids, *_claims_of_pod(record))[:MOST_ITEMS]:
        if uid:
            yield anchor(uid)


def _claims_of_pod(record: Record) -> list[str]:
    """The UIDs of the claims that the pod of the write uses, or has entries for in its status."""
    pod = _pod(record)
    if pod is None:
        return []
    known = record.verdict.evaluation.facts.snapshot.claims
    names = dict.fromkeys((*pod.claims, *(entry.claim for entry in pod.model.entries)))
    found = [known.get((pod.model.namespace, name)) for name in names]
    return [each.uid for each in found if each is not None][:MOST_ITEMS]


def _evaluations(record: Record) -> Iterator[tuple[Attributes, str]]:
    """What each policy said that judged the write or failed to, rule by rule where any fired, and what it failed of."""
    found: dict[str, dict[str, list[Judged]]] = {}
    for judged in record.judged:
        found.setdefault(judged.policy, {}).setdefault(judged.finding.rule, []).append(judged)
    for result in record.verdict.evaluation.policies:
        if not result.matched and not result.rules:
            continue
        fired, errors = found.get(result.policy, {}), _errors(result)
        for rule, each in list(fired.items())[:MOST_ITEMS]:
            yield _fired(record, result.policy, rule, each), errors.pop(rule, "")
        for rule, error in errors.items():
            told = {POLICY_KEY: result.policy, RULE_KEY: rule, VERDICT_KEY: "Allow", MESSAGE_KEY: error}
            yield {**told, ERROR_KEY: _NOT_JUDGED}, error
        if not fired and not errors:
            yield {POLICY_KEY: result.policy, VERDICT_KEY: "Allow"}, ""


def _errors(result: PolicyResult) -> dict[str, str]:
    """What rules ended with, by the name under which it is told: an error that refuses is a finding, too."""
    return {rule.findings[0].rule if rule.findings else rule.name: rule.error for rule in result.rules if rule.error}


def _fired(record: Record, policy: str, rule: str, judged: list[Judged]) -> Attributes:
    first = judged[0]
    told: dict[str, str | tuple[str, ...]] = {
        POLICY_KEY: policy,
        RULE_KEY: rule,
        VERDICT_KEY: record.done(first),
        SEVERITY_KEY: first.finding.severity,
        MESSAGE_KEY: one_or_all([each.text for each in judged]),
        PATH_KEY: one_or_all([each.finding.path for each in judged]),
    }
    if first.finding.fix:
        told[FIX_KEY] = one_or_all([each.finding.fix for each in judged])
    if first.exception:
        told[EXCEPTION_KEY] = first.exception
    if rule == _NOT_JUDGED:
        told[ERROR_KEY] = _NOT_JUDGED
    return told


def _claim(record: Record) -> ClaimFact | None:
    return record.verdict.evaluation.facts.claim if record.claim is not None else None


def _pod(record: Record) -> PodFact | None:
    return record.verdict.evaluation.facts.pod
