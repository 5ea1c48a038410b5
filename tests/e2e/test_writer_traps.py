"""Traps of the write path: what one writer does and another one fails for, without us; and what the guard says."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from functools import partial

import pytest

from tests.e2e.client import ApiError, Client, Json
from tests.e2e.cluster import Cluster
from tests.e2e.driver import Driver, role_rules
from tests.e2e.guard import Guard
from tests.e2e.guarding import guarded
from tests.e2e.kinds import path
from tests.e2e.scenes import CLASS, CPU_DRIVER, cpu_claim, cpu_class, entry, refusal, shared_cpus
from tests.e2e.waiting import eventually, steady
from tests.facts.test_canonical_json import CHANGED, KEPT
from webhook.facts.canonical_json import is_canonical
from webhook.kube.rollout import API_VERSION

FIELD = "nodeAllocatableResourceClaimStatuses"
NODE_NAME = "authentication.kubernetes.io/node-name"
POD_NAME = "authentication.kubernetes.io/pod-name"
GENTLY = {"dryRun": "All"}


def named(cluster: Cluster, *drivers: Driver, **more: str) -> None:
    """Name the accounts of ``drivers``, which are one driver on several nodes, as its writers, and ``more`` accounts
    with their profiles.
    """
    accounts = {**{each.account: "NodeLocal" for each in drivers}, **more}
    writers = [
        {"namespace": cluster.ns, "serviceAccount": account, "profile": profile}
        for account, profile in accounts.items()
    ]
    metadata = {"name": drivers[0].name}
    body = {"apiVersion": API_VERSION, "kind": "DriverRollout", "metadata": metadata, "spec": {"writers": writers}}
    cluster.create("DriverRollout", body)


def refused(write: Callable[[], object], *parts: str) -> ApiError:
    """The refusal of ``write``, once it has all of ``parts`` in its message: the guard's view may be a moment behind.
    What passes until then must have changed nothing.
    """

    def look() -> ApiError | None:
        try:
            write()
        except ApiError as error:
            if all(part in error.message for part in parts):
                return error
            raise
        return None

    error = eventually(look)
    assert error is not None
    return error


def warned(client: Client, write: Callable[[], object], *parts: str) -> str:
    """The warning that ``write`` gets, once it has all of ``parts``."""

    def look() -> str:
        write()
        told = " | ".join(client.warnings)
        assert all(part in told for part in parts), told
        return told

    return eventually(look)


def found(guard: Guard, policy: str, rule: str) -> float:
    """How often ``guard`` has found that."""
    return guard.metric("allocguard_findings_total", policy=policy, rule=rule)


def controller(cluster: Cluster, driver: Driver) -> Client:
    """A controller of the driver's devices that belong to no single node, named as its writer."""
    cluster.service_account("fabric", role_rules(driver.name))
    return cluster.token_client(cluster.token("fabric"))


def everywhere(driver: Driver, generation: int) -> Json:
    """A slice for all nodes in the pool of the driver's node."""
    body = driver.slice([{"name": "other"}], generation=generation, index=9)
    del body["spec"]["nodeName"]
    body["spec"]["allNodes"] = True
    return body


def waiting(cluster: Cluster) -> str:
    """A pod that the scheduler had no device for, once it knows as much as the API server."""
    names = itertools.count(1)

    def look() -> str:
        name = f"p{next(names)}"
        cpu_claim(cluster, name, 1)
        cluster.pod(name, claims=[name])
        bound = eventually(
            lambda: cluster.get("Pod", name)["spec"].get("nodeName") or cluster.events(name, "FailedScheduling")
        )
        return name if isinstance(bound, list) else ""

    return eventually(look)


@pytest.mark.parametrize("ahead", [1, 0], ids=["higher generation", "one too many"])
def test_one_slice_stops_the_pool_of_a_node(cluster: Cluster, ahead: int) -> None:
    """The API server takes it, pods that need the pool wait, and nothing they are told names the slice. The guard
    refuses it, of a driver that names its writers, and lets the owner of the pool publish it anew; where nobody is
    named it warns.
    """
    driver = shared_cpus(cluster, cpus="100", cpu="100", memory="100Gi")
    fabric = controller(cluster, driver)
    trap = everywhere(driver, 1 + ahead)
    eventually(lambda: fabric.create(path("ResourceSlice"), trap))
    pod = waiting(cluster)
    steady(lambda: not cluster.get("Pod", pod)["spec"].get("nodeName"), during=2)
    assert not any(trap["metadata"]["name"] in each for each in cluster.events(pod))
    fabric.delete(path("ResourceSlice", trap["metadata"]["name"]))
    # Nor does the scheduler look at them again before somebody publishes something.
    driver.publish([{"name": "one-more"}], pool=cluster.name("more"))
    cluster.scheduled(pod)

    guarded(cluster)
    publish = partial(fabric.create, path("ResourceSlice"), trap, **GENTLY)
    if ahead:
        warned(fabric, publish, "slice-writers/pool-taken-over: ")
    named(cluster, driver, fabric="MultiNode")
    error = refused(
        publish,
        "slice-writers/pool-taken-over: spec.pool.generation: ",
        f"in pool {driver.node}, which has generation 1: {driver.slice([])['metadata']['name']} of node {driver.node}",
    )
    assert (error.code, error.reason) == (403, "Forbidden")
    driver.client.create(path("ResourceSlice"), driver.slice([{"name": "d"}], generation=2, index=1), **GENTLY)
    assert not driver.client.warnings


def test_a_device_in_the_pool_of_another_node_is_taken_on_both(cluster: Cluster) -> None:
    """A slice of another node stops no pool, but who gets a device by it has that of the pool's own node, too."""
    here, there = (cluster.driver(CPU_DRIVER, cluster.node(each)) for each in ("n1", "n2"))
    cpu_class(cluster)
    there.publish([there.device("d0"), there.device("d1")])

    def asks(pod: str, node: str) -> None:
        """A pod of the node that asks for one device."""
        cluster.claim(pod, CLASS)
        cluster.pod(pod, claims=[pod], spec={"nodeSelector": {"kubernetes.io/hostname": node}})

    def got(pod: str) -> str:
        cluster.scheduled(pod)
        [result] = cluster.get("ResourceClaim", pod)["status"]["allocation"]["devices"]["results"]
        device: str = result["device"]
        return device

    beside = here.slice([here.device("d8")], pool=there.node, generation=7, index=8)
    here.client.create(path("ResourceSlice"), beside)
    asks("p1", here.node)
    assert got("p1") == "d8"
    asks("p2", there.node)
    [left] = {"d0", "d1"} - {got("p2")}
    here.client.delete(path("ResourceSlice", beside["metadata"]["name"]))
    double = here.slice([here.device(left)], pool=there.node, index=9)
    here.client.create(path("ResourceSlice"), double)
    asks("p3", here.node)
    assert got("p3") == left
    asks("p4", there.node)
    eventually(lambda: cluster.events("p4", "FailedScheduling"))
    here.client.delete(path("ResourceSlice", double["metadata"]["name"]))

    guarded(cluster)
    named(cluster, here, there)
    publish = partial(here.client.create, path("ResourceSlice"), double, **GENTLY)
    refused(
        publish,
        f"slice-writers/pool-taken-over: spec.pool.name: has device {left} of pool {there.node}, which ",
        f"of node {there.node} has",
    )
    here.client.create(path("ResourceSlice"), beside, **GENTLY)


def reports(cluster: Cluster, driver: Driver, blob: str) -> bytes:
    """The claim ``c1`` as it is, with ``blob`` as the data of its device."""
    claim = cluster.get("ResourceClaim", "c1")
    [result] = claim["status"]["allocation"]["devices"]["results"]
    device = {key: result[key] for key in ("driver", "pool", "device", "shareID")}
    claim["status"]["devices"] = [{**device, "conditions": [], "data": "DATA"}]
    return json.dumps(claim, separators=(",", ":")).replace('"DATA"', blob).encode()


def arrives(blob: str) -> str:
    """The blob as a review has it: without spaces, and with what Go escapes as an escape."""
    text = re.sub(r'("(?:[^"\\]|\\.)*")|\s+', lambda found: found[1] or "", blob)
    for plain, escaped in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"), ("\u2028", "\\u2028")):
        text = text.replace(plain, escaped)
    return text


def test_device_data_that_others_are_refused_for(cluster: Cluster) -> None:
    """A strategic merge patch of somebody else, as the scheduler's release of a consumer, is refused for data that is
    not as Go writes it, and told of a driver that it did not touch. The guard tells whoever stores such data, as far as
    a review shows it.
    """
    driver = shared_cpus(cluster)
    cpu_claim(cluster, "c1", 3)
    pod = cluster.pod("p1", claims=["c1"], gates=["example.org/wait"])
    cluster.allocate("c1", driver, "group-0", pod="p1", cpus="3")
    guard = guarded(cluster)
    where = cluster.path("ResourceClaim", "c1", "status")
    release = {"status": {"reservedFor": [{"$patch": "delete", "uid": pod["metadata"]["uid"]}]}}
    unseen = 0
    for blob in (*KEPT, *CHANGED):
        driver.client.raw("PUT", where, reports(cluster, driver, blob))
        told = any("claim-blobs/blob-not-canonical: " in each for each in driver.client.warnings)
        assert told is not is_canonical(arrives(blob)), (blob, driver.client.warnings)
        unseen += not told and not is_canonical(blob)
        released = partial(cluster.as_scheduler.patch, where, release, "strategic", **GENTLY)
        if is_canonical(blob):
            assert not released()["status"].get("reservedFor")
            continue
        with pytest.raises(ApiError) as raised:
            released()
        assert refusal(raised.value) == (422, "Invalid", [("status.devices", "FieldValueForbidden")]), blob
        assert driver.name in raised.value.message
    # Spaces, and what need not be escaped: the API server has evened those out in what it sends.
    assert unseen == sum(not is_canonical(blob) and is_canonical(arrives(blob)) for blob in CHANGED) == 3
    assert found(guard, "claim-blobs", "blob-not-canonical") == len(CHANGED) - unseen


def test_parameters_that_nobody_can_patch(cluster: Cluster) -> None:
    """A class with parameters as a Go struct writes them makes claims whose allocation nobody can patch, and a claim
    with such parameters cannot even be labelled by a strategic merge patch. The guard tells whoever makes them.
    """
    driver = shared_cpus(cluster)
    cluster.delete("DeviceClass", CLASS)
    guarded(cluster)
    opaque = f'[{{"opaque":{{"driver":"{driver.name}","parameters":{{"kind":"Config","apiVersion":"a/v1"}}}}}}]'
    selector = f'[{{"cel":{{"expression":"device.driver == \'{driver.name}\'"}}}}]'
    name = cluster.name(CLASS)
    made = f'{{"metadata":{{"name":"{name}"}},"spec":{{"selectors":{selector},"config":{opaque}}}}}'.encode()
    warned(
        cluster.as_admin,
        lambda: cluster.as_admin.raw("POST", path("DeviceClass"), made, **GENTLY),
        "claim-blobs/blob-not-canonical: ",
    )
    cluster.as_admin.raw("POST", path("DeviceClass"), made)
    request = f'{{"name":"r","exactly":{{"deviceClassName":"{name}"}}}}'
    spec = f'{{"devices":{{"requests":[{request}],"config":{opaque}}}}}'
    cluster.as_admin.raw(
        "POST", cluster.path("ResourceClaim"), f'{{"metadata":{{"name":"c1"}},"spec":{spec}}}'.encode()
    )
    assert any("claim-blobs/blob-not-canonical: " in each for each in cluster.as_admin.warnings)
    template = f'{{"metadata":{{"name":"t1"}},"spec":{{"spec":{spec}}}}}'.encode()
    cluster.as_admin.raw("POST", cluster.path("ResourceClaimTemplate"), template)
    assert any("claim-blobs/blob-not-canonical: " in each for each in cluster.as_admin.warnings)
    label = {"metadata": {"labels": {"a": "b"}}}
    with pytest.raises(ApiError, match="immutable") as raised:
        cluster.as_admin.patch(cluster.path("ResourceClaim", "c1"), label, "strategic")
    assert raised.value.code == 422
    cluster.pod("p1", claims=["c1"])
    cluster.scheduled("p1")
    consumers = cluster.get("ResourceClaim", "c1")["status"]["reservedFor"]
    more = {"status": {"reservedFor": [*consumers, {"resource": "pods", "name": "p2", "uid": "another"}]}}
    with pytest.raises(ApiError) as raised:
        cluster.as_scheduler.patch(cluster.path("ResourceClaim", "c1", "status"), more, "strategic")
    assert refusal(raised.value) == (422, "Invalid", [("status.allocation", "FieldValueInvalid")])


def request_token(cluster: Cluster, client: Client, account: str, bound: Json | None = None, **params: str) -> str:
    """A token of ``account``, asked for by ``client``."""
    spec: Json = {"expirationSeconds": 3600}
    if bound is not None:
        spec["boundObjectRef"] = {"apiVersion": "v1", **bound}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    made = client.create(path("ServiceAccount", account, cluster.ns, "token"), body, **params)
    token: str = made["status"]["token"]
    return token


def test_a_token_that_is_older_than_the_place_of_its_pod(cluster: Cluster) -> None:
    """It names no node, and never does: the API server takes every slice by it and no status of a device. The guard
    tells whoever asks for it, and refuses what it writes with the reason.
    """
    driver = shared_cpus(cluster)
    cluster.pod("plugin", gates=["example.org/wait"], spec={"serviceAccountName": driver.account})
    pod = {"kind": "Pod", "name": "plugin"}
    client = cluster.token_client(request_token(cluster, cluster.as_admin, driver.account, pod))
    cluster.as_admin.patch(cluster.path("Pod", "plugin"), {"spec": {"schedulingGates": []}})
    cluster.scheduled("plugin")
    extra = client.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})["status"]["userInfo"]["extra"]
    assert POD_NAME in extra
    assert NODE_NAME not in extra
    cpu_claim(cluster, "c1", 3)
    cluster.allocate("c1", driver, "group-0", cpus="3")
    where = cluster.path("ResourceClaim", "c1", "status")
    with pytest.raises(ApiError) as raised:
        client.raw("PUT", where, reports(cluster, driver, "{}"))
    assert refusal(raised.value) == (422, "Invalid", [("status.devices", "FieldValueForbidden")])
    assert "associated-node" not in raised.value.message
    another = driver.slice([driver.device("d0")], pool=cluster.name("more"))
    client.create(path("ResourceSlice"), another, **GENTLY)

    guarded(cluster)
    named(cluster, driver)
    refused(
        lambda: client.create(path("ResourceSlice"), another, **GENTLY),
        "slice-writers/slice-writer-without-node: ",
        "made before its pod was on a node",
    )
    # The pod has a node now, and a token that is asked for now names it.
    eventually(lambda: not asked(cluster, driver, pod))
    cluster.pod("late", gates=["example.org/wait"], spec={"serviceAccountName": driver.account})
    told = eventually(lambda: asked(cluster, driver, {"kind": "Pod", "name": "late"}))
    assert "token-writers/token-without-node: " in told
    assert "pod late, which is on no node yet" in told
    assert "bound to nothing" in asked(cluster, driver, None)
    assert not asked(cluster, driver, {"kind": "Node", "name": driver.node})


def asked(cluster: Cluster, driver: Driver, bound: Json | None) -> str:
    """What an administrator is warned of who asks for a token of the driver's account, bound to that."""
    request_token(cluster, cluster.as_admin, driver.account, bound)
    return " | ".join(cluster.as_admin.warnings)


def test_whoever_may_ask_for_tokens_is_every_driver(cluster: Cluster) -> None:
    """One right in one namespace forges any node. The guard refuses tokens of drivers' accounts, and no other ones,
    which it is not even asked about.
    """
    driver = shared_cpus(cluster)
    there = cluster.node("n2")
    rules = [{"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]}]
    cluster.service_account("minting", rules)
    client = cluster.token_client(cluster.token("minting"))
    node = {"kind": "Node", "name": there}
    token = eventually(lambda: request_token(cluster, client, driver.account, node))
    info = cluster.token_client(token).create("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert info["status"]["userInfo"]["extra"][NODE_NAME] == [there]

    guard = guarded(cluster)
    named(cluster, driver)
    error = refused(
        lambda: request_token(cluster, client, driver.account, node),
        "token-writers/token-by-stranger: spec.boundObjectRef: ",
        f"has a token of {cluster.ns}/{driver.account}, asked for by system:serviceaccount:{cluster.ns}:minting",
    )
    assert (error.code, error.reason) == (403, "Forbidden")
    before = guard.metric("allocguard_admission_reviews_total", resource="serviceaccounts/token")
    assert request_token(cluster, client, "default", node)
    assert guard.metric("allocguard_admission_reviews_total", resource="serviceaccounts/token") == before > 0
    assert request_token(cluster, cluster.as_admin, driver.account, node)


def test_what_a_pods_claims_are_said_to_cost_is_the_schedulers(cluster: Cluster) -> None:
    """1.36 lets a kubelet change or drop it, and either release anybody who may write the status of pods: the scheduler
    then counts what they say.
    """
    driver = shared_cpus(cluster)
    cpu_claim(cluster, "c1", 3)
    cluster.pod("p1", claims=["c1"])
    entries = cluster.scheduled("p1")["status"][FIELD]
    less = json.loads(json.dumps(entries))
    if cluster.minor == 36:
        less[0]["resources"]["cpu"] = "1"
    else:
        less[0]["mapping"] = [
            {**each, "quantity": "1"} if each["name"] == "cpu" else each for each in less[0]["mapping"]
        ]
    rules = [{"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]}]
    cluster.service_account("meddling", rules)
    stranger = cluster.token_client(cluster.token("meddling"))
    kubelet, where = cluster.as_kubelet("n1"), cluster.path("Pod", "p1", "status")

    def write(client: Client, value: object, **params: str) -> Json:
        return client.patch(where, {"status": {FIELD: value}}, **params)

    eventually(lambda: write(stranger, less))
    assert entry(cluster, cluster.get("Pod", "p1"))["c1"]["cpu"] == "1"
    if cluster.minor == 36:
        write(kubelet, less, **GENTLY)
        write(kubelet, [], **GENTLY)
    else:
        for value in (entries, []):
            with pytest.raises(ApiError) as raised:
                write(kubelet, value)
            assert raised.value.code == 403
    write(cluster.as_scheduler, entries)

    guarded(cluster)
    warned(stranger, lambda: write(stranger, less, **GENTLY), "pod-writers/claim-statuses-by-stranger: ")
    named(cluster, driver)
    error = refused(
        lambda: write(stranger, less, **GENTLY),
        f"pod-writers/claim-statuses-by-stranger: status.{FIELD}: has a change of what claim c1 of pod {cluster.ns}/p1",
    )
    assert (error.code, error.reason) == (403, "Forbidden")
    refused(lambda: write(stranger, [], **GENTLY), "no word any more of what claim c1")
    if cluster.minor == 36:
        refused(lambda: write(kubelet, less, **GENTLY), "pod-writers/claim-statuses-by-kubelet: ")
        write(kubelet, [], **GENTLY)
        assert any("pod-writers/claim-statuses-by-kubelet: " in each for each in kubelet.warnings)
    kubelet.patch(where, {"status": {"phase": "Running"}})
    assert not kubelet.warnings
    assert entry(cluster, cluster.get("Pod", "p1"))["c1"]["cpu"] == "3"


def test_a_pod_that_is_bound_by_nobody_who_counts(cluster: Cluster) -> None:
    """It has its devices and no entry for them: the scheduler thinks the node free. The guard tells whoever binds."""
    driver = shared_cpus(cluster)
    for number in (1, 2):
        cpu_claim(cluster, f"c{number}", 3)
        cluster.pod(f"p{number}", claims=[f"c{number}"], spec={"schedulerName": "nobody"})
        cluster.allocate(f"c{number}", driver, "group-0", pod=f"p{number}", cpus="3")
    rules = [{"apiGroups": [""], "resources": ["pods/binding", "bindings"], "verbs": ["create"]}]
    cluster.service_account("binding", rules)
    client = cluster.token_client(cluster.token("binding"))

    def bind(pod: str, where: str = "", **params: str) -> Json:
        target = {"apiVersion": "v1", "kind": "Node", "name": driver.node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target}
        return client.create(where or cluster.path("Pod", pod, "binding"), body, **params)

    eventually(lambda: bind("p1"))
    assert FIELD not in cluster.get("Pod", "p1")["status"]

    guarded(cluster)
    warned(client, lambda: bind("p2", **GENTLY), "binding-writers/binding-by-stranger: ", "whose claim c2 costs")
    legacy = f"/api/v1/namespaces/{cluster.ns}/bindings"
    warned(
        client, lambda: bind("p2", legacy, **GENTLY), "binding-writers/binding-by-stranger: ", "whose claim c2 costs"
    )
    bind("p2")
    assert cluster.get("Pod", "p2")["spec"]["nodeName"] == driver.node


def test_an_allocation_takes_the_statuses_of_its_devices_with_it(cluster: Cluster) -> None:
    """Who may bind takes away what drivers have told, and is asked for no permission of theirs. The guard notes it."""
    driver = shared_cpus(cluster)
    cpu_claim(cluster, "c1", 3)
    cluster.allocate("c1", driver, "group-0", cpus="3")
    where = cluster.path("ResourceClaim", "c1", "status")
    driver.client.raw("PUT", where, reports(cluster, driver, '{"a":1}'))
    guard = guarded(cluster)
    rules = [
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/status"], "verbs": ["get", "patch"]},
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/binding"], "verbs": ["patch"]},
    ]
    cluster.service_account("clearing", rules)
    client = cluster.token_client(cluster.token("clearing"))
    eventually(lambda: client.get(where))
    assert found(guard, "claim-writers", "device-statuses-wiped") == 0
    eventually(lambda: client.patch(where, {"status": {"allocation": None}}))
    assert not cluster.get("ResourceClaim", "c1").get("status", {}).get("devices")
    # Nobody named the writers of the driver, so that a stranger is warned and not refused.
    assert all("allocation-by-stranger: has an allocation cleared" in warning for warning in client.warnings)
    assert client.warnings
    assert found(guard, "claim-writers", "device-statuses-wiped") == 1


def test_a_driver_that_an_administrator_stands_for(cluster: Cluster) -> None:
    """Who may impersonate an account and its node passes for a driver there. Only what is missing hints at it: what a
    token gives beside the node.
    """
    driver = shared_cpus(cluster)
    cpu_claim(cluster, "c1", 3)
    cluster.allocate("c1", driver, "group-0", cpus="3")
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{cluster.ns}", "system:authenticated")
    forged = cluster.impersonated(driver.user, *groups, extra=[(NODE_NAME, driver.node)])
    where = cluster.path("ResourceClaim", "c1", "status")
    forged.raw("PUT", where, reports(cluster, driver, '{"a":1}'))
    guard = guarded(cluster)
    named(cluster, driver)
    body = driver.slice([driver.device("d0")], pool=cluster.name("more"))

    def hinted(client: Client) -> bool:
        before = found(guard, "slice-writers", "writer-may-be-impersonated")
        client.create(path("ResourceSlice"), body, **GENTLY)
        return found(guard, "slice-writers", "writer-may-be-impersonated") > before

    eventually(lambda: hinted(forged))
    assert not forged.warnings
    assert not hinted(driver.client)
    forged.raw("PUT", where, reports(cluster, driver, '{"a":2}'))
    assert found(guard, "claim-writers", "writer-may-be-impersonated") == 1
