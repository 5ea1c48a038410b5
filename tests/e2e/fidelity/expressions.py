"""Expressions of the CEL corpus for a real ValidatingAdmissionPolicy, and what to compare their values with."""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.fidelity.objects import Object

CORPUS = Path(__file__).parents[2] / "cel" / "corpus"
GROUP, VERSION, PLURAL = "fidelity.example.org", "v1", "cases"
READY = "ready"
# How values that JSON lacks are made, by the mark of the corpus.
_MADE = {
    "$timestamp": "timestamp",
    "$semver": "semver",
    "$ip": "ip",
    "$cidr": "cidr",
    "$url": "url",
    "$format": "format",
}
# Types whose names expressions cannot say.
_TYPES = {
    "kubernetes.NamedFormat": "type(format.dns1123Label())",
    "kubernetes.Quantity": "type(quantity('1'))",
    "kubernetes.Semver": "type(semver('1.0.0'))",
    "kubernetes.URL": "type(url('http://a'))",
    "net.IP": "type(ip('::1'))",
    "net.CIDR": "type(cidr('::/0'))",
}


@dataclass(frozen=True)
class Case:
    """An expression and what the corpus says of it: ``value``, or ``error`` (``compile``, ``evaluate``, ``panic``)."""

    expression: str
    value: Any
    error: str


@dataclass(frozen=True)
class Group:
    """Cases that share what their names stand for, or a device."""

    name: str
    names: dict[str, Any]
    device: dict[str, Any] | None
    cases: tuple[Case, ...]


def groups() -> list[Group]:
    """The corpus."""
    found = []
    for path in sorted(CORPUS.glob("*.yaml")):
        for number, group in enumerate(yaml.load_all(path.read_text(), yaml.CSafeLoader)):
            cases = tuple(Case(c["expression"], c.get("value"), c.get("error", "")) for c in group["cases"])
            found.append(Group(f"{path.stem}-{number}", group.get("names", {}), group.get("device"), cases))
    return found


def wrapped(case: Case, group: Group) -> str:
    """The expression with the group's names in place of whatever the server has under these names.

    A macro over a list of one element gives a name a value for the length of an expression, whatever it meant before.
    """
    expression = f"{case.expression}\n"
    for name in sorted(group.names, key=lambda each: each != "object"):
        expression = f"[object.spec.names.{name}].map({name}, {expression})[0]"
    return expression


def custom_resource() -> Object:
    """The definition of the kind that carries names; its spec may hold anything."""
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    return {
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {"plural": PLURAL, "singular": "case", "kind": "Case", "listKind": "CaseList"},
            "versions": [{"name": VERSION, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def asked(group: Group, case: str) -> Object:
    """The object whose creation asks for the case of the group."""
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "Case",
        "metadata": {"name": group.name},
        "spec": {"names": group.names, "case": case},
    }


def policy(group: Group, cases: dict[str, Case]) -> Object:
    """A policy that lets the object of the group pass when the case that it asks for has the value of the corpus, or
    any value where the corpus has none.
    """
    variables = [{"name": number, "expression": wrapped(case, group)} for number, case in cases.items()]
    validations = [{"expression": f"object.spec.case != '{READY}'", "message": READY}]
    for number, case in cases.items():
        value = f"dyn(variables.{number})"
        holds = f"[{value}].size() == 1" if case.error else equals(value, case.value)
        validations.append({"expression": f"object.spec.case != '{number}' || ({holds})", "message": "another value"})
    rule = {
        "apiGroups": [GROUP],
        "apiVersions": [VERSION],
        "operations": ["CREATE"],
        "resources": [PLURAL],
        "resourceNames": [group.name],
    }
    return {
        "metadata": {"name": f"{group.name}.fidelity.example.org"},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "variables": variables,
            "validations": validations,
            "failurePolicy": "Fail",
        },
    }


def binding(group: Group) -> Object:
    """What puts the group's policy into force."""
    name = f"{group.name}.fidelity.example.org"
    return {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}}


def equals(value: str, wanted: Any) -> str:
    """An expression that is true when the expression ``value`` has the value and the type of ``wanted``."""
    if wanted is None:
        return f"{value} == null"
    if isinstance(wanted, bool):
        return f"type({value}) == bool && {value} == {str(wanted).lower()}"
    if isinstance(wanted, str):
        return f"type({value}) == string && {value} == {quoted(wanted)}"
    if isinstance(wanted, list):
        items = [equals(f"dyn({value}[{index}])", each) for index, each in enumerate(wanted)]
        return " && ".join([f"type({value}) == list", f"{value}.size() == {len(wanted)}", *items])
    (kind, *others) = wanted or [""]
    if not others and kind.startswith("$"):
        return _marked(value, kind, wanted[kind])
    members = [equals(f"dyn({value}[{quoted(key)}])", each) for key, each in wanted.items()]
    return " && ".join([f"type({value}) == map", f"{value}.size() == {len(wanted)}", *members])


def _marked(value: str, kind: str, wanted: Any) -> str:
    match kind:
        case "$int":
            return f"type({value}) == int && {value} == int('{wanted}')"
        case "$uint":
            return f"type({value}) == uint && {value} == uint('{wanted}')"
        case "$double" if wanted == "NaN":
            return f"type({value}) == double && {value} != {value}"
        case "$double":
            return f"type({value}) == double && {value} == double('{wanted}')"
        case "$bytes":
            escaped = "".join(f"\\x{byte:02x}" for byte in b64decode(wanted))
            return f"type({value}) == bytes && {value} == b'{escaped}'"
        case "$map":
            # Lists and null as keys can be made, and the server gives up when one is looked up.
            named = [(key, each) for key, each in wanted if not (key is None or isinstance(key, list))]
            entries = [equals(f"dyn({value}[{literal(key)}])", each) for key, each in named]
            return " && ".join([f"type({value}) == map", f"{value}.size() == {len(wanted)}", *entries])
        case "$optional" if wanted == "none":
            return f"!{value}.hasValue()"
        case "$optional":
            return f"{value}.hasValue() && {equals(f'dyn({value}.value())', wanted[0])}"
        case "$duration":
            return f"{value} == duration('{wanted}ns')"
        case "$quantity":
            return f"{value}.compareTo(quantity('{decimal(wanted)}')) == 0"
        case "$type":
            return f"{value} == {_TYPES.get(wanted, wanted)}"
    return f"{value} == {_MADE[kind]}({quoted(wanted)})"


def literal(key: Any) -> str:
    """The expression of a key of a map."""
    if isinstance(key, dict):
        ((kind, text),) = key.items()
        return f"{kind[1:]}('{text}')"
    return quoted(key) if isinstance(key, str) else str(key).lower()


def quoted(text: str) -> str:
    """A text as CEL writes it."""
    return json.dumps(text, ensure_ascii=False)


def decimal(number: str) -> str:
    """A quantity of the corpus (a whole number or a fraction) as Kubernetes writes it."""
    nano = Fraction(number) * 10**9
    assert nano.denominator == 1, number
    return f"{nano}n" if Fraction(number).denominator != 1 else number
