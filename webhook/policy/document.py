"""``AdmissionPolicy`` documents: what a policy file may say, read with every problem at its place.

The fields are those of ``ValidatingAdmissionPolicy`` (admissionregistration.k8s.io/v1) where they exist there, and
what a webhook with a ledger adds: ``endpoint``, inline ``params``, ``findings``, ``mutations``, ``action`` and
``exceptions``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from webhook.facts.times import instant
from webhook.kube import names
from webhook.kube.documents import Document
from webhook.kube.raw import Json, mapping
from webhook.kube.rollout import API_VERSION
from webhook.policy.match import Match, read_match
from webhook.policy.place import Expression
from webhook.policy.problem import Problem
from webhook.policy.reader import Reader

KIND = "AdmissionPolicy"
# Where a policy is asked: at one of the webhook's endpoints, or only of files (``allocguard check``).
ENDPOINTS = ("validate", "mutate", "check")
ACTIONS = ("Deny", "Warn", "Audit", "Hold")
PATCH_TYPES = ("JSONPatch",)
FAILURE_POLICIES = ("Fail", "Ignore")

# What the API server keeps of an object beside what its author wrote: a policy may come from there, or be a copy of it.
_METADATA = (
    "name",
    "labels",
    "annotations",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "finalizers",
    "ownerReferences",
    "managedFields",
    "selfLink",
)
_SPEC = (
    "endpoint",
    "matchConstraints",
    "matchConditions",
    "params",
    "variables",
    "validations",
    "mutations",
    "auditAnnotations",
    "action",
    "failurePolicy",
    "exceptions",
)
_HINTS = {
    "validationActions": "write one action: Deny, Warn, Audit or Hold",
    "paramKind": "write the values themselves under params",
    "paramRef": "write the values themselves under params",
    "policyName": "a policy needs no binding here",
}
_LATER = {"canary": "judging a share of the writes"}
_CLAIMS = ("resource.k8s.io", "resourceclaims")
_CEL_WORDS = frozenset(
    {"as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop"}
    | {"namespace", "null", "package", "return", "true", "var", "void", "while"}
)


@dataclass(frozen=True, slots=True)
class Named:
    """A match condition or a variable."""

    name: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class Validation:
    """One rule: either ``expression`` (a bool, true passes) or ``findings`` (a list, empty passes)."""

    name: str
    expression: Expression | None
    findings: Expression | None
    message: str
    message_expression: Expression | None


@dataclass(frozen=True, slots=True)
class Mutation:
    """A change: its expression gives a JSON patch (RFC 6902), a list of operations; an empty one changes nothing."""

    path: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class Annotation:
    """One audit annotation; its expression gives a string, or null for none."""

    key: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class PolicyException:
    """Writes for which the policy's findings are only audited, until ``expires``."""

    name: str
    expression: Expression
    expires: datetime
    ticket: str


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy as written; ``digest`` is that of its content, whatever file, order or comments it is written with, and
    ``document`` that content, as it can be compiled again.
    """

    name: str
    file: str
    place: tuple[int, int]
    endpoint: str
    match: Match
    conditions: tuple[Named, ...]
    params: Json
    variables: tuple[Named, ...]
    validations: tuple[Validation, ...]
    mutations: tuple[Mutation, ...]
    annotations: tuple[Annotation, ...]
    action: str
    failure_policy: str
    exceptions: tuple[PolicyException, ...]
    digest: str
    document: Json


def read_policy(document: Document) -> tuple[Policy, list[Problem]]:
    """The policy of a document and everything that is wrong with it; what is wrong is left out of the policy, which
    is then good for finding more problems and nothing else.
    """
    reader = Reader(document)
    top = reader.fields(document.value, "", ("apiVersion", "kind", "metadata", "spec", "status"))
    if top.get("apiVersion") != API_VERSION:
        reader.problem("apiVersion", f"has {top.get('apiVersion')!r}, needs {API_VERSION}")
    metadata = reader.fields(top.get("metadata"), "metadata", _METADATA)
    name = reader.text(metadata, "name", "metadata", required=True)
    if name and (reason := names.dns_subdomain(name)):
        reader.problem("metadata.name", f"has the name {name} that {reason}, needs {names.NEEDS_SUBDOMAIN}")
    raw = top.get("spec")
    if isinstance(raw, dict):
        for field, part in _LATER.items():
            if field in raw:
                reader.problem(f"spec.{field}", f"is not available yet: {part} is not built", "remove it")
        raw = {key: value for key, value in raw.items() if key not in _LATER}
    spec = reader.fields(raw, "spec", _SPEC, _HINTS)
    endpoint = reader.choice(spec, "endpoint", "spec", ENDPOINTS, "validate")
    match = read_match(reader, spec)
    policy = Policy(
        name=name,
        file=document.file,
        place=document.position("metadata.name"),
        endpoint=endpoint,
        match=match,
        conditions=_named(reader, spec, "matchConditions", _condition_name),
        params=_params(reader, spec),
        variables=_named(reader, spec, "variables", _variable_name),
        validations=_validations(reader, spec),
        mutations=_mutations(reader, spec, endpoint, match),
        annotations=_annotations(reader, spec, name),
        action=_action(reader, spec, endpoint, match),
        failure_policy=reader.choice(spec, "failurePolicy", "spec", FAILURE_POLICIES, "Fail"),
        exceptions=_exceptions(reader, spec),
        digest=digest(document.value),
        document={
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": name},
            "spec": document.value.get("spec"),
        },
    )
    if not (policy.validations or policy.mutations or policy.annotations or reader.problems):
        has = "has no validations, no mutations and no auditAnnotations, needs at least one"
        reader.problem("spec", has, "write a validation")
    return policy, reader.problems


def digest(value: object) -> str:
    """The digest of what a policy document says: its name and its spec. Labels and annotations change nothing that it
    decides, nor do nulls, which the API server drops where a policy is kept as an object; in ``params`` they count.
    """
    spec = mapping(value).get("spec")
    said = {**_without_nulls(spec), "params": spec.get("params")} if isinstance(spec, dict) else spec
    content = {"name": mapping(mapping(value).get("metadata")).get("name"), "spec": said}
    try:
        encoded = orjson.dumps(content, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError):  # integers beyond 64 bits and lone surrogates have no JSON bytes
        encoded = repr(content).encode("utf-8", "backslashreplace")
    return hashlib.sha256(encoded).hexdigest()


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _params(reader: Reader, spec: Json) -> Json:
    value = spec.get("params")
    if value is not None and not isinstance(value, dict):
        reader.problem("spec.params", "is no map, needs names and values")
    return mapping(value)


def _action(reader: Reader, spec: Json, endpoint: str, match: Match) -> str:
    action = reader.choice(spec, "action", "spec", ACTIONS)
    if endpoint == "mutate" and action == "Deny":
        reader.problem("spec.action", "has Deny, needs Warn, Audit or Hold at the mutate endpoint", "deny at validate")
    if action != "Hold":
        return action
    if endpoint != "mutate":
        has = f"has Hold at the {endpoint} endpoint, needs the mutate endpoint: a hold is a patch"
        reader.problem("spec.action", has, "write endpoint: mutate")
    if any(rule.resources != {"pods"} or rule.operations != {"CREATE"} for rule in match.rules):
        needs = "has Hold, needs resourceRules that name CREATE of pods and nothing else: only a new pod takes a gate"
        reader.problem("spec.action", needs, "write a policy of its own for other writes")
    if not spec.get("validations"):
        reader.problem("spec.action", "has Hold, needs validations that say what makes a pod wait", "write one")
    return action


def _condition_name(name: str) -> str:
    reason = names.qualified_name(name)
    return f"has the name {name} that {reason}, needs {names.NEEDS_LABEL_KEY}" if reason else ""


def _variable_name(name: str) -> str:
    fine = name.isascii() and name.isidentifier() and name not in _CEL_WORDS
    return "" if fine else f"has the name {name}, needs letters, digits and '_', no digit first, no word of CEL"


def _label_name(name: str) -> str:
    reason = names.dns_label(name)
    return f"has the name {name} that {reason}, needs {names.NEEDS_LABEL}" if reason else ""


class _Unique:
    """The names seen so far in one list."""

    def __init__(self, reader: Reader, check: Callable[[str], str]) -> None:
        self._reader = reader
        self._check = check
        self._seen: set[str] = set()

    def name(self, fields: Json, path: str, member: str = "name") -> str:
        name = self._reader.text(fields, member, path, required=True)
        if not name:
            return ""
        if message := self._check(name):
            self._reader.problem(f"{path}.{member}", message)
        if name in self._seen:
            self._reader.problem(f"{path}.{member}", f"has {name} a second time, needs a {member} of its own")
        self._seen.add(name)
        return name


def _named(reader: Reader, spec: Json, member: str, check: Callable[[str], str]) -> tuple[Named, ...]:
    found = []
    unique = _Unique(reader, check)
    for path, item in reader.items(spec, member, "spec"):
        fields = reader.fields(item, path, ("name", "expression"))
        name, expression = unique.name(fields, path), reader.expression(fields, "expression", path)
        if name and not check(name) and expression is not None:
            found.append(Named(name, expression))
    return tuple(found)


def _validations(reader: Reader, spec: Json) -> tuple[Validation, ...]:
    found = []
    unique = _Unique(reader, _label_name)
    known = ("name", "expression", "findings", "message", "messageExpression", "reason")
    for path, item in reader.items(spec, "validations", "spec"):
        fields = reader.fields(item, path, known)
        name = unique.name(fields, path)
        expression = reader.expression(fields, "expression", path, required=False)
        findings = reader.expression(fields, "findings", path, required=False)
        if expression is None and findings is None:
            reader.problem(path, "has no expression and no findings, needs one of the two")
        if expression is not None and findings is not None:
            reader.problem(path, "has expression and findings, needs one of the two", "split it in two validations")
        message = reader.text(fields, "message", path)
        message_expression = reader.expression(fields, "messageExpression", path, required=False)
        if findings is not None and (message or message_expression is not None):
            reader.problem(path, "has a message beside findings, needs none: every finding brings its own")
        if "\n" in message.strip():
            reader.problem(f"{path}.message", "has line breaks, needs one line")
        # A scheduler repeats a refused write at once for any other reason than Forbidden.
        if fields.get("reason") not in (None, "Forbidden"):
            reader.problem(f"{path}.reason", f"has {fields['reason']}, needs Forbidden or nothing", "remove it")
        if name:
            found.append(Validation(name, expression, findings, message.strip(), message_expression))
    return tuple(found)


def _mutations(reader: Reader, spec: Json, endpoint: str, match: Match) -> tuple[Mutation, ...]:
    found = []
    for path, item in reader.items(spec, "mutations", "spec"):
        fields = reader.fields(item, path, ("patchType", "expression"))
        reader.choice(fields, "patchType", path, PATCH_TYPES)
        expression = reader.expression(fields, "expression", path)
        if expression is not None:
            found.append(Mutation(path, expression))
    if found and endpoint != "mutate":
        has = f"has mutations at the {endpoint} endpoint, needs the mutate endpoint"
        reader.problem("spec.mutations", has, "write endpoint: mutate")
    if found and any(rule.names_resource(*_CLAIMS) for rule in match.rules):
        # The server compares opaque parameters and device data as bytes, and a patch writes the whole object anew: who
        # writes a claim would be refused (422) for fields that he did not touch.
        has = "has mutations of resourceclaims, needs other resources: a patched claim is refused by the API server"
        reader.problem("spec.mutations", has, "match other resources, by name where it is a wildcard")
    return tuple(found)


def _annotations(reader: Reader, spec: Json, policy: str) -> tuple[Annotation, ...]:
    found = []

    def check(key: str) -> str:
        # The server stores policy.key as the name part of a qualified name.
        if names.qualified_name(f"{policy}.{key}") or "/" in key:
            return f"has the key {key}, needs letters, digits, '-', '_' and '.', with the policy's name at most 63 long"
        return ""

    unique = _Unique(reader, check)
    for path, item in reader.items(spec, "auditAnnotations", "spec"):
        fields = reader.fields(item, path, ("key", "valueExpression"))
        key, expression = unique.name(fields, path, "key"), reader.expression(fields, "valueExpression", path)
        if key and expression is not None:
            found.append(Annotation(key, expression))
    return tuple(found)


def _exceptions(reader: Reader, spec: Json) -> tuple[PolicyException, ...]:
    found = []
    unique = _Unique(reader, _label_name)
    for path, item in reader.items(spec, "exceptions", "spec"):
        fields = reader.fields(item, path, ("name", "expression", "expires", "ticket"))
        name, expression = unique.name(fields, path), reader.expression(fields, "expression", path)
        stamp = reader.text(fields, "expires", path, required=True)
        expires = instant(stamp) if stamp else None
        if stamp and expires is None:
            fix = "write 2027-01-31T00:00:00Z or 2027-01-31T00:00:00+01:00"
            reader.problem(f"{path}.expires", f"has {stamp}, needs a time with date and offset", fix)
        ticket = reader.text(fields, "ticket", path, required=True)
        if name and expression is not None and expires is not None:
            found.append(PolicyException(name, expression, expires, ticket))
    return tuple(found)
