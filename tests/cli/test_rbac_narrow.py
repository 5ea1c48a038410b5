"""The narrowest roles of an account, whatever it has and wherever."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.facts.roles import GPU, binding_object, role_object, rollout, world
from webhook.cli.rbac_scope import Scope
from webhook.facts.rbac import NODE_VERBS, covers
from webhook.kube.rbac import read_rule
from webhook.kube.rollout import PROFILES

Json = dict[str, Any]

ACCOUNT = ("gpu", "plugin")
DRA_PARTS = ["resourceclaims", "resourceclaims/status", "resourceclaims/driver", "resourceclaims/binding"]
RULE = st.fixed_dictionaries(
    {
        "apiGroups": st.lists(st.sampled_from(["", "*", "resource.k8s.io"]), min_size=1, max_size=2),
        "resources": st.lists(
            st.sampled_from([*DRA_PARTS, "resourceslices", "nodes", "deviceclasses", "*", "*/status", "pods"]),
            min_size=1,
            max_size=3,
        ),
        "verbs": st.lists(
            st.sampled_from(["*", "get", "list", "create", "update", "patch", *NODE_VERBS]), min_size=1, max_size=3
        ),
    },
    optional={"resourceNames": st.lists(st.sampled_from([GPU, "c1", "*", ""]), min_size=1, max_size=2)},
)
PLACES = st.sampled_from(["", "", "red", "blue"])


def granted(objects: list[Json]) -> set[tuple[str, str, str, str]]:
    """Namespace (empty: everywhere), group, resource and verb of all that is bound."""
    roles = {each["metadata"]["name"]: each["rules"] for each in objects if "rules" in each}
    return {
        (bound["metadata"].get("namespace", ""), rule["apiGroups"][0], resource, verb)
        for bound in objects
        if "roleRef" in bound
        for rule in roles[bound["roleRef"]["name"]]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@given(
    parts=st.lists(st.tuples(PLACES, st.lists(RULE, min_size=1, max_size=3)), max_size=4),
    profile=st.sampled_from(PROFILES),
)
def test_nothing_is_shown_where_the_account_has_nothing_of_it(
    parts: list[tuple[str, list[Json]]], profile: str
) -> None:
    objects: list[Json] = [rollout(profile=profile)]
    for number, (place, rules) in enumerate(parts):
        objects.append(role_object(*rules, name=f"r{number}"))
        objects.append(binding_object(f"b{number}", role=f"r{number}", namespace=place))
        # Somebody else has it too, so that it is not the account's own.
        someone = {"kind": "User", "name": "dana"}
        objects.append(binding_object(f"o{number}", someone, role=f"r{number}", namespace=place))
    shown = Scope(ACCOUNT, world(*objects)).narrowest()
    held = [(place, read_rule(rule)) for place, rules in parts for rule in rules]
    for place, group, resource, verb in granted(shown):
        here = [rule for where, rule in held if where in ("", place)]
        if "/" not in resource:
            # An empty name is that of what is asked without one, and of no object.
            name = "" if verb in ("create", "list", "watch") else "any"
            assert any(covers(rule, group, resource, verb, name) for rule in here), (place, resource, verb)
        else:
            # Who has one half of what a status takes is to have both, and nobody else; that of an allocator holds
            # everywhere or not at all.
            other = "resourceclaims/binding" if profile == "Allocator" else "resourceclaims/driver"
            assert any(
                covers(rule, group, part, each, name)
                for rule in (here if resource != "resourceclaims/binding" else [each for _, each in held])
                for part in ("resourceclaims/status", other)
                for each in ("update", "patch", *NODE_VERBS)
                for name in ("", *rule.resource_names)
            ), (place, resource, verb)
    # Pasted in place of all that it had, it is what is shown again.
    again = Scope(ACCOUNT, world(rollout(profile=profile), *shown)).narrowest()
    if any("roleRef" in each for each in again):
        assert granted(again) == granted(shown)
    else:
        assert [each["rules"] for each in again] == [each["rules"] for each in shown if "rules" in each]
