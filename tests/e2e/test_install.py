"""From an empty cluster to one that is guarded, and back."""

from __future__ import annotations

import re
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from certs.files import ensure
from tests.e2e.client import ApiError, Json
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import ControlPlane
from tests.e2e.guard import Guard
from tests.e2e.guarding import guarded, kubelet
from tests.e2e.kinds import path
from tests.e2e.waiting import eventually, steady
from tests.ledger import builders
from webhook.cli import deploying
from webhook.cli.deploying import files
from webhook.cli.program import program
from webhook.kube.node_ledger import NodeLedger, Reservation, node_ledger_object
from webhook.kube.packed import packed_status
from webhook.ledger.book import Book
from webhook.ledger.views import account_json
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

    def guard(self, *arguments: str, **options: Any) -> Guard:
        """The server as the Deployment runs it, but for its address: by the ServiceAccount and what that may do."""
        token = self.cluster.token("allocguard", namespace=self.namespace)
        secret = f"--certs-secret={self.namespace}/allocguard-certs"
        user = (f"{self.namespace}-guard",)
        return self.cluster.guard(
            f"--namespace={self.namespace}", secret, *arguments, user=user, token=token, **options
        )


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """One installation for the tests that leave it as it is; removing a namespace takes its time."""
    cluster = Cluster(control_plane, "inst", tmp_path_factory.mktemp("installed"))
    made = Installed(cluster)
    made.run("install")
    yield made
    # What stays of it must not have pods: the scheduler would give them to the nodes of tests to come.
    cluster.as_admin.gone(path("Namespace", made.namespace))
    with kubelet(cluster, made.namespace):
        eventually(lambda: cluster.as_admin.find(path("Namespace", made.namespace)) is None)
    cluster.close()


def test_installing_again_changes_nothing(installed: Installed) -> None:
    admin = installed.cluster.as_admin
    assert installed.there() == [obj["kind"] for obj in installed.objects]
    before = {deployed(obj): admin.get(deployed(obj))["metadata"].get("generation") for obj in installed.objects}
    installed.run("install")
    assert {where: admin.get(where)["metadata"].get("generation") for where in before} == before


def test_the_deployment_may_run(installed: Installed) -> None:
    """Its pods pass the pod security of its namespace: the controller makes them."""
    where = path("Pod", namespace=installed.namespace)
    assert eventually(lambda: len(installed.cluster.as_admin.items(where)) == 2)


def test_audit_mode(installed: Installed) -> None:
    installed.run("install", "--mode=audit", "--image=registry.invalid/guard:1")
    [deployment] = [deployed(obj) for obj in installed.objects if obj["kind"] == "Deployment"]
    [container] = installed.cluster.as_admin.get(deployment)["spec"]["template"]["spec"]["containers"]
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


def matching(resource: str, group: str = "resource.k8s.io", operations: Sequence[str] = ("CREATE",)) -> Json:
    rule = {"apiGroups": [group], "apiVersions": ["v1"], "operations": list(operations), "resources": [resource]}
    return {"resourceRules": [rule]}


PATCH = {"patchType": "JSONPatch", "expression": "[]"}
BAD_POLICIES: dict[str, Json] = {
    "no-action": policy(action=None),
    "no-rules": policy(matchConstraints={"resourceRules": []}),
    "unknown-action": policy(action="Refuse"),
    "hold-at-validate": policy(action="Hold"),
    "hold-without-validations": policy(endpoint="mutate", action="Hold", validations=[], mutations=[PATCH]),
    "hold-of-other-writes": policy(
        endpoint="mutate", action="Hold", matchConstraints=matching("pods", operations=["CREATE", "UPDATE"])
    ),
    "hold-of-other-resources": policy(endpoint="mutate", action="Hold", matchConstraints=matching("nodes")),
    "mutations-at-validate": policy(action="Warn", mutations=[PATCH]),
    "mutations-of-claims": policy(
        endpoint="mutate", action="Warn", mutations=[PATCH], matchConstraints=matching("resourceclaims/status")
    ),
    "mutations-of-anything": policy(
        endpoint="mutate", action="Warn", mutations=[PATCH], matchConstraints=matching("*", group="*")
    ),
    "patch-type": policy(endpoint="mutate", action="Warn", mutations=[{**PATCH, "patchType": "ApplyConfiguration"}]),
    "no-patch-type": policy(endpoint="mutate", action="Warn", mutations=[{"expression": "[]"}]),
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
    "mutations-only": policy(endpoint="mutate", action="Warn", validations=None, mutations=[PATCH]),
    "hold": policy(endpoint="mutate", action="Hold", matchConstraints=matching("pods", group="")),
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


def test_policies_and_rollouts_are_judged_by_their_schemas(installed: Installed) -> None:
    cluster, admin = installed.cluster, installed.cluster.as_admin
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
    assert "needs Warn, Audit or Hold there" in refused(cluster, POLICY, BAD_POLICIES["deny-at-mutate"])
    for name in ("hold-of-other-writes", "hold-of-other-resources"):
        assert "needs resourceRules that name CREATE of pods" in refused(cluster, POLICY, BAD_POLICIES[name]), name
    for name in ("mutations-of-claims", "mutations-of-anything"):
        assert "has mutations of resourceclaims" in refused(cluster, POLICY, BAD_POLICIES[name]), name
    assert "without canaryNodeSelector" in refused(cluster, ROLLOUT, BAD_ROLLOUTS["canary-without-nodes"])
    assert "needs at least 75s" in refused(cluster, ROLLOUT, BAD_ROLLOUTS["short-window"])


def columns(cluster: Cluster, where: str) -> dict[str, Any]:
    """What ``kubectl get -o wide`` shows of an object. Of two columns of one name both, in their order."""
    table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    answer = cluster.as_admin._http.get(where, headers={"accept": table}).json()
    shown: dict[str, Any] = {}
    for each, cell in zip(answer["columnDefinitions"], answer["rows"][0]["cells"], strict=True):
        shown[each["name"]] = (shown[each["name"]], cell) if each["name"] in shown else cell
    return shown


def test_columns(installed: Installed) -> None:
    cluster = installed.cluster
    name = cluster.name("cpu.example")
    cluster.as_admin.create(ROLLOUT, rollout(name, stage="Off", hold={"reason": "firmware", "by": "me"}))
    shown = columns(cluster, f"{ROLLOUT}/{name}")
    assert (shown["Name"], shown["Stage"], shown["Hold"], shown["By"]) == (name, "Off", "firmware", "me")
    cluster.delete("DriverRollout", "cpu.example")


def test_columns_of_a_ledger(installed: Installed) -> None:
    """Each figure stands in a column of its own, and with -o wide the row adds up."""
    cluster = installed.cluster
    cost = builders.new("cpu", {"capacityKey": "cpus", "capacityMultiplier": "1"}, {"perPod": "250m"})
    more = builders.new("memory", overhead={"perContainer": "2Gi"})
    snapshot = builders.world(
        builders.node("n1", cpu="16", memory="64Gi"),
        builders.slice_of(builders.device("grp", cost, more, capacity={"cpus": "8"})),
        builders.allocated("c1", builders.result(consumed={"cpus": "3"}), pods=("p1",)),
        builders.pod("p1", builders.container(cpu="1", memory="1Gi", claims=("c1",)), claims=("c1",)),
        minor=37,
    )
    held = Reservation("u", "a", "ns", "c2", "u2", "ns", "p2", (), {"cpu": 2, "memory": 2**30 * 4}, {}, "", "me")
    account = Book().account(snapshot.with_ledger(NodeLedger("n1", reservations=(held,))), "n1")
    assert account is not None
    sums = account_json(account)
    name = cluster.name("n1")
    obj = node_ledger_object(NodeLedger(name), sums["resources"], sums["zones"], 3)
    cluster.as_admin.create(path("NodeLedger"), {**obj, "status": {}})
    cluster.as_admin.patch(path("NodeLedger", name, sub="status"), {"status": packed_status(obj["status"])})
    shown = columns(cluster, path("NodeLedger", name))
    cluster.as_admin.delete(path("NodeLedger", name))
    del shown["Age"]
    assert shown == {
        "Name": name,
        "Cpu": "16", "Memory": "64Gi",
        "Pods": ("1", "1Gi"),
        "Claims": ("3", "0"),
        "Overhead Cpu": "250m", "Overhead Memory": "2Gi",
        "Reserved Cpu": "2", "Reserved Memory": "4Gi",
        "Free": ("9750m", "57Gi"),
        "Differences": 3,
    }  # fmt: skip


def test_the_service_account_may_do_what_the_server_does(cluster: Cluster, installed: Installed) -> None:
    """Two replicas by its tokens, which start at once, as those of a Deployment do: they watch, share certificates,
    elect a leader, register once, and refuse nobody's write that they need; the API server refuses none of theirs.
    """
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    cluster.create(
        "AdmissionPolicy",
        {**policy(matchConstraints={"resourceRules": [rule]}), "metadata": {"name": cluster.name("p")}},
    )
    guards = [installed.guard(start=False) for _ in range(2)]
    for guard in guards:
        guard.start(ready=False)
    for guard in guards:
        guard.wait()
    for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"):
        eventually(lambda kind=kind: cluster.as_admin.find(path(kind, "allocguard")))
    eventually(lambda: cluster.get("AdmissionPolicy", "p")["status"]["conditions"][0]["status"] == "True")
    created = [line["kind"] for guard in guards for line in guard.lines(event="registered", done="created")]
    assert sorted(created) == ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]
    assert sum(len(guard.lines(event="leading")) for guard in guards) == 1
    assert sum(len(guard.lines(event="certificates made")) for guard in guards) == 1
    assert cluster.as_admin.get(path("Secret", "allocguard-certs", installed.namespace))["type"] == "kubernetes.io/tls"
    where = path("ValidatingWebhookConfiguration", "allocguard")
    cluster.as_admin.patch(where, {"webhooks": []})
    eventually(lambda: cluster.as_admin.get(where).get("webhooks"))
    # Its requests have seats of their own.
    token = cluster.token("allocguard", namespace=installed.namespace)
    answer = cluster.token_client(token)._http.get("/api/v1/nodes")
    flow = cluster.as_admin.get("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/allocguard")
    assert answer.headers["x-kubernetes-pf-flowschema-uid"] == flow["metadata"]["uid"]
    leaders = []
    for guard in guards:
        told = guard.get("/readyz?verbose").text
        assert "but" not in told.replace("but the API server has no group topology.node.k8s.io", ""), told
        assert not guard.lines(level="warning", event="view refused")
        assert not guard.lines(level="error")
        assert "orbidden" not in guard.process.log.read_text()
        leaders.append("leader ok, leading" in told)
    assert sorted(leaders) == [False, True]
    assert guards[0].authority == guards[1].authority
    for guard in guards:
        assert guard.stop() == 0


def test_certificates_of_cert_manager_need_no_right_to_write_secrets(installed: Installed, tmp_path: Path) -> None:
    """As its component has it: a Secret that another program writes, and a role that reads it."""
    cluster, admin = installed.cluster, installed.cluster.as_admin
    recipe = yaml.safe_load((ROOT / "deploy" / "components" / "cert-manager" / "kustomization.yaml").read_text())
    [patch] = [yaml.safe_load(each["patch"]) for each in recipe["patches"]]
    admin.patch(path("Role", "allocguard", installed.namespace), {"rules": patch["rules"]})
    ensure(tmp_path / "issued", ["127.0.0.1"], datetime.now(UTC))
    names = ("ca.crt", "tls.crt", "tls.key")
    data = {name: b64encode((tmp_path / "issued" / name).read_bytes()).decode() for name in names}
    annotations = {"cert-manager.io/certificate-name": "allocguard", "cert-manager.io/issuer-kind": "Issuer"}
    metadata = {"name": "allocguard-certs", "annotations": annotations}
    secret = {"metadata": metadata, "type": "kubernetes.io/tls", "data": data}
    admin.gone(path("Secret", "allocguard-certs", installed.namespace))
    admin.create(path("Secret", namespace=installed.namespace), secret)
    guard = installed.guard()
    where = path("ValidatingWebhookConfiguration", "allocguard")

    def bundles() -> set[str]:
        found = admin.find(where) or {}
        return {entry["clientConfig"]["caBundle"] for entry in found.get("webhooks", [])}

    eventually(lambda: bundles() == {data["ca.crt"]})
    assert guard.authority.strip() == (tmp_path / "issued" / "ca.crt").read_bytes().strip()
    assert "orbidden" not in guard.process.log.read_text()
    assert guard.stop() == 0
    cluster.as_admin.gone(path("Secret", "allocguard-certs", installed.namespace))
    installed.run("install")


def test_uninstalling_under_a_running_server(installed: Installed) -> None:
    """The registration goes first, and does not come back: its server has lost the right to make it."""
    cluster = Cluster(installed.cluster.plane, "uninst", installed.cluster.folder / "again")
    other = Installed(cluster)
    try:
        told = other.run("install")
        assert f"namespace {installed.namespace} has a guard, whose rights go to the one in {other.namespace}" in told
        told = installed.run("uninstall", code=2)
        assert f"is in namespace {other.namespace}, not in {installed.namespace}; nothing is removed" in told
        assert " removed\n" not in told
        guard = other.guard()
        configuration = path("ValidatingWebhookConfiguration", "allocguard")
        eventually(lambda: cluster.as_admin.find(configuration))
        cluster.as_admin.create(ROLLOUT, rollout(cluster.name("cpu.example"), stage="General"))
        told = other.run("uninstall")
        removed = re.findall(r"^(\w+) \S+ removed$", told, re.MULTILINE)
        hooks = ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"]
        assert removed[:3] == ["ClusterRoleBinding", *hooks]
        assert "CustomResourceDefinition driverrollouts.allocguard.dev stays with 1 object;" in told
        steady(lambda: cluster.as_admin.find(configuration) is None, 3)
        assert guard.ready()
        cluster.delete("DriverRollout", "cpu.example")
        assert "CustomResourceDefinition driverrollouts.allocguard.dev removed" in other.run("uninstall")
        assert other.there() == []
        assert other.run("uninstall") == ""
    finally:
        cluster.close()


def test_a_namespace_with_other_things_in_it_stays(cluster: Cluster) -> None:
    shared = Installed(cluster)
    shared.namespace = cluster.namespace("shared", {"team": "a"})
    shared.objects = manifests(files(), Target(namespace=shared.namespace))
    assert "was there before and stays as it is" in shared.run("install")
    guard = shared.guard()
    eventually(lambda: cluster.as_admin.find(path("ValidatingWebhookConfiguration", "allocguard")))
    told = shared.run("uninstall")
    assert guard.stop() == 0
    assert f"Namespace {shared.namespace} was there before and stays" in told
    assert f"Secret {shared.namespace}/allocguard-certs removed" in told
    assert f"Lease {shared.namespace}/allocguard removed" in told
    assert shared.there() == ["Namespace"]
    assert cluster.as_admin.get(path("Namespace", shared.namespace))["metadata"]["labels"]["team"] == "a"


def test_uninstalling_under_a_server_that_may_do_anything(cluster: Cluster) -> None:
    """A server that an administrator runs beside the cluster registers itself again; that is said."""
    guarded(cluster)
    told = Installed(cluster).run("uninstall", code=1)
    assert "ValidatingWebhookConfiguration allocguard was there again" in told


def test_somebody_with_some_of_the_rights(cluster: Cluster) -> None:
    """What was applied and what was not is said, the rest can be applied later; a registration is not left alone."""
    verbs = ["get", "create", "patch", "delete"]
    some = [
        {"apiGroups": [""], "resources": ["namespaces", "serviceaccounts"], "verbs": verbs},
        {"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": verbs},
        {"apiGroups": ["allocguard.dev"], "resources": ["*"], "verbs": ["list"]},
    ]
    cluster.service_account("some", some)
    partly = Installed(cluster)
    token = cluster.token("some")
    partly._access = f"--kubeconfig={cluster.plane.kubeconfig('some', token=token)}"
    eventually(lambda: cluster.token_client(token).get(path("Namespace", cluster.ns)))
    told = partly.run("install", code=3)
    applied = re.findall(r"^(\w+) \S+ applied$", told, re.MULTILINE)
    may = ("Namespace", "CustomResourceDefinition", "ServiceAccount")
    assert applied == [obj["kind"] for obj in partly.objects if obj["kind"] in may]
    refused = re.findall(
        r"^allocguard: (\w+) \S+ not applied: the API server refuses: 403 Forbidden", told, re.MULTILINE
    )
    assert sorted(applied + refused) == sorted(obj["kind"] for obj in partly.objects)
    counted = f"{len(refused)} of {len(partly.objects)} objects were refused, {len(applied)} are applied and stay; "
    assert f"{counted}get the rights" in told
    whole = Installed(cluster)
    whole.run("install")
    told = partly.run("uninstall", code=3)
    assert "ClusterRoleBinding allocguard-registration not removed: the API server refuses: 403" in told
    assert "the registration stays, and so does the guard" in told
    assert whole.there() == [obj["kind"] for obj in whole.objects]
    assert "Namespace" in whole.run("uninstall")


def test_half_an_installation_and_what_keeps_it(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    half, admin = Installed(cluster), cluster.as_admin
    half.run("install")
    for obj in half.objects:
        if obj["kind"] in ("ClusterRoleBinding", "Deployment", "Role", "FlowSchema", "ServiceAccount"):
            admin.gone(deployed(obj))
    # Its objects are those of another version now.
    definition = path("CustomResourceDefinition", "driverrollouts.allocguard.dev")
    name = cluster.name("cpu.example")
    eventually(lambda: admin.create(ROLLOUT, rollout(name, stage="General")))
    [version] = admin.get(definition)["spec"]["versions"]
    admin.patch(
        definition, {"spec": {"versions": [{**version, "served": False}, {**version, "name": "v2", "storage": False}]}}
    )
    later = ROLLOUT.replace("v1alpha1", "v2")
    eventually(lambda: admin.get(f"{later}/{name}"))
    keeping = {"metadata": {"name": "kept", "finalizers": ["example.org/keep"]}}
    admin.create(path("ConfigMap", namespace=half.namespace), keeping)
    monkeypatch.setattr(deploying, "PATIENCE", 8.0)
    arguments = ["uninstall", "--apply", f"--namespace={half.namespace}", half._access]
    ran = CliRunner(catch_exceptions=False).invoke(program, arguments)
    assert ran.exit_code == 3, ran.output
    assert "CustomResourceDefinition driverrollouts.allocguard.dev stays with 1 object;" in ran.stderr
    waited = f"waited 8 seconds for Namespace {half.namespace} to be gone; "
    [line] = [each for each in ran.stderr.splitlines() if waited in each]
    assert "configmaps. has 1 resource instances" in line
    assert "example.org/keep in 1 resource instances" in line
    assert "not gone yet: 1 object; what is named above keeps them, and they go without it" in ran.stderr
    admin.patch(path("ConfigMap", "kept", half.namespace), {"metadata": {"finalizers": None}})
    admin.gone(f"{later}/{name}")
    half.run("uninstall")
    assert half.there() == []
