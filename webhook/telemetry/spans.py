"""Spans of what happens to an object over its life, their names and their attributes: the one place where they stand.

Who has the UID of an object has its trace (:func:`webhook.kube.trace.trace_id`), whichever replica wrote a span and
however often it was started again. Spans of a trace stand beside each other; only what a review did is below it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import NamedTuple

from msgspec import Struct

from webhook.kube.trace import trace_id

# A write of a claim, or of a pod that has claims, and below it what the policies said, one span for each rule that
# fired and one for each policy none of whose rules did, and the reservation that was written before the answer.
REVIEW, EVALUATE, RESERVE = "admission.review", "policy.evaluate", "ledger.reserve"
# The life of a claim beside its reviews: in a node's book, in use there, out of it, and while it waits.
CHARGE, BIND, RELEASE, PENDING = "ledger.charge", "ledger.bind", "ledger.release", "claim.pending"
# The steps of a rollout, in the trace of the DriverRollout.
HOLD, RESUME, STAGE, DRILL = "rollout.hold", "rollout.resume", "rollout.stage", "rollout.drill"
EXPORT, CHECK = "rollout.export", "rollout.check"

# OpenTelemetry's own.
NAMESPACE_KEY, POD_KEY, POD_UID_KEY = "k8s.namespace.name", "k8s.pod.name", "k8s.pod.uid"
K8S_NODE_KEY, USER_KEY, ERROR_KEY = "k8s.node.name", "user.name", "error.type"

# What is judged and what comes of it. A verdict is the outcome of a review, or what a rule does: Deny, Hold, Warn,
# Audit; Allow for a policy that has nothing to say.
ENDPOINT_KEY, RESOURCE_KEY, OPERATION_KEY = "allocguard.endpoint", "allocguard.resource", "allocguard.operation"
REVIEW_UID_KEY, DRY_RUN_KEY = "allocguard.review.uid", "allocguard.dry_run"
VERDICT_KEY, MESSAGE_KEY = "allocguard.verdict", "allocguard.message"
POLICY_KEY, RULE_KEY, REVISION_KEY = "allocguard.policy", "allocguard.rule", "allocguard.revision"
SEVERITY_KEY, PATH_KEY, FIX_KEY = "allocguard.severity", "allocguard.path", "allocguard.fix"
SUMS_KEY, EXCEPTION_KEY = "allocguard.sums", "allocguard.exception"

# Whom it is about: a claim and its devices, on a node. ``pods`` are those that use the claim, ``namespace/name``.
CLAIM_KEY, CLAIM_UID_KEY, PODS_KEY = "allocguard.claim.name", "allocguard.claim.uid", "allocguard.pods"
NODE_KEY, ALLOCATION_KEY = "allocguard.node", "allocguard.allocation"
DRIVER_KEY, POOL_KEY, DEVICE_KEY = "allocguard.driver", "allocguard.pool", "allocguard.device"

# The book: ``charges`` are lines of one charge each, ``amounts`` of one resource each, both in the order of devices.
RESERVED_KEY, CONFLICTS_KEY = "allocguard.reserved", "allocguard.conflicts"
CHARGES_KEY, AMOUNTS_KEY = "allocguard.charges", "allocguard.amounts"
FORMULA_KEY, DIGEST_KEY = "allocguard.formula", "allocguard.mapping.digest"

# Waiting: for what, and whether that is over; a span is written now and then while it is not.
REASON_KEY, OVER_KEY = "allocguard.pending.reason", "allocguard.pending.over"

STAGE_KEY, HOLD_REASON_KEY = "allocguard.stage", "allocguard.hold.reason"
EXPORT_KEY, DRILL_KEY = "allocguard.export.digest", "allocguard.drill"

Attributes = Mapping[str, str | bool | int | Sequence[str]]

# What one attribute may hold, characters and items, and all of a span together, bytes: a collector takes 4 MiB at a
# time, which are 64 spans, and people read lines.
MOST_TEXT, MOST_ITEMS, MOST_BYTES = 4096, 64, 32 * 1024


class SpanId(NamedTuple):
    """A span that was written, or will be: 32 and 16 hexadecimal digits."""

    trace: str
    span: str


class Span(Struct, frozen=True):
    """Something that is over, in the trace with this id. ``parent`` is the id of another span of the trace, ``failed``
    what kept it from being done; ``serves`` says that somebody asked for it.
    """

    name: str
    id: SpanId
    begun: datetime
    ended: datetime
    attributes: Attributes
    links: Sequence[SpanId] = ()
    parent: str = ""
    failed: str = ""
    serves: bool = False


def anchor(uid: str) -> SpanId:
    """The span of the review that created the object with this UID: what others link to who know nothing but it."""
    return SpanId(trace_id(uid), sha256(f"created {uid}".encode()).hexdigest()[:16])


def on_node(node: str) -> Attributes:
    """The node under OpenTelemetry's name and under ours; nothing where there is none."""
    return {K8S_NODE_KEY: node, NODE_KEY: node} if node else {}


def one_or_all(values: Sequence[str]) -> str | tuple[str, ...]:
    """What a key says that is about one of a kind most of the time: searches find a text, not an item of a list."""
    told = tuple(dict.fromkeys(values))
    return told[0] if len(told) == 1 else told[:MOST_ITEMS]
