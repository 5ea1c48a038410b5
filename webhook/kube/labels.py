"""Label selectors (``metav1.LabelSelector``): what is wrong with one, and what it matches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from webhook.kube import names
from webhook.kube.finding import Finding
from webhook.kube.raw import Json, mapping, sequence

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def matches(selector: Json, labels: Mapping[str, str]) -> bool:
    """Whether ``labels`` satisfy every requirement of the selector; an empty selector matches everything, one that
    :func:`problems` complains about matches nothing.
    """
    wanted, rows = selector.get("matchLabels"), selector.get("matchExpressions")
    if not isinstance(wanted, dict | None) or not isinstance(rows, list | None):
        return False
    if any(labels.get(name) != value for name, value in mapping(wanted).items()):
        return False
    for row in sequence(rows):
        fields = mapping(row)
        key, values = fields.get("key"), sequence(fields.get("values"))
        if not isinstance(key, str):
            return False
        match fields.get("operator"):
            case "In":
                fine = key in labels and labels[key] in values
            case "NotIn":
                fine = key not in labels or labels[key] not in values
            case "Exists":
                fine = key in labels
            case "DoesNotExist":
                fine = key not in labels
            case _:
                fine = False
        if not fine:
            return False
    return True


def problems(selector: object, path: str) -> Iterator[Finding]:
    """What keeps ``selector`` from being a label selector, by the API server's rules (rule ``selector-invalid``)."""
    if not isinstance(selector, dict):
        yield _problem(path, f"{type(selector).__name__}", "a map with matchLabels, matchExpressions")
        return
    for name in selector:
        if name not in ("matchLabels", "matchExpressions"):
            yield _problem(f"{path}.{name}", f"the unknown field {name}", "matchLabels or matchExpressions")
    labels = selector.get("matchLabels")
    if labels is not None and not isinstance(labels, dict):
        yield _problem(f"{path}.matchLabels", "no map", "a map of label keys and values")
    for key, value in mapping(labels).items():
        where = f"{path}.matchLabels[{key}]"
        if reason := names.qualified_name(str(key)):
            yield _problem(where, f"the key {key} that {reason}", names.NEEDS_LABEL_KEY)
        if not isinstance(value, str):
            yield _problem(where, f"the value {value!r}", "a string in quotes")
        elif reason := names.label_value(value):
            yield _problem(where, f"a value that {reason}", "a label value")
    rows = selector.get("matchExpressions")
    if rows is not None and not isinstance(rows, list):
        yield _problem(f"{path}.matchExpressions", "no list", "a list of key, operator, values")
    for index, row in enumerate(sequence(rows)):
        yield from _row_problems(row, f"{path}.matchExpressions[{index}]")


def _row_problems(row: object, path: str) -> Iterator[Finding]:
    fields = mapping(row)
    if not isinstance(row, dict):
        yield _problem(path, f"{type(row).__name__}", "a map with key, operator, values")
        return
    for name in fields:
        if name not in ("key", "operator", "values"):
            yield _problem(f"{path}.{name}", f"the unknown field {name}", "key, operator or values")
    key, operator, values = fields.get("key"), fields.get("operator"), fields.get("values")
    if not isinstance(key, str) or names.qualified_name(key):
        yield _problem(f"{path}.key", f"the key {key!r}", names.NEEDS_LABEL_KEY)
    if operator not in OPERATORS:
        yield _problem(f"{path}.operator", f"the operator {operator!r}", f"one of {', '.join(OPERATORS)}")
    elif operator in ("In", "NotIn"):
        if not isinstance(values, list) or not values or not all(isinstance(value, str) for value in values):
            yield _problem(f"{path}.values", "no values", f"a list of strings for {operator}")
    elif values:
        yield _problem(f"{path}.values", "values", f"none for {operator}")


def _problem(path: str, has: str, needs: str) -> Finding:
    return Finding("selector-invalid", path, has, needs)
