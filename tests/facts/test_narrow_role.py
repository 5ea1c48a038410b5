"""The narrowest role, and that nothing which is printed of a role is wider than it."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.facts.roles import GPU, binding_object, role_object, rollout, said, world
from webhook.facts.narrow_role import flow, holder_rules, narrow_rules
from webhook.facts.rbac import NODE_VERBS, covers
from webhook.facts.rbac_lint import account_problems, binding_problems, role_problems
from webhook.facts.rbac_profile import Holder
from webhook.kube.finding import Finding
from webhook.kube.rbac import read_binding, read_role
from webhook.kube.rollout import PROFILES
from webhook.kube.snapshot import Snapshot

Json = dict[str, Any]


def test_a_node_local_driver() -> None:
    assert narrow_rules("NodeLocal", [GPU], ["update"], True) == [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
        {
            "apiGroups": ["resource.k8s.io"],
            "resources": ["resourceslices"],
            "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"],
        },
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["get"]},
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/status"], "verbs": ["update"]},
        {
            "apiGroups": ["resource.k8s.io"],
            "resources": ["resourceclaims/driver"],
            "resourceNames": [GPU],
            "verbs": ["associated-node:update"],
        },
    ]


@pytest.mark.parametrize("profile", ["MultiNode", "AnyNode"])
def test_a_controller_of_several_nodes(profile) -> None:
    found = narrow_rules(profile, ["b.example", "a.example"], ["patch", "update"], True)
    assert [rule["resources"] for rule in found] == [
        ["resourceslices"],
        ["resourceclaims"],
        ["resourceclaims/status"],
        ["resourceclaims/driver"],
    ]
    assert found[-1]["verbs"] == ["arbitrary-node:update", "arbitrary-node:patch"]
    assert found[-1]["resourceNames"] == ["a.example", "b.example"]


def test_an_allocator() -> None:
    found = narrow_rules("Allocator", [], ["patch"], False)
    assert [(rule["resources"][-1], rule["verbs"]) for rule in found] == [
        ("deviceclasses", ["get", "list", "watch"]),
        ("resourceclaims/status", ["patch"]),
        ("resourceclaims/binding", ["patch"]),
    ]


@pytest.mark.parametrize(("drivers", "reports"), [([GPU], False), ([], True), (["No Driver!", ""], True)])
def test_without_a_driver_or_a_report_there_is_no_right_to_report(drivers, reports) -> None:
    shown = flow(narrow_rules("NodeLocal", drivers, ["patch"], reports))
    assert "status" not in shown
    assert "driver" not in shown


def test_each_profile_of_a_holder_has_its_rules_once() -> None:
    rules = holder_rules(Holder({"a.example": "NodeLocal", "b.example": "MultiNode"}), ["patch"])
    drivers = [(rule["resourceNames"], rule["verbs"]) for rule in rules if "resourceNames" in rule]
    assert drivers == [(["a.example"], ["associated-node:patch"]), (["b.example"], ["arbitrary-node:patch"])]
    assert [rule["resources"] for rule in rules].count(["resourceslices"]) == 1


TEXTS = st.lists(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=8), min_size=1, max_size=3)


@given(st.lists(st.fixed_dictionaries({"apiGroups": TEXTS, "verbs": TEXTS}), min_size=1, max_size=3))
def test_a_line_reads_as_what_it_shows(rules) -> None:
    assert yaml.safe_load(flow(rules)) == (rules[0] if len(rules) == 1 else rules)


@pytest.mark.parametrize(
    "word", ["true", "no", "null", "y", "1", "1e3", "a:b", "a, b", "-", "a#b", "x.y/z", "*", ".inf"]
)
def test_words_that_mean_something_to_yaml_are_quoted(word) -> None:
    assert yaml.safe_load(flow([{"verbs": [word]}])) == {"verbs": [word]}


DRIVERS = ["a.example", "b.example"]
RULE = st.fixed_dictionaries(
    {
        "apiGroups": st.lists(st.sampled_from(["", "*", "resource.k8s.io", "rbac.authorization.k8s.io"]), max_size=2),
        "resources": st.lists(
            st.sampled_from(
                ["*", "*/status", "*/driver", "resourceclaims", "resourceclaims/*", "resourceslices", "nodes", "pods"]
            )
            | st.sampled_from(
                ["resourceclaims/status", "resourceclaims/driver", "resourceclaims/binding", "secrets", "clusterroles"]
            ),
            max_size=3,
        ),
        "verbs": st.lists(
            st.sampled_from(
                ["*", "get", "list", "update", "patch", "create", "bind", "associated-node:*", *NODE_VERBS]
            ),
            max_size=3,
        ),
    },
    optional={"resourceNames": st.lists(st.sampled_from(["*", "", *DRIVERS, "c.example"]), max_size=2)},
)


@given(
    rules=st.lists(RULE, max_size=4),
    profile=st.sampled_from(["", "wrong", *PROFILES]),
    drivers=st.lists(st.sampled_from(DRIVERS), max_size=2),
    rollouts=st.lists(st.tuples(st.sampled_from(DRIVERS), st.sampled_from(PROFILES)), max_size=2),
    inside=st.booleans(),
)
def test_nothing_printed_is_wider_than_the_reference(rules, profile, drivers, rollouts, inside) -> None:
    obj = role_object(*rules, annotations=said(profile, *drivers))
    bound = binding_object(namespace="ns" if inside else "")
    named = [rollout(driver, each) for driver, each in rollouts]
    snapshot = world(*named)
    role, binding = read_role(obj), read_binding(bound)
    found = role_problems(role, snapshot, False, dict.fromkeys(DRIVERS, False))
    found += role_problems(role, snapshot.with_binding(binding), False)
    found += binding_problems(binding, snapshot.with_role(role), False)
    whole = snapshot.with_role(role).with_binding(binding)
    found += account_problems("gpu", "plugin", whole, False, dict.fromkeys(DRIVERS, False))
    wanted = (
        [{"profile": profile if profile in PROFILES else "NodeLocal", "drivers": drivers}] if drivers or profile else []
    )
    wanted += [{"profile": each, "drivers": [driver]} for driver, each in rollouts]
    allowed = [one for each in wanted for one in permissions(reference(each["profile"], each["drivers"]))]
    for finding in found:
        for rule in printed(finding):
            assert set(permissions([rule])) <= set(allowed), finding


# Of what nobody needs, and of "*", the rest of the same rule is shown.
OF_THE_RULE = frozenset(
    f"rbac-{name}"
    for name in ("everything", "claim-write", "device-policy-write", "node-write", "escalation", "guard-write")
)


@given(rule=RULE, profile=st.sampled_from(PROFILES))
def test_what_is_left_of_a_rule_is_nothing_that_it_does_not_grant(rule, profile) -> None:
    role = read_role(role_object(rule, annotations=said(profile, "a.example")))
    has = role.rules[0]
    for finding in role_problems(role, Snapshot()):
        if finding.rule in OF_THE_RULE:
            for group, resource, verb, name in permissions(printed(finding)):
                names = (name, *has.resource_names, "")
                assert any(covers(has, group, resource, verb, each) for each in names), finding


def reference(profile: str, drivers: list[str]) -> list[Json]:
    """The rules of 4.2 in the facts: what a driver or an allocator needs at most."""
    everything = ["get", "list", "watch", "create", "update", "patch", "delete"]
    dra = ["resource.k8s.io"]
    status = {"apiGroups": dra, "resources": ["resourceclaims/status"], "verbs": ["get", "update", "patch"]}
    reading = {"apiGroups": dra, "resources": ["resourceclaims", "resourceslices"], "verbs": ["get", "list", "watch"]}
    if profile == "Allocator":
        binding = {"apiGroups": dra, "resources": ["resourceclaims/binding"], "verbs": ["update", "patch"]}
        classes = {"apiGroups": dra, "resources": ["deviceclasses"], "verbs": ["get", "list", "watch"]}
        return [reading, classes, status, binding]
    prefix = "associated" if profile == "NodeLocal" else "arbitrary"
    verbs = [f"{prefix}-node:{verb}" for verb in ("update", "patch")]
    found: list[Json] = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
        {"apiGroups": dra, "resources": ["resourceslices"], "verbs": everything},
        {"apiGroups": dra, "resources": ["resourceclaims"], "verbs": ["get"]},
        *([] if profile == "NodeLocal" else [reading]),
        status,
    ]
    if drivers:
        found.append(
            {"apiGroups": dra, "resources": ["resourceclaims/driver"], "resourceNames": drivers, "verbs": verbs}
        )
    return found


def permissions(rules: list[Json]) -> list[tuple[str, str, str, str]]:
    """What rules without wildcards allow, one by one; the name ``*`` is any."""
    return [
        (group, resource, verb, name)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", ["any name"])
    ]


def printed(finding: Finding) -> list[Json]:
    """The rules that the fix of a finding shows, wherever they stand in it."""
    shown = re.search(r"[{\[].*[}\]]", finding.fix)
    if shown is None:
        return []
    value = yaml.safe_load(shown[0])
    return value if isinstance(value, list) else [value]


def test_the_property_sees_rules() -> None:
    """It would hold of findings that show none, too."""
    obj = role_object({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, annotations=said("NodeLocal", GPU))
    [found] = role_problems(read_role(obj), Snapshot())
    assert len(printed(found)) == 5
    assert not set(permissions(printed(found))) <= set(permissions(reference("Allocator", [])))
