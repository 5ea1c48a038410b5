"""A slice that takes the pool of somebody else over."""

import pytest

from tests.facts.builders import DRIVER, gpu, rollout, slice_of, world
from tests.facts.writing import account, everyone_exempt, kubelet, user, writers
from webhook.facts.pool_takeover import takeover_problems
from webhook.kube.resource import read_slice

LOCAL = rollout(writers=writers("NodeLocal"))
THEIRS = slice_of(gpu("g0"), name="n2-d", where="n2", generation=3)


def judge(new, *objs, who=account, **given):
    snapshot = world(*objs)
    return takeover_problems(who(snapshot, **given), read_slice(new), snapshot)


def test_a_higher_generation_of_the_pool_of_another_node():
    """Node and driver are the writer's own, the pool is not: only the pool tells."""
    new = slice_of(name="n1-d", where="n1", pool="n2", generation=7)
    (problem,) = judge(new, LOCAL, THEIRS, node="n1")
    assert (problem.rule, problem.severity) == ("pool-taken-over", "error")
    assert problem.path == "spec.pool.generation"
    assert problem.has == "generation 7 in pool n2, which has generation 3: n2-d of node n2"


def test_one_slice_too_many_stops_a_pool_too():
    (problem,) = judge(slice_of(name="n1-d", where="n1", pool="n2", generation=3), LOCAL, THEIRS, node="n1")
    assert problem.has.startswith("one more slice of generation 3 in pool n2")


def test_a_lower_generation_stops_nothing():
    assert judge(slice_of(name="n1-d", where="n1", pool="n2", generation=2), LOCAL, THEIRS, node="n1") == []


def test_a_pool_of_ones_own_is_published_anew():
    mine = [slice_of(name=f"n1-{n}", where="n1", generation=3, count=2) for n in range(2)]
    assert judge(slice_of(name="n1-2", where="n1", generation=4), LOCAL, *mine, node="n1") == []
    assert judge(slice_of(name="n1-2", where="n1", generation=4), LOCAL, THEIRS, node="n1") == []


def test_an_update_is_judged_where_it_raises_the_generation():
    stored = slice_of(name="n1-d", where="n1", pool="n2", generation=7)
    newer = slice_of(gpu("g0"), name="n1-d", where="n1", pool="n2", generation=7)
    assert judge(newer, LOCAL, THEIRS, stored, node="n1") == []
    higher = slice_of(name="n1-d", where="n1", pool="n2", generation=8)
    (problem,) = judge(higher, LOCAL, THEIRS, stored, node="n1")
    assert "n2-d of node n2" in problem.has


def test_a_fabric_controller_has_the_pools_without_a_node():
    fabric = rollout(writers=writers("MultiNode"))
    switch = slice_of(name="switch", where="", pool="fabric", generation=1, allNodes=True)
    assert judge(slice_of(name="s2", where="", pool="fabric", generation=2, allNodes=True), fabric, switch) == []
    (problem,) = judge(slice_of(name="s2", where="", pool="n2", generation=4, allNodes=True), fabric, THEIRS)
    assert problem.severity == "error"


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
    """Whose the slices are is not known: one that is for another node is told, and never refused."""
    (problem,) = judge(slice_of(name="x", where="n1", pool="n2", generation=4), THEIRS, node="n1")
    assert (problem.rule, problem.severity) == ("pool-taken-over", "warning")
    assert judge(slice_of(name="x", where="n1", pool="n2", generation=3), THEIRS, node="n1") == []
    assert judge(slice_of(name="x", where="n2", pool="n2", generation=4), THEIRS, node="n1") == []
    assert judge(slice_of(name="x", where="n1", pool="n2", generation=4), rollout(), THEIRS, node="n1")


def test_a_slice_that_is_being_deleted_is_nobodys_any_more():
    going = slice_of(name="n2-d", where="n2", generation=3, metadata={"deletionTimestamp": "2026-11-20T09:00:00Z"})
    assert judge(slice_of(name="n1-d", where="n1", pool="n2", generation=7), LOCAL, going, node="n1") == []


def test_another_driver_has_another_pool():
    new = slice_of(name="x", where="n1", pool="n2", generation=7, driver="other.example")
    assert judge(new, LOCAL, THEIRS, rollout("other.example", writers=writers("NodeLocal")), node="n1") == []


def test_many_slices_are_counted():
    theirs = [slice_of(name=f"n2-{n}", where="n2", generation=1, count=5) for n in range(5)]
    (problem,) = judge(slice_of(name="x", where="n1", pool="n2", generation=2), LOCAL, *theirs, node="n1")
    assert problem.has.endswith("n2-0 of node n2, n2-1 of node n2, n2-2 of node n2 and 2 more")


def test_who_is_exempt_is_left_alone():
    snapshot = world(LOCAL, THEIRS)
    new = read_slice(slice_of(name="n1-d", where="n1", pool="n2", generation=7, driver=DRIVER))
    for writer in everyone_exempt(snapshot):
        assert takeover_problems(writer, new, snapshot) == []
