import pytest

from tests.facts.builders import claim, entry, grp, node, pod, pod_ref, result, rollout, slice_of, world
from webhook.facts.gates_found import API_SERVER, KUBELETS, SCHEDULER, GateEvidence, gate_differs, gate_state
from webhook.kube.release import NODE_ALLOCATABLE

ON, OFF = {NODE_ALLOCATABLE: True}, {NODE_ALLOCATABLE: False}
NOTHING = GateEvidence()


def found(snapshot, evidence=NOTHING):
    return {each.name: each for each in gate_state(snapshot, evidence)}


def bound(name="c1", status=None, at="2026-11-20T09:00:00Z", cpus="4"):
    """A claim that costs something, allocated at a time, and its bound pod."""
    owner = f"p-{name}"
    made = claim(name, [result(cpus=cpus, share=f"share-{name}")], [pod_ref(owner)], stamp=at)
    return made, pod(owner, {"c": name}, where="n1", status=status)


BASE = (node(), slice_of(grp()))


def test_nothing_tells():
    assert [(each.name, each.state) for each in gate_state(world(), NOTHING)] == [
        (API_SERVER, "unknown"),
        (SCHEDULER, "unknown"),
        (KUBELETS, "unknown"),
    ]


@pytest.mark.parametrize(
    ("gates", "evidence", "on"),
    [
        (ON, NOTHING, True),
        (OFF, NOTHING, False),
        (None, GateEvidence(probe=True), True),
        (None, GateEvidence(probe=False), False),
        (None, GateEvidence(carried=True, slice="s"), True),
        (None, GateEvidence(carried=False, slice="s"), False),
        (ON, GateEvidence(probe=True, carried=True, slice="s"), True),
    ],
)
def test_the_api_server_by_each_source(gates, evidence, on):
    assert found(world(gates=gates), evidence)[API_SERVER].on is on


def test_sources_that_contradict_each_other_are_named():
    server = found(world(gates=ON), GateEvidence(probe=False, carried=True, slice="s1"))[API_SERVER]
    assert server.on is False
    assert "off by a dry-run write of a slice, on by its metrics and slice s1" in server.how


def test_the_scheduler_by_the_newest_pod_with_a_claim_that_costs_something():
    counted, uncounted = bound("c1", entry("c1", cpu="4")), bound("c2", at="2026-11-20T09:10:00Z", cpus="1")
    assert found(world(*BASE, *counted))[SCHEDULER].on is True
    newest = found(world(*BASE, *counted, *uncounted))[SCHEDULER]
    assert newest.on is False
    assert "ns/p-c2" in newest.how
    later = bound("c3", entry("c3", cpu="1"), at="2026-11-20T09:20:00Z", cpus="1")
    assert found(world(*BASE, *counted, *uncounted, *later))[SCHEDULER].on is True


def test_what_says_nothing_about_the_scheduler():
    made, owner = bound()
    assert found(world(*BASE, made))[SCHEDULER].on is None
    waiting = {**owner, "spec": {**owner["spec"], "nodeName": ""}}
    assert found(world(*BASE, made, waiting))[SCHEDULER].on is None
    # An API server that drops entries hides what the scheduler does.
    assert found(world(*BASE, made, owner, gates=OFF))[SCHEDULER].on is None


def test_kubelets_by_what_they_declare_from_1_37_on():
    declaring = node(declaredFeatures=[NODE_ALLOCATABLE])
    assert found(world(declaring, slice_of(grp())))[KUBELETS].on is None
    assert found(world(declaring, slice_of(grp()), minor=37))[KUBELETS].on is True
    silent = found(world(declaring, node("n2", uid="u2"), rollout(stage="Canary"), minor=37))[KUBELETS]
    assert silent.on is False
    assert silent.how == "not declared by 1 of 2 nodes: n2"
    # What nobody maps anything on is nobody's matter.
    assert found(world(declaring, node("n2", uid="u2"), slice_of(grp()), minor=37))[KUBELETS].on is True


def test_components_that_differ_are_named():
    uncounted = world(*BASE, *bound(), gates=ON)
    told = gate_differs(gate_state(uncounted, NOTHING))
    assert told.startswith(f"{NODE_ALLOCATABLE} on in {API_SERVER}, off in {SCHEDULER} (by pod ns/p-c1, ")
    assert gate_differs(gate_state(world(gates=ON), NOTHING)) == ""
    assert gate_differs(gate_state(world(gates=OFF), NOTHING)) == ""
