"""What the API server says when it does not write the status of a claim, by its own words alone."""

from __future__ import annotations

import re

from msgspec import Struct

from webhook.kube.audit import AuditEvent, Cause
from webhook.kube.finding import one_line

# Matched by what they begin or end with: the rest differs from release to release, or is a value that a writer chose.
_ALLOCATION = "changing status.allocation or status.reservedFor requires"
_DEVICES = "changing status.devices requires"
_ATTRIBUTES = "cannot build authorizer attributes"
# 1.36 says the one, 1.37 the other.
_IMMUTABLE = ("field is immutable", "field cannot be modified once set")
_NOT_ALLOCATED = "must be an allocated device in the claim"
_ASKED = re.compile(r'resource="resourceclaims/driver", verb="\[([^\]"]*)\]"')
_DRIVER = re.compile(r'resourceclaims\.resource\.k8s\.io "([^"]{1,253})" is forbidden')
_WEBHOOK = re.compile(r'admission webhook "([^"]{1,253})" denied the request')
_POLICY = re.compile(r"ValidatingAdmissionPolicy '([^']{1,253})' with binding '[^']{1,253}' denied request")
_CALLED = re.compile(r'failed calling webhook "([^"]{1,253})"')
_ANCHORS = re.compile("(?=Forbidden: changing status)")
_OURS = ".allocguard.dev"
# Of a message; the value that a writer sent may stand before what is wrong with it.
_READ, _SHOWN = 8192, 200

# Answers by their HTTP status.
_FORBIDDEN, _INVALID, _FAULT = 403, 422, 500
_BY_CODE = {401: "unauthenticated", 404: "gone", 409: "conflict", 429: "load", 503: "load", 504: "load"}


class Refusal(Struct, frozen=True):
    """One reason why a status was not written.

    ``cause`` is one of ``CAUSES`` in :mod:`webhook.facts.write_failures`, ``field`` where the API server puts it,
    ``driver`` whose entries it is about, ``verbs`` the permissions that it asked for, any of which would do, ``says``
    what else it tells.
    """

    cause: str
    field: str = ""
    driver: str = ""
    verbs: tuple[str, ...] = ()
    says: str = ""


def refusals(event: AuditEvent) -> tuple[Refusal, ...]:
    """Why the write was refused, each reason once and in the order of the answer; none for a write that was not."""
    if not event.failed:
        return ()
    message = event.message[:_READ]
    denied = _WEBHOOK.match(message)
    policy = _POLICY.search(message)
    called = _CALLED.search(message) if event.code >= _FAULT else None
    found: tuple[Refusal, ...]
    if denied is not None:
        cause = "refused-by-guard" if denied[1].endswith(_OURS) else "refused-by-admission"
        found = (Refusal(cause, says=f"the webhook {denied[1]}: {_shown(message[denied.end() :].lstrip(': '))}"),)
    elif policy is not None:
        told = _shown(message[policy.end() :].lstrip(": "))
        found = (Refusal("refused-by-admission", says=f"the ValidatingAdmissionPolicy {policy[1]}: {told}"),)
    elif called is not None:
        found = (Refusal("webhook-unavailable", says=called[1]),)
    elif event.code == _INVALID:
        # An event may have been cut: then all there is are the causes one after the other.
        parts = _ANCHORS.split(message)
        causes = event.causes or tuple(Cause("", "", each) for each in parts[1:] or [event.message])
        found = tuple(dict.fromkeys(_invalid(each, event.verb) for each in causes))
    else:
        found = (_by_code(event, message),)
    return found


def _by_code(event: AuditEvent, message: str) -> Refusal:
    if event.code == _FORBIDDEN and f'cannot {event.verb} resource "resourceclaims/status"' in message:
        return Refusal("status-role-missing", verbs=(event.verb,))
    cause = _BY_CODE.get(event.code, "server-fault" if event.code >= _FAULT else "other")
    return Refusal(cause, says=f"{event.code} {_shown(message)}".rstrip())


def _invalid(cause: Cause, verb: str) -> Refusal:
    """What one cause of a 422 means. It has no field where the event was cut."""
    field, text = cause.field, cause.message.removeprefix("Forbidden: ")
    if text.startswith(_ALLOCATION):
        return Refusal("binding-missing", "status.allocation", verbs=(verb,))
    if text.startswith(_DEVICES):
        asked, driver = _ASKED.search(text, 0, _READ), _DRIVER.search(text, 0, _READ)
        verbs = tuple(asked[1].split()) if asked is not None else ()
        associated = any(each.startswith("associated-node:") for each in verbs)
        name = driver[1] if driver is not None else ""
        return Refusal("driver-verb-missing" if associated else "not-associated", "status.devices", name, verbs)
    if _ATTRIBUTES in text:
        return Refusal("server-fault", field, says=_ATTRIBUTES)
    if text.endswith(_IMMUTABLE):
        if field == "metadata.uid" or (not field and ": metadata.uid: Invalid" in text):
            return Refusal("claim-replaced", "metadata.uid")
        return Refusal("immutable", field or "status.allocation")
    if field.endswith(".adminAccess") or (not field and "].adminAccess: Forbidden" in text):
        return Refusal("admin-access", field)
    if text.endswith(_NOT_ALLOCATED):
        return Refusal("not-allocated", field or "status.devices")
    return Refusal("malformed", field, says=_shown(text))


def _shown(text: str) -> str:
    """``text`` on one line and short, its end rather than its beginning: what is wrong with a value comes after it."""
    line = " ".join(one_line(text[-_READ:]).split())
    return line if len(line) <= _SHOWN else f"… {line[-_SHOWN:]}"
