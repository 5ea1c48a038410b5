"""From an empty cluster to one that is guarded, and back."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.client import ApiError, Json
from tests.e2e.cluster import Cluster
from tests.e2e.kinds import path
from tests.e2e.waiting import eventually
from webhook.cli.deploying import files
from webhook.registration.manifests import Target, manifests
from webhook.registration.manifests import path as deployed

ROOT = Path(__file__).parents[2]
STRICT = {"fieldValidation": "Strict", "dryRun": "All"}
POLICY = "/apis/allocguard.dev/v1alpha1/admissionpolicies"
ROLLOUT = "/apis/allocguard.dev/v1alpha1/driverrollouts"


def allocguard(*arguments: str, code: int = 0) -> str:
    """What the command prints, both streams; it has to exit with ``code``."""
    done = subprocess.run(
        [sys.executable, "-m", "webhook.cli", *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


class Installed:
    """``allocguard install --apply`` in a namespace of the test's own."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.namespace = cluster, cluster.name("guard-system")
        self._access = f"--kubeconfig={cluster.plane.kubeconfig('admin', 'system:masters')}"
        self.objects = manifests(files(), Target(namespace=self.namespace))

    def run(self, command: str, *arguments: str, code: int = 0) -> str:
        return allocguard(command, f"--namespace={self.namespace}", "--apply", self._access, *arguments, code=code)

    def there(self) -> list[str]:
        """The kinds of what was installed and is there."""
        return [obj["kind"] for obj in self.objects if self.cluster.as_admin.find(deployed(obj))]


@pytest.fixture
def installed(cluster: Cluster) -> Iterator[Installed]:
    made = Installed(cluster)
    made.run("install")
    yield made
    made.cluster.delete("DriverRollout", "cpu.example")
    made.run("uninstall")


def test_install_again_and_uninstall(cluster: Cluster, installed: Installed) -> None:
    assert installed.there() == [obj["kind"] for obj in installed.objects]
    before = {deployed(obj): cluster.as_admin.get(deployed(obj)) for obj in installed.objects}
    installed.run("install")
    for where, obj in before.items():
        assert cluster.as_admin.get(where)["metadata"].get("generation") == obj["metadata"].get("generation"), where
    told = installed.run("uninstall")
    assert re.findall(r"(\w+) \S+ removed", told)[0] == "ClusterRoleBinding"
    assert installed.there() == []
    assert installed.run("uninstall") == ""


def test_objects_of_ours_outlive_it(cluster: Cluster, installed: Installed) -> None:
    cluster.as_admin.create(ROLLOUT, rollout(cluster.name("cpu.example"), stage="General"))
    told = installed.run("uninstall")
    assert "CustomResourceDefinition driverrollouts.allocguard.dev stays with 1 objects" in told
    cluster.delete("DriverRollout", "cpu.example")
    assert "CustomResourceDefinition admissionpolicies.allocguard.dev removed" in told


def test_the_deployment_may_run(cluster: Cluster, installed: Installed) -> None:
    """Pods as the Deployment's pass the pod security of its namespace; the controller makes them."""

    def pods() -> list[Json]:
        return cluster.as_admin.items(path("Pod", namespace=installed.namespace))

    assert len(eventually(lambda: len(pods()) == 2 and pods())) == 2


def test_audit_mode(cluster: Cluster, installed: Installed) -> None:
    installed.run("install", "--mode=audit", "--image=registry.invalid/guard:1")
    [deployment] = [deployed(obj) for obj in installed.objects if obj["kind"] == "Deployment"]
    [container] = cluster.as_admin.get(deployment)["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.invalid/guard:1"
    assert {"name": "MODE", "value": "audit"} in container["env"]


def refused(cluster: Cluster, where: str, body: Json) -> str:
    """Why the API server does not take it."""
    with pytest.raises(ApiError) as caught:
        cluster.as_admin.create(where, body, **STRICT)
    assert caught.value.code in (400, 422), caught.value
    return caught.value.message


def shipped() -> list[Json]:
    found = [yaml.safe_load(each.read_text()) for each in sorted((ROOT / "policies").glob("*.yaml"))]
    return [each for each in found if each["kind"] == "AdmissionPolicy"]


def policy(**spec: object) -> Json:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    whole = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"name": "a", "expression": "true"}],
        "action": "Deny",
        **spec,
    }
    body = {name: value for name, value in whole.items() if value is not None}
    return {"apiVersion": "allocguard.dev/v1alpha1", "kind": "AdmissionPolicy", "metadata": {"name": "p"}, "spec": body}


def rollout(name: str = "cpu.example", **spec: object) -> Json:
    metadata = {"name": name}
    return {"apiVersion": "allocguard.dev/v1alpha1", "kind": "DriverRollout", "metadata": metadata, "spec": spec}


BAD_POLICIES: dict[str, Json] = {
    "no-action": policy(action=None),
    "no-rules": policy(matchConstraints={"resourceRules": []}),
    "unknown-action": policy(action="Refuse"),
    "hold": policy(action="Hold"),
    "unknown-field": policy(matchCondition=[]),
    "not-built-yet": policy(canary={"percent": 10}),
    "nothing-to-judge": policy(validations=[]),
    "two-of-one-name": policy(validations=[{"name": "a", "expression": "true"}] * 2),
    "neither": policy(validations=[{"name": "a"}]),
    "both": policy(validations=[{"name": "a", "expression": "true", "findings": "[]"}]),
    "message-beside-findings": policy(validations=[{"name": "a", "findings": "[]", "message": "m"}]),
    "reason": policy(validations=[{"name": "a", "expression": "true", "reason": "Invalid"}]),
    "deny-at-mutate": policy(endpoint="mutate"),
    "expired-without-a-time": policy(
        exceptions=[{"name": "a", "expression": "true", "expires": "tomorrow", "ticket": "T"}]
    ),
    "selector": policy(
        matchConstraints={
            **policy()["spec"]["matchConstraints"],
            "namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]},
        }
    ),
    "params-are-no-list": policy(params=["a"]),
    "variable-name": policy(variables=[{"name": "a-b", "expression": "true"}]),
}
GOOD_POLICIES: dict[str, Json] = {
    "findings": policy(validations=[{"name": "a", "findings": "[]"}]),
    "params": policy(params={"any": {"thing": [1, "a", {"b": None}]}}),
    "annotations-only": policy(validations=None, auditAnnotations=[{"key": "node", "valueExpression": "'n'"}]),
    "mutate": policy(endpoint="mutate", action="Warn"),
    "exception": policy(
        exceptions=[{"name": "a", "expression": "true", "expires": "2027-01-31T00:00:00+01:00", "ticket": "T-1"}]
    ),
}
DIGEST = "sha256:" + "0" * 64
BAD_ROLLOUTS: dict[str, Json] = {
    "unknown-stage": rollout(stage="canary"),
    "canary-without-nodes": rollout(stage="Canary"),
    "expanding-without-nodes": rollout(stage="Expanding"),
    "unknown-field": rollout(stages="Off"),
    "hold-without-reason": rollout(hold={"by": "me"}),
    "hold-since": rollout(hold={"reason": "r", "since": "yesterday"}),
    "bad-digest": rollout(hold={"reason": "r", "badMappings": ["sha256:abc"]}),
    "short-window": rollout(freshness={"window": "30s"}),
    "no-duration": rollout(freshness={"window": "ninety"}),
    "pods-unnamed": rollout(freshness={"evidence": ["DriverPodReady"]}),
    "unknown-evidence": rollout(freshness={"evidence": ["Heartbeat"]}),
    "writer-without-account": rollout(writers=[{"namespace": "ns"}]),
    "profile": rollout(writers=[{"namespace": "ns", "serviceAccount": "a", "profile": "Everywhere"}]),
    "coverage": rollout(promotion={"minCoverage": 101}),
    "numa": rollout(numaAttributes=["not a name"]),
    "long-name": rollout(name=f"{'x' * 60}.example.com"),
    "selector-operator": rollout(
        stage="Canary", canaryNodeSelector={"matchExpressions": [{"key": "a", "operator": "in", "values": ["b"]}]}
    ),
}
GOOD_ROLLOUTS: dict[str, Json] = {
    "empty": rollout(),
    "whole": rollout(
        stage="Canary",
        canaryNodeSelector={"matchLabels": {"example.org/dra-canary": "enabled"}},
        writers=[{"namespace": "granite-system", "serviceAccount": "cpu-node-plugin", "profile": "NodeLocal"}],
        canaryLabelEditors={"groups": ["system:masters"], "users": []},
        freshness={
            "window": "1m30s",
            "heartbeat": "60s",
            "evidence": ["PoolComplete", "NodeReady", "DriverPodReady"],
            "driverPods": {"namespace": "granite-system", "selector": {"app": "cpu-node-plugin"}},
        },
        numaAttributes=["resource.kubernetes.io/numaNode", "cpu.granite.example/numaNodeID"],
        hold={"reason": "books half", "by": "on-call", "since": "2026-11-20T09:00:00Z", "badMappings": [DIGEST]},
        resumeAt={"mappingDigests": [DIGEST]},
        promotion={
            "minCoverage": 95,
            "quietDays": 7,
            "drills": ["Rollback", "NodeRestart", "DriverUpgrade"],
            "pendingP99": "30s",
        },
    ),
}


def test_policies_and_rollouts_are_judged_by_their_schemas(cluster: Cluster, installed: Installed) -> None:
    admin = cluster.as_admin
    for body in (*shipped(), *GOOD_POLICIES.values()):
        admin.create(POLICY, body, **STRICT)
    rollouts = [
        each
        for file in sorted((ROOT / "tests" / "cases").rglob("*.yaml"))
        for each in yaml.safe_load_all(file.read_text())
        if isinstance(each, dict) and each.get("kind") == "DriverRollout"
    ]
    assert len(rollouts) > 10
    for body in (*rollouts, *GOOD_ROLLOUTS.values()):
        admin.create(ROLLOUT, body, **STRICT)
    for name, body in BAD_POLICIES.items():
        assert refused(cluster, POLICY, body), name
    for name, body in BAD_ROLLOUTS.items():
        assert refused(cluster, ROLLOUT, body), name
    assert "needs Warn or Audit there" in refused(cluster, POLICY, BAD_POLICIES["deny-at-mutate"])
    assert "without canaryNodeSelector" in refused(cluster, ROLLOUT, BAD_ROLLOUTS["canary-without-nodes"])
    assert "needs at least 75s" in refused(cluster, ROLLOUT, BAD_ROLLOUTS["short-window"])


def test_columns(cluster: Cluster, installed: Installed) -> None:
    name = cluster.name("cpu.example")
    cluster.as_admin.create(ROLLOUT, rollout(name, stage="Off", hold={"reason": "firmware", "by": "me"}))
    table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    answer = cluster.as_admin._http.get(f"{ROLLOUT}/{name}", headers={"accept": table}).json()
    shown = dict(zip([each["name"] for each in answer["columnDefinitions"]], answer["rows"][0]["cells"], strict=True))
    assert (shown["Name"], shown["Stage"], shown["Hold"], shown["By"]) == (name, "Off", "firmware", "me")
