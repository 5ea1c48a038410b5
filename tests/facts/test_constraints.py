"""Constraints of claims against what was allocated."""

from itertools import permutations

import pytest

from tests.facts.builders import as_claim, claim, gpu, node, result, rollout, rules, samples, slice_of, world
from webhook.facts.constraints import constraint_problems

NUMA = "resource.kubernetes.io/numaNode"
MATCH = [{"matchAttribute": NUMA}]
DISTINCT = [{"distinctAttribute": "d.example/rack"}]


def numa(**values):
    return [gpu(name, attributes={NUMA: value} if value is not None else {}) for name, value in values.items()]


def judge(devices, constraints, *objs, order=None, **fields):
    names = order or [device["name"] for device in devices]
    rows = [result(name, None) for name in names]
    write = claim(results=rows, constraints=constraints, **fields)
    return constraint_problems(as_claim(write), world(node(), slice_of(*devices), *objs))


@pytest.mark.parametrize(
    ("values", "fine"),
    [
        ([{"int": 0}, {"int": 0}], True),
        ([{"int": 0}, {"int": 1}], False),
        ([{"ints": [5]}, {"ints": [4, 5, 6, 7]}], True),
        ([{"int": 5}, {"ints": [4, 5]}], True),
        ([{"ints": [0, 1]}, {"ints": [1, 2]}, {"ints": [0, 2]}], False),
        ([{"ints": [0, 1]}, {"ints": [1, 2]}, {"ints": [1]}], True),
        ([{"int": 0}, {"string": "0"}], False),
        ([{"int": 2}, {"int": 18}], False),
    ],
)
def test_all_devices_need_a_value_in_common(values, fine):
    devices = numa(**{f"g{i}": value for i, value in enumerate(values)})
    for order in permutations([device["name"] for device in devices]):
        problems = judge(devices, MATCH, order=order)
        assert rules(problems) == ([] if fine else ["numa-constraint-broken"])


@pytest.mark.parametrize(
    "values", [[{"int": -1}, {"int": -1}], [{"ints": [0, 1]}, {"ints": [1, 0]}], [{"string": "0"}]]
)
def test_a_match_that_names_no_one_zone_is_told_as_unknown(values):
    devices = numa(**{f"g{i}": value for i, value in enumerate(values)})
    (problem,) = judge(devices, MATCH)
    assert (problem.rule, problem.severity) == ("zone-unknown", "info")
    assert "one NUMA node that all of them name" in problem.needs


def test_attributes_of_other_kinds_have_no_zone():
    devices = [gpu(name, attributes={"rack": {"string": "r1"}}) for name in ("a", "b")]
    assert judge(devices, [{"matchAttribute": "d.example/rack"}]) == []


def test_a_broken_constraint_shows_its_values():
    (problem,) = judge(numa(a={"int": 0}, b={"ints": [1, 2]}), MATCH)
    assert problem.has == f"{NUMA}: r on a = 0, r on b = 1 or 2"
    assert problem.path == "status.allocation.devices.results[1].device"


def test_c23_a_missing_attribute_is_no_mismatch():
    (problem,) = judge(numa(a={"int": 0}, b=None), MATCH)
    assert problem.rule == "attribute-missing"
    assert "device b of d.example" in problem.has


@pytest.mark.parametrize("value", [None, 7, [], {}, {"int": None}, {"ints": "0"}, {"ints": [[]]}])
def test_an_unreadable_attribute_is_missing(value):
    devices = [*numa(a={"int": 0}), gpu("b", attributes={NUMA: value})]
    assert rules(judge(devices, MATCH)) == ["attribute-missing"]


def test_an_attribute_without_a_domain_is_of_its_drivers():
    devices = [gpu("a", attributes={"rack": {"string": "x"}}), gpu("b", attributes={"d.example/rack": {"string": "x"}})]
    assert judge(devices, [{"matchAttribute": "d.example/rack"}]) == []
    assert rules(judge(devices, [{"matchAttribute": "e.example/rack"}])) == ["attribute-missing"] * 2


def test_distinct_values_differ():
    racks = [gpu(n, attributes={"rack": {"string": r}}) for n, r in (("a", "x"), ("b", "y"), ("c", "x"))]
    assert judge(racks[:2], DISTINCT) == []
    assert rules(judge(racks, DISTINCT)) == ["constraint-broken"]


def test_only_the_requests_of_a_constraint_are_bound():
    requests = [
        {"name": "x", "exactly": {}},
        {"name": "y", "firstAvailable": [{"name": "s"}]},
        {"name": "z", "exactly": {}},
    ]
    rows = [result("a", None, request="x"), result("b", None, request="y/s"), result("c", None, request="z")]
    snapshot = world(node(), slice_of(*numa(a={"int": 0}, b={"int": 1}, c={"int": 0})))
    for names, fine in ((["x", "z"], True), (["x", "y"], False), (["x", "y/s"], False), (["z"], True), ([], False)):
        constraints = [{"requests": names, "matchAttribute": NUMA}]
        write = claim(results=rows, requests=requests, constraints=constraints)
        assert (constraint_problems(as_claim(write), snapshot) == []) is fine


def test_devices_that_nobody_offers_are_left_to_their_own_finding():
    assert judge(numa(a={"int": 0}), MATCH, order=["a", "ghost"]) == []


def test_a_rollout_tells_what_else_is_a_numa_attribute():
    devices = [gpu(n, attributes={"socket": {"int": i}}) for i, n in enumerate("ab")]
    told = rollout(numaAttributes=["d.example/socket"])
    constraint = [{"matchAttribute": "d.example/socket"}]
    assert rules(judge(devices, constraint)) == ["constraint-broken"]
    assert rules(judge(devices, constraint, told)) == ["numa-constraint-broken"]


def test_claims_of_the_samples():
    snapshot = world(*samples("01", "02", "05", "06", "08"))
    found = {obj["metadata"]["name"]: constraint_problems(as_claim(obj), snapshot) for obj in samples("15", "16")}
    assert {name: rules(problems) for name, problems in found.items() if problems} == {
        "split-numa": ["numa-constraint-broken"]
    }


def test_a_constraint_of_an_unknown_kind_binds_nothing():
    assert judge(numa(a={"int": 0}, b=None), [{"requests": ["r"], "newAttribute": NUMA}]) == []
