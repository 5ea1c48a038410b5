"""Who says what a pod's claims cost, and who binds it."""

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
    result,
    rollout,
    slice_of,
    world,
)
from tests.facts.writing import account, everyone_exempt, kubelet, user, writers
from webhook.facts.pod_writers import binding_writer_problems, entry_writer_problems

NAMED = rollout(writers=writers("NodeLocal"))
HELD = claim(results=[result()])
FIELD = "nodeAllocatableResourceClaimStatuses"


def judge(old, new, *objs, who=kubelet, **given):
    snapshot = world(node(), slice_of(grp()), *(objs or (NAMED, HELD)))
    given = given or ({"node": "n1"} if who is kubelet else {})
    return entry_writer_problems(who(snapshot, **given), as_pod(bound(old)), as_pod(bound(new)), snapshot)


def bound(status):
    return pod(where="n1", status=status)


def scheduler(snapshot, name="system:kube-scheduler", **params):
    return user(snapshot, name, **params)


def stranger(snapshot):
    return user(snapshot, "jane", "dev")


def test_a_kubelet_changes_what_a_claim_costs():
    (problem,) = judge(entry(cpu="4"), entry(cpu="1"))
    assert (problem.rule, problem.severity, problem.path) == ("claim-statuses-by-kubelet", "error", f"status.{FIELD}")
    assert problem.has == "a change of what claim c1 of pod ns/p1 costs, by system:node:n1"
    (problem,) = judge({}, entry(cpu="1"))
    assert problem.severity == "error"


def test_a_kubelet_drops_all_of_it():
    """What kubelets of 1.36 did by themselves must not keep their pod statuses from being written."""
    (problem,) = judge(entry(cpu="4"), {"phase": "Running"})
    assert (problem.rule, problem.severity) == ("claim-statuses-by-kubelet", "warning")
    assert problem.has.startswith("no word any more of what claim c1")


def test_a_kubelet_drops_a_part_of_it():
    two = {FIELD: [*entry("c1", cpu="4")[FIELD], *entry("c2", cpu="2")[FIELD]]}
    (problem,) = judge(two, entry("c1", cpu="4"))
    assert problem.severity == "error"
    assert "claim c2" in problem.has


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (entry(cpu="4"), entry(cpu="4000m")),
        (entry(cpu="4"), {**entry(cpu="4"), "phase": "Running"}),
        ({}, {FIELD: []}),
        ({FIELD: None}, {FIELD: []}),
        (
            {FIELD: [*entry("c1", cpu="4")[FIELD], *entry("c2", cpu="2")[FIELD]]},
            {FIELD: [*entry("c2", cpu="2")[FIELD], *entry("c1", cpu="4")[FIELD]]},
        ),
    ],
)
def test_what_says_the_same_is_no_change(old, new):
    assert judge(old, new) == []
    assert judge(old, new, who=stranger) == []


def test_the_shape_of_1_37_is_compared_too():
    def shape(quantity, per_pod="0"):
        row = {"resourceClaimName": "c1", "containers": ["main"], "mapping": [{"name": "cpu", "quantity": quantity}]}
        return {FIELD: [{**row, "overhead": [{"name": "memory", "perPod": per_pod}]}]}

    assert judge(shape("4"), shape("4000m")) == []
    assert judge(shape("4"), shape("3"))
    assert judge(shape("4", "1Gi"), shape("4", "1Mi"))


def test_schedulers_write_and_take_away():
    assert judge({}, entry(cpu="4"), who=scheduler) == []
    assert judge(entry(cpu="4"), {}, who=scheduler) == []
    second = {"who": scheduler, "name": "second", "schedulers": frozenset({"second"})}
    assert judge({}, entry(cpu="4"), **second) == []
    (problem,) = judge({}, entry(cpu="4"), who=scheduler, schedulers=frozenset({"second"}))
    assert problem.rule == "claim-statuses-by-stranger"


@pytest.mark.parametrize(
    ("who", "given"),
    [
        (account, {"node": "n1"}),
        (stranger, {}),
        (user, {"name": "system:kube-controller-manager"}),
        (account, {"namespace": "kube-system", "name": "resource-claim-controller"}),
        (user, {"name": "free", "allocators": frozenset({"free"})}),
    ],
)
def test_nobody_else_does(who, given):
    (problem,) = judge(entry(cpu="4"), entry(cpu="1"), who=who, **given)
    assert (problem.rule, problem.severity) == ("claim-statuses-by-stranger", "error")
    assert "params.schedulers" in problem.fix
    (problem,) = judge(entry(cpu="4"), {}, who=who, **given)
    assert problem.severity == "error"


def test_where_no_writer_is_named_a_stranger_may_be_a_second_scheduler():
    for objs in ((HELD,), (rollout(), HELD), (NAMED,)):
        (problem,) = judge({}, entry(cpu="4"), *objs, who=stranger)
        assert (problem.rule, problem.severity) == ("claim-statuses-by-stranger", "warning")
    (problem,) = judge({}, entry(cpu="4"), NAMED, device_class(), claim(), who=stranger)
    assert problem.severity == "error", "a claim that is not allocated names its driver by its class"
    (problem,) = judge(entry(cpu="4"), entry(cpu="1"), HELD)
    assert problem.severity == "error", "a kubelet is no scheduler"


def test_who_is_exempt_writes_entries():
    snapshot = world(NAMED, HELD)
    old, new = as_pod(bound(entry(cpu="4"))), as_pod(bound({}))
    for writer in everyone_exempt(snapshot):
        assert entry_writer_problems(writer, old, new, snapshot) == []
        assert binding_writer_problems(writer, new, snapshot) == []


def binding(*objs, who=stranger, asking=None, **given):
    snapshot = world(node(), *objs)
    return binding_writer_problems(who(snapshot, **given), as_pod(asking or pod()), snapshot)


def test_a_pod_bound_by_somebody_who_is_no_scheduler():
    (problem,) = binding(slice_of(grp()), HELD)
    assert (problem.rule, problem.severity) == ("binding-by-stranger", "warning")
    assert problem.message == "has pod ns/p1, whose claim c1 costs its node something, bound by jane, needs a scheduler"
    assert binding(slice_of(grp()), HELD, who=scheduler) == []
    assert binding(slice_of(grp()), HELD, who=kubelet, node="n1")


def test_a_pod_whose_claims_cost_nothing_may_be_bound_by_anybody():
    free = slice_of(gpu("grp"))
    assert binding(free, HELD) == []
    assert binding(slice_of(grp()), HELD, asking=pod(claims={})) == []
    assert binding(slice_of(grp())) == []


def test_a_claim_without_devices_costs_what_its_driver_maps():
    """It is bound all the same, and nobody will have written down what it costs."""
    assert binding(slice_of(grp()), device_class(), claim())
    assert binding(slice_of(gpu("grp")), device_class(), claim()) == []
    assert binding(slice_of(grp()), device_class(driver="other.example"), claim()) == []
