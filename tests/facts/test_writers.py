"""Who writes: kinds, nodes and profiles of users, and what params may say about them."""

import pytest

from tests.facts.builders import rollout, world
from tests.facts.writing import account, user
from webhook.facts.writers import NODE_EXTRA, POD_EXTRA, WriterParams, account_of, listed, read_params, writer_of
from webhook.kube.rollout import Writer as Account

ROLES = [("plugin", "NodeLocal"), ("fabric", "MultiNode"), ("queue", "Allocator")]
WORLD = world(
    rollout("a.example", writers=[{"namespace": "drivers", "serviceAccount": n, "profile": p} for n, p in ROLES]),
    rollout("b.example", writers=[{"namespace": "drivers", "serviceAccount": "both", "profile": "Allocator"}]),
    rollout("c.example", writers=[{"namespace": "drivers", "serviceAccount": "both"}]),
)


@pytest.mark.parametrize(
    ("name", "groups", "kind"),
    [
        ("root", ["system:masters"], "Administrator"),
        ("system:apiserver", ["system:masters"], "ApiServer"),
        ("system:apiserver", [], "Unknown"),
        ("system:kube-scheduler", [], "Scheduler"),
        ("system:kube-scheduler", ["system:masters"], "Administrator"),
        ("system:serviceaccount:kube-system:resource-claim-controller", [], "ClaimController"),
        ("system:serviceaccount:other:resource-claim-controller", [], "Unknown"),
        ("system:serviceaccount:kube-system:generic-garbage-collector", [], "GarbageCollector"),
        ("system:serviceaccount:kube-system:namespace-controller", [], "NamespaceController"),
        ("system:kube-controller-manager", [], "ControllerManager"),
        ("system:serviceaccount:allocguard-system:allocguard-free-claims", [], "Allocator"),
        ("system:node:n1", ["system:nodes"], "Kubelet"),
        ("system:node:n1", [], "Unknown"),
        ("jane", ["system:nodes"], "Unknown"),
        ("system:serviceaccount:drivers:plugin", [], "Driver"),
        ("system:serviceaccount:drivers:fabric", [], "Driver"),
        ("system:serviceaccount:drivers:queue", [], "Allocator"),
        ("system:serviceaccount:drivers:both", [], "Driver"),
        ("system:serviceaccount:drivers:else", [], "Unknown"),
        ("system:serviceaccount:drivers:plugin:x", [], "Unknown"),
        ("system:serviceaccount:drivers", [], "Unknown"),
        ("System:serviceaccount:drivers:plugin", [], "Unknown"),
        ("", ["system:unauthenticated"], "Unknown"),
        ("", [], "Nobody"),
    ],
)
def test_kinds(name, groups, kind):
    assert user(WORLD, name, *groups).kind == kind


def test_what_params_name_comes_before_what_the_guard_knows():
    oncall = WriterParams(break_glass_users=frozenset({"jane"}), break_glass_groups=frozenset({"sre"}))
    assert writer_of("jane", [], {}, WORLD, oncall).kind == "BreakGlass"
    assert writer_of("joe", ["sre"], {}, WORLD, oncall).evidence == "joe in group sre of params.breakGlass.groups"
    plugin = "system:serviceaccount:drivers:plugin"
    scheduling = writer_of(plugin, [], {}, WORLD, WriterParams(schedulers=frozenset({plugin})))
    assert (scheduling.kind, scheduling.allocates, scheduling.profiles) == (
        "Scheduler",
        True,
        {"a.example": "NodeLocal"},
    )
    assert user(WORLD, "system:kube-scheduler", schedulers=frozenset({plugin})).kind == "Unknown"
    queue = writer_of(plugin, [], {}, WORLD, WriterParams(allocators=frozenset({plugin})))
    assert (queue.kind, queue.allocates) == ("Driver", True)


def test_profiles_of_rollouts_and_of_params():
    drivers = {
        "a.example": (Account("drivers", "plugin", "MultiNode"), Account("drivers", "more", "MultiNode")),
        "z.example": (Account("drivers", "plugin", "MultiNode"), Account("drivers", "plugin", "NodeLocal")),
    }
    plugin = account(WORLD, "n1", drivers=drivers)
    assert plugin.profiles == {"a.example": "NodeLocal", "z.example": "MultiNode"}
    assert plugin.evidence == (
        "system:serviceaccount:drivers:plugin, NodeLocal for a.example, MultiNode for z.example, "
        "on node n1 by its token"
    )
    assert [each.service_account for each in plugin.named("a.example", WORLD)] == [
        *("plugin", "fabric", "queue"),
        *("plugin", "more"),
    ]
    assert plugin.named("nobodys.example", WORLD) == ()


@pytest.mark.parametrize(
    ("extra", "node", "problem"),
    [
        ({NODE_EXTRA: ("n1",)}, "n1", ""),
        ({NODE_EXTRA: ("n1",), POD_EXTRA: ("p",)}, "n1", ""),
        ({}, "", "names no node: it is bound to neither a pod nor a node"),
        ({NODE_EXTRA: ()}, "", "names no node: it is bound to neither a pod nor a node"),
        ({POD_EXTRA: ("p",)}, "", "was made before its pod was on a node, and never names one"),
        ({NODE_EXTRA: ("n2", "n1")}, "", "names several nodes: n1, n2"),
        ({NODE_EXTRA: ("N_1",)}, "", "names 'N_1', which is no node's name"),
        ({NODE_EXTRA: ("",)}, "", "names '', which is no node's name"),
    ],
)
def test_the_node_of_a_token(extra, node, problem):
    writer = writer_of("system:serviceaccount:drivers:plugin", [], extra, WORLD, WriterParams())
    assert (writer.node, writer.node_problem) == (node, problem)


def test_the_node_of_others():
    assert user(WORLD, "system:node:n1", "system:nodes").node == "n1"
    odd = user(WORLD, "system:node:N_1", "system:nodes")
    assert (odd.kind, odd.node, odd.without_node) == (
        "Kubelet",
        "",
        "whose name ends in 'N_1', which is no node's name",
    )
    # Nobody but an account has a node because a token says so.
    human = writer_of("jane", [], {NODE_EXTRA: ("n1",)}, WORLD, WriterParams())
    assert (human.node, human.node_problem) == ("", "")


def test_accounts_by_their_user_names():
    assert account_of("system:serviceaccount:a:b") == ("a", "b")
    for name in ("system:serviceaccount:a", "system:serviceaccount:a:", "system:serviceaccount::b", "x:a:b", ""):
        assert account_of(name) is None
    assert account_of("system:serviceaccount:a:b:c") is None


def test_params_are_read():
    params, problems = read_params(
        {
            "schedulers": ["s"],
            "breakGlass": {"users": ["u"], "groups": ["g"]},
            "drivers": {"a.example": [{"namespace": "n", "serviceAccount": "p"}]},
            "headroom": {"cpu": 1},
        }
    )
    assert problems == []
    assert params == WriterParams(
        schedulers=frozenset({"s"}),
        break_glass_users=frozenset({"u"}),
        break_glass_groups=frozenset({"g"}),
        drivers={"a.example": (Account("n", "p", "NodeLocal"),)},
    )
    assert params.accounts == {("n", "p"): {"a.example": "NodeLocal"}}
    assert read_params({}) == (WriterParams(), [])
    # None at all is not the same as none given.
    assert read_params({"schedulers": []})[0].schedulers == frozenset()


@pytest.mark.parametrize(
    ("raw", "path", "message"),
    [
        ({"schedulers": "s"}, "schedulers", "has no list, needs a list of names"),
        ({"allocators": ["a", 3]}, "allocators[1]", "has 3, needs a name"),
        ({"allocators": [""]}, "allocators[0]", "has '', needs a name"),
        ({"scheduler": ["s"]}, "scheduler", "has the unknown field scheduler, needs schedulers, allocators"),
        ({"breakGlass": ["u"]}, "breakGlass", "has no map, needs users and groups"),
        ({"breakGlass": {"user": ["u"]}}, "breakGlass.user", "has the unknown field user, needs users, groups"),
        ({"breakGlass": {"groups": "g"}}, "breakGlass.groups", "has no list"),
        ({"drivers": []}, "drivers", "has no map"),
        ({"drivers": {"A B": []}}, "drivers[A B]", "has the name A B, needs a DNS subdomain"),
        ({"drivers": {"a.example": {}}}, "drivers[a.example]", "has no list"),
        ({"drivers": {"a.example": ["x"]}}, "drivers[a.example][0]", "has no map"),
        ({"drivers": {"a.example": [{"namespace": "n"}]}}, "drivers[a.example][0].serviceAccount", "no serviceAccount"),
        (
            {"drivers": {"a.example": [{"namespace": "n", "serviceAccount": "p", "profile": "Multi"}]}},
            "drivers[a.example][0].profile",
            "has 'Multi', needs one of NodeLocal, MultiNode, AnyNode, Allocator",
        ),
        (
            {"drivers": {"a.example": [{"namespace": "n", "serviceaccount": "p"}]}},
            "drivers[a.example][0].serviceaccount",
            "has the unknown field serviceaccount",
        ),
    ],
)
def test_params_of_a_wrong_shape_are_told_at_their_place(raw, path, message):
    _, problems = read_params(raw)
    assert [message in problem.message for problem in problems if problem.path == path] == [True]


def test_whom_messages_send_to():
    """Never to an allocator, which would be refused as well."""
    queue, *others = [
        Account("drivers", "queue", "Allocator"),
        *(Account("drivers", f"a{n}", "MultiNode") for n in "01234"),
    ]
    assert listed((queue, *others[:2])) == "drivers/a0 (MultiNode), drivers/a1 (MultiNode)"
    assert listed(others) == "drivers/a0 (MultiNode), drivers/a1 (MultiNode), drivers/a2 (MultiNode), and 2 more"
    assert listed((queue,)) == "nobody yet, all that are named are allocators"
