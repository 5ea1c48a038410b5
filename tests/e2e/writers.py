"""The matrix of writers on a real API server: its identities with real credentials, its objects, and what is
answered to each of its writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import yaml

from tests.e2e.client import ApiError, Client, Json
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import CONTROLLERS, SCHEDULER
from tests.e2e.driver import each, mappings, role_rules
from tests.e2e.kinds import namespaced, path
from tests.e2e.waiting import eventually
from tests.tools.make_writers_matrix import MATRIX, told
from webhook.kube.names import node_name
from webhook.kube.raw import child, mapping
from webhook.kube.resource import FIELD_136, POD_FIELD
from webhook.policy.fieldpath import changed

ROOT = Path(__file__).parents[2]
DRA = "resource.k8s.io"
NODE_NAME = "authentication.kubernetes.io/node-name"
DRIVER, OTHER, SPACE = "gpu.vendor.example", "nic.other.example", "vendor"
FREE_CLAIMS = ROOT / "deploy" / "components" / "free-claims" / "clusterrole.yaml"
RBAC, WIDE = "rbac.authorization.k8s.io", "wide"
ABSENT = "-"
# Whoever may do nothing but patch.
PATCHES = frozenset({"free-claims"})
DRY = {"dryRun": "All"}


@cache
def matrix() -> Json:
    """The matrix of ``tests/cases/writers``."""
    found: Json = yaml.safe_load(MATRIX.read_text())
    return found


def cells(*tables: str) -> list[Json]:
    """The cells that an API server can be asked about, of these tables where some are named."""
    return [cell for cell in matrix()["cells"] if cell.get("live", True) and (not tables or cell["table"] in tables)]


def upstream(minor: int, wide: bool = False) -> Callable[[Json], str]:
    """What the API server of this release says of the cell's write: to an actor with the rights of its kind, or who has
    all rights there are.
    """
    return lambda cell: str(told(cell, minor).get("wide" if wide else "upstream", "allow"))


def guarded(minor: int, wide: bool = False) -> Callable[[Json], str]:
    """What is said with the guard in front: it is not asked about what the API server refuses before."""
    said = upstream(minor, wide)
    return lambda cell: str(told(cell, minor)["ours"]) if said(cell) == "allow" else said(cell)


def rule(resources: Sequence[str], verbs: Sequence[str], group: str = DRA, names: Sequence[str] = ()) -> Json:
    """One rule of a role."""
    found: Json = {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
    return {**found, "resourceNames": list(names)} if names else found


def multi_node_rules(driver: str) -> list[Json]:
    """What a driver of devices that several nodes reach needs, and no more."""
    verbs = ["arbitrary-node:update", "arbitrary-node:patch"]
    return [
        rule(["resourceclaims"], ["get", "list", "watch"]),
        rule(["resourceclaims/status"], ["get", "update", "patch"]),
        rule(["resourceclaims/driver"], verbs, names=[driver]),
        rule(["resourceslices"], ["get", "list", "watch", "create", "update", "patch", "delete"]),
        rule(["nodes"], ["get"], group=""),
    ]


def allocator_rules() -> list[Json]:
    """What an allocator needs, and no more."""
    return [
        rule(["resourceclaims"], ["get", "list", "watch"]),
        rule(["resourceclaims/status"], ["get", "update", "patch"]),
        rule(["resourceclaims/binding"], ["update", "patch"]),
    ]


def free_claims_rules() -> list[Json]:
    """What our own component that takes allocations away is given."""
    documents = yaml.safe_load_all(FREE_CLAIMS.read_text())
    [rules] = [each["rules"] for each in documents if each["kind"] == "ClusterRole"]
    return list(rules)


ROLES = {
    "plugin": role_rules(DRIVER),
    "fabric": multi_node_rules(DRIVER),
    "publisher": multi_node_rules(DRIVER),
    "allocator": allocator_rules(),
    "other-plugin": role_rules(OTHER),
    "allocguard-free-claims": free_claims_rules(),
}


@dataclass(frozen=True)
class Answer:
    """What became of a write: the HTTP ``code``, what was said with a refusal (all causes), and the warnings."""

    code: int
    refusal: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def verdict(self, policy: str) -> str:
        """``allow``, ``warn`` or ``deny`` (the last two of ours, by ``policy``), or the code of the API server."""
        if self.code < 400:
            return "warn" if any(f"{policy}/" in warning for warning in self.warnings) else "allow"
        return "deny" if self.code == 403 and any(f"{policy}/" in each for each in self.refusal) else str(self.code)

    def names(self, policy: str, rule: str) -> bool:
        """Whether it is by this rule that the write was refused, or warned of."""
        return any(f"{policy}/{rule}: " in each for each in (self.refusal if self.code >= 400 else self.warnings))


class Writers:
    """The objects and identities of the matrix on a control plane that has nothing else: names are as they are there.
    Nobody but the test writes, the scheduler and the controllers have ended.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.matrix = cluster, matrix()
        others = [obj for obj in self.matrix["cluster"] if obj["kind"] not in ("Node", "DriverRollout")]
        self._objects: Json = {**self.matrix["objects"], **{obj["metadata"]["name"]: obj for obj in others}}
        for name in (SCHEDULER, CONTROLLERS):
            cluster.plane.processes[name].kill()
        # The key of the object that is stored under a kind and a name, and the object as the API server has it.
        self._there: dict[tuple[str, str, str], str] = {}
        self._stored: dict[str, Json] = {}
        self._clients: dict[str, Client] = {}
        for namespace in (SPACE, "allocguard-system"):
            cluster.namespace(namespace)
        for obj in self.matrix["cluster"]:
            if obj["kind"] == "Node":
                cluster.node(obj["metadata"]["name"], labels=obj["metadata"].get("labels"))
        self._accounts()
        cluster.as_admin.create(path("Secret", namespace=SPACE), {"metadata": {"name": "some"}})
        for obj in others:
            self.store(obj["metadata"]["name"])
        for actor in self.matrix["identities"]:
            self.client(actor)
        self._settled([actor for actor, who in self.matrix["identities"].items() if who.get("account") in ROLES])

    # Who

    def _accounts(self) -> None:
        for who in self.matrix["identities"].values():
            name, namespace = who.get("account"), who.get("namespace", SPACE)
            if not name or self.cluster.as_admin.find(path("ServiceAccount", name, namespace)):
                continue
            # The rights of the API server's own are there, whether or not their accounts are yet.
            self.cluster.service_account(name, ROLES.get(name, ()), namespace)

    def client(self, actor: str) -> Client:
        """Who writes, as the matrix calls it: accounts by tokens, kubelets and the scheduler by certificates, and by
        impersonation whom nobody gives credentials: odd names, and tokens that name several nodes.
        """
        if actor not in self._clients:
            self._clients[actor] = self._client(self.matrix["identities"][actor])
        return self._clients[actor]

    def _client(self, who: Json) -> Client:
        if user := who.get("user"):
            groups = who.get("groups", ())
            real = not groups or groups == ["system:nodes"]
            return self.cluster.client(user, *groups) if real else self.cluster.impersonated(user, *groups)
        namespace, name, nodes = who.get("namespace", SPACE), who["account"], who.get("nodes", [])
        if len(nodes) > 1 or any(node_name(node) for node in nodes):
            extra = [(NODE_NAME, node) for node in nodes]
            return self.cluster.impersonated(f"system:serviceaccount:{namespace}:{name}", extra=extra)
        bound = None
        if "pod" in who:
            bound = {**self._pod_of(name, who["pod"], *nodes), "kind": "Pod", "apiVersion": "v1"}
        elif nodes:
            bound = {**self.cluster.get("Node", nodes[0]), "kind": "Node", "apiVersion": "v1"}
        return self.cluster.token_client(self.cluster.token(name, bound, namespace))

    def _pod_of(self, account: str, name: str, node: str = "") -> Json:
        """The pod ``name``, or one like it that is of the account."""
        pod = self.cluster.get("Pod", name, SPACE)
        if pod["spec"]["serviceAccountName"] != account:
            spec = {"serviceAccountName": account, "containers": [{"name": "main", "image": "none"}]}
            spec |= {"nodeName": node} if node else {}
            body = {"metadata": {"name": f"{account}-{name}"}, "spec": spec}
            pod = self.cluster.as_admin.create(path("Pod", namespace=SPACE), body)
        return pod

    def widen(self, wide: bool = True) -> None:
        """Give everybody all rights there are, to find out what is refused all the same; or take them again."""
        role, binding = path("ClusterRole"), path("ClusterRoleBinding")
        if self.cluster.as_admin.find(f"{role}/{WIDE}") is None:
            rules = [rule(["*"], ["*"], group="*")]
            self.cluster.as_admin.create(role, {"metadata": {"name": WIDE}, "rules": rules})
        if wide:
            reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": WIDE}
            subjects = [self._subject(who) for who in self.matrix["identities"].values()]
            body = {"metadata": {"name": WIDE}, "roleRef": reference, "subjects": subjects}
            self.cluster.as_admin.create(binding, body)
        else:
            self.cluster.as_admin.delete(f"{binding}/{WIDE}")
        self._settled(["stranger"], wide)

    def _subject(self, who: Json) -> Json:
        if "user" in who:
            return {"kind": "User", "name": who["user"], "apiGroup": RBAC}
        return {"kind": "ServiceAccount", "name": who["account"], "namespace": who.get("namespace", SPACE)}

    def _settled(self, actors: Sequence[str], allowed: bool = True) -> None:
        """Wait until the authorizer knows whether these may patch the status of claims: it learns with a delay."""
        question = {"group": DRA, "resource": "resourceclaims", "subresource": "status", "verb": "patch"}
        asked = {"spec": {"resourceAttributes": {**question, "namespace": SPACE}}}

        def known(client: Client) -> bool:
            answer = client.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", asked)
            return answer["status"]["allowed"] is allowed

        for actor in actors:
            eventually(partial(known, self.client(actor)))

    # What

    def clear(self) -> None:
        """Delete all that some write of the matrix creates."""
        for write in self.matrix["writes"].values():
            if write["operation"] == "CREATE" and "subresource" not in write:
                self._absent(*_identity(self._objects[write["object"]]))

    def subject(self, cell: Json) -> tuple[bool, str]:
        """What the write of ``cell`` is about, and before that whether it is there: cells are asked in this order, so
        that nothing is there yet when it is created, and each object is stored once.
        """
        write = self.matrix["writes"][cell["write"]]
        return write["operation"] != "CREATE", write.get("oldObject") or write["object"]

    def answer(self, cell: Json, dry: bool, patch: bool = False) -> Answer:
        """What the API server answers to the write of ``cell``; with ``dry`` it leaves all as it was. An update is a
        PUT, or with ``patch`` a JSON patch.
        """
        client, write = self.client(cell["actor"]), self.matrix["writes"][cell["write"]]
        method, where, body, params = self._request(write)
        params |= DRY if dry else {}
        try:
            if method == "DELETE":
                client.delete(where, None, **params)
            elif method == "PUT" and (patch or cell["actor"] in PATCHES):
                client.patch(where, _patch(self._stored[write["oldObject"]], body), "json", **params)
            else:
                client.raw(method, where, _content(body), **params)
        except ApiError as error:
            causes = [cause.get("message", "") for cause in error.causes]
            return Answer(error.code, (error.message, *causes), tuple(client.warnings))
        if not dry:
            self._there.clear()
        return Answer(200, (), tuple(client.warnings))

    def _request(self, write: Json) -> tuple[str, str, Json, dict[str, str]]:
        """Method, path, body and parameters of the write, once what it is about is there."""
        operation, sub = write["operation"], write.get("subresource", "")
        if operation == "CREATE":
            obj = self._object(write["object"])
            kind, namespace, name = _identity(obj)
            if sub == "token":
                return "POST", path("ServiceAccount", name, namespace, sub), self._referring(obj), {}
            if sub:
                return "POST", path("Pod", name, namespace, sub), obj, {}
            self._absent(kind, namespace, name)
            return "POST", path(kind, namespace=namespace), obj, {}
        stored = self.store(write["oldObject"])
        kind, namespace, name = _identity(stored)
        if operation == "DELETE":
            if not write.get("nameless"):
                return "DELETE", path(kind, name, namespace), {}, {}
            fields = [f"metadata.name={name}"]
            # A kubelet may name its own node only, and has to.
            fields += [f"spec.nodeName={stored['spec']['nodeName']}"] if "nodeName" in stored["spec"] else []
            return "DELETE", path(kind, namespace=namespace), {}, {"fieldSelector": ",".join(fields)}
        # Nobody else writes here, but for the guard, and that does not matter.
        new = changed(stored, {"metadata.resourceVersion": None, **write["set"]})
        return "PUT", path(kind, name, namespace, sub), self._spelled(new), {}

    def store(self, key: str) -> Json:
        """The object ``key`` of the matrix as it is stored, made by the administrator where it is not there."""
        obj = self._object(key)
        kind, namespace, name = identity = _identity(obj)
        if self._there.get(identity) == key:
            return self._stored[key]
        self._absent(kind, namespace, name)
        where = path(kind, name, namespace)
        made = self.cluster.as_admin.raw("POST", path(kind, namespace=namespace), _content(obj))
        if "status" in obj:
            made = self.cluster.as_admin.raw("PUT", f"{where}/status", _content({**made, "status": obj["status"]}))
        self._there[identity], self._stored[key] = key, {"kind": kind, "apiVersion": obj["apiVersion"], **made}
        return self._stored[key]

    def _absent(self, kind: str, namespace: str, name: str) -> None:
        grace = {"gracePeriodSeconds": "0"} if kind == "Pod" else {}
        if self._there.pop((kind, namespace, name), "") != ABSENT:
            self.cluster.as_admin.gone(path(kind, name, namespace), **grace)
        self._there[kind, namespace, name] = ABSENT

    def _object(self, key: str) -> Json:
        return self._spelled(self._objects[key])

    def _spelled(self, obj: Json) -> Json:
        """The object in the words of the release: the matrix has those of 1.36."""
        if self.cluster.minor < 37:
            return obj
        if entries := mapping(obj.get("status")).get(POD_FIELD):
            return changed(obj, {f"status.{POD_FIELD}": [_entry(entry) for entry in entries]})
        devices = mapping(obj.get("spec")).get("devices")
        mapped = [device[FIELD_136] for device in devices if FIELD_136 in device] if isinstance(devices, list) else []
        if not mapped:
            return obj
        return changed(obj, {"spec.devices": [_device(device) for device in devices]})

    def _referring(self, request: Json) -> Json:
        """The request for a token, with the uid of what it is bound to: a kubelet has to name it."""
        reference = request["spec"].get("boundObjectRef")
        if not reference:
            return request
        kind, name = reference["kind"], reference["name"]
        there = self.cluster.as_admin.get(path(kind, name, SPACE if namespaced(kind) else ""))
        return changed(request, {"spec.boundObjectRef.uid": there["metadata"]["uid"]})


def _entry(entry: Json) -> Json:
    """A pod's entry as 1.37 has it."""
    amounts = [{"name": name, "quantity": amount} for name, amount in entry.get("resources", {}).items()]
    kept = {name: value for name, value in entry.items() if name != "resources"}
    return {**kept, "mapping": amounts} if amounts else kept


def _device(device: Json) -> Json:
    """A device that costs the same however much is taken of it, as 1.37 has it."""
    costs = {name: each(cost["allocationMultiplier"]) for name, cost in device.get(FIELD_136, {}).items()}
    kept = {name: value for name, value in device.items() if name != FIELD_136}
    return {**kept, **mappings(37, costs)} if costs else kept


def _identity(obj: Json) -> tuple[str, str, str]:
    return obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _content(obj: Json) -> bytes:
    """As short as the API server writes it: what has spaces in a blob is another blob."""
    return json.dumps(obj, separators=(",", ":"), ensure_ascii=False).encode()


def _patch(old: Json, new: Json) -> list[Json]:
    """The JSON patch from ``old`` to ``new``: of each part that differs as a whole."""
    found: list[Json] = []
    metadata = [("metadata", name) for name in ("labels", "ownerReferences", "finalizers")]
    for parts in (*metadata, ("spec",), ("status",)):
        before, after = child(old, *parts) or None, child(new, *parts) or None
        if before != after:
            where = "/" + "/".join(parts)
            found.append({"op": "add", "path": where, "value": after} if after else {"op": "remove", "path": where})
    return found
