"""Who writes, as a webhook sees them, and what the API server lets each of them write."""

from __future__ import annotations

import json

import pytest

from tests.e2e.client import ApiError, Client, Json
from tests.e2e.cluster import Cluster
from tests.e2e.driver import Driver
from tests.e2e.kinds import path
from tests.e2e.scenes import CPU_DRIVER, cpu_claim, entry, refusal, shared_cpus
from tests.e2e.waiting import eventually

NODE_NAME, NODE_UID = "authentication.kubernetes.io/node-name", "authentication.kubernetes.io/node-uid"
POD_NAME = "authentication.kubernetes.io/pod-name"


def claimed(cluster: Cluster) -> Driver:
    """A driver whose device the claim ``c1`` has."""
    driver = shared_cpus(cluster)
    cpu_claim(cluster, "c1", 3)
    cluster.allocate("c1", driver, "group-0", cpus="3")
    return driver


def reported(cluster: Cluster, **more: object) -> Json:
    """The device status that a driver writes for the claim ``c1``."""
    [result] = cluster.get("ResourceClaim", "c1")["status"]["allocation"]["devices"]["results"]
    device = {key: result[key] for key in ("driver", "pool", "device", "shareID")}
    return {"status": {"devices": [{**device, "conditions": [], **more}]}}


def refused(client: Client, where: str, body: object) -> ApiError:
    """The refusal of a merge patch."""
    with pytest.raises(ApiError) as raised:
        client.patch(where, body)
    return raised.value


def bound_to(cluster: Cluster, kind: str, name: str) -> Json:
    return {**cluster.get(kind, name), "kind": kind, "apiVersion": "v1"}


def who(client: Client) -> Json:
    """What the API server makes of the client's credentials, as a webhook would be told."""
    info: Json = client.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})["status"]["userInfo"]
    return info


def test_a_token_says_where_it_is_from(cluster: Cluster) -> None:
    """A token bound to a node, or to a pod that has one, carries the node's name; no other does, also not the one of a
    pod that got its node later.
    """
    node = cluster.node("n1")
    cluster.pod("waiting", gates=["allocguard.dev/wait"])
    cluster.pod("placed", node="n1")

    def extra(bound: Json | None) -> Json:
        return dict(who(cluster.token_client(cluster.token("default", bound))).get("extra", {}))

    assert not extra(None).keys() & {NODE_NAME, POD_NAME}
    of_node = extra(bound_to(cluster, "Node", "n1"))
    assert of_node[NODE_NAME] == [node]
    assert of_node[NODE_UID] == [cluster.get("Node", "n1")["metadata"]["uid"]]
    assert POD_NAME not in of_node
    assert extra(bound_to(cluster, "Pod", "placed"))[NODE_NAME] == [node]
    waiting = cluster.token_client(cluster.token("default", bound_to(cluster, "Pod", "waiting")))
    assert NODE_NAME not in who(waiting)["extra"]
    cluster.as_admin.patch(cluster.path("Pod", "waiting"), {"spec": {"schedulingGates": []}})
    cluster.scheduled("waiting")
    assert who(waiting)["extra"][POD_NAME] == ["waiting"]
    assert NODE_NAME not in who(waiting)["extra"]


def test_what_a_webhook_is_told_of_a_driver(cluster: Cluster) -> None:
    """A review has the driver's ServiceAccount as user name, its groups, and the node of its token."""
    driver = cluster.driver(CPU_DRIVER, cluster.node("n1"))
    recorder = cluster.recorder(resources=("resource.k8s.io/resourceslices",))
    driver.publish([driver.device("d0")])
    [seen] = recorder.seen
    assert seen.user == driver.user
    info = seen.request["userInfo"]
    assert set(info["groups"]) == {
        "system:serviceaccounts",
        f"system:serviceaccounts:{cluster.ns}",
        "system:authenticated",
    }
    assert info["extra"][NODE_NAME] == [driver.node]


def test_a_token_ends_with_what_it_is_bound_to(cluster: Cluster) -> None:
    """A token is worth nothing some seconds after its node, or its pod, is deleted: settles it for pods."""
    cluster.node("n1")
    cluster.node("n2")
    cluster.pod("p1", node="n2")
    bound = [bound_to(cluster, "Node", "n1"), bound_to(cluster, "Pod", "p1")]
    clients = [cluster.token_client(cluster.token("default", each)) for each in bound]
    for client in clients:
        assert who(client)
    cluster.delete("Node", "n1")
    cluster.delete("Pod", "p1")

    def code(client: Client) -> int:
        try:
            who(client)
        except ApiError as error:
            return error.code
        return 0

    eventually(lambda: all(code(client) == 401 for client in clients), within=60, every=0.5)


def test_a_driver_reports_about_devices_of_its_own_node(cluster: Cluster) -> None:
    """A driver with the least that it needs may report about its devices of claims on its node; neither about those on
    another node nor, even so, touch allocation and consumers.
    """
    driver = claimed(cluster)
    where = cluster.path("ResourceClaim", "c1", "status")
    driver.client.patch(where, reported(cluster))
    other = cluster.driver(CPU_DRIVER, cluster.node("n2"))
    error = refused(other.client, where, reported(cluster, conditions=None, networkData={"interfaceName": "e0"}))
    assert refusal(error) == (422, "Invalid", [("status.devices", "FieldValueForbidden")])
    assert "associated-node" not in error.message
    assert "arbitrary-node:patch" in error.message
    uid = cluster.get("ResourceClaim", "c1")["metadata"]["uid"]
    error = refused(driver.client, where, {"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": uid}]}})
    assert refusal(error) == (422, "Invalid", [("status.allocation", "FieldValueForbidden")])
    assert '"resourceclaims/binding"' in error.message
    assert "at the cluster scope" in error.message
    # Who may bind takes every driver's report away with the allocation.
    cluster.as_scheduler.patch(where, {"status": {"allocation": None, "reservedFor": None}})
    assert not cluster.get("ResourceClaim", "c1").get("status")


def test_the_right_to_bind_is_cluster_wide_or_none(cluster: Cluster) -> None:
    """A RoleBinding to resourceclaims/binding is worth nothing, a ClusterRoleBinding is."""
    claimed(cluster)
    where = cluster.path("ResourceClaim", "c1", "status")
    uid = cluster.get("ResourceClaim", "c1")["metadata"]["uid"]
    consumer = {"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": uid}]}}
    resources = ["resourceclaims/status", "resourceclaims/binding"]
    rules = [{"apiGroups": ["resource.k8s.io"], "resources": resources, "verbs": ["get", "patch"]}]
    cluster.service_account("allocator")
    role = {"metadata": {"name": "allocator"}, "rules": rules}
    cluster.create("Role", role)
    subject = {"kind": "ServiceAccount", "name": "allocator", "namespace": cluster.ns}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "allocator"}
    cluster.create("RoleBinding", {"metadata": {"name": "allocator"}, "roleRef": reference, "subjects": [subject]})
    client = cluster.token_client(cluster.token("allocator"))
    eventually(lambda: client.get(where))
    error = refused(client, where, consumer)
    assert refusal(error) == (422, "Invalid", [("status.allocation", "FieldValueForbidden")])
    cluster.service_account("wide", rules)
    wide = cluster.token_client(cluster.token("wide"))
    eventually(lambda: wide.patch(where, consumer))


def test_a_kubelet_and_the_entries_of_a_pod(cluster: Cluster) -> None:
    """1.36 lets a kubelet change what its pods' claims are said to cost, 1.37 does not; neither takes claims of it."""
    shared_cpus(cluster)
    cpu_claim(cluster, "c1", 3)
    cluster.pod("p1", claims=["c1"])
    pod = cluster.scheduled("p1")
    entries = pod["status"]["nodeAllocatableResourceClaimStatuses"]
    if cluster.minor == 36:
        entries[0]["resources"]["cpu"] = "1"
    else:
        entries[0]["mapping"][0]["quantity"] = "1"
    kubelet = cluster.as_kubelet("n1")
    there = cluster.path("Pod", "p1", "status")
    changed = {"status": {"nodeAllocatableResourceClaimStatuses": entries}}
    if cluster.minor == 36:
        kubelet.patch(there, changed)
        assert entry(cluster, cluster.get("Pod", "p1"))["c1"]["cpu"] == "1"
    else:
        error = refused(kubelet, there, changed)
        assert (error.code, error.reason) == (403, "Forbidden")
        assert entry(cluster, cluster.get("Pod", "p1"))["c1"]["cpu"] == "3"
    kubelet.patch(there, {"status": {"phase": "Running"}})
    assert refused(kubelet, cluster.path("ResourceClaim", "c1", "status"), reported(cluster)).code == 403


def test_slices_of_other_nodes(cluster: Cluster) -> None:
    """A kubelet may create and delete slices of its own node only; a driver's ServiceAccount may write those of any
    node, and of any driver: nothing in the API server keeps it from that.
    """
    driver = shared_cpus(cluster)
    foreign = driver.slice([driver.device("d0")], index=7)
    foreign["spec"]["nodeName"] = cluster.node("n2")
    kubelet = cluster.as_kubelet("n1")
    with pytest.raises(ApiError) as raised:
        kubelet.create(path("ResourceSlice"), foreign)
    assert raised.value.code == 403
    foreign["spec"]["driver"] = "somebody.else.example.org"
    driver.client.create(path("ResourceSlice"), foreign)
    with pytest.raises(ApiError) as raised:
        kubelet.delete(path("ResourceSlice", foreign["metadata"]["name"]))
    assert raised.value.code == 403
    kubelet.delete(path("ResourceSlice"), fieldSelector=f"spec.nodeName={cluster.name('n1')}")
    assert cluster.as_admin.find(path("ResourceSlice", driver.slice([])["metadata"]["name"])) is None


def test_a_token_is_asked_about(cluster: Cluster) -> None:
    """The request for a token is a CREATE of serviceaccounts/token, with what the token is bound to in the object."""
    node = cluster.node("n1")
    recorder = cluster.recorder(resources=("/serviceaccounts/token",))
    cluster.token("default", cluster.get("Node", "n1"))
    [seen] = recorder.seen
    assert (seen.what, seen.request["name"]) == ("serviceaccounts/token CREATE", "default")
    assert seen.request["kind"]["group"] == "authentication.k8s.io"
    assert seen.request["object"]["spec"]["boundObjectRef"]["name"] == node


def test_questions_about_rights_reach_webhooks_in_1_36(cluster: Cluster) -> None:
    """1.36 asks webhooks about SubjectAccessReviews, so that one that asks such itself would ask itself; 1.37 does not.
    Neither asks about webhook configurations.
    """
    reviews = "authorization.k8s.io/selfsubjectaccessreviews"
    configurations = "admissionregistration.k8s.io/validatingwebhookconfigurations"
    recorder = cluster.recorder(resources=(reviews, configurations))
    body = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
    cluster.as_admin.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    cluster.as_admin.patch(path("ValidatingWebhookConfiguration", "recorder-0"), {"metadata": {"labels": {"a": "b"}}})
    asked = [seen.what for seen in recorder.seen]
    assert asked == (["selfsubjectaccessreviews CREATE"] if cluster.minor == 36 else [])


def test_data_that_is_not_in_the_servers_own_form(cluster: Cluster) -> None:
    """Device data with spaces stays as it is stored, and then whoever patches the claim's status is refused for it, and
    told of a driver that was not touched.
    """
    driver = claimed(cluster)
    where = cluster.path("ResourceClaim", "c1", "status")
    claim = cluster.get("ResourceClaim", "c1")
    claim["status"] |= reported(cluster, data="DATA")["status"]
    content = json.dumps(claim, separators=(",", ":")).replace('"DATA"', '{"b": 1}').encode()
    driver.client.raw("PUT", where, content)
    uid = claim["metadata"]["uid"]
    consumer = {"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": uid}]}}
    error = refused(cluster.as_scheduler, where, consumer)
    assert refusal(error) == (422, "Invalid", [("status.devices", "FieldValueForbidden")])
    assert driver.name in error.message


def test_the_resize_of_a_pod_with_entries(cluster: Cluster) -> None:
    """1.36 refuses to resize a pod that has entries, 1.37 resizes it: settles 1.37."""
    shared_cpus(cluster)
    cpu_claim(cluster, "c1", 3)
    cluster.pod("p1", claims=["c1"], cpu="1")
    cluster.scheduled("p1")
    resized = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]}}
    there = cluster.path("Pod", "p1", "resize")
    if cluster.minor == 36:
        with pytest.raises(ApiError) as raised:
            cluster.as_admin.patch(there, resized, "strategic")
        assert raised.value.code == 422
        return
    pod = cluster.as_admin.patch(there, resized, "strategic")
    assert pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "2"
    assert pod["spec"]["containers"][0]["resources"]["claims"] == [{"name": "c1"}]
