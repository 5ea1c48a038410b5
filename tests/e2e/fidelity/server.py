"""What the real API server says about an object, asked by a dry run."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import httpx

from tests.e2e.client import ApiError, Client
from tests.e2e.fidelity.objects import Object
from webhook.kube.names import dns_label
from webhook.kube.raw import mapping, text

Errors = frozenset[tuple[str, str]]
NONE: Errors = frozenset()
_PLURALS = {
    "ResourceSlice": "resourceslices",
    "ResourceClaim": "resourceclaims",
    "ResourceClaimTemplate": "resourceclaimtemplates",
    "DeviceClass": "deviceclasses",
}
_UNKNOWN = re.compile(r'unknown field ("(?:[^"\\]|\\.)*")')
_STRICT = re.compile(r'strict decoding error: ((?:, )?(?:unknown|duplicate) field "(?:[^"\\]|\\.)*")+$', re.DOTALL)
# What the server's admission plugin says about nodes that do not declare the feature; it comes after validation.
_UNDECLARED = re.compile(r"DRANodeAllocatableResources|node \S+ not found for device")


@dataclass(frozen=True)
class Answer:
    """``outcome`` is ``taken``, ``refused``, ``unknown`` (fields), ``undecodable``, ``undeclared`` (a node does not
    declare the feature), ``misplaced`` (a namespace that cannot be), ``cut`` (the server gave up: it panicked) or
    ``other``; ``errors`` are field path and cause of a refusal, or the unknown fields.
    """

    outcome: str
    errors: Errors
    text: str


def path_of(obj: Object, name: bool = False) -> str:
    """The URL path of the collection that takes ``obj``, or of itself."""
    metadata = mapping(obj.get("metadata"))
    namespace = text(metadata.get("namespace"))
    if not namespace or dns_label(namespace):
        namespace = "default"
    middle = f"/namespaces/{namespace}" if obj["kind"] in ("ResourceClaim", "ResourceClaimTemplate") else ""
    tail = f"/{metadata['name']}" if name else ""
    return f"/apis/{obj['apiVersion']}{middle}/{_PLURALS[obj['kind']]}{tail}"


def ask(client: Client, obj: Object, at: str, strict: bool = True, update: bool = False) -> Answer:
    """What the API server says to a create, or an update, of ``obj`` at the path ``at``; nothing is stored."""
    validation = "Strict" if strict else "Ignore"
    body = json.dumps(obj, ensure_ascii=False).encode()
    try:
        client.raw("PUT" if update else "POST", at, body, dryRun="All", fieldValidation=validation)
    except ApiError as error:
        return _refusal(error)
    except httpx.RemoteProtocolError as error:
        return Answer("cut", NONE, str(error))
    return Answer("taken", NONE, "")


def _refusal(error: ApiError) -> Answer:
    if error.code == 422:
        return Answer("refused", frozenset((c.get("field", ""), c["reason"]) for c in error.causes), error.message)
    if error.code == 400 and _STRICT.search(error.message):
        fields = frozenset((json.loads(quoted), "") for quoted in _UNKNOWN.findall(error.message))
        return Answer("unknown", fields, error.message)
    if error.code == 400 and "cannot be handled as" in error.message:
        return Answer("undecodable", NONE, error.message)
    if "the namespace of the provided object" in error.message or (error.code == 404 and "namespaces" in error.message):
        return Answer("misplaced", NONE, error.message)
    if error.code == 403 and _UNDECLARED.search(error.message):
        return Answer("undeclared", NONE, error.message)
    return Answer("other", NONE, f"{error.code} {error.message}")
