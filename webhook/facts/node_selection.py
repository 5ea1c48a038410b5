"""Node names and node selectors in slices and allocations: the API server's rules for them."""

from __future__ import annotations

from collections.abc import Iterator

from webhook.kube.finding import Finding, cause
from webhook.kube.names import NEEDS_LABEL_KEY, NEEDS_SUBDOMAIN, label_key, label_value, node_name
from webhook.kube.raw import Json, indexed, objects, sequence, text

RULE = "selector-terms"
_MANY = ("In", "NotIn")
_NONE = ("Exists", "DoesNotExist")
_ONE = ("Gt", "Lt")


def node_name_problems(value: str, path: str) -> list[Finding]:
    """Problems of a node's name that stands in a slice."""
    reason = node_name(value)
    if not reason:
        return []
    return [cause("node-name-invalid", path, "FieldValueInvalid", f"{value!r}, which {reason}", NEEDS_SUBDOMAIN)]


def selector_problems(selector: Json, path: str) -> list[Finding]:
    """The API server's rules of a core/v1 NodeSelector at ``path``."""
    terms = sequence(selector.get("nodeSelectorTerms"))
    where = f"{path}.nodeSelectorTerms"
    if not terms:
        return [cause(RULE, where, "FieldValueRequired", "no term", "at least one term")]
    found: list[Finding] = []
    for index, term in objects(terms):
        for position, item in indexed(term.get("matchExpressions")):
            found += _expression(item, f"{where}[{index}].matchExpressions[{position}]")
        for position, item in indexed(term.get("matchFields")):
            found += _field(item, f"{where}[{index}].matchFields[{position}]")
    return found


def _expression(item: Json, path: str) -> Iterator[Finding]:
    operator, values = item.get("operator"), sequence(item.get("values"))
    where = f"{path}.values"
    if operator in _MANY and not values:
        yield cause(RULE, where, "FieldValueRequired", "no value", f"a value for operator {operator}")
    elif operator in _NONE and values:
        has = f"{len(values)} values"
        yield cause(RULE, where, "FieldValueForbidden", has, f"no value for operator {operator}")
    elif operator in _ONE and len(values) != 1:
        has = f"{len(values)} values"
        yield cause(RULE, where, "FieldValueRequired", has, f"one value for operator {operator}")
    elif operator not in (*_MANY, *_NONE, *_ONE):
        needs = "In, NotIn, Exists, DoesNotExist, Gt or Lt"
        yield cause(RULE, f"{path}.operator", "FieldValueInvalid", repr(operator), needs)
    key = text(item.get("key"))
    if reason := label_key(key):
        yield cause(RULE, f"{path}.key", "FieldValueInvalid", f"{key!r}, which {reason}", NEEDS_LABEL_KEY)
    for index, value in enumerate(values):
        if reason := label_value(text(value)):
            has = f"{text(value)!r}, which {reason}"
            yield cause(RULE, f"{where}[{index}]", "FieldValueInvalid", has, "a label value")


def _field(item: Json, path: str) -> Iterator[Finding]:
    operator, values = item.get("operator"), sequence(item.get("values"))
    if operator not in _MANY:
        yield cause(RULE, f"{path}.operator", "FieldValueInvalid", repr(operator), "In or NotIn")
    elif len(values) != 1:
        yield cause(RULE, f"{path}.values", "FieldValueRequired", f"{len(values)} values", "one value")
    if item.get("key") != "metadata.name":
        yield cause(RULE, f"{path}.key", "FieldValueInvalid", repr(item.get("key")), "metadata.name")
        return
    for index, value in enumerate(values):
        if reason := node_name(text(value)):
            has = f"{text(value)!r}, which {reason}"
            yield cause(RULE, f"{path}.values[{index}]", "FieldValueInvalid", has, "a node's name")
