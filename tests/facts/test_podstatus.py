"""Pod status entries against what the claims' allocations cost."""

import pytest

from tests.facts.builders import as_pod, claim, entry, grp, node, pod, pod_ref, result, rules, samples, slice_of, world
from webhook.facts.podstatus import status_problems

HELD = claim(results=[result()], reserved=[pod_ref()])
COSTS = grp(nodeAllocatableResourceMappings={"cpu": {"capacityKey": "cpus"}, "memory": {"allocationMultiplier": "1Gi"}})


def judge(new, old=None, *objs, minor=36):
    snapshot = world(node(), *(objs or (slice_of(COSTS), HELD)), new, minor=minor)
    return status_problems(as_pod(new), None if old is None else as_pod(old), snapshot, snapshot.release)


def bound(status=None, **fields):
    return pod(where="n1", status=status, **fields)


def test_an_entry_that_agrees():
    assert judge(bound(entry(cpu="4", memory="1Gi"))) == []
    assert judge(bound(entry(cpu="4000m", memory="1073741824"))) == []


@pytest.mark.parametrize(
    ("stated", "resource", "has", "needs"),
    [
        ({"cpu": "1", "memory": "1Gi"}, "cpu", "1 cpu", "4,"),
        ({"cpu": "12", "memory": "1Gi"}, "cpu", "12 cpu", "4,"),
        ({"cpu": "4"}, "memory", "0 memory", "1Gi,"),
        ({"cpu": "4", "memory": "1Gi", "hugepages-2Mi": "2Mi"}, "hugepages-2Mi", "2Mi hugepages-2Mi", "0,"),
    ],
)
def test_an_entry_that_disagrees_shows_both_numbers(stated, resource, has, needs):
    (problem,) = judge(bound(entry(**stated)))
    assert (problem.rule, problem.severity) == ("pod-status-disagrees", "warning")
    assert problem.path == f"status.nodeAllocatableResourceClaimStatuses[0].resources[{resource}]"
    assert problem.has.startswith(has)
    assert problem.needs.startswith(needs)


def test_only_a_write_that_changes_entries_is_judged():
    wrong, right = bound(entry(cpu="1")), bound(entry(cpu="4", memory="1Gi"))
    assert judge(wrong, wrong) == []
    assert judge(right, wrong) == []
    assert rules(judge(wrong, right)) == ["pod-status-disagrees"] * 2
    heartbeat = bound({**entry(cpu="1"), "phase": "Running"})
    assert judge(heartbeat, wrong) == []


def test_entries_are_compared_to_the_nano():
    fine = grp(nodeAllocatableResourceMappings={"cpu": {"capacityKey": "cpus", "allocationMultiplier": "333m"}})
    held = claim(results=[result(cpus="1500m")], reserved=[pod_ref()])
    assert judge(bound(entry(cpu="499500u")), None, slice_of(fine), held) == []


def test_the_1_37_shape():
    device = grp(
        nodeAllocatableResources={
            "cpu": {"mapping": {"capacityKey": "cpus", "capacityMultiplier": "2"}},
            "memory": {"overhead": {"perPod": "4Gi", "perContainer": "256Mi"}},
        }
    )
    del device["nodeAllocatableResourceMappings"]
    row = {
        "resourceClaimName": "c1",
        "containers": ["main"],
        "mapping": [{"name": "cpu", "quantity": "8"}],
        "overhead": [{"name": "memory", "perPod": "4Gi", "perContainer": "256Mi"}],
    }

    def told(**change):
        status = {"nodeAllocatableResourceClaimStatuses": [{**row, **change}]}
        return judge(bound(status), None, slice_of(device), HELD, minor=37)

    assert told() == []
    assert [p.path[-25:] for p in told(mapping=[])] == ["[0].mapping[cpu].quantity"]
    short = told(overhead=[{"name": "memory", "perPod": "4Gi"}])
    assert [p.path.rpartition(".")[2] for p in short] == ["perContainer"]
    assert rules(told(containers=[])) == ["pod-status-disagrees"]


def test_an_entry_for_a_claim_that_is_not_allocated():
    for other in ((), (claim(),)):
        problems = judge(bound(entry(cpu="4")), None, slice_of(COSTS), *other)
        assert rules(problems, "warning") == ["pod-status-disagrees"]
        assert rules(judge(bound(entry(cpu="4")), bound(), slice_of(COSTS), *other), "error", "warning") == []


def test_a_bound_pod_without_its_entry_is_uncounted():
    (problem,) = judge(bound())
    assert (problem.rule, problem.severity) == ("uncounted", "warning")
    assert "4 cpu, 1Gi memory" in problem.has


def test_c13_a_claim_named_directly_needs_no_claim_status():
    assert judge(bound({**entry(cpu="4", memory="1Gi"), "resourceClaimStatuses": []})) == []


def test_a_pod_that_is_not_bound_yet_counts_nothing():
    assert judge(pod()) == []


def test_the_second_claim_alone_leaves_the_first_uncounted():
    other = claim("c2", results=[result(cpus="1", share="x")], reserved=[pod_ref()])
    new = pod(claims={"a": "c1", "b": "c2"}, status=entry("c2", cpu="1", memory="1Gi"))
    assert rules(judge(new, pod(claims={"a": "c1", "b": "c2"}), slice_of(COSTS), HELD, other)) == ["uncounted"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_ended_pods_are_left_alone(phase):
    assert judge(bound({**entry(cpu="1"), "phase": phase})) == []


def test_a_device_that_vanished_leaves_nothing_to_compare_with():
    assert judge(bound(entry(cpu="4")), None, slice_of(grp("other")), HELD) == []


def test_an_entry_that_cannot_be_read():
    assert "pod-status-disagrees" in rules(judge(bound(entry(cpu="four", memory="1Gi"))))


def test_the_samples():
    snapshot = world(*samples("01", "02", "05", "06", "08", "15", "18", "19"))
    found = {
        obj["metadata"]["name"]: rules(status_problems(as_pod(obj), None, snapshot, snapshot.release))
        for obj in samples("18", "19")
    }
    assert {name: problems for name, problems in found.items() if problems} == {"understated": ["pod-status-disagrees"]}
