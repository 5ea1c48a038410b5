"""Who may write which slice: what messages say, and how old and new go together. The matrix in tests/cases/writers has
every cell.
"""

import pytest

from tests.facts.builders import DRIVER, rollout, slice_of, world
from tests.facts.writing import account, everyone_exempt, kubelet, user, writers
from webhook.facts.slice_writers import slice_writer_problems
from webhook.kube.resource import read_slice

NAMED = rollout(writers=writers("NodeLocal"))
HERE, THERE = slice_of(), slice_of(where="n2", name="s2")
ALL = slice_of(where="", name="s3", pool="all", allNodes=True)


def judge(new, old=None, who=account, operation="CREATE", cluster=(NAMED,), **given):
    snapshot = world(*cluster)
    writer = who(snapshot, **(given or {"node": "n1"}))
    read = [read_slice(each) if each is not None else None for each in (old, new)]
    return slice_writer_problems(writer, *read, operation == "DELETE", snapshot)


def rules(*args, **given):
    return [(found.rule, found.severity) for found in judge(*args, **given)]


def test_its_own_node():
    assert judge(HERE) == judge(HERE, HERE, operation="UPDATE") == judge(None, HERE, operation="DELETE") == []


@pytest.mark.parametrize(
    ("new", "old", "text"),
    [
        (
            THERE,
            None,
            "p/slice-of-other-node: spec.nodeName: has node n2, by system:serviceaccount:drivers:plugin on node n1, "
            "needs n1, the writer's own node",
        ),
        (
            HERE,
            THERE,
            "p/slice-of-other-node: spec.nodeName: has node n2 (as stored), by system:serviceaccount:drivers:plugin "
            "on node n1, needs n1, the writer's own node",
        ),
        (
            ALL,
            None,
            "p/slice-of-several-nodes: spec: has allNodes, by system:serviceaccount:drivers:plugin, which writes for "
            "its own node only, needs spec.nodeName, its own node; leave it to a writer of d.example with profile "
            "MultiNode",
        ),
    ],
)
def test_what_is_said_of_another_node(new, old, text):
    assert [found.text("p") for found in judge(new, old, operation="UPDATE" if old else "CREATE")] == [text]


def test_both_the_old_and_the_new_slice_are_judged():
    assert rules(THERE, HERE, operation="UPDATE") == [("slice-of-other-node", "error")]
    assert rules(ALL, THERE, operation="UPDATE") == [
        ("slice-of-several-nodes", "error"),
        ("slice-of-other-node", "error"),
    ]
    # One thing is told once.
    assert rules(slice_of(where="n3"), THERE, operation="UPDATE") == [("slice-of-other-node", "error")]


def test_a_token_without_a_node_is_never_said_to_be_of_another_one():
    assert rules(HERE, pod="plugin-x") == [("slice-writer-without-node", "error")]
    (found,) = judge(THERE, pod="plugin-x")
    assert found.text("p") == (
        "p/slice-writer-without-node: spec.nodeName: has node n2, by system:serviceaccount:drivers:plugin, whose token "
        "was made before its pod was on a node, and never names one, needs a writer whose node is known; write with "
        "the token of a pod that is on its node, or with one bound to the node"
    )


def test_a_kubelet_keeps_to_its_node():
    assert rules(HERE, who=kubelet, node="n1") == []
    assert rules(None, HERE, who=kubelet, operation="DELETE", node="n1") == []
    assert rules(None, THERE, who=kubelet, operation="DELETE", node="n1") == [("slice-of-other-node", "error")]
    assert rules(ALL, who=kubelet, node="n1") == [("slice-of-several-nodes", "error")]
    (found,) = judge(HERE, who=kubelet, node="N_1")
    assert found.message == (
        "has node n1, by system:node:N_1, whose name ends in 'N_1', which is no node's name, "
        "needs a writer whose node is known"
    )


def test_profiles():
    fabric = (rollout(writers=writers("MultiNode")),)
    assert rules(ALL, cluster=fabric) == []
    assert rules(HERE, cluster=fabric) == [("slice-not-its-profile", "error")]
    assert judge(HERE, cluster=fabric)[0].fix == (
        "leave it to the driver's account on that node, or give it profile AnyNode if it publishes for each node"
    )
    queue = (rollout(writers=writers("Allocator")),)
    assert rules(HERE, cluster=queue) == rules(ALL, cluster=queue) == [("slice-not-its-profile", "error")]
    # What is no profile is the narrowest.
    assert rules(THERE, cluster=(rollout(writers=writers("Everything")),)) == [("slice-of-other-node", "error")]


def test_a_controller_publishes_for_any_node_and_for_its_driver_alone():
    other = rollout("e.example", writers=[{"namespace": "drivers", "serviceAccount": "nic"}])
    publisher = (rollout(writers=writers("AnyNode")), other)
    for each in (HERE, THERE, ALL):
        assert rules(each, cluster=publisher) == rules(each, cluster=publisher, pod="early") == []
        assert rules(each, each, cluster=publisher, operation="UPDATE") == []
        assert rules(None, each, cluster=publisher, operation="DELETE") == []
    assert rules(slice_of(driver="e.example"), cluster=publisher) == [("slice-of-other-driver", "error")]


def test_another_driver_s_account_and_strangers():
    others = (NAMED, rollout("other.example", writers=[{"namespace": "drivers", "serviceAccount": "nic"}]))
    (found,) = judge(HERE, cluster=others, name="nic", node="n1")
    assert found.text("p") == (
        "p/slice-of-other-driver: spec.driver: has driver d.example, by system:serviceaccount:drivers:nic, which "
        "writes for other.example, needs one of its writers: drivers/plugin (NodeLocal)"
    )
    for stranger in ("jane", "system:kube-scheduler", "system:serviceaccount:kube-system:resource-claim-controller"):
        assert rules(HERE, who=user, name=stranger) == [("slice-by-stranger", "error")]
    many = [{"namespace": "drivers", "serviceAccount": f"a{number}"} for number in range(5)]
    (found,) = judge(HERE, who=user, cluster=(rollout(writers=many),), name="jane")
    assert "drivers/a2 (NodeLocal), and 2 more" in found.message


def test_collectors_delete_everything_and_write_nothing():
    for name in (
        "system:serviceaccount:kube-system:generic-garbage-collector",
        "system:serviceaccount:kube-system:namespace-controller",
        "system:kube-controller-manager",
    ):
        assert rules(None, THERE, who=user, operation="DELETE", name=name) == []
        assert rules(ALL, ALL, who=user, operation="UPDATE", name=name) == [("slice-by-stranger", "error")]


def test_nobody_is_kept_from_what_nobody_named_writers_for():
    held = (rollout(hold={"reason": "x"}),)
    for cluster in ((), held):
        assert rules(THERE, who=user, cluster=cluster, name="jane") == []
        assert rules(ALL, cluster=cluster) == []
        assert rules(THERE, cluster=cluster) == [("slice-of-other-node", "warning")]
        assert rules(THERE, who=kubelet, cluster=cluster, node="n1") == [("slice-of-other-node", "warning")]
    assert judge(THERE, cluster=())[0].fix == f"name the writers of {DRIVER} in its DriverRollout"


def test_nothing_about_those_who_are_exempt():
    snapshot = world(NAMED)
    for writer in everyone_exempt(snapshot):
        assert slice_writer_problems(writer, read_slice(THERE), read_slice(ALL), False, snapshot) == []


def test_who_is_no_account_is_told_how_to_get_through():
    [problem] = judge(HERE, who=user, name="kubernetes-admin")
    assert problem.fix == (
        "name the user or one of its groups in params.breakGlass if it keeps the cluster, or write as a member of "
        "system:masters"
    )
    [problem] = judge(HERE, name="stranger")
    assert problem.fix.startswith("add the account to spec.writers")
