import pytest

from tests.facts.roles import DRA, binding_object, role_object, rule, world
from webhook.facts import rbac
from webhook.facts.rbac import bound_role, collected, collectors, covers, covers_every, grants, own_grants, role_rules
from webhook.kube.rbac import read_rule

DRIVER = "resourceclaims/driver"


@pytest.mark.parametrize(
    ("one", "verb", "name", "allowed"),
    [
        (rule(DRIVER, "associated-node:update"), "associated-node:update", "d", True),
        (rule(DRIVER, "associated-node:update"), "associated-node:patch", "d", False),
        (rule(DRIVER, "*"), "arbitrary-node:update", "d", True),
        (rule(DRIVER, "associated-node:*"), "associated-node:update", "d", False),
        (rule("*", "*"), "update", "d", True),
        (rule("*/driver", "update"), "update", "d", True),
        (rule("resourceclaims/*", "update"), "update", "d", False),
        (rule("*/*", "update"), "update", "d", False),
        (rule("resourceclaims", "update"), "update", "d", False),
        (rule(DRIVER, "update", "d"), "update", "d", True),
        (rule(DRIVER, "update", "d"), "update", "e", False),
        (rule(DRIVER, "update", "d"), "update", "", False),
        (rule(DRIVER, "update", "*"), "update", "d", False),
        # What is asked without a name has the empty one.
        (rule(DRIVER, "update", ""), "update", "", True),
        (rule(DRIVER, "update", group="*"), "update", "d", True),
        (rule(DRIVER, "update", group="apps"), "update", "d", False),
        (rule("", "update"), "update", "d", False),
    ],
)
def test_what_one_rule_allows(one, verb, name, allowed) -> None:
    assert covers(read_rule(one), DRA, DRIVER, verb, name) is allowed


@pytest.mark.parametrize(
    ("one", "resource", "verb", "every"),
    [
        (rule("resourceslices", "*"), "resourceslices", "update", True),
        (rule("resourceslices", "*", "s1"), "resourceslices", "create", False),
        # The empty name is that of what is asked without one, and of no object.
        (rule("resourceslices", "*", ""), "resourceslices", "create", True),
        (rule("resourceslices", "*", "", "s1"), "resourceslices", "list", True),
        (rule("resourceslices", "*", ""), "resourceslices", "update", False),
        (rule("resourceclaims/status", "*", ""), "resourceclaims/status", "update", False),
        (rule("resourceclaims/binding", "*", ""), "resourceclaims/binding", "update", True),
        (rule("resourceclaims/binding", "*", "x"), "resourceclaims/binding", "update", False),
    ],
)
def test_what_one_rule_allows_on_every_object(one, resource, verb, every) -> None:
    assert covers_every(read_rule(one), DRA, resource, verb) is every


def test_a_star_before_a_slash_is_no_resource() -> None:
    assert not covers(read_rule(rule("*/driver", "get")), DRA, "resourceclaims", "get")
    assert covers(read_rule(rule("resourceclaims", "get")), DRA, "resourceclaims", "get")


def test_grants_are_those_of_all_bindings_where_they_hold() -> None:
    group = {"kind": "Group", "name": "system:serviceaccounts"}
    snapshot = world(
        role_object(rule("a", "get"), rule("b", "get"), name="one"),
        role_object(rule("c", "get"), name="inside", namespace="gpu"),
        binding_object("b1", role="one"),
        binding_object("b2", role="one", namespace="other"),
        binding_object("b3", role="inside", namespace="gpu", kind="Role"),
        binding_object("b4", group, role="one"),
        binding_object("b5", role="nobody-made-it"),
    )
    found = [
        (each.binding.name, each.role.name, each.namespace, each.rule.resources[0])
        for each in grants(("gpu", "plugin"), snapshot)
    ]
    assert found == [
        ("b1", "one", "", "a"),
        ("b1", "one", "", "b"),
        ("b4", "one", "", "a"),
        ("b4", "one", "", "b"),
        ("b3", "inside", "gpu", "c"),
        ("b2", "one", "other", "a"),
        ("b2", "one", "other", "b"),
    ]
    own = own_grants(("gpu", "plugin"), snapshot)
    assert own is not None
    assert {each.binding.name for each in own} == {"b1", "b2", "b3"}
    assert grants(("gpu", "somebody"), snapshot) == grants(("", ""), snapshot)


def test_a_binding_of_the_cluster_binds_no_role_of_a_namespace() -> None:
    snapshot = world(role_object(rule("a", "get"), namespace="gpu"), binding_object("b", kind="Role"))
    assert bound_role(snapshot.bindings["", "b"], snapshot) is None
    # Nor does one of a namespace take a Role of another, or of the cluster, for its own.
    snapshot = world(role_object(rule("a", "get")), binding_object("b", namespace="gpu", kind="Role"))
    assert bound_role(snapshot.bindings["gpu", "b"], snapshot) is None


def aggregating(name: str, *selectors, labels=None, rules=()):
    role = role_object(*rules, name=name, labels=labels or {})
    return {**role, "aggregationRule": {"clusterRoleSelectors": list(selectors)}}


def test_rules_of_others_are_known_by_the_role_they_stand_in() -> None:
    part = role_object(rule("a", "get"), rule("b", "get"), name="part", labels={"to": "whole"})
    inner = aggregating("inner", {"matchLabels": {"to": "inner"}}, labels={"to": "whole"}, rules=[rule("c", "get")])
    deep = role_object(rule("c", "get"), name="deep", labels={"to": "inner"})
    other = role_object(rule("x", "get"), name="other", labels={"to": "nobody"})
    whole = aggregating("whole", {"matchLabels": {"to": "whole"}}, rules=[rule("a", "get"), rule("mine", "get")])
    snapshot = world(part, inner, deep, other, whole)
    role = snapshot.roles["", "whole"]
    found = {(each.resources[0], source.name) for each, source in role_rules(role, snapshot)}
    assert found == {("a", "part"), ("b", "part"), ("c", "deep"), ("mine", "whole")}
    assert {each.name for each in collected(role, snapshot)} == {"part", "inner", "deep"}
    assert {each.name for each in collectors(snapshot.roles["", "deep"], snapshot)} == {"inner", "whole"}


@pytest.mark.parametrize(
    "selector",
    [
        {},
        {"matchLabels": {"a": "b"}},
        {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
        {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
        {"matchExpressions": [{"key": "z", "operator": "DoesNotExist"}]},
        {"matchExpressions": [{"key": "z", "operator": "NotIn", "values": ["b"]}], "matchLabels": {"a": "b"}},
    ],
)
def test_circles_of_roles_end(selector) -> None:
    circle = [aggregating(name, selector, labels={"a": "b"}) for name in ("one", "two", "three")]
    snapshot = world(*circle, role_object(rule("x", "get"), name="plain", labels={"a": "b"}))
    role = snapshot.roles["", "one"]
    assert {each.name for each in collected(role, snapshot)} == {"two", "three", "plain"}
    assert [source.name for _, source in role_rules(role, snapshot)] == ["plain"]
    assert {each.name for each in collectors(role, snapshot)} == {"two", "three"}


@pytest.mark.parametrize(
    "selector", [{"matchLabels": 7}, {"matchExpressions": [{"operator": "In"}]}, {"matchLabels": {"a": 1}}]
)
def test_a_selector_that_is_wrong_chooses_nothing(selector) -> None:
    snapshot = world(aggregating("one", selector), role_object(rule("x", "get"), name="plain", labels={"a": "b"}))
    assert list(collected(snapshot.roles["", "one"], snapshot)) == []


def test_roles_of_a_namespace_are_not_collected() -> None:
    inside = role_object(rule("x", "get"), name="inside", namespace="ns", labels={"a": "b"})
    snapshot = world(aggregating("one", {"matchLabels": {"a": "b"}}), inside)
    assert list(collected(snapshot.roles["", "one"], snapshot)) == []
    assert list(collectors(snapshot.roles["ns", "inside"], snapshot)) == []


def test_more_than_a_review_looks_at(monkeypatch) -> None:
    snapshot = world(role_object(rule("a", "get")), *(binding_object(f"b{n}", namespace=f"n{n}") for n in range(5)))
    assert len(own_grants(("gpu", "plugin"), snapshot) or ()) == 5
    monkeypatch.setattr(rbac, "MOST_BINDINGS", 4)
    assert own_grants(("gpu", "plugin"), snapshot) is None
    monkeypatch.setattr(rbac, "MOST_BINDINGS", 5)
    monkeypatch.setattr(rbac, "MOST_RULES", 4)
    assert own_grants(("gpu", "plugin"), snapshot) is None
    assert len(grants(("gpu", "plugin"), snapshot)) == 5


def test_roles_that_have_the_rules_of_others_are_looked_into_once_and_no_more_than_one_of_them_would_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """250 such roles of 2,000 others kept reviews waiting for 23 seconds."""
    parts = [role_object(rule(f"r{n}", "get"), name=f"part{n}", labels={"to": "whole"}) for n in range(6)]
    wholes = [aggregating(f"whole{n}", {"matchLabels": {"to": "whole"}}) for n in range(3)]
    bound = [binding_object(f"b{n}", role="whole0", namespace=f"n{n}") for n in range(5)]
    monkeypatch.setattr(rbac, "MOST_ROLES", 7)
    assert len(own_grants(("gpu", "plugin"), world(*parts, *wholes, *bound)) or ()) == 5 * 6
    another = binding_object("other", role="whole1")
    assert own_grants(("gpu", "plugin"), world(*parts, *wholes, *bound, another)) is None
