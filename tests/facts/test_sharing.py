"""Consumers of mapped claims, at the write that adds them and at rest."""

import pytest

from tests.facts.builders import (
    NOW,
    as_claim,
    claim,
    entry,
    gpu,
    grp,
    node,
    pod,
    pod_ref,
    result,
    rules,
    samples,
    slice_of,
    world,
)
from webhook.facts.sharing import sharing_problems

PODS = [pod(name) for name in ("p1", "p2")]
MAPPED = (node(), slice_of(grp()), *PODS)
OVERHEAD = grp(nodeAllocatableResources={"memory": {"overhead": {"perPod": "1Gi"}}})
del OVERHEAD["nodeAllocatableResourceMappings"]
PLAIN = grp()
del PLAIN["nodeAllocatableResourceMappings"]


def having(*names, **fields):
    return claim(results=[result()], reserved=[pod_ref(name) for name in names], **fields)


def write(new, old, *objs, minor=36):
    stored = as_claim(old) if old is not None else None
    return sharing_problems(as_claim(new), stored, world(*(objs or MAPPED), minor=minor), NOW)


@pytest.mark.parametrize("minor", [36, 37])
def test_allocation_and_its_only_consumer_in_one_write(minor):
    assert write(having("p1"), claim(), minor=minor) == []


@pytest.mark.parametrize("minor", [36, 37])
def test_c2_e10_a_second_consumer_of_a_mapped_claim(minor):
    for old in (having("p1"), claim()):
        (problem,) = write(having("p1", "p2"), old, minor=minor)
        assert problem.rule == "shared-mapped-claim"
        assert problem.path == "status.reservedFor[1]"
        assert "p2" in problem.has


def test_a_second_consumer_that_is_no_pod():
    new = having("p1")
    new["status"]["reservedFor"].append({"apiGroup": "batch.example", "resource": "jobs", "name": "j", "uid": "x"})
    assert rules(write(new, having("p1"))) == ["shared-mapped-claim"]


def test_e10_unmapped_claims_may_be_shared():
    assert write(having("p1", "p2"), having("p1"), node(), slice_of(PLAIN)) == []


def test_overhead_alone_may_be_shared_on_1_37():
    assert write(having("p1", "p2"), having("p1"), node(), slice_of(OVERHEAD), minor=37) == []


def test_the_only_consumer_added_to_an_older_allocation():
    (problem,) = write(having("p1"), having())
    assert problem.rule == "pre-allocated-uncounted"
    assert "delete claim ns/c1" in problem.fix
    assert write(having("p1"), having(), minor=37) == []
    assert write(having("p1"), having(), node(), slice_of(PLAIN)) == []


def test_a_new_allocation_is_not_an_older_one():
    new, old = having("p1"), having(stamp="2026-11-20T08:00:00Z")
    assert write(new, old) == []


@pytest.mark.parametrize("minor", [36, 37])
def test_e11_what_shrinks_or_clears_always_passes(minor):
    both, one, none = having("p1", "p2"), having("p1"), having()
    for new, old in ((one, both), (none, both), (none, one), (both, both), (claim(), both), (claim(), none)):
        assert write(new, old, minor=minor) == []


def test_e13_consumers_are_told_apart_by_uid():
    new = having()
    new["status"]["reservedFor"] = [{"resource": "pods", "name": "p1", "uid": "another"}, pod_ref("p1")]
    assert rules(write(new, having("p1"))) == ["shared-mapped-claim"]


def test_a_claim_whose_device_vanished_is_mapped_when_its_pod_was_booked():
    owner = pod("p1", where="n1", status=entry(cpu="4"))
    assert rules(write(having("p1", "p2"), having("p1"), node(), slice_of(grp("other")), owner)) == [
        "shared-mapped-claim"
    ]
    assert write(having("p1", "p2"), having("p1"), node(), slice_of(gpu("other")), pod("p1")) == []


def test_an_allocation_without_a_time_stamp_is_told():
    problems = write(having("p1", stamp=""), claim())
    assert rules(problems) == rules(problems, "info") == ["allocation-without-timestamp"]


def test_e6_at_rest_a_reservation_for_a_pod_that_is_not_there():
    problems = write(having("long-gone"), None)
    assert rules(problems) == rules(problems, "info") == ["leftover-reservation"]
    assert write(having("p1"), None) == []


def test_nothing_is_left_over_where_no_pods_are_known():
    assert write(having("p1"), None, node(), slice_of(grp())) == []


def test_e5_an_ended_pod_is_no_consumer():
    done = pod("p1", status={"phase": "Succeeded"})
    (problem,) = write(having("p1", "p2"), None, node(), slice_of(grp()), done, PODS[1])
    assert problem.rule == "leftover-reservation"
    assert "has ended" in problem.has


def test_two_living_consumers_at_rest():
    assert rules(write(having("p1", "p2"), None)) == ["shared-mapped-claim"]


def test_e2_e3_a_deleted_claim_that_was_never_released_is_one_finding_with_its_age():
    dead = having("gone-1", "gone-2", metadata={"deletionTimestamp": "2026-11-19T23:30:00Z"})
    (problem,) = write(dead, None)
    assert problem.rule == "leftover-reservation"
    assert "since 10h" in problem.has


def test_e4_the_entry_that_is_no_pod_is_named():
    (left,) = [obj for obj in samples("16") if obj["metadata"]["name"] == "left-behind"]
    problems = write(left, None, *samples("01", "02", "05", "15", "18"))
    assert rules(problems, "error", "warning") == []
    leftover = next(problem for problem in problems if problem.rule == "leftover-reservation")
    assert "nightly" in leftover.fix


def test_allocated_claims_of_the_samples_have_one_consumer_each():
    for minor in (36, 37):
        snapshot = world(*samples("01", "02", "05", "06", "08", "15", "18"), minor=minor)
        for obj in samples("15"):
            assert rules(sharing_problems(as_claim(obj), None, snapshot, NOW), "error", "warning") == []


@pytest.mark.parametrize("reserved", [None, 7, {}, [None], [{}], [{"uid": 3, "name": []}], [{"resource": "pods"}] * 2])
def test_any_json_is_survived(reserved):
    new = having()
    new["status"]["reservedFor"] = reserved
    write(new, None)
    write(new, having("p1"))


def test_leftovers_are_told_where_the_whole_status_is_judged_as_if_written_now():
    assert rules(write(having("long-gone"), claim())) == ["leftover-reservation"]
    assert write(having("long-gone", stamp=NOW.isoformat()), claim()) == []


def test_e25_a_stored_allocation_that_nothing_protects_from_deletion():
    stored = {"resourceVersion": "7"}
    kept = {**stored, "finalizers": ["resource.kubernetes.io/delete-protection"]}
    (note,) = write(having("p1", metadata=stored), None)
    assert (note.rule, note.path, note.severity) == ("delete-protection-missing", "metadata.finalizers", "info")
    assert write(having("p1", metadata=kept), None) == []
    assert write(having("p1"), None) == []
    assert write(claim(metadata=stored), None) == []
    assert write(having("p1", metadata=stored, stamp=NOW.isoformat()), claim(metadata=stored)) == []
