"""Who may change what in a claim's status: what messages say. The matrix in tests/cases/writers has every cell."""

from copy import deepcopy

import pytest

from tests.facts.builders import claim, device_class, pod_ref, result, rollout, world
from tests.facts.writing import account, everyone_exempt, kubelet, user, writers
from webhook.facts.claim_writers import claim_writer_problems

NAMED = rollout(writers=writers("NodeLocal"))
FREE = claim()
HERE = claim(results=[result()])
ANYWHERE = claim(results=[result()], where="")
TOLD = deepcopy(HERE)
TOLD["status"]["devices"] = [{"driver": "d.example", "pool": "n1", "device": "grp", "shareID": "share-grp"}]
SCHEDULER = "system:kube-scheduler"
CLAIMS = "system:serviceaccount:kube-system:resource-claim-controller"


def tells(stored):
    new = deepcopy(stored)
    new.setdefault("status", {})["devices"] = TOLD["status"]["devices"]
    return new


def judge(old, new, who=account, cluster=(NAMED,), **given):
    snapshot = world(*cluster)
    return claim_writer_problems(who(snapshot, **(given or {"node": "n1"})), old, new, snapshot)


def texts(*args, **given):
    return [found.text("p") for found in judge(*args, **given)]


def rules(*args, **given):
    return [found.rule for found in judge(*args, **given)]


def test_a_node_s_plugin():
    plugin = "a status of d.example, by system:serviceaccount:drivers:plugin"
    assert judge(HERE, TOLD) == judge(TOLD, HERE) == []
    assert texts(HERE, TOLD, node="n2") == [
        f"p/status-devices-other-node: status.devices: has {plugin} on node n2, of an allocation to node n1, "
        "needs the driver's writer on node n1"
    ]
    assert texts(ANYWHERE, tells(ANYWHERE)) == [
        f"p/status-devices-several-nodes: status.devices: has {plugin}, of an allocation that names no single node, "
        "needs an allocation to the writer's own node; leave it to a writer of d.example with profile MultiNode"
    ]
    assert texts(HERE, TOLD, pod="plugin-x") == [
        f"p/status-devices-without-node: status.devices: has {plugin}, whose token was made before its pod was on a "
        "node, and never names one, needs a writer on node n1; write with the token of a pod that is on its node, or "
        "with one bound to the node"
    ]
    assert texts(FREE, tells(FREE)) == [
        f"p/status-devices-unallocated: status.devices: has {plugin}, of a claim without allocation, "
        "needs an allocation: there is no device to tell about"
    ]


@pytest.mark.parametrize("profile", ["MultiNode", "AnyNode"])
def test_a_controller_of_several_nodes(profile):
    fabric = (rollout(writers=writers(profile)),)
    assert rules(HERE, TOLD, cluster=fabric, node="n2") == rules(ANYWHERE, tells(ANYWHERE), cluster=fabric) == []
    assert rules(FREE, tells(FREE), cluster=fabric) == ["status-devices-unallocated"]
    assert rules(FREE, HERE, cluster=fabric) == ["allocation-by-stranger"]


def test_others_tell_nothing():
    others = (NAMED, rollout("other.example", writers=[{"namespace": "drivers", "serviceAccount": "nic"}]))
    assert texts(HERE, TOLD, cluster=others, name="nic", node="n1") == [
        "p/status-devices-other-driver: status.devices: has a status of d.example, by "
        "system:serviceaccount:drivers:nic, which writes for other.example, "
        "needs one of the driver's writers: drivers/plugin (NodeLocal)"
    ]
    for name in ("jane", SCHEDULER, CLAIMS, "system:serviceaccount:kube-system:generic-garbage-collector"):
        assert rules(HERE, TOLD, who=user, name=name) == ["status-devices-by-stranger"]
    assert rules(HERE, TOLD, who=kubelet, node="n1") == ["status-devices-by-stranger"]
    queue = (rollout(writers=writers("Allocator")),)
    (found,) = judge(HERE, TOLD, cluster=queue)
    assert (found.rule, "profile Allocator" in found.has) == ("status-devices-by-stranger", True)


def test_allocation_and_consumers():
    reserved = claim(results=[result()], reserved=[pod_ref()])
    assert texts(FREE, reserved, who=user, name="jane") == [
        "p/allocation-by-stranger: status.allocation: has an allocation set, of devices of d.example, by jane, needs a "
        "scheduler, or an account with profile Allocator for d.example; name it in params.schedulers or "
        "params.allocators, or in spec.writers of DriverRollout d.example",
        "p/reserved-for-by-stranger: status.reservedFor: has other consumers of devices of d.example, by jane, needs a "
        "scheduler, or an account with profile Allocator for d.example; name it in params.schedulers or "
        "params.allocators, or in spec.writers of DriverRollout d.example",
    ]
    assert rules(TOLD, FREE) == ["allocation-by-stranger"]
    assert rules(FREE, TOLD, who=user, name="jane") == ["status-devices-by-stranger", "allocation-by-stranger"]
    for old, new in ((FREE, reserved), (reserved, FREE), (HERE, reserved), (TOLD, FREE)):
        assert judge(old, new, who=user, name=SCHEDULER) == []
        assert judge(old, new, cluster=(rollout(writers=writers("Allocator")),)) == []
        assert judge(old, new, who=user, name="batch", allocators=frozenset({"batch"})) == []


def test_the_claim_controller_takes_away_and_gives_nothing():
    reserved = claim(results=[result()], reserved=[pod_ref()])
    for name in (CLAIMS, "system:kube-controller-manager"):
        assert judge(reserved, HERE, who=user, name=name) == judge(TOLD, FREE, who=user, name=name) == []
        assert rules(FREE, reserved, who=user, name=name) == ["allocation-by-stranger"]


def test_an_allocator_of_one_driver_leaves_another_s_alone():
    both = claim(results=[result(), result("nic", None, driver="other.example")])
    mine = rollout(writers=writers("Allocator"))
    assert judge(both, FREE, cluster=(mine,)) == []
    theirs = rollout("other.example", writers=[{"namespace": "x", "serviceAccount": "y", "profile": "Allocator"}])
    (found,) = judge(both, FREE, cluster=(mine, theirs))
    assert found.has == "an allocation cleared, of devices of other.example, by system:serviceaccount:drivers:plugin"


OPEN = pytest.mark.parametrize("cluster", [(), (rollout(hold={"reason": "x"}),)])


@OPEN
def test_nobody_is_kept_from_what_nobody_named_writers_for(cluster):
    for old, new in ((FREE, HERE), (HERE, TOLD), (TOLD, FREE), (FREE, tells(FREE))):
        for who in ({"who": user, "name": "jane"}, {"node": "n2"}, {"who": kubelet, "node": "n2"}):
            assert {found.severity for found in judge(old, new, cluster=cluster, **who)} <= {"warning"}


@OPEN
def test_of_a_driver_that_names_nobody_another_node_s_status_is_warned_of(cluster):
    assert texts(HERE, TOLD, cluster=cluster, node="n2") == [
        "p/status-devices-other-node: status.devices: has a status of d.example, by "
        "system:serviceaccount:drivers:plugin on node n2, of an allocation to node n1, needs a writer on node n1; name "
        "the writers of d.example in its DriverRollout"
    ]
    assert rules(TOLD, HERE, cluster=cluster, node="n2") == ["status-devices-other-node"]
    # Of its own node, of no single one, of none, and by whoever is on none.
    for old, new in ((HERE, TOLD), (ANYWHERE, tells(ANYWHERE)), (FREE, tells(FREE))):
        assert judge(old, new, cluster=cluster, node="n1") == []
    assert judge(HERE, TOLD, cluster=cluster, pod="plugin-x") == []
    assert judge(HERE, TOLD, cluster=cluster, who=user, name="jane") == []


@OPEN
def test_of_a_driver_that_names_nobody_an_allocation_by_a_stranger_is_warned_of(cluster):
    reserved = claim(results=[result()], reserved=[pod_ref()])
    fix = "name it in params.schedulers or params.allocators where it is one"
    jane = f"jane, needs a scheduler or another allocator; {fix}"
    assert texts(FREE, reserved, cluster=cluster, who=user, name="jane") == [
        f"p/allocation-by-stranger: status.allocation: has an allocation set, of devices of d.example, by {jane}",
        f"p/reserved-for-by-stranger: status.reservedFor: has other consumers of devices of d.example, by {jane}",
    ]
    assert rules(TOLD, FREE, cluster=cluster) == ["allocation-by-stranger"]
    for old, new in ((FREE, reserved), (reserved, FREE), (HERE, reserved), (TOLD, FREE)):
        assert judge(old, new, cluster=cluster, who=user, name=SCHEDULER) == []
        assert judge(old, new, cluster=cluster, who=user, name="batch", allocators=frozenset({"batch"})) == []
        # Who allocates another driver's devices does so for these, too.
        theirs = rollout("other.example", writers=writers("Allocator"))
        assert judge(old, new, cluster=(*cluster, theirs)) == []
    assert judge(reserved, FREE, cluster=cluster, who=user, name=CLAIMS) == []


def test_what_is_refused_for_one_driver_is_not_warned_of_for_another():
    both = claim(results=[result(), result("nic", None, driver="other.example")])
    (found,) = judge(both, FREE, who=user, name="jane")
    assert (found.severity, found.has) == ("error", "an allocation cleared, of devices of d.example, by jane")


def test_nothing_about_those_who_are_exempt():
    snapshot = world(NAMED)
    for writer in everyone_exempt(snapshot):
        assert claim_writer_problems(writer, FREE, TOLD, snapshot) == []


def test_an_allocation_of_nothing_is_one_of_the_devices_that_the_claim_asks_for():
    [problem] = judge(FREE, claim(results=[]), cluster=(NAMED, device_class()))
    assert problem.rule == "allocation-by-stranger"
    assert problem.has == "an allocation set, of devices of d.example, by system:serviceaccount:drivers:plugin"
    [other] = judge(FREE, claim(results=[]), cluster=(NAMED, device_class(driver="other.example")))
    assert (other.severity, "devices of other.example" in other.has) == ("warning", True)
    assert rules(FREE, claim(results=[]), who=user, name=SCHEDULER, cluster=(NAMED, device_class())) == []
