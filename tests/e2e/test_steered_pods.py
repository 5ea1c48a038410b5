"""What the guard makes of new pods: canary nodes, a gate while claims have to wait; and who may label canary nodes."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest

from tests.e2e.client import ApiError, Client, Json
from tests.e2e.cluster import RUN, Cluster
from tests.e2e.driver import each
from tests.e2e.guard import Guard
from tests.e2e.guarding import guarded, reviews
from tests.e2e.kinds import path
from tests.e2e.waiting import eventually, steady
from webhook.kube.core import GATE, MIRROR

DRIVER = "gpu.example.org"
RACK = {"key": "rack", "operator": "In", "values": ["a"]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def key(cluster: Cluster) -> str:
    """The label of this test's canary nodes."""
    return f"{cluster.name('canary')}.example.org/dra"


def canary(cluster: Cluster) -> Json:
    """What the guard adds to a term for the canary nodes of this test."""
    return {"key": key(cluster), "operator": "In", "values": ["on"]}


def rollout(cluster: Cluster, **spec: object) -> None:
    """The DriverRollout of the driver, new or changed: in stage Canary on this test's canary nodes, where ``spec`` says
    nothing else.
    """
    whole = {"stage": "Canary", "canaryNodeSelector": {"matchLabels": {key(cluster): "on"}}, **spec}
    where = path("DriverRollout", cluster.name(DRIVER))
    if cluster.as_admin.find(where) is not None:
        cluster.as_admin.patch(where, {"spec": whole})
        return
    body: Json = {"apiVersion": "allocguard.dev/v1alpha1", "kind": "DriverRollout"}
    cluster.create("DriverRollout", body | {"metadata": {"name": cluster.name(DRIVER)}, "spec": whole})


def fleet(cluster: Cluster) -> tuple[str, str]:
    """A canary node and one that the scheduler likes better, each with two mapped GPUs; a class and a template."""
    nodes = cluster.node("n1", cpu="8", labels={key(cluster): "on", "rack": "a"}), cluster.node("n2", cpu="64")
    for node in nodes:
        driver = cluster.driver(DRIVER, node)
        driver.publish([driver.device(f"gpu{index}", costs={"cpu": each("1")}) for index in range(2)])
    cluster.device_class("gpus", DRIVER)
    cluster.claim_template("gpu", "gpus")
    return nodes


def terms(pod: Json) -> list[Json]:
    """The required node selector terms of ``pod``."""
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    found: list[Json] = affinity.get(REQUIRED, {}).get("nodeSelectorTerms", [])
    return found


def seen(cluster: Cluster) -> None:
    """Wait until the guard knows rollout, class and template: a pod that is only tried is steered or gated."""
    claims = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    body = {"metadata": {"generateName": "try-"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    body["spec"]["resourceClaims"] = claims

    def steered() -> bool:
        pod = cluster.as_admin.create(cluster.path("Pod"), body, dryRun="All")
        return bool(terms(pod) or pod["spec"].get("schedulingGates"))

    eventually(steered)


def asked(guard: Guard) -> float:
    """How many pods the guard was asked to change."""
    return reviews(guard, "pods", endpoint="mutate/sent-pods")


def test_a_pod_whose_claims_need_a_canary_driver_gets_a_canary_node(cluster: Cluster) -> None:
    """The scheduler would have taken the larger node, where the guard refuses the allocation again and again."""
    node, _ = fleet(cluster)
    guard = guarded(cluster)
    rollout(cluster)
    cluster.claim("c1", "gpus")
    seen(cluster)
    for name, claims in (("p1", {"claims": ["c1"]}), ("p2", {"templates": ["gpu"]})):
        made = cluster.pod(name, **claims)
        assert terms(made) == [{"matchExpressions": [canary(cluster)]}]
        assert cluster.as_admin.warnings == []
        assert cluster.scheduled(name)["spec"]["nodeName"] == node
    assert guard.metric("allocguard_findings_total", action="Deny") == 0


def test_affinity_of_the_user_is_kept(cluster: Cluster) -> None:
    node, _ = fleet(cluster)
    guarded(cluster)
    rollout(cluster)
    seen(cluster)
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    own = {
        "nodeAffinity": {
            REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [RACK]}, {"matchFields": fields}]},
            PREFERRED: [{"weight": 1, "preference": {"matchExpressions": [RACK]}}],
        },
        "podAntiAffinity": {REQUIRED: [{"topologyKey": "rack", "labelSelector": {"matchLabels": {"x": "y"}}}]},
    }
    made = cluster.pod("p1", templates=["gpu"], spec={"affinity": own})
    assert terms(made) == [
        {"matchExpressions": [RACK, canary(cluster)]},
        {"matchExpressions": [canary(cluster)], "matchFields": fields},
    ]
    left = made["spec"]["affinity"]
    assert left["podAntiAffinity"] == own["podAntiAffinity"]
    assert left["nodeAffinity"][PREFERRED] == own["nodeAffinity"][PREFERRED]
    assert cluster.scheduled("p1")["spec"]["nodeName"] == node


def test_what_another_webhook_adds_afterwards_is_steered_too(cluster: Cluster) -> None:
    """The API server asks again when a later webhook has changed the pod; nothing is added twice."""
    node, _ = fleet(cluster)
    guard = guarded(cluster)
    rollout(cluster)
    seen(cluster)

    def answer(request: Json) -> Json | None:
        if len(terms(request["object"])) != 1:
            return None
        at = f"/spec/affinity/nodeAffinity/{REQUIRED}/nodeSelectorTerms/-"
        patch = [{"op": "add", "path": at, "value": {"matchExpressions": [RACK]}}]
        return {"allowed": True, "patchType": "JSONPatch", "patch": b64encode(json.dumps(patch).encode()).decode()}

    cluster.recorder(resources=("/pods",), endpoints=("mutate",), operations=("CREATE",), answer=answer)
    before = asked(guard)
    made = cluster.pod("p1", templates=["gpu"])
    assert terms(made) == [{"matchExpressions": [canary(cluster)]}, {"matchExpressions": [RACK, canary(cluster)]}]
    assert asked(guard) == before + 2
    assert cluster.scheduled("p1")["spec"]["nodeName"] == node


def test_pods_that_nobody_is_to_steer(cluster: Cluster) -> None:
    """Pods without claims, with a node, mirror pods, and pods that are there already."""
    _, other = fleet(cluster)
    early = cluster.pod("early", templates=["gpu"], gates=["example.org/later"])
    guard = guarded(cluster)
    rollout(cluster)
    seen(cluster)
    before = asked(guard)
    assert terms(cluster.pod("plain")) == []
    assert asked(guard) == before
    bound = cluster.pod("bound", templates=["gpu"], node=other)
    mirror = cluster.pod("mirror", node=other, annotations={MIRROR: "x"})
    for made in (bound, mirror):
        assert not {"affinity", "schedulingGates"} & made["spec"].keys()
    assert asked(guard) == before + 1
    where = cluster.path("Pod", "early")
    assert cluster.as_admin.patch(where, {"metadata": {"labels": {"a": "b"}}})["spec"] == early["spec"]
    assert "affinity" not in cluster.as_admin.patch(where, {"spec": {"schedulingGates": None}})["spec"]
    assert asked(guard) == before + 1


def test_while_the_driver_is_held_a_new_pod_waits_with_the_reason(cluster: Cluster) -> None:
    """The gate costs no attempt and no refusal, and other gates are left alone."""
    fleet(cluster)
    guard = guarded(cluster)
    hold = {"reason": "books half", "by": "on-call", "since": "2026-11-20T09:00:00Z"}
    rollout(cluster, stage="General", hold=hold)
    seen(cluster)
    made = cluster.pod("p1", templates=["gpu"], gates=["example.org/own"])
    assert made["spec"]["schedulingGates"] == [{"name": "example.org/own"}, {"name": GATE}]
    assert "affinity" not in made["spec"]
    [warning] = cluster.as_admin.warnings
    assert warning.startswith("pod-hold/driver-held: ")
    assert f"driver {cluster.name(DRIVER)} held: books half" in warning
    [line] = guard.lines(event="held", name="p1")
    assert line["warnings"] == [warning]
    assert guard.metric("allocguard_findings_total", rule="driver-held", action="Hold") >= 1
    # Somebody's own gate may go; ours is the guard's to take away.
    cluster.as_admin.patch(cluster.path("Pod", "p1"), {"spec": {"schedulingGates": [{"name": GATE}]}})
    steady(lambda: "nodeName" not in cluster.get("Pod", "p1")["spec"], during=2)
    assert cluster.events("p1", "FailedScheduling") == []
    rollout(cluster, stage="General", hold=None)
    assert cluster.scheduled("p1")["spec"]["nodeName"]


@pytest.fixture
def stranger(cluster: Cluster) -> tuple[str, Client]:
    """Somebody who may change nodes, as many controllers may; with his name."""
    rights = [{"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["get", "patch", "update"]}]
    user = cluster.service_account("stranger", rights)
    client = cluster.token_client(cluster.token("stranger"))
    # The authorizer takes a moment to learn of the role.
    eventually(lambda: client.find(path("Node", cluster.name("none"))) is None)
    return user, client


def refused(client: Client, where: str, labels: Json) -> str:
    """How a change of labels, which is only tried, is refused; empty when it is not."""
    try:
        client.patch(where, {"metadata": {"labels": labels}}, dryRun="All")
    except ApiError as error:
        return f"{error.code} {error.reason}: {error.message}"
    return ""


def test_canary_labels_are_for_their_editors(cluster: Cluster, stranger: tuple[str, Client]) -> None:
    """Not for somebody who may change nodes, and never for a kubelet; all other labels and heartbeats are free."""
    node = cluster.node("n1")
    guard = guarded(cluster)
    rollout(cluster)
    user, client = stranger
    label, where, kubelet = key(cluster), path("Node", node), cluster.as_kubelet(node)
    status = path("Node", node, sub="status")
    message = eventually(lambda: refused(client, where, {label: "on"}))
    assert message.startswith("403 Forbidden: ")
    assert f"node-labels/canary-label-editor: metadata.labels[{label}]: " in message
    assert f"by {user}" in message
    assert "canary-label-editor" in refused(client, status, {label: "on"})
    assert "an editor that is no kubelet" in refused(kubelet, where, {label: "on"})
    client.patch(where, {"metadata": {"labels": {"example.org/other": "x"}}})
    before = reviews(guard, "nodes")
    kubelet.patch(status, {"status": {"nodeInfo": {"kubeletVersion": "v1"}}})
    client.patch(where, {"metadata": {"annotations": {"a": "b"}}})
    assert reviews(guard, "nodes") == before
    cluster.as_admin.patch(where, {"metadata": {"labels": {label: "on"}}})
    assert "removed" in refused(client, where, {label: None})
    assert "from 'on' to 'off'" in refused(client, where, {label: "off"})
    labels = {label: "on", RUN: cluster.tag}
    with pytest.raises(ApiError, match="an editor that is no kubelet"):
        cluster.as_kubelet("n2").create(path("Node"), {"metadata": {"name": cluster.name("n2"), "labels": labels}})
    rollout(cluster, canaryLabelEditors={"users": [user]})
    eventually(lambda: not refused(client, where, {label: "off"}))
    assert "an editor that is no kubelet" in refused(kubelet, where, {label: "off"})
