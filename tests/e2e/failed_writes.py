"""Status writes that the API server refuses, each in its own way: the rows of what a failed write can mean."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import yaml

from tests.e2e.client import ApiError, Client, Json
from tests.e2e.cluster import Cluster
from tests.e2e.guard import register
from tests.e2e.kinds import path
from tests.e2e.recorder import refuse
from tests.e2e.scenes import cpu_claim, shared_cpus
from tests.e2e.waiting import eventually

COMPONENT = Path(__file__).parents[2] / "deploy" / "components" / "audit"
GROUP = "resource.k8s.io"
FLOW = "/apis/flowcontrol.apiserver.k8s.io/v1"
LEVELS = ("Metadata", "Request", "RequestResponse")


def audit_policy(folder: Path) -> Path:
    """The policy that we ship, in namespaces of clusters that have the tag of a level at that level."""
    policy = yaml.safe_load((COMPONENT / "policy.yaml").read_text())
    [rule, last] = policy["rules"]
    policy["rules"] = [{**rule, "level": level, "namespaces": [f"test-{level.lower()}"]} for level in LEVELS] + [last]
    file = folder / "audit-policy.json"
    file.write_text(json.dumps(policy))
    return file


class Scene:
    """A node with a driver, and one claim of it for each row, by the name of the row."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.driver = shared_cpus(cluster, cpus="64", devices=2)
        cluster.node("n2")

    @property
    def admin(self) -> Client:
        """The administrator."""
        return self.cluster.as_admin

    def claim(self, name: str, allocated: bool = True) -> str:
        """The path of the status of a new claim ``name``, with a device."""
        cpu_claim(self.cluster, name, 1)
        if allocated:
            self.cluster.allocate(name, self.driver, "group-0", cpus="1")
        return self.cluster.path("ResourceClaim", name, "status")

    def report(self, name: str, **more: object) -> Json:
        """What a driver says of the devices of the claim ``name``."""
        results = self.cluster.get("ResourceClaim", name)["status"]["allocation"]["devices"]["results"]
        keys = ("driver", "pool", "device", "shareID")
        told = {"conditions": [], **more}
        return {
            "status": {"devices": [{**{key: each[key] for key in keys if key in each}, **told} for each in results]}
        }

    def account(self, name: str, rules: Sequence[Json], node: str = "n1") -> Client:
        """A client of a new ServiceAccount with these rules, and a token of ``node`` where that is given."""
        self.cluster.service_account(name, rules)
        bound = {**self.cluster.get("Node", node), "kind": "Node", "apiVersion": "v1"} if node else None
        client = self.cluster.token_client(self.cluster.token(name, bound))
        if rules:
            eventually(lambda: client.get(path("Node", self.cluster.name("n1"))))
        return client

    def rules(
        self, status: Sequence[str] = ("get", "patch", "update"), driver: Sequence[str] = (), names: Sequence[str] = ()
    ) -> list[Json]:
        """A role that may get claims and nodes, and of ``resourceclaims/status`` and ``resourceclaims/driver`` this."""
        found: list[Json] = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]
        found.append({"apiGroups": [GROUP], "resources": ["resourceclaims"], "verbs": ["get"]})
        if status:
            found.append({"apiGroups": [GROUP], "resources": ["resourceclaims/status"], "verbs": list(status)})
        if driver:
            rule = {"apiGroups": [GROUP], "resources": ["resourceclaims/driver"], "verbs": list(driver)}
            found.append({**rule, "resourceNames": list(names or [self.driver.name])})
        return found


def consumer(uid: str) -> Json:
    """A claim status with one pod in reservedFor."""
    return {"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": uid}]}}


def failing(client: Client, where: str, body: object, kind: str = "merge", **params: str) -> ApiError:
    """What the API server answers to a PATCH that it refuses."""
    try:
        client.patch(where, body, kind, **params)
    except ApiError as error:
        return error
    raise AssertionError(f"{where} was written")


def role_missing(scene: Scene, name: str) -> ApiError:
    client = scene.account(name, [])
    return failing(client, scene.claim(name), scene.report(name))


def role_other_verb(scene: Scene, name: str) -> ApiError:
    client = scene.account(name, scene.rules(("get", "update"), ("associated-node:update",)))
    return failing(client, scene.claim(name), scene.report(name))


def kubelet(scene: Scene, name: str) -> ApiError:
    return failing(scene.cluster.as_kubelet("n1"), scene.claim(name), scene.report(name))


def binding_missing(scene: Scene, name: str) -> ApiError:
    where = scene.claim(name)
    return failing(scene.driver.client, where, consumer(scene.cluster.get("ResourceClaim", name)["metadata"]["uid"]))


def binding_namespaced(scene: Scene, name: str) -> ApiError:
    cluster, where = scene.cluster, scene.claim(name)
    client = scene.account(name, scene.rules())
    rule = {"apiGroups": [GROUP], "resources": ["resourceclaims/binding"], "verbs": ["patch", "get"]}
    cluster.create("Role", {"metadata": {"name": name}, "rules": [rule]})
    subject = {"kind": "ServiceAccount", "name": name, "namespace": cluster.ns}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    cluster.create("RoleBinding", {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]})
    return failing(client, where, consumer(cluster.get("ResourceClaim", name)["metadata"]["uid"]))


def driver_verb_missing(scene: Scene, name: str) -> ApiError:
    client = scene.account(name, scene.rules())
    return failing(client, scene.claim(name), scene.report(name))


def driver_verb_update_put(scene: Scene, name: str) -> ApiError:
    where = scene.claim(name)
    client = scene.account(name, scene.rules())
    whole = scene.cluster.get("ResourceClaim", name)
    whole["status"] |= scene.report(name)["status"]
    try:
        client.update(where, whole)
    except ApiError as error:
        return error
    raise AssertionError("written")


def driver_other_verb(scene: Scene, name: str) -> ApiError:
    client = scene.account(name, scene.rules(driver=["associated-node:update"]))
    return failing(client, scene.claim(name), scene.report(name))


def driver_wrong_names(scene: Scene, name: str) -> ApiError:
    client = scene.account(name, scene.rules(driver=["associated-node:patch"], names=["gpu.example.org"]))
    return failing(client, scene.claim(name), scene.report(name))


def other_node(scene: Scene, name: str) -> ApiError:
    client = scene.account(name, scene.rules(driver=["associated-node:patch"]), "n2")
    return failing(client, scene.claim(name), scene.report(name))


def token_without_node(scene: Scene, name: str) -> ApiError:
    client = scene.account(name, scene.rules(driver=["associated-node:patch"]), "")
    return failing(client, scene.claim(name), scene.report(name))


def several_nodes(scene: Scene, name: str) -> ApiError:
    where = scene.claim(name, allocated=False)
    result = {"request": "devices", "driver": scene.driver.name, "pool": scene.driver.node, "device": "group-0"}
    field = {"key": "kubernetes.io/hostname", "operator": "In", "values": [scene.driver.node]}
    there = scene.cluster.get("ResourceClaim", name)
    result |= {"shareID": there["metadata"]["uid"], "consumedCapacity": {scene.driver.key("cpus"): "1"}}
    selector = {"nodeSelectorTerms": [{"matchExpressions": [field]}]}
    allocation = {"devices": {"results": [result]}, "nodeSelector": selector}
    scene.cluster.as_scheduler.patch(where, {"status": {"allocation": allocation}})
    client = scene.account(name, scene.rules(driver=["associated-node:patch"]))
    return failing(client, where, scene.report(name))


def no_service_account(scene: Scene, name: str) -> ApiError:
    cluster, where = scene.cluster, scene.claim(name)
    user = cluster.name("somebody")
    admin = scene.admin
    admin.create(
        path("ClusterRole"), {"metadata": {"name": user}, "rules": scene.rules(driver=["associated-node:patch"])}
    )
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user}
    subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}
    admin.create(path("ClusterRoleBinding"), {"metadata": {"name": user}, "roleRef": reference, "subjects": [subject]})
    client = cluster.client(user)
    eventually(lambda: client.get(path("Node", cluster.name("n1"))))
    return failing(client, where, scene.report(name))


def _two_drivers(scene: Scene, name: str) -> str:
    """The status of a claim that has a device of another driver, too."""
    cluster, where = scene.cluster, scene.claim(name, allocated=False)
    there = cluster.get("ResourceClaim", name)
    shared = {"request": "devices", "pool": scene.driver.node, "shareID": there["metadata"]["uid"]}
    results = [
        {**shared, "driver": scene.driver.name, "device": "group-0"},
        {**shared, "driver": "nic.example.org", "device": "eth0"},
    ]
    field = {"key": "metadata.name", "operator": "In", "values": [scene.driver.node]}
    selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    allocation = {"devices": {"results": results}, "nodeSelector": selector}
    cluster.as_scheduler.patch(where, {"status": {"allocation": allocation}})
    return where


def two_drivers(scene: Scene, name: str) -> ApiError:
    where = _two_drivers(scene, name)
    client = scene.account(name, scene.rules())
    return failing(client, where, scene.report(name))


def both(scene: Scene, name: str) -> ApiError:
    where = scene.claim(name)
    client = scene.account(name, scene.rules())
    uid = scene.cluster.get("ResourceClaim", name)["metadata"]["uid"]
    return failing(client, where, {"status": consumer(uid)["status"] | scene.report(name)["status"]})


def foreign_data(scene: Scene, name: str) -> ApiError:
    """Data of the other driver that Go would write otherwise, and a strategic patch of what is one's own."""
    where = _two_drivers(scene, name)
    cluster = scene.cluster
    [own, foreign] = scene.report(name)["status"]["devices"]
    raw = json.dumps({"status": {"devices": [own, foreign]}}).replace(
        '"device": "eth0"', '"device": "eth0", "data": {"b": 1.0, "a": "<"}'
    )
    scene.admin.raw("PATCH", where, raw.encode(), "application/merge-patch+json")
    client = scene.account(name, scene.rules(driver=["associated-node:patch"]))
    applied = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}}
    own["conditions"] = [_condition()]
    try:
        client.apply(where, {**applied, "status": {"devices": [own]}})
    except ApiError as error:
        return error
    raise AssertionError(json.dumps(cluster.get("ResourceClaim", name)["status"]))


def _condition() -> Json:
    return {
        "type": "Ready",
        "status": "True",
        "reason": "Prepared",
        "message": "",
        "lastTransitionTime": "2026-11-29T10:00:00Z",
    }


def immutable(scene: Scene, name: str) -> ApiError:
    where = scene.claim(name)
    there = scene.cluster.get("ResourceClaim", name)
    there["status"]["allocation"]["devices"]["results"][0]["device"] = "group-1"
    return failing(scene.cluster.as_scheduler, where, {"status": {"allocation": there["status"]["allocation"]}})


def opaque_parameters(scene: Scene, name: str) -> ApiError:
    cluster, where = scene.cluster, scene.claim(name)
    there = cluster.get("ResourceClaim", name)
    allocation = there["status"]["allocation"]
    cluster.as_scheduler.patch(where, {"status": {"allocation": None}})
    allocation["devices"]["config"] = [
        {"source": "FromClaim", "opaque": {"driver": scene.driver.name, "parameters": {"b": 1, "a": "x"}}}
    ]
    there = cluster.get("ResourceClaim", name)
    there["status"] = {"allocation": allocation}
    content = json.dumps(there, separators=(", ", ": ")).encode()
    cluster.as_scheduler.raw("PUT", where, content)
    uid = there["metadata"]["uid"]
    return failing(cluster.as_scheduler, where, consumer(uid), "strategic")


def admin_access(scene: Scene, name: str) -> ApiError:
    where = scene.claim(name, allocated=False)
    result = {"request": "devices", "driver": scene.driver.name, "pool": scene.driver.node, "device": "group-0"}
    allocation = {"devices": {"results": [{**result, "adminAccess": True}]}}
    return failing(scene.cluster.as_scheduler, where, {"status": {"allocation": allocation}})


def unallocated(scene: Scene, name: str) -> ApiError:
    told = {"driver": scene.driver.name, "pool": scene.driver.node, "device": "group-0", "conditions": []}
    return failing(scene.driver.client, scene.claim(name, allocated=False), {"status": {"devices": [told]}})


def other_device(scene: Scene, name: str) -> ApiError:
    where = scene.claim(name)
    body = scene.report(name)
    body["status"]["devices"][0]["device"] = "group-1"
    return failing(scene.driver.client, where, body)


def malformed(scene: Scene, name: str) -> ApiError:
    where = scene.claim(name)
    return failing(scene.driver.client, where, scene.report(name, conditions=[{**_condition(), "reason": "no reason"}]))


def undecodable(scene: Scene, name: str) -> ApiError:
    return failing(scene.driver.client, scene.claim(name), {"status": {"devices": "none"}})


def wrong_uid(scene: Scene, name: str) -> ApiError:
    where = scene.claim(name)
    body = {"metadata": {"uid": "00000000-0000-0000-0000-000000000000"}, **scene.report(name)}
    return failing(scene.driver.client, where, body)


def conflict(scene: Scene, name: str) -> ApiError:
    where = scene.claim(name)
    return failing(scene.driver.client, where, {"metadata": {"resourceVersion": "1"}, **scene.report(name)})


def gone(scene: Scene, name: str) -> ApiError:
    where = scene.claim(name)
    body = scene.report(name)
    scene.cluster.as_scheduler.patch(where, {"status": {"allocation": None}})
    scene.admin.patch(scene.cluster.path("ResourceClaim", name), {"metadata": {"finalizers": None}})
    scene.cluster.delete("ResourceClaim", name)
    return failing(scene.driver.client, where, body)


def webhook_down(scene: Scene, name: str) -> ApiError:
    where = scene.claim(name)
    body = scene.report(name)
    configuration = f"down-{scene.cluster.tag}"
    hook = {
        "name": "down.example.org",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [
            {"apiGroups": [GROUP], "apiVersions": ["v1"], "resources": ["resourceclaims/status"], "operations": ["*"]}
        ],
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": scene.cluster.ns}},
    }
    register(scene.admin, "validate", configuration, [hook])
    error = failing(scene.driver.client, where, body)
    scene.admin.delete(path("ValidatingWebhookConfiguration", configuration))
    eventually(lambda: scene.driver.client.patch(where, body))
    return error


def webhook_refused(scene: Scene, name: str) -> ApiError:
    where = scene.claim(name)
    body = scene.report(name)
    recorder = scene.cluster.recorder(resources=(f"{GROUP}/resourceclaims/status",), answer=lambda _: refuse())
    error = failing(scene.driver.client, where, body)
    recorder.unregister()
    eventually(lambda: scene.driver.client.patch(where, body))
    recorder.close()
    return error


def policy_refused(scene: Scene, name: str) -> ApiError:
    where = scene.claim(name)
    body = scene.report(name)
    group, full = "/apis/admissionregistration.k8s.io/v1", f"refuse-{scene.cluster.tag}"
    rule = {"apiGroups": [GROUP], "apiVersions": ["v1"], "resources": ["resourceclaims/status"], "operations": ["*"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": f"object.metadata.name != '{name}'", "message": "not this one"}],
    }
    scene.admin.create(f"{group}/validatingadmissionpolicies", {"metadata": {"name": full}, "spec": spec})
    bound = {"policyName": full, "validationActions": ["Deny"]}
    scene.admin.create(f"{group}/validatingadmissionpolicybindings", {"metadata": {"name": full}, "spec": bound})
    error = eventually(lambda: _refusal(scene.driver.client, where, body))
    scene.admin.delete(f"{group}/validatingadmissionpolicybindings/{full}")
    scene.admin.delete(f"{group}/validatingadmissionpolicies/{full}")
    eventually(lambda: scene.driver.client.patch(where, body))
    return error


def _refusal(client: Client, where: str, body: Json) -> ApiError | None:
    try:
        client.patch(where, body)
    except ApiError as error:
        return error
    return None


def throttled(scene: Scene, name: str) -> ApiError:
    where = scene.claim(name)
    body = scene.report(name)
    client = scene.account(name, scene.rules(driver=["associated-node:patch"]))
    full = f"none-{scene.cluster.tag}"
    level = {
        "metadata": {"name": full},
        "spec": {
            "type": "Limited",
            "limited": {
                "nominalConcurrencyShares": 0,
                "lendablePercent": 0,
                "borrowingLimitPercent": 0,
                "limitResponse": {"type": "Reject"},
            },
        },
    }
    scene.admin.create(f"{FLOW}/prioritylevelconfigurations", level)
    subject = {"kind": "ServiceAccount", "serviceAccount": {"name": name, "namespace": scene.cluster.ns}}
    rule = {"verbs": ["patch"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}
    schema = {
        "metadata": {"name": full},
        "spec": {
            "priorityLevelConfiguration": {"name": full},
            "matchingPrecedence": 100,
            "rules": [{"subjects": [subject], "resourceRules": [rule]}],
        },
    }
    scene.admin.create(f"{FLOW}/flowschemas", schema)
    # One request is let through at a time, whatever the shares.
    busy = threading.Event()

    def slowly(_: Json) -> None:
        busy.set()
        time.sleep(2)

    recorder = scene.cluster.recorder(resources=(f"{GROUP}/resourceclaims/status",), answer=slowly)

    def beside() -> ApiError | None:
        busy.clear()
        first = threading.Thread(target=lambda: _refusal(client, where, body))
        first.start()
        try:
            return _refusal(client, where, body) if busy.wait(5) else None
        finally:
            first.join()

    error = eventually(beside)
    recorder.unregister()
    recorder.close()
    scene.admin.delete(f"{FLOW}/flowschemas/{full}")
    scene.admin.delete(f"{FLOW}/prioritylevelconfigurations/{full}")
    return error


def unauthorized(scene: Scene, name: str) -> ApiError:
    where = scene.claim(name)
    return failing(scene.cluster.token_client("no-token"), where, scene.report(name))


def dry_run(scene: Scene, name: str) -> ApiError:
    client = scene.account(name, [])
    return failing(client, scene.claim(name), scene.report(name), dryRun="All")


def store_silent(scene: Scene, name: str) -> ApiError:
    where = scene.claim(name)
    body = scene.report(name)
    store = scene.cluster.plane.processes["etcd"]
    os.kill(store.pid, signal.SIGSTOP)
    try:
        return failing(scene.driver.client, where, body, timeout="2s")
    finally:
        os.kill(store.pid, signal.SIGCONT)


ROWS: dict[str, Callable[[Scene, str], ApiError]] = {
    made.__name__.replace("_", "-"): made
    for made in (
        role_missing,
        role_other_verb,
        kubelet,
        binding_missing,
        binding_namespaced,
        driver_verb_missing,
        driver_verb_update_put,
        driver_other_verb,
        driver_wrong_names,
        other_node,
        token_without_node,
        several_nodes,
        no_service_account,
        two_drivers,
        both,
        foreign_data,
        immutable,
        opaque_parameters,
        admin_access,
        unallocated,
        other_device,
        malformed,
        undecodable,
        wrong_uid,
        conflict,
        gone,
        webhook_down,
        webhook_refused,
        policy_refused,
        throttled,
        unauthorized,
        dry_run,
        store_silent,
    )
}
