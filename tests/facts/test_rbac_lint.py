"""Whom a role reaches: R15 to R18, bindings, accounts, and what hostile roles cost."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.facts.roles import (
    GPU,
    binding_object,
    binding_of,
    driver,
    judged,
    role_object,
    role_of,
    rollout,
    rule,
    rules_of,
    said,
    status,
    world,
)
from webhook.facts.rbac_lint import MOST_ALIKE, account_problems, binding_problems, role_problems
from webhook.kube.rbac import read_binding, read_role
from webhook.kube.snapshot import Snapshot

SLICES = rule("resourceslices", "get list watch create update patch delete")
GOOD = [SLICES, status("patch"), driver("patch")]
WIDE = [status("patch"), driver("patch", prefix="arbitrary-node")]
EVERYTHING = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
OTHER = {"kind": "ServiceAccount", "name": "other", "namespace": "net"}


def group(name: str) -> dict[str, str]:
    return {"kind": "Group", "name": name}


@pytest.mark.parametrize(
    "whom",
    [
        group("system:authenticated"),
        group("system:unauthenticated"),
        group("system:serviceaccounts"),
        group("system:serviceaccounts:gpu"),
        group("system:nodes"),
        {"kind": "User", "name": "system:anonymous"},
        {"kind": "ServiceAccount", "name": "default", "namespace": "gpu"},
        {"kind": "User", "name": "system:serviceaccount:gpu:default"},
    ],
)
def test_rights_of_one_writer_in_the_hands_of_many(whom) -> None:
    """R15, also where nobody is known to write for drivers."""
    role, binding = role_object(*GOOD), binding_object("b", whom)
    snapshot = world(role)
    [found] = binding_problems(binding_of(binding), snapshot)
    assert (found.rule, found.path, found.severity) == ("rbac-shared-subject", "subjects[0]", "error")
    [found] = role_problems(role_of(role), snapshot.put(binding))
    assert found.rule == "rbac-shared-subject"
    assert "by ClusterRoleBinding b" in found.has
    # Of rights that decide nothing, everybody may have them.
    reading = role_object(rule("resourceslices resourceclaims", "get list watch"))
    assert binding_problems(binding_of(binding), world(reading)) == []
    assert role_problems(role_of(reading), world(binding)) == []


def test_what_everybody_may_have_with_a_driver() -> None:
    """An ordinary role is none of drivers because one of them has it."""
    role, both = role_object(rule("configmaps", "get", group="")), binding_object("b", group("system:authenticated"))
    snapshot = world(rollout(), binding_object(), both)
    assert role_problems(role_of(role), snapshot) == []
    assert binding_problems(binding_of(both), snapshot.put(role)) == []


def test_the_default_account_of_no_namespace() -> None:
    nobody = {"kind": "ServiceAccount", "name": "default"}
    [found] = binding_problems(binding_of(binding_object("b", nobody)), world(role_object(*GOOD)))
    assert found.message.startswith("has the default ServiceAccount of a namespace that is not named, needs")


@pytest.mark.parametrize("whom", [group("gpu-admins"), OTHER, {"kind": "User", "name": "jane"}])
def test_rights_in_the_hands_of_somebody(whom) -> None:
    assert binding_problems(binding_of(binding_object("b", whom)), world(role_object(*GOOD))) == []


def test_two_drivers_that_share_an_account() -> None:
    """R15; a warning where the role says that it is for all of them."""
    snapshot = world(role_object(*GOOD), rollout(GPU), rollout("b.example"))
    found = binding_problems(binding_of(binding_object()), snapshot)
    assert [(each.rule, each.severity) for each in found if each.rule == "rbac-shared-subject"] == [
        ("rbac-shared-subject", "error")
    ]
    named = role_object(*GOOD, annotations=said("NodeLocal", GPU, "b.example"))
    found = account_problems("gpu", "plugin", snapshot.put(named).put(binding_object()))
    assert ("rbac-shared-subject", "warning") in {(each.rule, each.severity) for each in found}


def test_an_allocator_is_there_for_as_many_drivers_as_it_likes() -> None:
    """It is no driver; one that publishes for one of them is that driver alone."""
    allocators = [rollout(GPU, "Allocator"), rollout("b.example", "Allocator")]
    allocating = role_object(status("patch"), rule("resourceclaims/binding", "patch"))
    for snapshot in (world(allocating, *allocators), world(role_object(*GOOD), allocators[0], rollout("b.example"))):
        found = account_problems("gpu", "plugin", snapshot.put(binding_object()))
        assert "rbac-shared-subject" not in {each.rule for each in found}


@pytest.mark.parametrize("tenant", ["admin", "edit", "view"])
def test_rights_that_every_tenant_gets(tenant) -> None:
    """R16."""
    labels = {f"rbac.authorization.k8s.io/aggregate-to-{tenant}": "true"}
    for rules in (GOOD, [rule("resourceclaims/binding", "patch")]):
        [found] = role_problems(role_of(role_object(*rules, labels=labels)), Snapshot())
        assert (found.rule, found.severity) == ("rbac-aggregated", "error")
    reading = role_object(rule("resourceclaims resourceclaims/status", "get list watch"), labels=labels)
    assert role_problems(role_of(reading), Snapshot()) == []
    off = dict.fromkeys(labels, "false")
    assert role_problems(role_of(role_object(*GOOD, labels=off)), Snapshot()) == []


def test_slices_that_nothing_guards() -> None:
    """R17: only where that is known."""
    assert rules_of(judged(*GOOD, guarded=False)) == {"unguarded-slices"}
    assert judged(*GOOD, guarded=True) == judged(*GOOD, guarded=None) == []
    assert judged(status("patch"), driver("patch"), guarded=False) == []
    snapshot = world(rollout(), role_object(*GOOD), binding_object())
    assert rules_of(account_problems("gpu", "plugin", snapshot, guarded=False)) == {"unguarded-slices"}


def test_a_right_to_report_that_is_not_used() -> None:
    """R18: only for a driver whose claims are in use."""
    [found] = judged(*GOOD, reports={GPU: False})
    assert (found.rule, found.severity) == ("rbac-unused-status", "info")
    assert "resourceclaims/status" not in found.fix
    assert judged(*GOOD, reports={GPU: True}) == judged(*GOOD, reports={}) == judged(*GOOD) == []
    assert judged(SLICES, reports={GPU: False}) == []


def test_a_role_is_for_the_account_that_has_it_too() -> None:
    role = role_object(*WIDE)
    assert role_problems(role_of(role), world(rollout())) == []
    assert rules_of(role_problems(role_of(role), world(rollout(), binding_object()))) == {"arbitrary-node"}
    assert role_problems(role_of(role), world(rollout(profile="MultiNode"), binding_object())) == []
    # What its annotations say does not make it right for who has it.
    said_so = role_object(*WIDE, annotations=said("MultiNode", GPU))
    assert rules_of(role_problems(role_of(said_so), world(rollout(), binding_object()))) == {"arbitrary-node"}


def test_a_role_whose_rules_another_one_has_too() -> None:
    label = {"gpu.example/part": "yes"}
    whole = role_object(name="whole") | {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": label}]}}
    part = role_object(*WIDE, name="part", labels=label)
    snapshot = world(rollout(), whole, binding_object(role="whole"))
    assert rules_of(role_problems(role_of(part), snapshot)) == {"arbitrary-node"}
    [found] = role_problems(role_of(whole), snapshot.put(part))
    assert found.path == "aggregationRule (ClusterRole part: rules[1]).verbs"
    [found] = account_problems("gpu", "plugin", snapshot.put(part))
    assert found.path == "ClusterRole part: rules[1].verbs"


def test_a_role_that_is_bound_everywhere_and_in_one_namespace() -> None:
    """R06, R07: right as it is, it grants nothing there."""
    rules = [status("patch"), rule("resourceclaims/binding", "patch"), rule("resourceslices", "create")]
    inside = binding_object("inside", OTHER, namespace="net")
    snapshot = world(role_object(*rules), binding_object(), inside)
    assert role_problems(snapshot.roles["", "plugin"], snapshot) == []
    found = binding_problems(binding_of(inside), snapshot)
    assert [(each.rule, each.path) for each in found] == [
        ("rbac-binding-ineffective", "roleRef: rules[1]"),
        ("rbac-dead-grant", "roleRef: rules[2]"),
    ]
    assert binding_problems(binding_of(binding_object()), snapshot) == []
    # Of a role that is bound there alone the role itself tells it.
    snapshot = world(role_object(*rules), inside)
    assert binding_problems(binding_of(inside), snapshot) == []
    assert rules_of(role_problems(snapshot.roles["", "plugin"], snapshot)) == {"binding-ineffective", "dead-grant"}


@pytest.mark.parametrize(("where", "missing"), [("one", False), ("two", True)])
def test_both_halves_of_a_report_are_needed_in_the_same_namespace(where, missing) -> None:
    """R08."""
    snapshot = world(
        rollout(),
        role_object(status("patch"), name="a", namespace="one"),
        role_object(driver("patch"), name="b", namespace=where),
        binding_object("a", role="a", namespace="one", kind="Role"),
        binding_object("b", role="b", namespace=where, kind="Role"),
    )
    found = account_problems("gpu", "plugin", snapshot)
    assert rules_of(found) == ({"missing-driver"} if missing else set())
    assert all("in namespace one" in each.has for each in found)


def test_what_is_missing_in_one_role_may_stand_in_another() -> None:
    half, rest = role_object(status("patch"), name="half"), role_object(driver("patch"), name="rest")
    snapshot = world(rollout(), half, binding_object("half", role="half"))
    assert rules_of(role_problems(role_of(half), snapshot)) == {"missing-driver"}
    snapshot = snapshot.put(rest).put(binding_object("rest", role="rest"))
    assert role_problems(role_of(half), snapshot) == role_problems(role_of(rest), snapshot) == []
    assert account_problems("gpu", "plugin", snapshot) == []
    # The binding of the second role, judged as it comes.
    before = world(rollout(), half, rest, binding_object("half", role="half"))
    assert binding_problems(binding_of(binding_object("rest", role="rest")), before) == []


def test_a_binding_to_a_role_that_does_not_exist_yet() -> None:
    [found] = binding_problems(binding_of(binding_object()), world(rollout()))
    assert (found.rule, found.path, found.severity) == ("rbac-role-missing", "roleRef.name", "warning")
    assert binding_problems(binding_of(binding_object()), Snapshot()) == []
    # When the role comes, it is judged for whom it was bound to.
    assert rules_of(role_problems(role_of(role_object(*WIDE)), world(rollout(), binding_object()))) == {
        "arbitrary-node"
    }


def test_a_role_of_kubernetes_is_told_where_a_driver_gets_it() -> None:
    snapshot = world(rollout(), role_object(EVERYTHING, name="cluster-admin"))
    assert role_problems(snapshot.roles["", "cluster-admin"], snapshot) == []
    binding = binding_of(binding_object(role="cluster-admin"))
    assert rules_of(binding_problems(binding, snapshot)) == {"everything"}
    bound = snapshot.put(binding_object(role="cluster-admin"))
    assert rules_of(account_problems("gpu", "plugin", bound)) == {"everything"}
    # What is bound just so is told of the account, or of the role.
    assert binding_problems(binding, bound) == []


def test_the_scope_of_an_account_is_that_of_all_its_bindings_and_groups() -> None:
    snapshot = world(
        rollout(),
        role_object(*GOOD),
        binding_object(),
        role_object(rule("nodes", "patch", group=""), name="nodes"),
        binding_object("crowd", group("system:serviceaccounts:gpu"), role="nodes"),
        role_object(rule("secrets", "list", group=""), name="secrets"),
        binding_object("inside", role="secrets", namespace="gpu"),
        binding_object("gone", role="gone"),
    )
    [found] = account_problems("gpu", "plugin", snapshot)
    assert (found.rule, found.path) == ("rbac-node-write", "ClusterRole nodes: rules[0]")
    assert account_problems("gpu", "somebody", snapshot) == []


def test_an_account_that_no_rollout_names_is_judged_by_its_roles() -> None:
    snapshot = world(role_object(*WIDE, annotations=said("NodeLocal", GPU)), binding_object("b", OTHER))
    assert rules_of(account_problems("net", "other", snapshot)) == {"arbitrary-node"}


def test_a_binding_within_a_namespace_gives_no_binding_right() -> None:
    """R06: reached only by a RoleBinding."""
    role = role_object(status("patch"), rule("resourceclaims/binding", "patch"), annotations=said("Allocator"))
    assert role_problems(role_of(role), Snapshot()) == []
    inside = binding_object(namespace="ns")
    assert rules_of(binding_problems(binding_of(inside), world(role))) == {"binding-ineffective", "missing-driver"}
    assert "binding-ineffective" in rules_of(role_problems(role_of(role), world(inside)))
    everywhere = world(role, inside, binding_object("b", OTHER))
    assert role_problems(role_of(role), everywhere) == account_problems("net", "other", everywhere) == []
    assert rules_of(account_problems("gpu", "plugin", everywhere)) == {"binding-ineffective", "missing-driver"}


@pytest.mark.parametrize("name", ["system:node", "system:controller:x"])
def test_names_of_kubernetes_are_left_alone(name) -> None:
    assert role_problems(role_of(role_object(*WIDE, rule("resourceclaims/driver", "*"), name=name)), Snapshot()) == []


@pytest.mark.parametrize(
    ("annotations", "rules"),
    [
        (said("Nodelocal", GPU), ["rbac-annotation"]),
        (said("NodeLocal", "GPU driver"), ["rbac-annotation"]),
        (said("NodeLocal", *(f"d{n}.example" for n in range(65))), ["rbac-annotation"]),
        (said("MultiNode", GPU, "b.example"), []),
    ],
)
def test_annotations_that_mean_nothing(annotations, rules) -> None:
    assert [
        each.rule for each in role_problems(role_of(role_object(SLICES, annotations=annotations)), Snapshot())
    ] == rules


def test_many_findings_of_one_rule_are_told_once_in_a_while() -> None:
    found = judged(*(driver("patch", names=[f"d{n}.example"]) for n in range(50)), status("patch"))
    alike = [each for each in found if each.rule == "rbac-other-driver"]
    assert len(alike) == MOST_ALIKE
    assert [each.has.endswith(", and more like it") for each in alike] == [False] * (MOST_ALIKE - 1) + [True]


def test_the_gravest_comes_first() -> None:
    found = judged(status("patch"), driver("patch", names=[]), rule("resourceclaims/*", "get"))
    assert [each.severity for each in found] == sorted(each.severity for each in found)
    assert found[0].severity == "error"


def test_hostile_roles_take_no_time() -> None:
    """A role as large as the API server stores, bound in thousands of namespaces, whose rules go round in a circle."""
    bad = {"verbs": ["*", "update", "associated-node:*"], "apiGroups": ["*"]}
    resources = ["resourceclaims/driver", "resourceclaims/binding", "nodes", "resourceclaims/*", "pods"]
    rules = [{**bad, "resources": resources, "resourceNames": [f"n{n}", "*"]} for n in range(10_000)]
    label = {"a": "b"}
    circle = {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": label}, {}]}}
    annotations = said("NodeLocal", *(f"d{n}.example" for n in range(1000)))
    huge = role_object(*rules, labels=label, annotations=annotations) | circle
    others = [role_object(name=f"r{n}", labels=label) | circle for n in range(300)]
    many = [binding_object(f"b{n}", namespace=f"ns{n}") for n in range(2000)]
    snapshot = world(rollout(), *others, *many)
    role = read_role(huge)
    began = time.process_time()
    assert 0 < len(role_problems(role, snapshot)) < 100
    assert binding_problems(read_binding(many[0]), snapshot.with_role(role)) == []
    assert binding_problems(read_binding(binding_object("new")), snapshot.with_role(role))
    assert time.process_time() - began < 5


def test_whoever_stands_behind_thousands_in_a_binding_is_seen() -> None:
    others = [{"kind": "ServiceAccount", "name": f"a{n}", "namespace": "x"} for n in range(3000)]
    plugin = {"kind": "ServiceAccount", "name": "plugin", "namespace": "z"}
    binding = binding_object("b", *others, plugin, group("system:authenticated"))
    found = binding_problems(binding_of(binding), world(role_object(*WIDE), rollout(namespace="z")))
    assert [(each.rule, each.path) for each in found] == [
        ("rbac-shared-subject", "subjects[3001]"),
        ("rbac-arbitrary-node", "roleRef: rules[1].verbs"),
    ]


def test_a_role_that_is_bound_again_and_again_costs_what_it_costs_once() -> None:
    """Whoever may bind in one namespace may bind any account there, as often as they like."""
    rules = [driver("patch", prefix="arbitrary-node", names=[f"d{n}.example"]) for n in range(2000)]
    many = [binding_object(f"b{n}", namespace="tenant", role="big", kind="Role") for n in range(2000)]
    crowd = binding_object("a", group("system:serviceaccounts:gpu"), namespace="tenant", role="big", kind="Role")
    snapshot = world(rollout(), role_object(*rules, name="big", namespace="tenant"), *many, crowd)
    began = time.process_time()
    found = account_problems("gpu", "plugin", snapshot)
    assert time.process_time() - began < 5
    assert rules_of(found) >= {"other-driver", "shared-subject"}


def test_a_role_of_thousands_of_rules_beside_thousands_of_writers_costs_the_rules_alone() -> None:
    rules = [rule("serviceaccounts/token", "create", f"x{n}", group="") for n in range(2000)]
    accounts = [{"kind": "ServiceAccount", "name": "plugin", "namespace": f"n{n}"} for n in range(16)]
    named = [rollout(f"d{n}.example", namespace=f"n{n}") for n in range(3000)]
    snapshot = world(*named, binding_object("b", *accounts))
    role = role_of(role_object(*rules, rule("serviceaccounts/token", "create", "plugin", group="")))
    began = time.process_time()
    found = role_problems(role, snapshot)
    assert time.process_time() - began < 5
    assert {(each.rule, each.path) for each in found} == {("rbac-token-minting", "rules[2000]")}


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from(["", "*", "a", "ServiceAccount", "plugin", "\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["rules", "verbs", "resources", "apiGroups", "kind", "name"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(VALUES, VALUES, VALUES)
def test_no_object_breaks_the_lint(first, second, third) -> None:
    role = {**role_object(annotations=said("NodeLocal", GPU)), "rules": first, "aggregationRule": second}
    binding = {**binding_object(), "subjects": third}
    snapshot = world(rollout(), role, binding, {**role, "metadata": third})
    assert isinstance(role_problems(read_role(role), snapshot), list)
    assert isinstance(binding_problems(read_binding({**binding, "roleRef": second}), snapshot), list)
    assert isinstance(account_problems("gpu", "plugin", snapshot), list)
