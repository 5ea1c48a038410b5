from collections import Counter

import pytest

from tests.facts.builders import (
    CANARY,
    DRIVER,
    NOW,
    claim,
    gpu,
    grp,
    node,
    pod_ref,
    result,
    rollout,
    slice_of,
    world,
)
from webhook.facts.coverage import coverage, driver_pools, held_pools, phases, selector_problems, stage_nodes
from webhook.kube.rollout import read_rollout


def fleet(*extra, stage="Canary", **spec):
    """Canary nodes n1 and n2, a node n3 that is none, and a slice with costs on n1."""
    nodes = [node("n1"), node("n2", uid="u2"), node("n3", uid="u3", labels={})]
    return world(*nodes, slice_of(grp()), rollout(stage=stage, **spec), *extra)


def of(snapshot):
    return coverage(snapshot.rollouts[DRIVER], snapshot, NOW)


def names(snapshot):
    return [each.name for each in stage_nodes(snapshot.rollouts[DRIVER], snapshot)]


def test_nodes_of_the_stage_and_those_with_a_fresh_mapped_pool():
    found = of(fleet())
    assert (found.nodes, found.fresh, found.percent, found.lacking) == (2, 1, 50, ("n2",))


@pytest.mark.parametrize(
    "second",
    [
        slice_of(gpu("bare"), name="s2", where="n2"),
        slice_of(grp(), name="s2", where="n2", count=2),
        slice_of(name="s2", where="n2"),
        slice_of(grp(), name="s2", where="n2", driver="other.example"),
    ],
    ids=["costs nothing", "incomplete", "empty", "of another driver"],
)
def test_a_node_whose_pool_is_not_fresh_or_costs_nothing_is_not_covered(second):
    assert of(fleet(second)).fresh == 1


def test_one_pool_that_is_not_whole_keeps_its_node_from_being_covered():
    assert of(fleet(slice_of(grp(), name="s2", pool="more", count=2))).fresh == 0


def test_percents_are_not_rounded_up():
    labels = {"nodes": [node(f"m{number}", uid=f"m{number}") for number in range(198)]}
    found = of(fleet(*labels["nodes"]))
    assert (found.nodes, found.fresh, found.percent) == (200, 1, 0)
    assert len(found.lacking) == 8


def test_a_selector_that_chooses_nothing_covers_nothing():
    found = of(fleet(canaryNodeSelector={"matchLabels": {"example.org/canary": "no"}}))
    assert (found.nodes, found.fresh, found.percent) == (0, 0, 0)


def test_at_general_the_nodes_are_those_that_slices_are_for():
    assert names(fleet(stage="General")) == ["n1"]
    far = slice_of(grp(), name="s2", where="", pool="net", nodeSelector={"nodeSelectorTerms": [term("In", "yes")]})
    assert names(fleet(far, stage="General")) == ["n1", "n2"]
    each = slice_of({**grp("a"), "nodeName": "n3"}, name="s3", where="", pool="own", perDeviceNodeSelection=True)
    assert names(fleet(each, stage="General")) == ["n1", "n3"]
    assert names(fleet(stage="Off")) == []


def term(operator, *values):
    [key] = CANARY
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def test_a_pool_for_many_nodes_covers_each_that_it_is_for():
    far = slice_of(grp(), name="s2", where="", pool="net", nodeSelector={"nodeSelectorTerms": [term("In", "yes")]})
    assert of(fleet(far)).fresh == 2
    assert of(fleet(slice_of(grp(), name="s2", where="", pool="net", count=2, allNodes=True))).fresh == 0


def test_pools_by_phase_with_those_that_are_gone():
    gone = claim(results=[{**result(), "pool": "n2"}], reserved=[pod_ref()], where="n2")
    snapshot = fleet(slice_of(grp(), name="s3", where="n3", count=2), gone)
    assert driver_pools(DRIVER, snapshot) == ["n1", "n3"]
    found = phases(DRIVER, ["n1", "n2", "n3"], snapshot, NOW)
    assert found == Counter({"Fresh": 1, "Gone": 1, "Rebuilding": 1})


def test_a_hold_holds_every_pool_and_says_why():
    snapshot = fleet(slice_of(grp(), name="s2", where="n2"), hold={"reason": "books half", "by": "on-call"})
    found = dict(held_pools(snapshot.rollouts[DRIVER], snapshot, NOW))
    assert sorted(found) == ["n1", "n2"]
    assert "books half" in found["n1"].text


def test_bad_mappings_hold_their_pools_only():
    other = {"cpu": {"capacityKey": "cpus", "allocationMultiplier": "2"}}
    doubled = slice_of(grp(nodeAllocatableResourceMappings=other), name="s2", where="n2")
    digest = min(world(doubled).slices["s2"].digests)
    snapshot = fleet(doubled, hold={"reason": "r", "badMappings": [digest]})
    assert [pool for pool, _ in held_pools(snapshot.rollouts[DRIVER], snapshot, NOW)] == ["n2"]


def test_a_pool_on_a_node_that_lost_its_label_is_held():
    snapshot = fleet(slice_of(grp(), name="s3", where="n3"))
    [(pool, reason)] = held_pools(snapshot.rollouts[DRIVER], snapshot, NOW)
    assert (pool, reason.rule) == ("n3", "node-not-canary")
    again = snapshot.put(node("n3", uid="u3"))
    assert list(held_pools(again.rollouts[DRIVER], again, NOW)) == []


def test_at_general_without_a_hold_no_pool_is_held():
    snapshot = fleet(stage="General")
    assert list(held_pools(snapshot.rollouts[DRIVER], snapshot, NOW)) == []


def doubts(chosen, nodes, stage="Canary", **spec):
    found = selector_problems(read_rollout(rollout(stage=stage, **spec)), chosen, nodes)
    assert {(each.path, each.severity) for each in found} <= {("spec.canaryNodeSelector", "warning")}
    return [each.message for each in found]


def test_a_selector_is_to_choose_some_nodes_and_not_all():
    nobody, everybody = (
        "has no node that it chooses, needs one",
        "has all 3 nodes, needs labels that canary nodes alone",
    )
    assert doubts(0, 3) == doubts(0, 3, "Expanding") == [nobody]
    assert doubts(3, 3) == [f"{everybody} have"]
    assert doubts(1, 3) == doubts(2, 3) == []
    # The last nodes come to it before General, and of one node there is no other choice.
    assert doubts(3, 3, "Expanding") == doubts(1, 1) == []
    assert doubts(0, 0) == doubts(0, 3, "Off") == doubts(3, 3, "General") == doubts(0, 3, "General") == []
    # What the document says by itself is not said again.
    assert doubts(3, 3, canaryNodeSelector={}) == []
