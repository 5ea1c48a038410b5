"""Pods that use claims with node costs."""

import pytest

from tests.facts.builders import (
    as_pod,
    claim,
    device_class,
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
from webhook.facts.pods_lint import pod_problems

FREE = claim(results=[result()])
MINE = claim(results=[result()], reserved=[pod_ref()])
OTHERS = claim(results=[result()], reserved=[pod_ref("p9")])
PLAIN = grp()
del PLAIN["nodeAllocatableResourceMappings"]
SLICE = slice_of(grp())


def judge(obj, *objs, minor=36, gates=None):
    return pod_problems(obj, as_pod(obj), world(node(), *(objs or (SLICE, MINE)), minor=minor, gates=gates))


def found(obj, *objs, **options):
    return rules(judge(obj, *objs, **options), "error", "warning")


def template(name="t", driver_class="d"):
    devices = {"requests": [{"name": "r", "exactly": {"deviceClassName": driver_class}}]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"namespace": "ns", "name": name},
        "spec": {"spec": {"devices": devices}},
    }


def from_template(name="t", **fields):
    obj = pod(**fields)
    obj["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimTemplateName": name}]
    return obj


def test_an_ordinary_pod():
    assert judge(pod(requests={"cpu": "1"})) == []
    assert judge(pod(claims={})) == []


def test_a_pod_without_requests_is_told_about_its_qos_class():
    problems = judge(pod())
    assert rules(problems) == rules(problems, "info") == ["claim-only-besteffort"]
    for fields in ({"resources": {"limits": {"cpu": "9"}}}, {"requests": {"memory": "1Gi"}}):
        assert judge(pod(**fields)) == []
    assert judge(pod(), slice_of(PLAIN), FREE) == []


@pytest.mark.parametrize("minor", [36, 37])
def test_e10_a_mapped_claim_that_another_pod_has_reserved(minor):
    (problem,) = judge(pod(requests={"cpu": "1"}), SLICE, OTHERS, minor=minor)
    assert (problem.rule, problem.severity) == ("shared-mapped-claim", "error")
    assert problem.path == "spec.resourceClaims[0].resourceClaimName"
    assert judge(pod(requests={"cpu": "1"}), slice_of(PLAIN), OTHERS, minor=minor) == []


def test_overhead_alone_may_be_shared_on_1_37():
    device = {**PLAIN, "nodeAllocatableResources": {"memory": {"overhead": {"perPod": "1Gi"}}}}
    assert judge(pod(requests={"cpu": "1"}), slice_of(device), OTHERS, minor=37) == []


def test_e13_pods_are_told_apart_by_uid():
    twin = pod("p9", requests={"cpu": "1"}, metadata={"uid": "another"})
    assert found(twin, SLICE, OTHERS) == ["shared-mapped-claim"]
    unnamed = pod("p9", requests={"cpu": "1"}, metadata={"uid": ""})
    assert found(unnamed, SLICE, OTHERS) == []


def test_e13_the_successor_of_a_pod_that_is_gone_or_going_is_let_in():
    new = pod(requests={"cpu": "1"})
    assert found(new, SLICE, OTHERS, pod("p9", status={"phase": "Failed"})) == []
    going = pod("p9", metadata={"deletionTimestamp": "2026-11-20T09:00:00Z"})
    for known in (going, pod("p7")):
        problems = judge(new, SLICE, OTHERS, known)
        assert rules(problems) == rules(problems, "warning") == ["shared-mapped-claim"]
    assert rules(judge(new, SLICE, OTHERS, pod("p9")), "error") == ["shared-mapped-claim"]


def test_a_pod_that_has_its_node_can_only_be_told():
    assert rules(judge(pod(requests={"cpu": "1"}, where="n1"), SLICE, OTHERS), "warning") == ["shared-mapped-claim"]


@pytest.mark.parametrize("minor", [36, 37])
def test_a_mapped_claim_that_no_container_uses(minor):
    obj = pod(requests={"cpu": "1"})
    obj["spec"]["containers"][0]["resources"]["claims"] = []
    (problem,) = judge(obj, minor=minor)
    assert (problem.rule, problem.severity) == ("claim-unreferenced", "warning")
    assert judge(obj, slice_of(PLAIN), MINE, minor=minor) == []


def test_an_init_container_is_a_user():
    obj = pod(requests={"cpu": "1"})
    obj["spec"]["containers"][0]["resources"]["claims"] = []
    obj["spec"]["initContainers"] = [{"name": "init", "resources": {"claims": [{"name": "c", "request": "r"}]}}]
    assert judge(obj) == []


def test_an_unallocated_claim_is_costly_when_its_drivers_map():
    obj = from_template(requests={"cpu": "1"})
    obj["spec"]["containers"][0]["resources"]["claims"] = []
    assert found(obj, SLICE, template(), device_class()) == ["claim-unreferenced"]
    assert found(obj, slice_of(PLAIN), template(), device_class()) == []
    assert found(obj, SLICE, template(driver_class="unknown"), device_class()) == []


def test_e15_a_template_that_is_not_there():
    (problem,) = judge(from_template(requests={"cpu": "1"}), SLICE)
    assert (problem.rule, problem.severity) == ("template-missing", "warning")
    made = from_template(status={"resourceClaimStatuses": [{"name": "c", "resourceClaimName": "c1"}]})
    assert "template-missing" not in rules(judge(made))
    assert found(from_template(requests={"cpu": "1"}), SLICE, template(), device_class()) == []


@pytest.mark.parametrize(
    ("row", "path"),
    [
        ({}, "spec.resourceClaims[0]"),
        ({"resourceClaimName": None}, "spec.resourceClaims[0]"),
        ({"resourceClaimName": "a", "resourceClaimTemplateName": "b"}, "spec.resourceClaims[0]"),
        ({"resourceClaimName": ""}, "spec.resourceClaims[0].resourceClaimName"),
        ({"resourceClaimTemplateName": ""}, "spec.resourceClaims[0].resourceClaimTemplateName"),
    ],
)
def test_e16_a_claim_entry_has_exactly_one_source(row, path):
    obj = pod(requests={"cpu": "1"})
    obj["spec"]["resourceClaims"] = [{"name": "c", **row}]
    (problem,) = judge(obj)
    assert (problem.rule, problem.origin, problem.path) == ("claim-source-missing", "apiserver", path)


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ({"cpu": "4"}, True),
        ({"cpu": "4100m"}, True),
        ({"cpu": "3600m"}, True),
        ({"cpu": "3"}, False),
        ({"cpu": "8"}, False),
        ({"memory": "4"}, False),
    ],
)
def test_c3_c4_requests_that_repeat_what_the_claim_costs(requests, expected):
    problems = judge(pod(requests=requests))
    assert rules(problems) == (["mirrored-requests"] if expected else [])
    if expected:
        assert problems[0].path == "spec.containers[0].resources.requests[cpu]"
        assert problems[0].severity == "warning"


def test_c3_requests_repeated_in_parts():
    obj = pod(requests={"cpu": "2"})
    second = {**obj["spec"]["containers"][0], "name": "two"}
    obj["spec"]["containers"].append(second)
    assert found(obj) == ["mirrored-requests"]
    second["resources"] = {"requests": {"cpu": "2"}}
    assert found(obj) == []


def test_c3_under_a_pod_level_request_nothing_is_charged_twice():
    obj = pod(requests={"cpu": "4"}, resources={"requests": {"cpu": "8"}})
    assert found(obj) == []


def test_c4_without_a_mapping_mirroring_is_right():
    assert judge(pod(requests={"cpu": "4"}), slice_of(PLAIN), MINE) == []


def test_c4_with_the_gate_off_only_requests_are_charged():
    off = {"DRANodeAllocatableResources": False}
    assert found(pod(requests={"cpu": "1"}), gates=off) == ["mirror-missing"]
    assert found(pod(requests={"cpu": "4"}), gates=off) == []


@pytest.mark.parametrize(("budget", "fine"), [("5", False), ("6", True), ("11", True)])
def test_c25_a_pod_level_budget_covers_containers_and_claims(budget, fine):
    obj = pod(requests={"cpu": "2"}, resources={"requests": {"cpu": budget}})
    problems = judge(obj)
    assert rules(problems) == ([] if fine else ["pod-budget-too-small"])
    if not fine:
        assert "6" in problems[0].needs


MEMORY = {**PLAIN, "nodeAllocatableResources": {"memory": {"mapping": {"deviceMultiplier": "3Gi"}}}}


@pytest.mark.parametrize(("level", "fine"), [("4Gi", False), ("5Gi", True)])
def test_1_37_container_limits_with_claims_stay_below_the_pod_level_limit(level, fine):
    obj = pod(requests={"memory": "1Mi"}, resources={"limits": {"memory": level}, "requests": {"memory": "4Gi"}})
    obj["spec"]["containers"][0]["resources"]["limits"] = {"memory": "2Gi"}
    assert found(obj, slice_of(MEMORY), MINE, minor=37) == ([] if fine else ["pod-budget-too-small"])


def test_1_37_hugepages_limits_with_claims_stay_below_the_pod_level_limit():
    device = {**PLAIN, "nodeAllocatableResources": {"hugepages-2Mi": {"mapping": {"deviceMultiplier": "4Mi"}}}}
    obj = pod(resources={"limits": {"hugepages-2Mi": "6Mi"}, "requests": {"hugepages-2Mi": "8Mi"}})
    obj["spec"]["containers"][0]["resources"]["limits"] = {"hugepages-2Mi": "4Mi"}
    assert "pod-budget-too-small" in found(obj, slice_of(device), MINE, minor=37)


BRIDGE = device_class("g", "gpu.example", extendedResourceName="vendor.example/gpu")
GPUS = slice_of(gpu("a", {"memory": {"allocationMultiplier": "1Gi"}}), name="g", driver="gpu.example")


@pytest.mark.parametrize("resource", ["vendor.example/gpu", "deviceclass.resource.kubernetes.io/g"])
def test_an_extended_resource_served_by_mapped_devices(resource):
    obj = pod(claims={}, requests={resource: "1"})
    (problem,) = judge(obj, BRIDGE, GPUS)
    assert (problem.rule, problem.severity) == ("extended-resource-mapped", "warning")
    assert problem.path == f"spec.containers[0].resources.requests[{resource}]"
    bare = slice_of(gpu("a"), name="g", driver="gpu.example")
    assert judge(obj, BRIDGE, bare) == []
    assert judge(obj, GPUS) == []


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_an_ended_pod_that_names_an_allocated_claim(phase):
    obj = pod(status={"phase": phase})
    problems = judge(obj, SLICE, OTHERS)
    assert rules(problems) == rules(problems, "warning") == ["terminal-pod"]
    assert judge(obj, SLICE, claim()) == []


def test_e8_a_pod_in_deletion_whose_claim_is_not_told():
    obj = from_template(requests={"cpu": "1"}, metadata={"deletionTimestamp": "2026-11-20T09:00:00Z"})
    owned = claim("made", results=[result()], metadata={"ownerReferences": [{"kind": "Pod", "uid": "uid-p1"}]})
    assert found(obj, SLICE, owned, template(), device_class()) == []


def test_the_samples():
    expected = {
        "solver-0": ["claim-unreferenced"],
        "bridged-0": ["extended-resource-mapped"],
        "unbooked": ["shared-mapped-claim"],
        "encoder-1": ["shared-mapped-claim"],
        "understated": ["shared-mapped-claim"],
        "finished": ["terminal-pod"],
    }
    for minor in (36, 37):
        snapshot = world(*samples("01", "02", "05", "06", "08", "12", "15", "17", "18"), minor=minor)
        told = {
            obj["metadata"]["name"]: rules(pod_problems(obj, as_pod(obj), snapshot.remove(obj)), "error", "warning")
            for obj in samples("18", "19")
        }
        assert {name: problems for name, problems in told.items() if problems} == expected


@pytest.mark.parametrize(
    "spec",
    [
        None,
        7,
        {"resourceClaims": 7},
        {"resourceClaims": [None, {"name": 7}, {"resourceClaimName": []}]},
        {
            "containers": {"a": 1},
            "resources": [],
            "initContainers": [None, {"resources": {"requests": [], "claims": 7}}],
        },
    ],
)
def test_any_json_is_survived(spec):
    for status in (None, {"phase": "Failed"}, {"phase": 7}):
        obj = {"apiVersion": "v1", "kind": "Pod", "metadata": None, "spec": spec, "status": status}
        for minor in (36, 37):
            judge(obj, minor=minor)


@pytest.mark.parametrize(("budget", "fine"), [("4", False), ("5", True)])
def test_a_pod_level_budget_covers_what_an_unallocated_claim_costs_at_least(budget, fine):
    wanted = template()
    wanted["spec"]["spec"]["devices"]["requests"][0]["exactly"]["capacity"] = {"requests": {"cpus": "3"}}
    obj = from_template(requests={"cpu": "2"}, resources={"requests": {"cpu": budget}})
    expected = [] if fine else ["pod-budget-too-small"]
    problems = judge(obj, SLICE, wanted, device_class())
    assert rules(problems) == rules(problems, "warning") == expected
    cheap = slice_of(gpu("a"), name="e", driver="e.example")
    exactly = wanted["spec"]["spec"]["devices"]["requests"][0].pop("exactly")
    choice = [{"name": "x", **exactly}, {"name": "y", "deviceClassName": "e"}]
    wanted["spec"]["spec"]["devices"]["requests"][0]["firstAvailable"] = choice
    assert found(obj, SLICE, cheap, wanted, device_class(), device_class("e", "e.example")) == []


def test_a_pod_that_has_its_node_and_no_entry_is_uncounted():
    assert found(pod(requests={"cpu": "1"}, where="n1")) == ["uncounted"]
    assert found(pod(requests={"cpu": "1"}, where="n1", status=entry(cpu="4"))) == []
    assert found(pod(requests={"cpu": "1"})) == []


def test_a_container_that_names_a_claim_which_the_pod_does_not_have():
    obj = pod(requests={"cpu": "1"})
    obj["spec"]["initContainers"] = [{"name": "i", "resources": {"claims": [{"name": "cc"}, {"name": "c"}]}}]
    (finding,) = judge(obj)
    assert (finding.rule, finding.origin) == ("claim-name-unknown", "apiserver")
    assert finding.path == "spec.initContainers[0].resources.claims[0]"
    assert finding.needs == "one of c"
