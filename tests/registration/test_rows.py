"""The conditions, evaluated by our own CEL here and by real API servers in tests/e2e/test_registration.py."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.cel import BOOL, DYN, Budget, Environment
from webhook.cel import compile as compile_cel
from webhook.kube.admission import read_request
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book
from webhook.policy.facts import Facts
from webhook.registration.rows import rows

DRIVERS = frozenset({"cpu.example", "mem.example"})
ENVIRONMENT = Environment(dict.fromkeys(("object", "oldObject", "request"), DYN))
KINDS = {
    "resourceslices": "ResourceSlice",
    "resourceclaims": "ResourceClaim",
    "resourceclaims/status": "ResourceClaim",
    "pods": "Pod",
    "pods/status": "Pod",
    "nodes": "Node",
    "nodes/status": "Node",
}


ROWS = [(row, [compile_cel(text, ENVIRONMENT, BOOL) for _, text in row.conditions]) for row in rows(DRIVERS)]


def taken(endpoint, resource, operation, obj, old):
    """The rows that the API server sends this write to."""
    names = {"object": obj, "oldObject": old}
    return [
        row
        for row, programs in ROWS
        if row.endpoint == endpoint
        and operation in row.operations.get(resource, ())
        and all(program.evaluate(names, Budget()) for program in programs)
    ]


devices = st.lists(
    st.sampled_from(
        [
            {"name": "plain"},
            {"name": "a", "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "1"}}},
            {"name": "b", "nodeAllocatableResources": {"cpu": {"mapping": {"capacityMultiplier": "1"}}}},
        ]
    ),
    max_size=2,
)
slices = st.builds(
    lambda driver, devices, deleting: {
        "metadata": {"name": "s", **({"deletionTimestamp": "2026-11-30T00:00:00Z"} if deleting else {})},
        "spec": {
            "driver": driver,
            "nodeName": "n1",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            **({"devices": devices} if devices else {}),
        },
    },
    st.sampled_from(["cpu.example", "nic.example"]),
    devices,
    st.booleans(),
)
consumers = st.lists(st.sampled_from([{"resource": "pods", "name": n, "uid": n} for n in "abc"]), unique_by=str)
claims = st.builds(
    lambda driver, consumers, devices: {
        "metadata": {"namespace": "ns", "name": "c", "uid": "u"},
        "spec": {},
        "status": {
            **({"allocation": {"devices": {"results": [{"driver": driver, "device": "d"}]}}} if driver else {}),
            **({"reservedFor": consumers} if consumers else {}),
            **({"devices": [{"driver": driver, "device": "d"}]} if devices else {}),
        },
    },
    st.sampled_from(["", "cpu.example", "mem.example", "nic.example"]),
    consumers,
    st.booleans(),
)


def facts(resource, operation, obj, old):
    name, _, sub = resource.partition("/")
    raw = {
        "uid": "r",
        "operation": operation,
        "kind": {"group": "resource.k8s.io", "version": "v1", "kind": KINDS[resource]},
        "resource": {"group": "resource.k8s.io", "version": "v1", "resource": name},
        "subResource": sub,
        "object": obj,
        "oldObject": old,
        "userInfo": {},
    }
    return Facts(read_request(raw), Snapshot(), Book(), datetime(2026, 11, 30, tzinfo=UTC))


IMPLIED = {
    "slice.mapped": lambda facts: facts.slice.mapped,
    "slice.wasMapped": lambda facts: facts.slice.was_mapped,
    "slice.changed": lambda facts: facts.slice.changed,
    "slice.deleted": lambda facts: facts.slice.deleted,
    "claim.allocating": lambda facts: facts.claim.allocating,
    "claim.addsConsumers": lambda facts: facts.claim.adds_consumers,
}


@pytest.mark.parametrize("endpoint", ["validate", "mutate"])
@given(obj=slices, old=slices, create=st.booleans())
def test_a_slice_that_is_written_goes_to_one_row(endpoint, obj, old, create):
    operation, old = ("CREATE", None) if create else ("UPDATE", old)
    if old is not None:
        old["spec"]["driver"] = obj["spec"]["driver"]
    [row] = taken(endpoint, "resourceslices", operation, obj, old)
    known = facts("resourceslices", operation, obj, old)
    assert {name: IMPLIED[name](known) for name in row.implies} == dict(row.implies)
    mapped = known.slice.mapped or known.slice.was_mapped
    needed = known.slice.changed and (mapped or obj["spec"]["driver"] in DRIVERS)
    assert row.failure == ("Fail" if needed and endpoint == "validate" else "Ignore")


@given(obj=claims, old=claims)
def test_a_claim_status_goes_to_one_row(obj, old):
    [row] = taken("validate", "resourceclaims/status", "UPDATE", obj, old)
    known = facts("resourceclaims/status", "UPDATE", obj, old)
    assert {name: IMPLIED[name](known) for name in row.implies} == dict(row.implies)
    allocation = obj["status"].get("allocation")
    named = allocation is not None and allocation["devices"]["results"][0]["driver"] in DRIVERS
    judged = known.claim.allocating or known.claim.adds_consumers
    assert (row.failure == "Fail") == (named and judged)
    assert row.side_effects == ("NoneOnDryRun" if judged else "None")


def test_what_is_cleared_or_shrinks_never_waits_for_us():
    results = {"devices": {"results": [{"driver": "cpu.example"}]}}
    both = [{"resource": "pods", "name": name, "uid": name} for name in "ab"]
    held = {"metadata": {}, "status": {"allocation": results, "reservedFor": both}}
    for status in ({}, {"allocation": results}, {"allocation": results, "reservedFor": both[:1]}):
        [row] = taken("validate", "resourceclaims/status", "UPDATE", {"metadata": {}, "status": status}, held)
        assert (row.name, row.failure) == ("claim-releases", "Ignore")


def test_a_kubelet_heartbeat_goes_to_no_row():
    entries = [{"resourceClaimName": "c", "containers": ["main"], "resources": {"cpu": "1"}}]
    old = {"metadata": {}, "status": {"phase": "Pending", "nodeAllocatableResourceClaimStatuses": entries}}
    new = {"metadata": {}, "status": {**old["status"], "phase": "Running"}}
    assert taken("validate", "pods/status", "UPDATE", new, old) == []
    assert taken("validate", "pods/status", "UPDATE", {"metadata": {}, "status": {}}, {"metadata": {}}) == []
    node = {"metadata": {"labels": {"a": "b"}}, "spec": {}, "status": {"allocatable": {"cpu": "1"}}}
    beat = {**node, "status": {**node["status"], "conditions": [{"type": "Ready"}]}}
    assert taken("validate", "nodes/status", "UPDATE", beat, node) == []


def test_what_a_heartbeat_is_not_comes_to_us():
    old = {"metadata": {}, "status": {"phase": "Pending"}}
    new = {"metadata": {}, "status": {"nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "c"}]}}
    [row] = taken("validate", "pods/status", "UPDATE", new, old)
    assert (row.failure, row.seconds) == ("Ignore", 1)
    node = {"metadata": {"labels": {"canary": "no"}}, "spec": {}, "status": {}}
    assert taken("validate", "nodes/status", "UPDATE", {**node, "metadata": {"labels": {"canary": "yes"}}}, node)
    assert taken("validate", "nodes", "CREATE", node, None)


@pytest.mark.parametrize("number", [0, 1, 513, 1100])
def test_a_long_list_of_drivers_is_divided(number):
    drivers = frozenset(f"driver-{index:04}.{'x' * 40}.example" for index in range(number))
    found = rows(drivers)
    chunks = -(-number // 512)
    assert len([row for row in found if row.name.startswith("guarded-allocations")]) == chunks
    assert len({row.name for row in found}) == len(found)
    for row in found:
        assert len(row.conditions) <= 64
        assert len({name for name, _ in row.conditions}) == len(row.conditions)
        assert all(len(text) < 60_000 for _, text in row.conditions)
        assert 1 <= row.seconds <= 5


def test_conditions_do_not_fail_on_nothing():
    bare = {"metadata": {}, "spec": {"driver": "x"}}
    for _, programs in ROWS:
        for program in programs:
            for obj, old in ((bare, None), (None, bare), (bare, bare)):
                assert program.evaluate({"object": obj, "oldObject": old}, Budget()) in (True, False)
