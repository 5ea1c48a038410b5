from __future__ import annotations

from typing import Any

import pytest

from tests.facts.builders import claim
from webhook.facts.request_structure import claim_structure_problems, immutable_spec_problems
from webhook.kube.release import Release

R36, R37 = Release(36), Release(37)


def found(requests: Any = None, release: Release = R36, **devices: Any) -> list[tuple[str, str]]:
    problems = claim_structure_problems(claim(requests=requests, **devices), release)
    return [(f.rule, f.path.removeprefix("spec.devices.")) for f in problems]


def exactly(**fields: Any) -> list[dict[str, Any]]:
    return [{"name": "r", "exactly": {"deviceClassName": "d", **fields}}]


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        (exactly(), []),
        (exactly(count=-1), [("count-invalid", "requests[0].exactly.count")]),
        (exactly(count=0), []),
        (exactly(allocationMode="All", count=2), [("count-invalid", "requests[0].exactly.count")]),
        (exactly(allocationMode="Some"), [("count-invalid", "requests[0].exactly.allocationMode")]),
        (exactly(deviceClassName=""), [("class-name-invalid", "requests[0].exactly.deviceClassName")]),
        (
            exactly(tolerations=[{"operator": "Exists", "value": "x"}]),
            [("toleration-invalid", "requests[0].exactly.tolerations[0].value")],
        ),
        ([{"name": "r"}], [("request-shape", "requests[0]")]),
        (exactly() * 2, [("request-name-invalid", "requests[1]")]),
        ([{"name": f"r{i}", "exactly": {"deviceClassName": "d"}} for i in range(33)], [("request-shape", "requests")]),
        (
            [{"name": "r", "firstAvailable": [{"name": "a", "deviceClassName": "d"}] * 2}],
            [("request-name-invalid", "requests[0].firstAvailable[1]")],
        ),
    ],
)
def test_requests(requests: Any, expected: list[tuple[str, str]]) -> None:
    assert found(requests) == expected


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        ({"matchAttribute": "d.example/numa"}, []),
        ({"matchAttribute": "numa"}, [("constraint-invalid", "constraints[0].matchAttribute")]),
        ({}, [("constraint-invalid", "constraints[0]")]),
        ({"matchAttribute": "d/a", "requests": ["other"]}, [("request-unknown", "constraints[0].requests[0]")]),
        ({"matchAttribute": "d/a", "requests": ["r", "r"]}, [("request-unknown", "constraints[0].requests[1]")]),
        ({"matchAttribute": "d/a", "requests": ["r/sub"]}, [("request-unknown", "constraints[0].requests[0]")]),
    ],
)
def test_constraints(constraint: Any, expected: list[tuple[str, str]]) -> None:
    assert found(constraints=[constraint]) == expected


def test_1_37_looks_into_both_forms_of_a_request_that_has_both() -> None:
    both = [{"name": "r", "exactly": {}, "firstAvailable": [{"name": "a", "deviceClassName": "A_B"}]}]
    assert found(both) == [("request-shape", "requests[0]")]
    assert found(both, R37) == [
        ("request-shape", "requests[0]"),
        ("class-name-invalid", "requests[0].firstAvailable[0].deviceClassName"),
    ]


@pytest.mark.parametrize("field", ["matchAttribute", "distinctAttribute"])
def test_1_37_takes_no_upper_case_in_the_domain_of_a_constraint(field: str) -> None:
    assert found(constraints=[{field: "D.Example/a"}]) == []
    assert found(constraints=[{field: "D.Example/a"}], release=R37) == [
        ("constraint-invalid", f"constraints[0].{field}")
    ]
    assert found(constraints=[{field: "a/B-c/d"}], release=R37) == []


@pytest.mark.parametrize("field", [{"adminAccess": False}, {"selectors": []}, {"tolerations": []}, {"capacity": {}}])
def test_what_makes_a_v1beta1_request_one_for_a_device(field: Any) -> None:
    flat = {**claim(requests=[{"name": "r", **field}]), "apiVersion": "resource.k8s.io/v1beta1"}
    rules = [f.rule for f in claim_structure_problems(flat, R36)]
    assert rules == ["class-name-invalid", "count-invalid"]
    for nothing in ({"deviceClassName": ""}, {"count": 0}, {"allocationMode": ""}, {"adminAccess": None}):
        flat["spec"] = {"devices": {"requests": [{"name": "r", **nothing}]}}
        assert [f.rule for f in claim_structure_problems(flat, R36)] == ["request-shape"]


def test_each_kind_of_error_has_words_of_its_own() -> None:
    problems = claim_structure_problems(
        claim(constraints=[{"matchAttribute": f"-a/{'b' * 33}"}], config=[{"opaque": {"driver": "a_" * 40}}]), R36
    )
    assert len({f.message for f in problems}) == len(problems) == 5


def test_config_is_an_object_of_a_driver() -> None:
    assert found(config=[{"opaque": {"driver": "d.example", "parameters": {"a": 1}}}]) == []
    assert found(config=[{"opaque": {"driver": "d.example", "parameters": {"a": "x" * 10240}}}]) == [
        ("config-invalid", "config[0].opaque.parameters")
    ]


def test_e23_the_spec_of_a_claim_does_not_change() -> None:
    (finding,) = immutable_spec_problems(claim(), claim(requests=exactly(count=2)))
    assert (finding.rule, finding.path) == ("field-immutable", "spec")
    assert immutable_spec_problems(claim(), claim(results=[])) == []
