"""Events about objects, as ``kubectl get events`` shows them, whoever wrote them by whichever of the two APIs."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from webhook.kube.raw import Json, integer, mapping, text

SOURCE = "allocguard"

# The reasons of ours about claims, and about pods; what people filter by.
ALLOCATION_REFUSED = "AllocationRefused"
CLAIM_CHARGED = "ClaimCharged"
CLAIM_RELEASED = "ClaimReleased"
CLAIM_PENDING = "ClaimPending"
CLAIM_SETTLED = "ClaimSettled"
CLAIM_REFUSED = "ClaimRefused"
CLAIMS_HELD = "ClaimsHeld"

# Annotations of ours: the rule, the node, and when it happened first, which the fields of an event have in whole
# seconds only.
RULE = "allocguard.dev/rule"
NODE = "allocguard.dev/node"
SINCE = "allocguard.dev/since"

Type = Literal["Normal", "Warning"]


class ObjectEvent(Struct, frozen=True):
    """An event about the object ``kind`` ``namespace``/``name`` with the UID ``uid``: ``count`` times from ``since`` to
    ``until`` (RFC 3339), ``by`` whom. ``related`` is the UID of the other object that it is about, ``rule`` and
    ``node`` are known of ours; what is not known is empty.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    reason: str
    message: str
    count: int
    since: str
    until: str
    by: str
    warning: bool
    related: str = ""
    rule: str = ""
    node: str = ""

    @property
    def ours(self) -> bool:
        """Whether the guard wrote it."""
        return self.by == SOURCE


def read_object_event(obj: Json) -> ObjectEvent:
    """The Event ``obj``, of ``v1`` or ``events.k8s.io/v1``."""
    metadata = mapping(obj.get("metadata"))
    about = mapping(obj.get("involvedObject") or obj.get("regarding"))
    series = mapping(obj.get("series"))
    notes = mapping(metadata.get("annotations"))
    first = obj.get("firstTimestamp") or obj.get("deprecatedFirstTimestamp") or obj.get("eventTime")
    since = text(first) or text(metadata.get("creationTimestamp"))
    last = obj.get("lastTimestamp") or obj.get("deprecatedLastTimestamp") or series.get("lastObservedTime")
    source = mapping(obj.get("source") or obj.get("deprecatedSource"))
    return ObjectEvent(
        kind=text(about.get("kind")),
        namespace=text(about.get("namespace")),
        name=text(about.get("name")),
        uid=text(about.get("uid")),
        reason=text(obj.get("reason")),
        message=text(obj.get("message")) or text(obj.get("note")),
        count=max(1, integer(obj.get("count")) or integer(obj.get("deprecatedCount")) or integer(series.get("count"))),
        since=text(notes.get(SINCE)) or since,
        until=text(last) or since,
        by=text(source.get("component")) or text(obj.get("reportingComponent") or obj.get("reportingController")),
        warning=text(obj.get("type")) == "Warning",
        related=text(mapping(obj.get("related")).get("uid")),
        rule=text(notes.get(RULE)),
        node=text(notes.get(NODE)),
    )
