"""R01 to R08: each row of the table accepted and rejected."""

import pytest

from tests.facts.roles import DRA, GPU, driver, judged, role_object, role_of, rule, rules_of, status
from webhook.facts.rbac_lint import role_problems
from webhook.kube.snapshot import Snapshot

SLICES = rule("resourceslices", "get list watch create update patch delete")
CLAIMS = rule("resourceclaims", "get")
NODE_LOCAL = [rule("nodes", "get", group=""), SLICES, CLAIMS, status(), driver("update", "patch")]
BINDING = rule("resourceclaims/binding", "update patch")


def test_what_each_profile_needs_is_accepted() -> None:
    assert judged(*NODE_LOCAL) == []
    # A driver that never writes claim status.
    assert judged(SLICES, CLAIMS) == []
    arbitrary = driver("patch", names=["fabric.example"], prefix="arbitrary-node")
    assert judged(SLICES, status("patch"), arbitrary, profile="MultiNode", drivers=["fabric.example"]) == []
    assert judged(status("patch"), rule("resourceclaims/binding", "patch"), profile="Allocator", drivers=[]) == []
    assert judged(status("get update"), driver("update")) == []


@pytest.mark.parametrize(
    ("rules", "found"),
    [
        # R01
        ([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}], {"everything"}),
        ([{"apiGroups": [DRA], "resources": ["*"], "verbs": ["get", "update"]}], {"everything"}),
        ([rule("resourceslices", "*")], {"everything", "device-policy-write"}),
        ([rule("*/status", "update"), driver("update")], {"everything", "device-policy-write"}),
        ([rule("*/driver", "associated-node:update", GPU), status("update")], {"everything"}),
        ([rule("nodes", "get", group="*")], set()),
        ([rule("resourceclaims", "get", group="*")], {"everything"}),
        # R02
        ([status(), driver("update", "patch", prefix="arbitrary-node")], {"arbitrary-node"}),
        ([rule("resourceclaims/driver", "*", GPU), status()], {"everything", "arbitrary-node"}),
        # R03
        ([status("update"), driver("update", names=[])], {"driver-without-names"}),
        # R04
        ([status(), driver("update", "patch", names=["cpu.example"])], {"other-driver", "missing-driver"}),
        ([status(), driver("update", "patch", names=[GPU, "cpu.example"])], {"other-driver"}),
        # R05
        ([status(), driver("update", "patch"), BINDING], {"binding-in-node-plugin"}),
        ([rule("resourceclaims/binding", "get")], {"binding-in-node-plugin", "dead-grant"}),
        # R06
        ([rule("resourceclaims/binding", "patch", "x")], {"binding-in-node-plugin", "binding-ineffective"}),
        # R07
        ([status("update"), rule("resourceclaims/driver", "update", GPU)], {"dead-grant", "missing-driver"}),
        ([status("update"), rule("resourceclaims/driver", "associated-node:*", GPU)], {"dead-grant", "missing-driver"}),
        ([rule("resourceclaims/*", "update")], {"dead-grant"}),
        ([rule("drivers", "update-device-status", "*")], {"dead-grant"}),
        ([rule("resourceclaims/status", "associated-node:update")], {"dead-grant"}),
        ([status("update"), driver("update", names=["*"])], {"dead-grant", "missing-driver"}),
        # An empty name is that of a request without one, which neither of the two ever is.
        ([rule("resourceclaims/status", "patch", ""), driver("patch")], {"missing-driver"}),
        ([status("update"), driver("update", names=[GPU, ""])], {"dead-grant"}),
        # Either verb has its use, on one of the two.
        (
            [rule("resourceclaims/status resourceclaims/driver", "update associated-node:update")],
            {"driver-without-names"},
        ),
        # R08
        ([status()], {"missing-driver"}),
        ([status("patch"), driver("update")], {"missing-driver"}),
        ([driver("update")], {"missing-driver"}),
        # The names of a rule are meant for drivers, and keep the status of all claims but one of that name.
        (
            [rule("resourceclaims/status resourceclaims/driver", "update associated-node:update", GPU)],
            {"missing-driver"},
        ),
    ],
)
def test_a_node_local_role(rules, found) -> None:
    assert rules_of(judged(*rules)) == found


@pytest.mark.parametrize(
    ("profile", "drivers", "rules", "found"),
    [
        ("MultiNode", [GPU], [status("patch"), driver("patch")], {"missing-driver"}),
        ("MultiNode", [GPU], [status("patch"), driver("patch", prefix="arbitrary-node")], set()),
        ("AnyNode", [GPU], [status("patch"), driver("patch")], {"missing-driver"}),
        ("AnyNode", [GPU], [status("patch"), driver("patch", prefix="arbitrary-node")], set()),
        # One that stands for several drivers, all of them named, is only warned.
        (
            "MultiNode",
            [GPU, "b.example"],
            [status("patch"), driver("patch", names=[], prefix="arbitrary-node")],
            {"driver-without-names"},
        ),
        ("Allocator", [], [status("patch")], {"missing-driver"}),
        ("Allocator", [], [status("patch"), rule("resourceclaims/binding", "update")], {"missing-driver"}),
        (
            "Allocator",
            [],
            [status("patch"), rule("resourceclaims/binding", "patch", "x")],
            {"missing-driver", "binding-ineffective"},
        ),
        (
            "Allocator",
            [],
            [status("patch"), rule("resourceclaims/binding", "patch"), driver("patch")],
            {"other-driver"},
        ),
        ("", [GPU], [status(), driver("update", "patch", prefix="arbitrary-node")], {"arbitrary-node"}),
        ("NodeLocal", [], [status(), driver("update", "patch")], set()),
        ("NodeLocal", [], [status(), driver("update")], {"missing-driver"}),
    ],
)
def test_a_role_of_another_profile(profile, drivers, rules, found) -> None:
    assert rules_of(judged(*rules, profile=profile, drivers=drivers)) == found


@pytest.mark.parametrize(
    ("rules", "found"),
    [
        # A role that nobody is known to have: only what decides who gets which devices.
        ([{"apiGroups": [DRA], "resources": ["*"], "verbs": ["*"]}], {"everything"}),
        ([rule("resourceclaims/driver", "*", group="*")], {"everything", "driver-without-names"}),
        ([driver("patch", names=[])], {"driver-without-names"}),
        ([rule("resourceclaims/binding", "patch", "x")], {"binding-ineffective"}),
        ([rule("resourceclaims/driver", "update", GPU)], {"dead-grant"}),
        # R08 needs to know whom it is for.
        ([status(), driver("patch")], set()),
        # Nothing about devices, or nothing to decide with.
        ([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}], set()),
        ([{"apiGroups": [DRA], "resources": ["*"], "verbs": ["get", "list", "watch"]}], set()),
        ([rule("resourceclaims deviceclasses", "*")], set()),
        ([rule("nodes secrets", "*", group="")], set()),
        ([rule("deployments/*", "update", group="apps")], set()),
    ],
)
def test_a_role_that_is_for_nobody_in_particular(rules, found) -> None:
    assert rules_of(role_problems(role_of(role_object(*rules)), Snapshot())) == found


def test_what_reads_everything_is_a_warning() -> None:
    [found] = judged({"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]})
    assert (found.rule, found.severity) == ("rbac-everything", "warning")


@pytest.mark.parametrize("profile", ["MultiNode", "AnyNode"])
def test_a_proxy_of_several_drivers_is_warned_and_others_are_refused(profile) -> None:
    rules = [status("patch"), driver("patch", names=[], prefix="arbitrary-node")]
    [proxy] = judged(*rules, profile=profile, drivers=[GPU, "b.example"])
    [alone] = judged(*rules, profile=profile)
    assert (proxy.severity, alone.severity) == ("warning", "error")


def test_messages_show_the_narrower_rule() -> None:
    [named] = judged(status("update"), driver("update", names=[]))
    assert named.text("p") == (
        "p/rbac-driver-without-names: rules[1]: has resourceclaims/driver of all drivers, needs its own drivers in "
        "resourceNames (gpu.example); use {apiGroups: [resource.k8s.io], resources: [resourceclaims/driver], "
        'resourceNames: [gpu.example], verbs: ["associated-node:update"]}'
    )
    [missing] = judged(status("update"))
    assert missing.text("p") == (
        "p/rbac-missing-driver: rules: has update on resourceclaims/status without associated-node:update on "
        "resourceclaims/driver of gpu.example, needs both: the API server refuses such writes with 422 from 1.36 on; "
        "use [{apiGroups: [resource.k8s.io], resources: [resourceclaims/status], verbs: [update]}, {apiGroups: "
        "[resource.k8s.io], resources: [resourceclaims/driver], resourceNames: [gpu.example], verbs: "
        '["associated-node:update"]}], or neither where it never writes claim status'
    )


def test_within_a_namespace_nothing_is_granted_for_the_whole_cluster() -> None:
    role = role_of(role_object(SLICES, BINDING, namespace="ns"))
    assert rules_of(role_problems(role, Snapshot())) == {"dead-grant", "binding-ineffective"}


def test_names_that_are_longer_than_any_name() -> None:
    """A role of a megabyte makes no line of one."""
    role = rule("resourceclaims/driver", " ".join(["arbitrary-node:patch"] * 50_000), "x" * 100_000, "y\n" * 50_000)
    found = judged(status("patch"), role)
    assert rules_of(found) == {"arbitrary-node", "other-driver", "missing-driver"}
    assert all(len(each.text("rbac-scope")) < 1500 for each in found)
    wide = judged(rule("resourceclaims/driver", " ".join(["arbitrary-node:patch"] * 50_000)))
    assert all(len(each.text("rbac-scope")) < 1500 for each in wide)
    assert "has arbitrary-node:patch on" in next(each.message for each in wide if each.rule == "rbac-arbitrary-node")


def test_resources_that_mean_nothing_are_no_reason_for_a_right_to_report() -> None:
    [found] = judged(rule("resourceslices/*", "update"))
    assert (found.rule, found.fix) == ("rbac-dead-grant", "take it away")
    [found] = judged(rule("resourceclaims/*", "update"))
    assert "resourceclaims/driver" in found.fix


@pytest.mark.parametrize(
    ("one", "more"),
    [
        (rule("resourceslices", "*"), ""),
        (rule("resourceclaims/status", "*"), ""),
        (rule("resourceclaims/driver", "*", GPU), ": this is arbitrary-node too"),
        (rule("resourceclaims/binding", "*"), ": this is binding too"),
        (rule("*", "*"), ": this is arbitrary-node and binding too"),
        (rule("*", "patch"), ": this is binding too"),
        (rule("*", "get"), ""),
    ],
)
def test_everything_is_told_with_what_it_gives(one, more) -> None:
    [found] = [each for each in judged(one) if each.rule == "rbac-everything"]
    assert found.needs == f"what is used, by name{more}"
