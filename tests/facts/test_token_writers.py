"""Who asks for a driver's token, and what it is bound to."""

import pytest

from tests.facts.builders import node, pod, rollout, world
from tests.facts.writing import ACCOUNT, CREDENTIAL, account, everyone_exempt, kubelet, user, writers
from webhook.facts.token_writers import impersonation_hints, token_writer_problems
from webhook.kube.rollout import Writer as Account

LOCAL = rollout(writers=writers("NodeLocal"))
PLUGIN = pod("plugin-n1", claims={}, where="n1", metadata={"namespace": "drivers"})
WAITING = pod("plugin-n2", claims={}, metadata={"namespace": "drivers"})


def judge(bound=None, *objs, who=kubelet, of=ACCOUNT, **given):
    snapshot = world(node(), *(objs or (LOCAL, PLUGIN, WAITING)))
    given = given or ({"node": "n1"} if who is kubelet else {})
    spec = {} if bound is None else {"boundObjectRef": bound}
    return token_writer_problems(who(snapshot, **given), of, {"spec": spec}, snapshot)


def ref(kind, name, **fields):
    return {"apiVersion": "v1", "kind": kind, "name": name, **fields}


def admin(snapshot):
    return user(snapshot, "root", "system:masters")


def rules(problems):
    return [(problem.rule, problem.severity) for problem in problems]


def test_a_kubelet_asks_for_the_pod_it_runs():
    assert judge(ref("Pod", "plugin-n1", uid="uid-plugin-n1")) == []


def test_a_kubelet_asks_for_a_pod_of_another_node():
    (problem,) = judge(ref("Pod", "plugin-n1"), node="n2")
    assert (problem.rule, problem.severity) == ("token-of-other-node", "error")
    assert problem.path == "spec.boundObjectRef"
    assert problem.has == "a token bound to pod plugin-n1 on node n1, asked for by system:node:n2"


@pytest.mark.parametrize(
    ("bound", "more"),
    [
        (ref("Node", "n1"), []),
        (ref("Node", "n2"), [("token-of-other-node", "error")]),
        (ref("Secret", "s1"), [("token-without-node", "warning")]),
        (None, [("token-without-node", "warning")]),
    ],
)
def test_a_kubelet_asks_for_no_pod(bound, more):
    stranger, *others = judge(bound)
    assert rules([stranger]) == [("token-by-stranger", "error")]
    assert stranger.has == "a token of drivers/plugin bound to no pod, asked for by system:node:n1"
    assert rules(others) == more


def test_a_kubelet_knows_of_its_pod_before_the_guard_does():
    assert judge(ref("Pod", "plugin-n2"), node="n2") == []
    assert judge(ref("Pod", "plugin-n3"), node="n3") == []
    assert judge(ref("Pod", "plugin-n1", uid="a-newer-one"), node="n2") == []


@pytest.mark.parametrize(
    ("bound", "what"),
    [
        (None, "bound to nothing"),
        (ref("Secret", "s1"), "bound to secret s1"),
        (ref("Pod", "plugin-n2"), "bound to pod plugin-n2, which is on no node yet"),
    ],
)
def test_a_token_that_will_name_no_node(bound, what):
    (problem,) = judge(bound, who=admin)
    assert (problem.rule, problem.severity) == ("token-without-node", "warning")
    assert problem.has == f"a token {what}"
    assert problem.fix.endswith("what drivers/plugin writes with it will be refused")


def test_an_administrator_asks_for_whatever_node():
    assert judge(ref("Pod", "plugin-n1"), who=admin) == []
    assert judge(ref("Node", "n2"), who=admin) == []


@pytest.mark.parametrize(
    ("who", "given"),
    [
        (account, {"node": "n1"}),
        (account, {"name": "other"}),
        (account, {"namespace": "kube-system", "name": "generic-garbage-collector"}),
        (user, {"name": "jane"}),
        (user, {"name": "system:kube-scheduler"}),
        # A kubelet by name alone is none.
        (user, {"name": "system:node:n1"}),
    ],
)
def test_a_stranger_asks(who, given):
    (problem,) = judge(ref("Pod", "plugin-n1"), who=who, **given)
    assert (problem.rule, problem.severity) == ("token-by-stranger", "error")
    assert problem.has.startswith("a token of drivers/plugin, asked for by system:") or "jane" in problem.has
    assert rules(judge(None, who=who, **given)) == [("token-by-stranger", "error"), ("token-without-node", "warning")]


def test_the_controller_manager_asks():
    assert judge(ref("Node", "n1"), who=user, name="system:kube-controller-manager") == []


def test_other_accounts_are_nobodys_business():
    assert judge(None, who=user, of=("drivers", "other"), name="jane") == []
    assert judge(None, rollout(), PLUGIN, who=user, name="jane") == []


def test_an_account_that_is_not_kept_to_a_node_needs_none():
    for profile in ("MultiNode", "Allocator"):
        assert judge(None, rollout(writers=writers(profile)), who=admin) == []


def test_writers_of_the_params_count_too():
    given = {"drivers": {"d.example": (Account(*ACCOUNT, "NodeLocal"),)}, "name": "jane"}
    assert rules(judge(None, PLUGIN, who=user, **given)) == [
        ("token-by-stranger", "error"),
        ("token-without-node", "warning"),
    ]


def test_who_is_exempt_asks():
    snapshot = world(LOCAL, PLUGIN)
    for writer in everyone_exempt(snapshot):
        assert not token_writer_problems(writer, ACCOUNT, {"spec": {"boundObjectRef": ref("Node", "n1")}}, snapshot)


def test_a_writer_without_a_credential_may_be_impersonated():
    snapshot = world(LOCAL)
    local = account(snapshot, node="n1")
    (hint,) = impersonation_hints(local, "", ())
    assert (hint.rule, hint.severity) == ("writer-may-be-impersonated", "info")
    assert impersonation_hints(local, "an-uid", ()) == []
    assert impersonation_hints(local, "", (CREDENTIAL,)) == []
    assert impersonation_hints(account(snapshot), "", ()) == []
    assert impersonation_hints(account(snapshot, name="other", node="n1"), "", ()) == []
