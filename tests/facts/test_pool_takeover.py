"""A slice that takes the pool of somebody else over."""

import pytest

from tests.facts.builders import gpu, node, rollout, slice_of, world
from tests.facts.writing import account, everyone_exempt, kubelet, user, writers
from webhook.facts.pool_takeover import takeover_problems
from webhook.kube.resource import read_slice

LOCAL = rollout(writers=writers("NodeLocal"))
BOTH = rollout(
    writers=[*writers("NodeLocal"), {"namespace": "drivers", "serviceAccount": "fabric", "profile": "MultiNode"}]
)
THEIRS = slice_of(gpu("g0"), name="n2-d", where="n2", generation=3)


def judge(new, *objs, who=account, **given):
    snapshot = world(node("n1"), node("n2"), *objs)
    return takeover_problems(who(snapshot, **given), read_slice(new), snapshot)


def everywhere(name="all", pool="n2", generation=7, **spec):
    return slice_of(gpu("g9"), name=name, where="", pool=pool, generation=generation, **(spec or {"allNodes": True}))


def chosen(host):
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [host]}]}]
    return everywhere(nodeSelector={"nodeSelectorTerms": terms})


def test_a_controller_takes_the_pool_of_a_node_over():
    """Driver and profile are the writer's own, the pool is not: only the pool tells."""
    (problem,) = judge(everywhere(), BOTH, THEIRS, name="fabric")
    assert (problem.rule, problem.severity) == ("pool-taken-over", "error")
    assert problem.path == "spec.pool.generation"
    assert problem.has == "generation 7 in pool n2, which has generation 3: n2-d of node n2"


def test_a_plugin_takes_the_pool_of_a_controller_over_on_its_node():
    (problem,) = judge(
        slice_of(name="x", where="n1", pool="fabric", generation=9), BOTH, everywhere(pool="fabric"), node="n1"
    )
    assert problem.has == "generation 9 in pool fabric, which has generation 7: all of several nodes"


def test_one_slice_too_many_stops_a_pool_too():
    (problem,) = judge(everywhere(generation=3), BOTH, THEIRS, name="fabric")
    assert problem.has.startswith("one more slice of generation 3 in pool n2")


def test_a_lower_generation_stops_nothing():
    assert judge(everywhere(generation=2), BOTH, THEIRS, name="fabric") == []


def test_slices_that_no_node_has_both_of_stop_nothing():
    """As the schedulers of 1.36 and 1.37 have it: tests/e2e/test_writer_traps.py asks them."""
    assert judge(slice_of(gpu("g1"), name="x", where="n1", pool="n2", generation=7), LOCAL, THEIRS, node="n1") == []
    assert judge(chosen("n1"), BOTH, THEIRS, name="fabric") == []
    assert judge(chosen("n2"), BOTH, THEIRS, name="fabric")
    each = everywhere(perDeviceNodeSelection=True)
    for host, stops in (("n1", False), ("n2", True)):
        each["spec"]["devices"] = [gpu("g9", nodeName=host)]
        assert bool(judge(each, BOTH, THEIRS, name="fabric")) is stops


def test_one_that_may_publish_for_any_node_keeps_its_pools_apart():
    """All the driver's slices are its own, and a pool stops all the same: only pools of one node are published anew."""
    named = rollout(writers=writers("AnyNode"))
    assert judge(slice_of(gpu("g0"), name="x", where="n2", generation=4), named, THEIRS) == []
    assert judge(everywhere("s2", generation=8), named, everywhere("s1")) == []
    assert judge(slice_of(gpu("g1"), name="x", where="n1", pool="n2", generation=7), named, THEIRS) == []
    (stopped,) = judge(everywhere(), named, THEIRS)
    (doubled,) = judge(slice_of(gpu("g0"), name="x", where="n1", pool="n2"), named, THEIRS)
    assert (stopped.path, doubled.path) == ("spec.pool.generation", "spec.pool.name")


def test_a_device_of_another_node_is_taken_there_too():
    (problem,) = judge(slice_of(gpu("g0"), name="x", where="n1", pool="n2"), LOCAL, THEIRS, node="n1")
    assert (problem.rule, problem.severity, problem.path) == ("pool-taken-over", "error", "spec.pool.name")
    assert problem.has == "device g0 of pool n2, which n2-d of node n2 has"
    mine = slice_of(gpu("g1"), name="x", where="n1", pool="n2")
    (problem,) = judge(slice_of(gpu("g1"), gpu("g0"), name="x", where="n1", pool="n2"), LOCAL, THEIRS, mine, node="n1")
    assert problem.has.startswith("device g0 of")
    both = slice_of(gpu("g0"), name="x", where="n1", pool="n2")
    assert judge(both, LOCAL, THEIRS, both, node="n1") == [], "it is so already"


def test_a_pool_of_ones_own_is_published_anew():
    mine = [slice_of(name=f"n1-{n}", where="n1", generation=3, count=2) for n in range(2)]
    assert judge(slice_of(name="n1-2", where="n1", generation=4), LOCAL, *mine, node="n1") == []
    assert judge(slice_of(gpu("g0"), name="n1-2", where="n1", generation=4), LOCAL, THEIRS, node="n1") == []


def test_an_update_is_judged_where_it_raises_the_generation():
    stored = everywhere(generation=7)
    assert judge(everywhere(generation=7, allNodes=True, sharedCounters=[]), BOTH, THEIRS, stored, name="fabric") == []
    (problem,) = judge(everywhere(generation=8), BOTH, THEIRS, stored, name="fabric")
    assert "n2-d of node n2" in problem.has


def test_a_fabric_controller_has_the_pools_without_a_node():
    switch = everywhere("switch", pool="fabric", generation=1)
    assert judge(everywhere("s2", pool="fabric", generation=2), BOTH, switch, name="fabric") == []


@pytest.mark.parametrize(
    "who",
    [
        lambda snapshot: account(snapshot, name="other", node="n2"),
        lambda snapshot: kubelet(snapshot, "n2"),
        lambda snapshot: user(snapshot, "system:kube-scheduler"),
        lambda snapshot: user(snapshot, "jane"),
    ],
)
def test_strangers_take_pools_over_wherever_they_are(who):
    (problem,) = judge(slice_of(name="x", where="n2", generation=4), LOCAL, THEIRS, who=who)
    assert problem.severity == "error"


def test_where_no_writer_is_named_another_node_is_doubtful():
    """Whose the slices are is not known: one that stops those of a node is told, and never refused."""
    (problem,) = judge(everywhere(), THEIRS, node="n1")
    assert (problem.rule, problem.severity) == ("pool-taken-over", "warning")
    assert judge(everywhere(generation=3), THEIRS, node="n1") == []
    assert judge(slice_of(gpu("g0"), name="x", where="n1", pool="n2", generation=4), THEIRS, node="n1") == []
    assert judge(slice_of(name="x", where="n2", pool="n2", generation=4), THEIRS, node="n1") == []
    assert judge(everywhere(), rollout(), THEIRS, node="n1")


def test_a_slice_that_is_being_deleted_is_nobodys_any_more():
    going = slice_of(gpu("g0"), name="n2-d", where="n2", metadata={"deletionTimestamp": "2026-11-20T09:00:00Z"})
    assert judge(everywhere(), BOTH, going, name="fabric") == []
    assert judge(slice_of(gpu("g0"), name="x", where="n1", pool="n2"), LOCAL, going, node="n1") == []


def test_another_driver_has_another_pool():
    new = slice_of(gpu("g0"), name="x", where="n2", pool="n2", generation=7, driver="other.example")
    assert judge(new, LOCAL, THEIRS, rollout("other.example", writers=writers("NodeLocal")), node="n1") == []


def test_many_slices_are_counted():
    theirs = [slice_of(name=f"n2-{n}", where="n2", generation=1, count=5) for n in range(5)]
    (problem,) = judge(everywhere(), BOTH, *theirs, name="fabric")
    assert problem.has.endswith("n2-0 of node n2, n2-1 of node n2, n2-2 of node n2 and 2 more")


def test_who_is_exempt_is_left_alone():
    snapshot = world(LOCAL, THEIRS)
    new = read_slice(slice_of(gpu("g0"), name="n1-d", where="n1", pool="n2"))
    for writer in everyone_exempt(snapshot):
        assert takeover_problems(writer, new, snapshot) == []
