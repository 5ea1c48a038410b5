"""The API server's rules for pod status entries: (field, type of the error) as each release answers."""

import pytest

from tests.facts.builders import pod, samples
from webhook.facts.pod_entries import BASE, entry_problems
from webhook.kube.release import Release

REQUIRED, INVALID, DUPLICATE = "FieldValueRequired", "FieldValueInvalid", "FieldValueDuplicate"
OLD = {"resourceClaimName": "c1", "containers": ["main"], "resources": {"cpu": "1"}}
NEW = {"resourceClaimName": "c1", "containers": ["main"], "mapping": [{"name": "cpu", "quantity": "1"}]}


def causes(minor, *entries, **status):
    obj = pod(status={"nodeAllocatableResourceClaimStatuses": list(entries), **status})
    problems = entry_problems(obj, Release(minor))
    assert all(problem.origin == "apiserver" and problem.severity == "error" for problem in problems)
    return sorted((problem.path.removeprefix(f"{BASE}[0]"), problem.error_type) for problem in problems)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"resourceClaimName": "other"}, [(".resourceClaimName", INVALID)]),
        ({"resourceClaimName": ""}, [(".resourceClaimName", INVALID), (".resourceClaimName", REQUIRED)]),
        ({"containers": None}, [(".containers", REQUIRED)]),
        ({"containers": []}, [(".containers", REQUIRED)]),
        ({"resources": None}, [(".resources", REQUIRED)]),
        ({"resources": {"a.b/c": "1"}}, [(".resources[a.b/c]", INVALID)]),
        ({"resources": {"foo": "1", "x.kubernetes.io/y": "0"}}, []),
        ({"resources": {"cpu": "-1"}}, [(".resources[cpu]", INVALID)]),
        ({"containers": ["main", "main"]}, []),
    ],
)
def test_1_36(change, expected):
    assert causes(36, {**OLD, **change}) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"mapping": None, "containers": None}, []),
        ({"resourceClaimName": "other"}, [(".resourceClaimName", INVALID)]),
        ({"resourceClaimName": ""}, [(".resourceClaimName", REQUIRED)]),
        ({"resourceClaimName": "", "mapping": [{"name": "foo", "quantity": "-1"}]}, [(".resourceClaimName", REQUIRED)]),
        ({"containers": ["x", "x"]}, [(".containers[1]", DUPLICATE)]),
        ({"mapping": [{"name": "cpu"}]}, [(".mapping[0].quantity", REQUIRED)]),
        ({"mapping": [{"name": "foo", "quantity": "1"}]}, [(".mapping[0].name", INVALID)]),
        ({"mapping": [{"quantity": "1"}]}, [(".mapping[0].name", INVALID), (".mapping[0].name", REQUIRED)]),
        ({"mapping": [{"name": "cpu", "quantity": "-1"}]}, [(".mapping[0].quantity", INVALID)]),
        ({"mapping": [{"name": "cpu", "quantity": "1"}] * 2}, [(".mapping[1]", DUPLICATE)]),
        ({"overhead": [{"name": "memory"}]}, [(".overhead[0]", INVALID)]),
        ({"overhead": [{"name": "memory", "perPod": "0"}]}, []),
        ({"overhead": [{"name": "memory", "perContainer": "-1"}]}, [(".overhead[0].perContainer", INVALID)]),
        ({"overhead": [{"name": "hugepages-2Mi", "perPod": "1"}] * 2}, [(".overhead[1]", DUPLICATE)]),
    ],
)
def test_1_37(change, expected):
    assert causes(37, {**NEW, **change}) == expected


def test_a_claim_twice():
    assert causes(36, OLD, OLD) == []
    assert causes(37, NEW, NEW) == [(f"{BASE}[1]", DUPLICATE)]


@pytest.mark.parametrize("minor", [36, 37])
def test_a_claim_from_a_template_is_known_by_the_status(minor):
    row = {**(OLD if minor == 36 else NEW), "resourceClaimName": "made"}
    assert causes(minor, row, resourceClaimStatuses=[{"name": "c", "resourceClaimName": "made"}]) == []


def test_the_pods_of_the_samples_are_accepted():
    for obj in samples("18", "19"):
        assert entry_problems(obj, Release(36)) == []


@pytest.mark.parametrize(
    "entries", [None, 7, {}, [7], [{}], [{"mapping": 7, "resources": [], "containers": {}}], [OLD, None]]
)
def test_any_json_is_survived(entries):
    for minor in (36, 37):
        entry_problems({"spec": 7, "status": {"nodeAllocatableResourceClaimStatuses": entries}}, Release(minor))


def test_c16_the_shape_of_the_other_release_is_no_silent_zero():
    assert causes(36, NEW) == [(".resources", REQUIRED)]
