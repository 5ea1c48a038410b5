"""The policies we ship: what must hold whatever their rules say."""

from pathlib import Path

import pytest

from webhook.kube.admission import raw_request, read_request
from webhook.policy.compile import compile_files
from webhook.policy.suite import read_suites, run

FOLDER = Path(__file__).parents[2] / "policies"
FILES = {str(path): path.read_bytes() for path in sorted(FOLDER.rglob("*.yaml"))}
REVISION = compile_files(FILES)
SUITES, PROBLEMS = read_suites(FILES, lambda file, name: (Path(file).parent / name).read_bytes())
RESULTS = run(SUITES, REVISION)

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": "ns"}}
CLAIM = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "x", "namespace": "ns"}}
SLICE = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "x"}}
ROLLOUT = {"apiVersion": "allocguard.dev/v1alpha1", "kind": "DriverRollout", "metadata": {"name": "x"}}
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "x"}}
ROLE = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "x"}}


def asked(obj, operation="CREATE", sub_resource="", endpoint="validate"):
    """Names and actions of the policies that a write is routed to."""
    old = obj if operation in ("UPDATE", "DELETE") else None
    raw = raw_request(operation, None if operation == "DELETE" else obj, old, sub_resource=sub_resource)
    return {route[0].name: route[0].policy.action for route in REVISION.route(read_request(raw), endpoint)}


def test_there_is_a_test_for_every_policy() -> None:
    assert PROBLEMS == []
    assert {result.policy for result in RESULTS} == {policy.name for policy in REVISION.policies}


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: result.policy)
def test_every_case_passes(result) -> None:
    assert not result.failures
    assert [(case.name, case.failures) for case in result.cases if not case.passed] == []


def test_every_file_is_called_after_its_policy() -> None:
    assert {policy.policy.file for policy in REVISION.policies} == {
        str(FOLDER / f"{policy.name}.yaml") for policy in REVISION.policies
    }


def test_every_policy_is_on_the_page() -> None:
    page = (FOLDER.parent / "docs" / "policies.md").read_text()
    for policy in REVISION.policies:
        assert f"| `{policy.name}` |" in page, policy.name


def test_a_claim_is_refused_at_its_status_or_at_its_creation_only() -> None:
    assert asked(CLAIM, "UPDATE", "status") == {
        "claim-allocation": "Deny",
        "claim-blobs": "Warn",
        "claim-writers": "Deny",
    }
    assert asked(CLAIM, "UPDATE") == {}
    assert asked(CLAIM, "DELETE") == {}


@pytest.mark.parametrize("sub_resource", ["status", "binding"])
def test_what_a_scheduler_writes_about_pods_is_never_refused(sub_resource) -> None:
    judging = asked(POD, "UPDATE" if sub_resource == "status" else "CREATE", sub_resource)
    # Refuses others than schedulers.
    judging.pop("pod-writers", None)
    assert set(judging.values()) == {"Warn"}


def test_a_resize_is_judged_by_its_size_alone() -> None:
    assert asked(POD, "UPDATE", "resize") == {"pod-resize": "Deny"}
    assert asked(POD, "UPDATE") == {}


def test_deleting_a_slice_is_judged_by_who_deletes_it_alone() -> None:
    assert asked(SLICE, "DELETE") == {"slice-writers": "Deny"}
    assert asked(SLICE, "DELETE", endpoint="mutate") == {}


def test_nothing_is_refused_at_the_mutating_endpoint() -> None:
    assert asked(SLICE, "CREATE", endpoint="mutate") == {"slice-gate": "Warn"}
    steering = {"pod-canary": "Warn", "pod-hold": "Hold", "pod-zones": "Hold"}
    assert asked(POD, "CREATE", endpoint="mutate") == steering
    assert asked(POD, "UPDATE", endpoint="mutate") == asked(POD, "UPDATE", "status", endpoint="mutate") == {}
    for obj in (CLAIM, NODE, ROLE):
        assert asked(obj, "CREATE", endpoint="mutate") == asked(obj, "UPDATE", endpoint="mutate") == {}


def test_what_steers_pods_never_stands_in_the_way_of_one() -> None:
    for policy in REVISION.policies:
        if policy.policy.endpoint == "mutate":
            assert policy.policy.failure_policy == "Ignore", policy.name


def test_nodes_are_judged_by_their_labels_alone() -> None:
    assert asked(NODE) == asked(NODE, "UPDATE") == asked(NODE, "UPDATE", "status") == {"node-labels": "Deny"}
    assert asked(NODE, "DELETE") == {}


def test_what_no_policy_is_about_is_left_alone() -> None:
    assert asked(ROLLOUT, "CREATE") == asked(ROLLOUT, "UPDATE") == asked(ROLLOUT, "DELETE") == {}


def test_roles_are_never_refused() -> None:
    assert asked(ROLE, "CREATE") == asked(ROLE, "UPDATE") == {"rbac-scope": "Warn"}
    assert asked(ROLE, "DELETE") == {}


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1beta2"])
def test_every_served_version_of_a_slice_is_judged(version) -> None:
    assert asked({**SLICE, "apiVersion": f"resource.k8s.io/{version}"}) == asked(SLICE) != {}
