"""The record of one decision: what log, trace, events, recordings and ``explain`` each tell in their own way.

Who tells something of a decision takes it from here, so that all of them say the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct

from webhook.admission.action import MAX_CAUSES, MESSAGE_SIZE, Answer, cut, denies, holds, warns
from webhook.admission.decide import Judged, Verdict
from webhook.admission.explain import explain, fixes
from webhook.admission.subject import Ref as Ref
from webhook.admission.subject import claim_fact, claim_of, pods_of, trace_of
from webhook.admission.sums import fit_rows, told
from webhook.facts.duplicates import DUPLICATES as DUPLICATES
from webhook.kube.admission import Request
from webhook.kube.raw import mapping, objects
from webhook.policy.evaluate import FAILED
from webhook.policy.fact import Once

Outcome = Literal["denied", "held", "warned", "audited", "failed", "allowed"]


class Reserved(Struct, frozen=True):
    """How the reservation of a decision went: the node, how long it took in seconds, how often another writer was
    faster, whether it is there now, and what kept it from being written. Without either, what somebody else had written
    meanwhile changed the verdict, so that none was needed.
    """

    node: str
    seconds: float
    conflicts: int
    taken: bool
    problem: str = ""


class Record:
    """One decision. ``ended`` is the time at which it was answered, ``seconds`` how long that took from the first byte
    of the request, ``at`` the time that it was made for. ``parent`` is the request's ``traceparent`` header.

    Whoever is given one takes what it needs at once: the facts behind it are forgotten afterwards.
    """

    def __init__(
        self,
        verdict: Verdict,
        answer: Answer,
        ended: datetime,
        seconds: float,
        reserved: Reserved | None = None,
        parent: str = "",
    ) -> None:
        self.verdict = verdict
        self.answer = answer
        self.at: datetime = verdict.evaluation.facts.now
        self.ended = ended
        self.seconds = seconds
        self.reserved = reserved
        self.parent = parent

    @property
    def request(self) -> Request:
        """The request that was judged."""
        return self.verdict.request

    @property
    def endpoint(self) -> str:
        """``validate`` or ``mutate``."""
        return self.verdict.endpoint

    @property
    def revision(self) -> str:
        """The revision of the policies that decided."""
        return self.verdict.revision

    @property
    def judged(self) -> tuple[Judged, ...]:
        """What the policies found."""
        return self.verdict.judged

    @Once
    def resource(self) -> str:
        """The resource, with the subresource where there is one: ``resourceclaims/status``."""
        sub = self.request.sub_resource
        return f"{self.request.resource.name}/{sub}" if sub else self.request.resource.name

    @Once
    def audited(self) -> tuple[str, ...]:
        """What only the operator is told: errors and warnings of policies that audit, which no exception covers."""
        return tuple([each.text for each in self.judged if _only_audited(each)])

    @Once
    def outcome(self) -> Outcome:
        """What came of it; the gravest where several are true."""
        answer = self.answer
        if not answer.allowed:
            return "denied"
        if answer.held:
            return "held"
        if answer.warnings:
            return "warned"
        if self.audited:
            return "audited"
        return "failed" if self.verdict.errors else "allowed"

    @Once
    def claim(self) -> Ref | None:
        """The claim of the write; None for writes of anything else, templates too."""
        return claim_of(self.verdict)

    @Once
    def pods(self) -> tuple[Ref, ...]:
        """The pod of the write, of its status or binding too, or the pods that it adds to the consumers of a claim."""
        return pods_of(self.verdict)

    @Once
    def allocates(self) -> bool:
        """Whether the write gives a claim devices, or one that has them another consumer."""
        fact = claim_fact(self.verdict)
        return fact is not None and self.request.sub_resource == "status" and (fact.allocating or fact.adds_consumers)

    @Once
    def creates(self) -> bool:
        """Whether the write makes the object that it is about; a binding is about a pod that is there."""
        request = self.request
        return request.operation == "CREATE" and not request.sub_resource and request.kind.name != "Binding"

    @Once
    def in_vain(self) -> bool:
        """Whether it makes what will not be there: it is refused, or a dry run. A UID that it has is nobody's."""
        return self.creates and (not self.answer.allowed or self.request.dry_run)

    @Once
    def node(self) -> str:
        """The one node that the write is about, empty where there is none."""
        return self.verdict.evaluation.facts.node_name

    @Once
    def trace(self) -> str:
        """The trace that the decision belongs to: the claim's, or that of the pod of the write. Empty where there is
        neither, or its UID is not known yet.
        """
        return trace_of(self.verdict)

    @Once
    def sums(self) -> tuple[str, ...]:
        """The sums behind a fit that a policy asked for, those that do not come out first."""
        return tuple(told(fit_rows(self.verdict.evaluation.facts)))

    @Once
    def rule(self) -> str:
        """The rule that refuses the write, the one that its message begins with, or that makes the pod wait; empty
        where none does.
        """
        does = "Hold" if self.answer.held else "Deny"
        rules = [each.finding.rule for each in self.judged if self.done(each) == does]
        return next((rule for rule in rules if rule != FAILED), FAILED if rules else "")

    @Once
    def troubled(self) -> bool:
        """Whether somebody will ask about it: refused, made to wait, not judged, or charged twice."""
        if self.outcome in ("denied", "held", "failed"):
            return True
        return any(each.finding.rule in DUPLICATES for each in self.judged)

    @Once
    def tree(self) -> dict[str, Any]:
        """All of it as JSON values, as ``explain`` shows it."""
        return explain(self.verdict, self.answer)

    def done(self, judged: Judged) -> str:
        """What became of a finding: ``Deny``, ``Hold``, ``Warn`` or ``Audit``."""
        if denies(judged):
            return "Deny"
        return "Hold" if self.answer.held and holds(judged) else "Warn" if warns(judged) else "Audit"


def log_fields(record: Record) -> dict[str, object]:
    """What the log says of a decision, by field: who asked what, for which claim and pods, on which node; what came of
    it and why; the sums; how long it took, ``ms``, and how its ``reservation`` went, where there was one. No text is
    longer than a message and no list than the causes of a refusal, whatever objects, users and policies are called.
    """
    request, answer, claim, reserved = record.request, record.answer, record.claim, record.reserved
    fields: dict[str, object] = {
        "endpoint": record.endpoint,
        "uid": request.uid,
        "resource": request.resource.name,
        "subResource": request.sub_resource,
        "operation": request.operation,
        "namespace": request.namespace,
        "name": request.name,
        "user": request.user,
        "dryRun": request.dry_run,
        "claim": claim.key if claim is not None else "",
        "claimUID": claim.uid if claim is not None else "",
        "pods": [pod.key for pod in record.pods[:MAX_CAUSES]],
        "trace": record.trace,
        "node": record.node,
        "revision": record.revision,
        "message": answer.message,
        "warnings": _short(answer.warnings),
        "audited": _short(record.audited),
        "errors": _short(record.verdict.errors),
        "findings": answer.annotations.get("findings", ""),
        "reason": record.rule,
        "sums": _short(record.sums),
        "fix": _short(fixes(record.verdict)),
        "ms": _milliseconds(record.seconds),
    }
    if reserved is not None:
        fields["reservation"] = {
            "node": reserved.node,
            "taken": reserved.taken,
            "conflicts": reserved.conflicts,
            "problem": cut(reserved.problem, MESSAGE_SIZE),
            "ms": _milliseconds(reserved.seconds),
        }
    for name, value in fields.items():
        if isinstance(value, str) and len(value) > MESSAGE_SIZE:
            fields[name] = cut(value, MESSAGE_SIZE)
    return fields


def of_interest(verdict: Verdict) -> bool:
    """Whether a decision is worth a record: it found something, or is about claims or what they are made of."""
    if verdict.judged or verdict.errors:
        return True
    if not verdict.evaluation.policies:
        return False
    match verdict.request.kind.name:
        case "ResourceClaim" | "ResourceClaimTemplate" | "ResourceSlice":
            return True
        case "Pod":
            return any(True for _ in objects(mapping(verdict.request.target.get("spec")).get("resourceClaims")))
    return False


def _short(texts: Sequence[str]) -> list[str]:
    return [cut(each, MESSAGE_SIZE) for each in texts[:MAX_CAUSES]]


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _only_audited(judged: Judged) -> bool:
    audits = not denies(judged) and not warns(judged)
    return audits and judged.finding.severity != "info" and not judged.exception
