"""Audit events of writes to the status of claims, as audit webhooks and log files have them (``audit.k8s.io/v1``)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from urllib.parse import parse_qs, urlsplit

from msgspec import Struct

from webhook.kube.raw import integer, mapping, members, sequence, text

API_VERSION = "audit.k8s.io/v1"
# Once something was answered. Before that there is nothing to tell; a request without credentials has no other stage
# than the second.
_ANSWERED = frozenset({"ResponseComplete", "ResponseStarted", "Panic"})
_VERBS = frozenset({"update", "patch"})
# Causes of one refusal that are read: the API server gives one for each driver, at most, and some of the schema.
_MOST_CAUSES = 64
# Groups, keys, and values of a key of one user, and the length of a name: real ones have far less.
_MOST, _LONGEST = 64, 512


class Cause(Struct, frozen=True):
    """One entry of ``details.causes`` of a refusal."""

    field: str
    reason: str
    message: str


class AuditEvent(Struct, frozen=True):
    """One answered write to the status of a claim.

    ``code``, ``reason``, ``message`` and ``causes`` are of the answer. ``user``, ``groups`` and ``extra`` are who the
    request was for, ``impersonator`` who made it for them, empty where that is the same. ``uid`` is that of the claim,
    where the writer named it. ``body`` is the object or patch that was sent; None where the audit policy leaves it out,
    it was cut, or refused unread. ``at`` is when it was answered (RFC 3339).
    """

    id: str
    verb: str
    code: int
    reason: str
    message: str
    causes: tuple[Cause, ...]
    namespace: str
    name: str
    uid: str
    user: str
    groups: tuple[str, ...]
    extra: Mapping[str, tuple[str, ...]]
    impersonator: str
    body: object
    at: str
    dry_run: bool

    @property
    def failed(self) -> bool:
        """Whether the status was not written."""
        return self.code >= 400


def _name(value: object) -> str:
    return text(value)[:_LONGEST]


def _texts(value: object) -> tuple[str, ...]:
    return tuple(each[:_LONGEST] for each in sequence(value)[:_MOST] if isinstance(each, str))


def read_event(raw: object) -> AuditEvent | None:
    """The model of a raw audit event; None for one that is not about the status of one claim, or has no answer yet.

    Members of a wrong type count as absent; names that are longer than any, and members beyond any number, are cut.
    """
    event = mapping(raw)
    place = mapping(event.get("objectRef"))
    of_claim = (place.get("apiGroup"), place.get("resource"), place.get("subresource"))
    if of_claim != ("resource.k8s.io", "resourceclaims", "status") or not text(place.get("name")):
        return None
    status = mapping(event.get("responseStatus"))
    code = integer(status.get("code"))
    verb = text(event.get("verb"))
    if text(event.get("stage")) not in _ANSWERED or verb not in _VERBS or not 100 <= code <= 599:
        return None
    person, asked = mapping(event.get("impersonatedUser")), mapping(event.get("user"))
    user = person or asked
    causes = members(mapping(status.get("details")).get("causes"))[:_MOST_CAUSES]
    return AuditEvent(
        id=_name(event.get("auditID")),
        verb=verb,
        code=code,
        reason=_name(status.get("reason")),
        message=text(status.get("message")),
        causes=tuple(Cause(_name(c.get("field")), _name(c.get("reason")), text(c.get("message"))) for c in causes),
        namespace=_name(place.get("namespace")),
        name=_name(place.get("name")),
        uid=_name(place.get("uid")),
        user=_name(user.get("username")),
        groups=_texts(user.get("groups")),
        extra={key: _texts(values) for key, values in islice(mapping(user.get("extra")).items(), _MOST)},
        impersonator=_name(asked.get("username")) if person else "",
        body=event.get("requestObject"),
        at=_name(event.get("stageTimestamp")),
        dry_run=_dry_run(text(event.get("requestURI"))),
    )


def _dry_run(uri: str) -> bool:
    try:
        return "dryRun" in parse_qs(urlsplit(uri).query, max_num_fields=100)
    except ValueError:
        return False


def names_claim_status(raw: bytes) -> bool:
    """Whether the JSON ``raw`` of an event may be about the status of a claim: cheap, to leave the others unread."""
    return b'"resourceclaims"' in raw and b'"status"' in raw
