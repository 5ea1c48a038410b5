"""The webhook configurations on real API servers: what they send to whom, and that they are kept."""

from __future__ import annotations

import pytest

from tests.e2e.client import Json
from tests.e2e.cluster import Cluster
from tests.e2e.driver import each, mappings
from tests.e2e.kinds import path
from tests.e2e.recorder import Recorder
from tests.e2e.waiting import eventually
from webhook.policy.compile import compile_files
from webhook.registration.configurations import Address, configurations
from webhook.store.policies import read, shipped

KINDS = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
# A policy that asks for all that any row is about.
EVERYTHING = b"""
apiVersion: allocguard.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: everything}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: ["*"], apiVersions: [v1], operations: ["*"], resources: ["*", "*/*"]}
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}
  validations: [{name: never, expression: "true"}]
  action: Warn
  failurePolicy: Ignore
"""


def everywhere(endpoint: str) -> bytes:
    return EVERYTHING.replace(b"spec:", f"spec:\n  endpoint: {endpoint}".encode()).replace(
        b"everything", f"{endpoint}-everything".encode()
    )


class Sent:
    """All rows, registered for a recorder: what the API server sends where."""

    def __init__(self, cluster: Cluster, recorder: Recorder, drivers: frozenset[str]) -> None:
        self._cluster, self._recorder = cluster, recorder
        address = Address(url=f"https://127.0.0.1:{recorder.port}")
        revision = compile_files({each: everywhere(each) for each in ("validate", "mutate")})
        for obj in configurations(revision, address, recorder.authority, drivers, namespace="allocguard-system"):
            cluster.as_admin.create(path(obj["kind"]), obj)

    def live(self) -> None:
        """Wait until both configurations are in force."""
        number = 0

        def probe() -> bool:
            nonlocal number
            number += 1
            self._cluster.create("ConfigMap", {"metadata": {"name": f"probe-{number}"}})
            return {"validate/configmaps", "mutate/configmaps"} <= {seen.endpoint for seen in self._recorder.seen}

        eventually(probe)
        self._recorder.seen.clear()

    def rows(self, user: str = "") -> list[str]:
        """The rows that got something since the last call, validating ones first; of ``user`` alone where given.

        Each once: what conflicts with another write is asked about again.
        """
        found = {seen.endpoint for seen in self._recorder.seen if user in ("", seen.user)}
        self._recorder.seen.clear()
        return [name.partition("/")[2] for name in sorted(found, key=lambda name: (name.startswith("mutate"), name))]


@pytest.fixture
def sent(cluster: Cluster) -> Sent:
    made = Sent(cluster, cluster.recorder(endpoints=()), frozenset({cluster.name("listed.example")}))
    made.live()
    return made


def errors(cluster: Cluster) -> list[str]:
    """The API server's count of conditions that failed, other than zero."""
    metrics = cluster.as_admin.text("/metrics").splitlines()
    counts = [
        line for line in metrics if line.startswith("apiserver_admission_match_condition_evaluation_errors_total")
    ]
    return [line for line in counts if not line.endswith(" 0")]


def test_slices(cluster: Cluster, sent: Sent) -> None:
    node = cluster.node("n1")
    other, listed = cluster.driver("other.example", node), cluster.driver("listed.example", node)
    sent.rows()
    other.publish([other.device("d")])
    assert sent.rows(other.user) == ["other-slices", "sent-other-slices"]
    other.publish([other.device("d", costs={"cpu": each("1")})])
    assert sent.rows(other.user) == ["mapped-slices", "sent-mapped-slices"]
    other.publish([other.device("e")])
    assert sent.rows(other.user) == ["mapped-slices", "sent-mapped-slices"]
    listed.publish([listed.device("d")])
    assert sent.rows(listed.user) == ["guarded-slices", "sent-other-slices"]
    where = path("ResourceSlice", listed.slice([])["metadata"]["name"])
    listed.client.patch(where, {"metadata": {"labels": {"a": "b"}}})
    assert sent.rows(listed.user) == ["unchanged-slices", "sent-unchanged-slices"]
    listed.client.patch(where, {"metadata": {"finalizers": ["e2e.allocguard.dev/wait"]}})
    listed.client.delete(where)
    sent.rows()
    listed.client.patch(where, {"metadata": {"finalizers": []}})
    assert sent.rows(listed.user) == ["unchanged-slices", "sent-unchanged-slices"]
    other.withdraw()
    assert sent.rows(other.user) == ["slice-deletions"]
    assert errors(cluster) == []


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_slices_of_older_versions(cluster: Cluster, sent: Sent, version: str) -> None:
    driver = cluster.driver("old.example", cluster.node("n1"))
    slice_of = driver.slice([driver.device("d", costs={"cpu": each("1")})])
    if version == "v1beta1":
        for device in slice_of["spec"]["devices"]:
            device["basic"] = {key: device.pop(key) for key in list(device) if key != "name"}
    sent.rows()
    driver.client.create(
        f"/apis/resource.k8s.io/{version}/resourceslices", {**slice_of, "apiVersion": f"resource.k8s.io/{version}"}
    )
    assert sent.rows(driver.user) == ["mapped-slices", "sent-mapped-slices"]
    assert errors(cluster) == []


def test_the_field_of_the_other_release_is_gone_before_conditions_are_asked(cluster: Cluster, sent: Sent) -> None:
    driver = cluster.driver("other.example", cluster.node("n1"))
    device = {"name": "d", **mappings({36: 37, 37: 36}[cluster.minor], {"cpu": each("1")})}
    sent.rows()
    driver.client.create(path("ResourceSlice"), driver.slice([device]))
    assert sent.rows(driver.user) == ["other-slices", "sent-other-slices"]
    assert errors(cluster) == []


def test_claims(cluster: Cluster, sent: Sent) -> None:
    node = cluster.node("n1")
    other, listed = cluster.driver("other.example", node), cluster.driver("listed.example", node)
    cluster.device_class("none", cel="false")
    scheduler = "system:kube-scheduler"
    sent.rows()
    cluster.claim("a", "none")
    assert sent.rows("admin") == ["new-claims"]
    cluster.claim_template("t", "none")
    assert sent.rows("admin") == ["new-claims"]
    cluster.claim("b", "none")
    sent.rows()
    cluster.allocate("a", other, "d")
    assert sent.rows(scheduler) == ["other-allocations"]
    cluster.allocate("b", listed, "d")
    assert sent.rows(scheduler) == ["guarded-allocations"]
    where = cluster.path("ResourceClaim", "b", "status")
    consumers = [{"resource": "pods", "name": f"p{number}", "uid": f"u{number}"} for number in range(256)]
    # Claims with the most consumers there can be: conditions have a budget.
    cluster.as_scheduler.patch(where, {"status": {"reservedFor": consumers[:255]}})
    assert sent.rows(scheduler) == ["guarded-allocations"]
    cluster.as_scheduler.patch(where, {"status": {"reservedFor": consumers}})
    assert sent.rows(scheduler) == ["guarded-allocations"]
    cluster.as_scheduler.patch(where, {"status": {"reservedFor": consumers[:254]}})
    assert sent.rows(scheduler) == ["claim-releases"]
    listed.client.patch(
        where,
        {"status": {"devices": [{"driver": listed.name, "pool": listed.node, "device": "d", "data": {"a": 1}}]}},
    )
    assert sent.rows(listed.user) == ["claim-releases"]
    cluster.as_scheduler.patch(where, {"status": {"allocation": None, "reservedFor": None, "devices": None}})
    assert sent.rows(scheduler) == ["claim-releases"]
    assert errors(cluster) == []


def test_pods_and_heartbeats(cluster: Cluster, sent: Sent) -> None:
    node = cluster.node("n1")
    sent.rows()
    cluster.device_class("none", cel="false")
    cluster.claim("c", "none")
    sent.rows()
    cluster.pod("p", claims=["c"], node=node)
    assert sent.rows("admin") == ["new-pods", "sent-pods"]
    kubelet, status = cluster.as_kubelet(node), cluster.path("Pod", "p", "status")
    for phase in ("Pending", "Running"):
        kubelet.patch(status, {"status": {"phase": phase}})
    assert sent.rows(f"system:node:{node}") == []
    entry: Json = {"resourceClaimName": "c", "containers": ["main"]}
    entry |= {"resources": {"cpu": "1"}} if cluster.minor < 37 else {}
    cluster.as_admin.patch(status, {"status": {"nodeAllocatableResourceClaimStatuses": [entry]}})
    assert sent.rows("admin") == ["pod-claim-status"]
    kubelet.patch(status, {"status": {"message": "beat"}})
    kubelet.patch(path("Node", node, sub="status"), {"status": {"nodeInfo": {"kubeletVersion": "v1"}}})
    assert sent.rows(f"system:node:{node}") == []
    cluster.as_admin.patch(path("Node", node), {"metadata": {"labels": {"canary": "yes"}}})
    assert sent.rows("admin") == ["node-changes"]
    cluster.pod("q")
    cluster.scheduled("q")
    assert "pod-bindings" in sent.rows("system:kube-scheduler")
    assert errors(cluster) == []


def test_roles_and_tokens(cluster: Cluster, sent: Sent) -> None:
    sent.rows()
    cluster.service_account("driver", [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}])
    assert sent.rows("admin") == ["role-changes"]
    cluster.token("driver")
    assert sent.rows("admin") == ["token-requests"]
    assert errors(cluster) == []


def test_kube_system_is_left_alone(cluster: Cluster, sent: Sent) -> None:
    pod = {"metadata": {"name": cluster.name("p")}, "spec": {"containers": [{"name": "main", "image": "i"}]}}
    sent.rows()
    cluster.create("Pod", pod, "kube-system")
    cluster.delete("Pod", pod["metadata"]["name"], "kube-system")
    assert sent.rows("admin") == []


def test_long_lists_of_drivers_are_taken(cluster: Cluster) -> None:
    drivers = frozenset(f"driver-{number:04}.{'x' * 43}.example" for number in range(1200))
    for obj in configurations(read([shipped()]), Address(url="https://127.0.0.1:1"), b"", drivers, audit=True):
        for entry in obj["webhooks"]:
            entry["clientConfig"].pop("caBundle")
        cluster.as_admin.create(path(obj["kind"]), obj, dryRun="All")
