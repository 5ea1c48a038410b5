"""R09 to R14: each row of the table accepted and rejected."""

import pytest

from tests.facts.roles import GPU, binding_object, judged, role_object, role_of, rollout, rule, rules_of, said, world
from webhook.facts.rbac_lint import role_problems

RBAC, ADMISSION, AUTHENTICATION = (
    "rbac.authorization.k8s.io",
    "admissionregistration.k8s.io",
    "authentication.k8s.io",
)


@pytest.mark.parametrize(
    ("one", "found"),
    [
        # R09
        (rule("resourceclaims", "update"), {"claim-write"}),
        (rule("resourceclaims", "deletecollection"), {"claim-write"}),
        (rule("resourceclaimtemplates", "create"), {"claim-write"}),
        (rule("resourceclaims resourceclaimtemplates", "get list watch"), set()),
        # R10
        (rule("deviceclasses", "patch"), {"device-policy-write"}),
        (rule("devicetaintrules", "create"), {"device-policy-write"}),
        (rule("devicetaintrules/status", "patch"), {"device-policy-write"}),
        (rule("resourceslices", "get deletecollection"), {"device-policy-write"}),
        (rule("deviceclasses", "get list watch"), set()),
        # R11
        (rule("nodes", "patch", group=""), {"node-write"}),
        (rule("nodes/status", "update", "n1", group=""), {"node-write"}),
        (rule("nodes/proxy", "get", group=""), {"node-write"}),
        (rule("pods/exec", "get", group=""), {"node-write"}),
        (rule("pods/exec", "create", group=""), {"node-write"}),
        (rule("pods", "delete", group=""), {"node-write"}),
        (rule("pods/status pods/binding", "create patch", group=""), {"node-write"}),
        (rule("secrets", "list", group=""), {"node-write"}),
        (rule("secrets", "get", group=""), set()),
        # By name they give that one alone, and what is asked without a name is not granted by name.
        (rule("secrets", "get list watch", "gpu-tls", group=""), set()),
        (rule("secrets", "*", "gpu-tls", group=""), set()),
        (rule("secrets", "list", "gpu-tls", "", group=""), {"node-write"}),
        (rule("resourceslices", "deletecollection", "s1"), set()),
        # An empty name is that of what is asked without one.
        (rule("nodes", "create", "", group=""), {"node-write"}),
        (rule("nodes", "update patch delete", "", group=""), set()),
        (rule("nodes", "patch", "", "n1", group=""), {"node-write"}),
        (rule("nodes pods events", "get list watch", group=""), set()),
        (rule("events", "create patch", group=""), set()),
        # R12
        (rule("clusterroles", "bind", group=RBAC), {"escalation"}),
        (rule("roles", "escalate", group=RBAC), {"escalation"}),
        (rule("clusterroles", "get list", group=RBAC), set()),
        (rule("users groups", "impersonate", group=""), {"escalation"}),
        (rule("serviceaccounts", "*", group=""), {"escalation"}),
        (rule("*", "*", group=AUTHENTICATION), {"escalation"}),
        (rule("userextras/scopes", "*", group=AUTHENTICATION), {"escalation"}),
        (rule("users", "*", group="my.example"), set()),
        (
            rule("userextras/authentication.kubernetes.io/node-name", "impersonate", group=AUTHENTICATION),
            {"escalation"},
        ),
        (rule("serviceaccounts", "impersonate:serviceaccount", group=AUTHENTICATION), {"escalation"}),
        (rule("pods", "impersonate-on:associated-node:list", group=""), {"escalation"}),
        # R13
        (rule("serviceaccounts/token", "create", group=""), {"token-minting"}),
        (rule("serviceaccounts/token", "create", "somebody-else", group=""), set()),
        (rule("serviceaccounts", "create", group=""), set()),
        (rule("pods", "create", group=""), {"node-write", "token-minting"}),
        # What makes pods of a template, and what changes the template of one that is there.
        (rule("replicationcontrollers", "create", group=""), {"token-minting"}),
        (rule("daemonsets", "create", group="apps"), {"token-minting"}),
        (rule("deployments", "update", group="apps"), {"token-minting"}),
        (rule("statefulsets", "patch", "plugin", group="apps"), {"token-minting"}),
        (rule("replicasets", "*", group="apps"), {"token-minting"}),
        (rule("jobs", "create", group="batch"), {"token-minting"}),
        (rule("cronjobs", "create", group="*"), {"token-minting"}),
        (rule("*", "create", group="apps"), {"token-minting"}),
        (rule("daemonsets deployments", "get list watch delete", group="apps"), set()),
        (rule("daemonsets/status deployments/scale", "update patch", group="apps"), set()),
        (rule("controllerrevisions", "create", group="apps"), set()),
        (rule("jobs", "create", group="my.example"), set()),
        # What is made has no name when it is asked whether it may be, or the empty one, but by server-side apply.
        (rule("daemonsets", "create", "plugin", group="apps"), set()),
        (rule("daemonsets", "create update", "plugin", group="apps"), {"token-minting"}),
        (rule("daemonsets", "create", "", group="apps"), {"token-minting"}),
        (rule("pods", "create", "", group=""), {"node-write", "token-minting"}),
        (rule("pods", "create", "p1", group=""), {"node-write"}),
        (rule("pods", "create patch", "p1", group=""), {"node-write", "token-minting"}),
        (rule("pods", "*", "p1", group=""), {"node-write", "token-minting"}),
        # R14
        (rule("validatingwebhookconfigurations", "patch", group=ADMISSION), {"guard-write"}),
        (rule("validatingadmissionpolicybindings", "delete", group=ADMISSION), {"guard-write"}),
        (rule("*", "*", group=ADMISSION), {"guard-write"}),
        (rule("mutatingwebhookconfigurations", "update", "allocguard", group=ADMISSION), {"guard-write"}),
        # Its own webhook.
        (rule("mutatingwebhookconfigurations", "update", "gpu-webhook", group=ADMISSION), set()),
        (rule("validatingwebhookconfigurations", "get list watch", group=ADMISSION), set()),
        (rule("namespaces", "patch", group=""), {"guard-write"}),
        (rule("namespaces", "get", group=""), set()),
        # Labels are written with these, too.
        (rule("namespaces/status", "patch", group=""), {"guard-write"}),
        (rule("namespaces/finalize", "update", group=""), {"guard-write"}),
        # Who names the writers decides what they may.
        (rule("driverrollouts", "patch", group="allocguard.dev"), {"guard-write"}),
        (rule("admissionpolicies", "*", group="allocguard.dev"), {"guard-write"}),
        (rule("*/status", "patch", group="allocguard.dev"), {"guard-write"}),
        (rule("driverrollouts nodeledgers", "get list watch", group="allocguard.dev"), set()),
        (
            rule("validatingadmissionpolicies", "delete", "allocguard-slices.gpu.example", group=ADMISSION),
            {"guard-write"},
        ),
        # Not a verb of these, and other groups with resources of these names.
        (rule("deviceclasses", "use"), set()),
        (rule("nodes", "patch", group="metrics.example"), set()),
    ],
)
def test_a_driver(one, found) -> None:
    assert rules_of(judged(one)) == found


@pytest.mark.parametrize(
    ("one", "found"),
    [
        # What a scheduler does beside allocating.
        (rule("pods/binding pods/status pods", "create patch delete", group=""), {"token-minting"}),
        (rule("pods/binding pods/status", "create patch", group=""), set()),
        (rule("jobs", "create", group="batch"), {"token-minting"}),
        (rule("resourceclaims", "update patch"), set()),
        (rule("nodes", "patch", group=""), {"node-write"}),
        (rule("resourceslices", "create"), {"device-policy-write"}),
        (rule("resourceslices deviceclasses", "get list watch"), set()),
        (rule("pods/exec", "create", group=""), {"node-write"}),
    ],
)
def test_an_allocator(one, found) -> None:
    assert rules_of(judged(one, profile="Allocator", drivers=[])) == found


def test_a_finding_shows_what_is_needed_of_the_same_resource() -> None:
    [found] = judged(rule("nodes", "get patch", group=""))
    assert found.fix == 'use {apiGroups: [""], resources: [nodes], verbs: [get]}'
    [found] = judged(rule("secrets", "list", group=""))
    assert found.fix == "take it away"


def test_everything_of_the_core_is_impersonation_too() -> None:
    everything = rule("*", "*", group="")
    assert rules_of(judged(everything)) == {"node-write", "escalation", "token-minting", "guard-write"}


def test_what_is_shown_instead_is_of_what_the_rule_grants() -> None:
    """A rule that reads is not to be made one that writes, nor one about claims one about slices."""
    [found] = judged(rule("*", "get list watch"))
    assert found.fix == (
        "use [{apiGroups: [resource.k8s.io], resources: [resourceslices], verbs: [get, list, watch]}, "
        "{apiGroups: [resource.k8s.io], resources: [resourceclaims], verbs: [get]}]"
    )
    shown = {each.rule: each.fix for each in judged(rule("resourceclaims/status", "*"))}
    assert shown["rbac-everything"] == (
        "use {apiGroups: [resource.k8s.io], resources: [resourceclaims/status], verbs: [patch]}"
    )
    for one in (
        rule("nodes", "patch", group=""),
        rule("*/proxy", "*", group=""),
        rule("resourceslices", "deletecollection"),
    ):
        assert {each.fix for each in judged(one)} == {"take it away"}


def test_tokens_and_pods_in_the_namespaces_of_drivers() -> None:
    minting = rule("serviceaccounts/token", "create", "plugin", group="")
    assert rules_of(_known(minting)) == {"token-minting"}
    assert rules_of(_known(rule("serviceaccounts/token", "create", "other", group=""))) == set()
    pods = rule("pods", "create", group="")
    assert rules_of(_known(pods, namespace="gpu")) == {"node-write", "token-minting"}
    assert rules_of(_known(pods, namespace="apart")) == {"node-write"}
    assert rules_of(_known(minting, namespace="apart")) == set()
    workloads = rule("daemonsets", "create", group="apps")
    assert rules_of(_known(workloads, namespace="gpu")) == {"token-minting"}
    assert rules_of(_known(workloads, namespace="apart")) == set()
    # Bound within a namespace that is not known here: what it is good for there is told of the binding.
    inside = world(rollout(), binding_object(namespace="apart"))
    for one in (pods, workloads, minting):
        said_so = role_of(role_object(one, annotations=said("NodeLocal", GPU)))
        assert "token-minting" not in rules_of(role_problems(said_so, inside))
    # Of a driver that no DriverRollout names its own namespace is known all the same.
    for namespace, told in (("gpu", True), ("apart", False)):
        said_so = role_of(role_object(pods, namespace=namespace, annotations=said("NodeLocal", GPU)))
        bound = world(binding_object(namespace=namespace, kind="Role"))
        assert ("token-minting" in rules_of(role_problems(said_so, bound))) is told


def test_all_that_makes_pods_by_one_rule_is_told_at_once() -> None:
    [found] = judged(
        {"apiGroups": ["apps", "batch"], "resources": ["daemonsets", "jobs"], "verbs": ["create", "patch"]}
    )
    assert (found.has, found.fix) == (
        "create, patch on daemonsets, jobs for a NodeLocal writer of gpu.example",
        "take it away",
    )
    assert found.needs.startswith("no such right: it makes pods with a driver's account")


def test_what_is_in_no_namespace_is_not_granted_within_one() -> None:
    cluster = rule("nodes", "patch", group=""), rule("deviceclasses", "patch"), rule("secrets", "list", group="")
    admission = rule("validatingwebhookconfigurations", "patch", group=ADMISSION)
    assert rules_of(_known(*cluster, admission, namespace="gpu")) == set()
    # But a namespace is within itself.
    assert rules_of(_known(rule("namespaces", "patch", group=""), namespace="gpu")) == {"guard-write"}


def _known(*rules, namespace=""):
    """A role that a DriverRollout's account has."""
    role = role_object(*rules, namespace=namespace)
    binding = binding_object(namespace=namespace, kind="Role" if namespace else "ClusterRole")
    return role_problems(role_of(role), world(rollout(GPU), binding))
