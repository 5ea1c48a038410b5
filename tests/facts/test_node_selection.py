from __future__ import annotations

from typing import Any

import pytest

from webhook.facts.node_selection import node_name_problems, selector_problems


def found(*terms: Any) -> list[tuple[str, str]]:
    problems = selector_problems({"nodeSelectorTerms": list(terms)}, "s")
    return [(f.path.removeprefix("s.nodeSelectorTerms"), f.error_type.removeprefix("FieldValue")) for f in problems]


def label(operator: str, *values: str, key: str = "zone") -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def field(operator: str, *values: str, key: str = "metadata.name") -> dict[str, Any]:
    return {"matchFields": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (label("In", "a"), []),
        (label("In"), [("[0].matchExpressions[0].values", "Required")]),
        (label("Exists", "a"), [("[0].matchExpressions[0].values", "Forbidden")]),
        (label("Gt", "1", "2"), [("[0].matchExpressions[0].values", "Required")]),
        (label("Like", "a"), [("[0].matchExpressions[0].operator", "Invalid")]),
        (label("In", "a", key="a b"), [("[0].matchExpressions[0].key", "Invalid")]),
        (label("In", "a b"), [("[0].matchExpressions[0].values[0]", "Invalid")]),
        (field("In", "n1"), []),
        (field("In", "n1", "n2"), [("[0].matchFields[0].values", "Required")]),
        (field("Exists"), [("[0].matchFields[0].operator", "Invalid")]),
        (field("In", "n1", key="spec.x"), [("[0].matchFields[0].key", "Invalid")]),
        (
            {"matchExpressions": [None]},
            [("[0].matchExpressions[0].operator", "Invalid"), ("[0].matchExpressions[0].key", "Invalid")],
        ),
        ({"matchFields": [None]}, [("[0].matchFields[0].operator", "Invalid"), ("[0].matchFields[0].key", "Invalid")]),
        (field("In", "N_1"), [("[0].matchFields[0].values[0]", "Invalid")]),
    ],
)
def test_terms(term: Any, expected: list[tuple[str, str]]) -> None:
    assert found(term) == expected


def test_no_term_at_all() -> None:
    assert found() == [("", "Required")]


@pytest.mark.parametrize("junk", [None, 7, [], {}, "x", [None], {"matchExpressions": [7], "matchFields": {}}])
def test_any_json(junk: Any) -> None:
    assert isinstance(selector_problems({"nodeSelectorTerms": junk}, "s"), list)
    assert found(junk) == []


def test_node_names() -> None:
    assert node_name_problems("n1.example.com", "p") == []
    (finding,) = node_name_problems("N_1", "p")
    assert (finding.rule, finding.path) == ("node-name-invalid", "p")
