"""Feature gates: fields dropped in silence, nodes that do not declare the feature."""

from dataclasses import replace

import pytest
from msgspec import structs

from tests.facts.builders import gpu, grp, node, rules, samples, slice_of, world
from webhook.facts.gate import slice_gate_problems
from webhook.kube.release import Release
from webhook.kube.resource import read_slice

GATE = "DRANodeAllocatableResources"
OVERHEAD = {"nodeAllocatableResources": {"memory": {"overhead": {"perPod": "1Gi"}}}}


def judge(obj, *objs, minor=37, gates=None, old=None, drops=False):
    snapshot = world(*objs, minor=minor, gates=gates)
    snapshot = structs.replace(snapshot, release=replace(snapshot.release, drops_costs=drops))
    return slice_gate_problems(obj, read_slice(obj), snapshot, None if old is None else read_slice(old))


def declaring(name="n1"):
    return node(name, declaredFeatures=[GATE])


def new(name="a", **fields):
    return gpu(name, **OVERHEAD, **fields)


def test_a_gate_that_is_off_drops_the_costs():
    (problem,) = judge(slice_of(gpu("x"), grp()), minor=36, gates={GATE: False})
    assert (problem.rule, problem.severity) == ("gate-off-fields-dropped", "warning")
    assert problem.path == "spec.devices[1].nodeAllocatableResourceMappings"
    assert problem.has == "costs in 1 device, dropped while DRANodeAllocatableResources is off"
    assert judge(slice_of(grp()), minor=36, gates={GATE: True}) == []


def test_where_nothing_tells_what_became_of_the_last_slice_counts():
    assert rules(judge(slice_of(grp()), minor=36, drops=True)) == ["gate-off-fields-dropped"]
    assert judge(slice_of(grp()), minor=36) == []
    # What is judged besides is judged as ever: another API server may store what this one drops.
    assert Release(36, drops_costs=True).enabled(GATE)


def test_v1beta1_is_told_where_its_own_field_is():
    obj = slice_of({"name": "a", "basic": {"nodeAllocatableResourceMappings": {"cpu": {}}}})
    obj["apiVersion"] = "resource.k8s.io/v1beta1"
    (problem,) = judge(obj, minor=36, gates={GATE: False})
    assert problem.path == "spec.devices[0].basic.nodeAllocatableResourceMappings"


def test_an_update_keeps_costs_that_the_stored_slice_has():
    assert judge(slice_of(grp()), minor=36, gates={GATE: False}, old=slice_of(grp("other"))) == []
    assert rules(judge(slice_of(grp()), minor=36, gates={GATE: False}, old=slice_of(gpu("a")))) != []


def test_slices_without_costs_have_nothing_to_lose():
    assert judge(slice_of(gpu("a")), minor=36, gates={GATE: False}) == []


def test_on_1_37_the_node_has_to_declare_the_feature():
    (problem,) = judge(slice_of(new()), node())
    assert (problem.rule, problem.origin) == ("node-not-declaring", "apiserver")
    assert judge(slice_of(new()), declaring()) == []
    assert judge(slice_of(new()), node(), gates={"NodeDeclaredFeatures": False}) == []


def test_on_1_36_no_kubelet_declares_it_and_nobody_asks():
    assert judge(slice_of(grp()), node(), minor=36) == []


def test_a_node_named_directly_has_to_exist_where_nodes_are_known():
    assert rules(judge(slice_of(new(), where="n9"), declaring())) == ["node-not-declaring"]
    assert judge(slice_of(new(), where="n9")) == []


@pytest.mark.parametrize(("zone", "expected"), [("a", []), ("b", ["node-not-declaring"]), ("nowhere", [])])
def test_a_selector_needs_the_feature_of_every_node_it_matches_today(zone, expected):
    good, bad = declaring("n1"), node("n2")
    good["metadata"]["labels"], bad["metadata"]["labels"] = {"zone": "a"}, {"zone": "b"}
    rows = [{"key": "zone", "operator": "In", "values": [zone]}]
    obj = slice_of(new(), where="", pool="s", nodeSelector={"nodeSelectorTerms": [{"matchExpressions": rows}]})
    assert rules(judge(obj, good, bad)) == expected


def test_all_nodes_need_it():
    obj = slice_of(new(), where="", pool="s", allNodes=True)
    assert rules(judge(obj, declaring("n1"), node("n2"))) == ["node-not-declaring"]


def test_devices_with_nodes_of_their_own_are_judged_one_by_one():
    devices = [new("a", nodeName="n1"), new("b", nodeName="n2"), gpu("c", nodeName="n2")]
    obj = slice_of(*devices, where="", pool="s", perDeviceNodeSelection=True)
    (problem,) = judge(obj, declaring("n1"), node("n2"))
    assert problem.path == "spec.devices[1].nodeAllocatableResources"


def test_the_samples_are_fine_on_1_36():
    snapshot = samples("01")
    for obj in samples("02", "03", "05", "06", "07", "08"):
        assert judge(obj, *snapshot, minor=36) == []


@pytest.mark.parametrize("devices", [7, {}, [7, None], [{"nodeAllocatableResources": 7}], [{"basic": []}]])
def test_any_json_is_survived(devices):
    obj = slice_of()
    obj["spec"]["devices"] = devices
    judge(obj, node())
    judge(obj, minor=36, gates={GATE: False})
    judge({"spec": None, "metadata": 3}, node())


def test_nodes_of_each_device_are_no_matter_where_that_gate_is_off():
    obj = slice_of(new(), where="", pool="s", perDeviceNodeSelection=True, allNodes=True)
    gates = {"DRAPartitionableDevices": False}
    assert [each.rule for each in judge(obj, node("n1"), gates=gates)] == ["node-not-declaring"]
    assert judge(obj, node("n1")) == []
