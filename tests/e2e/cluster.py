"""The language that tests speak: one test's own part of a control plane."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.e2e.client import ApiError, Client, Json
from tests.e2e.control_plane import GATE, ControlPlane
from tests.e2e.driver import Driver, role_rules
from tests.e2e.guard import CONFIGURATIONS, KINDS, Guard
from tests.e2e.kinds import namespaced, path
from tests.e2e.recorder import Recorder
from tests.e2e.waiting import eventually

RUN = "e2e.allocguard.dev/test"


class Cluster:
    """A test's view of a control plane that it may share with tests before and after it.

    Names of cluster-wide objects (nodes, classes, drivers) get ``tag`` at the end, unless it is empty, and namespaced
    objects are in the namespace ``ns`` unless another is named; :meth:`close` removes what the test made.
    """

    def __init__(self, plane: ControlPlane, tag: str, folder: Path) -> None:
        self.plane, self.tag, self.folder = plane, tag, folder
        self.release, self.minor, self.url = plane.release, plane.minor, plane.url
        self._created: list[str] = []
        self._clients: dict[str, Client] = {}
        self._making = threading.Lock()
        self._guards: list[Guard] = []
        self._recorders: list[Recorder] = []
        self.as_admin = self.client("admin", "system:masters")
        self.ns = self.namespace("test")

    # Identities

    def client(self, user: str, *groups: str) -> Client:
        """A client with a certificate for ``user`` in ``groups``."""
        return self._client(user, lambda: self.plane.client(user, *groups, created=self._created))

    def _client(self, name: str, make: Callable[[], Client]) -> Client:
        """The one client of that name, which is closed at the end; any thread may ask for it first."""
        with self._making:
            if name not in self._clients:
                self._clients[name] = make()
            return self._clients[name]

    @property
    def as_scheduler(self) -> Client:
        """The scheduler's identity."""
        return self.client("system:kube-scheduler")

    @property
    def as_controllers(self) -> Client:
        """The controller-manager's identity (its controllers use ServiceAccounts of their own)."""
        return self.client("system:kube-controller-manager")

    def as_kubelet(self, node: str) -> Client:
        """The kubelet of ``node``."""
        return self.client(f"system:node:{self.name(node)}", "system:nodes")

    def service_account(self, name: str, rules: Sequence[Json] = (), namespace: str = "") -> str:
        """A ServiceAccount that may do what the ``rules`` of a ClusterRole say; gives its user name."""
        space = namespace or self.ns
        self.as_admin.create(path("ServiceAccount", namespace=space), {"metadata": {"name": name}})
        if rules:
            role = f"{name}-{space}"
            self.as_admin.create(path("ClusterRole"), {"metadata": {"name": role}, "rules": list(rules)})
            reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
            subject = {"kind": "ServiceAccount", "name": name, "namespace": space}
            binding = {"metadata": {"name": role}, "roleRef": reference, "subjects": [subject]}
            self.as_admin.create(path("ClusterRoleBinding"), binding)
        return f"system:serviceaccount:{space}:{name}"

    def token(self, account: str, bound_to: Json | None = None, namespace: str = "") -> str:
        """A token of the ServiceAccount, bound to the object ``bound_to`` (as a Node) where that is given."""
        spec: Json = {"expirationSeconds": 3600}
        if bound_to is not None:
            reference = {"kind": bound_to["kind"], "apiVersion": bound_to["apiVersion"]}
            reference |= {key: bound_to["metadata"][key] for key in ("name", "uid")}
            spec["boundObjectRef"] = reference
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        made = self.as_admin.create(path("ServiceAccount", account, namespace or self.ns, "token"), body)
        given: str = made["status"]["token"]
        return given

    def token_client(self, token: str) -> Client:
        """A client that shows ``token``."""
        return self._client(token, lambda: self.plane.token_client(token, self._created))

    def impersonated(self, user: str, *groups: str, extra: Sequence[tuple[str, str]] = ()) -> Client:
        """The administrator standing for ``user`` in ``groups``, with the values ``extra`` as (key, value)."""
        headers = [("Impersonate-User", user), *(("Impersonate-Group", group) for group in groups)]
        headers += [(f"Impersonate-Extra-{quote(key, safe='')}", value) for key, value in extra]
        return self._client(repr(headers), lambda: self.plane.impersonating(*headers, created=self._created))

    # Objects

    def name(self, short: str) -> str:
        """The name of a cluster-wide object that the test calls ``short``; a whole name stays as it is."""
        if not self.tag or self.tag in short:
            return short
        first, dot, rest = short.partition(".")
        return f"{first}-{self.tag}{dot}{rest}"

    def path(self, kind: str, name: str = "", sub: str = "", namespace: str = "") -> str:
        """The path of the test's object ``name`` of ``kind``."""
        if namespaced(kind):
            return path(kind, name, namespace or self.ns, sub)
        return path(kind, self.name(name) if name else "", sub=sub)

    def get(self, kind: str, name: str, namespace: str = "") -> Json:
        """The object, as the administrator sees it."""
        return self.as_admin.get(self.path(kind, name, namespace=namespace))

    def delete(self, kind: str, name: str, namespace: str = "") -> None:
        """Delete it as the administrator, pods without grace."""
        more = {"gracePeriodSeconds": "0"} if kind == "Pod" else {}
        self.as_admin.gone(self.path(kind, name, namespace=namespace), **more)

    def create(self, kind: str, body: Json, namespace: str = "") -> Json:
        """Create ``body`` as the administrator."""
        return self.as_admin.create(self.path(kind, namespace=namespace), body)

    def namespace(self, name: str, labels: Mapping[str, str] | None = None) -> str:
        """A namespace, fit to have pods; gives its name."""
        full = self.name(name)
        self.as_admin.create(path("Namespace"), {"metadata": {"name": full, "labels": dict(labels or {})}})
        try:
            self.as_admin.create(path("ServiceAccount", namespace=full), {"metadata": {"name": "default"}})
        except ApiError as error:  # the controller was faster
            if error.code != 409:
                raise
        return full

    def node(
        self,
        name: str,
        cpu: str = "16",
        memory: str = "64Gi",
        pods: str = "110",
        labels: Mapping[str, str] | None = None,
        resources: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        declares: bool = True,
    ) -> str:
        """A ready node that has this much allocatable; gives its name. Its kubelet ``declares`` that it knows what
        devices cost, which 1.37 asks for and 1.36 does not know.
        """
        full = self.name(name)
        amounts = {"cpu": cpu, "memory": memory, "pods": pods, "ephemeral-storage": "100Gi", **(resources or {})}
        self.as_admin.create(
            path("Node"),
            {
                "metadata": {
                    "name": full,
                    "labels": {"kubernetes.io/hostname": full, RUN: self.tag, **(labels or {})},
                    "annotations": dict(annotations or {}),
                },
                "status": {
                    "allocatable": amounts,
                    "capacity": amounts,
                    "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
                    **({"declaredFeatures": [GATE]} if declares and self.minor >= 37 else {}),
                },
            },
        )
        # Admission gives every new node the taint not-ready, which a controller would take away.
        self.as_admin.patch(path("Node", full), {"spec": {"taints": None}})
        return full

    def device_class(self, name: str, driver: str = "", cel: str = "") -> str:
        """A DeviceClass of the devices of ``driver``, or of those that the expression ``cel`` takes; gives its name."""
        full = self.name(name)
        expression = cel or f"device.driver == '{self.name(driver)}'"
        spec = {"selectors": [{"cel": {"expression": expression}}]}
        self.as_admin.create(path("DeviceClass"), {"metadata": {"name": full}, "spec": spec})
        return full

    def claim_spec(
        self,
        device_class: str = "",
        count: int = 1,
        capacity: Mapping[str, str] | None = None,
        requests: Sequence[Json] | None = None,
        **more: object,
    ) -> Json:
        """The spec of a claim with one request, ``devices``, of ``count`` devices of the class, each with ``capacity``;
        or with these ``requests``. ``more`` are fields beside ``requests``.
        """
        if requests is None:
            exactly: Json = {"deviceClassName": self.name(device_class), "count": count}
            if capacity:
                exactly["capacity"] = {"requests": dict(capacity)}
            requests = [{"name": "devices", "exactly": exactly}]
        return {"devices": {"requests": list(requests), **more}}

    def claim(self, name: str, device_class: str = "", **asked: Any) -> Json:
        """A ResourceClaim; as :meth:`claim_spec`."""
        body = {"metadata": {"name": name}, "spec": self.claim_spec(device_class, **asked)}
        return self.create("ResourceClaim", body)

    def claim_template(self, name: str, device_class: str = "", **asked: Any) -> Json:
        """A ResourceClaimTemplate; as :meth:`claim_spec`."""
        body = {"metadata": {"name": name}, "spec": {"spec": self.claim_spec(device_class, **asked)}}
        return self.create("ResourceClaimTemplate", body)

    def pod(
        self,
        name: str,
        claims: Sequence[str] = (),
        templates: Sequence[str] = (),
        cpu: str = "",
        memory: str = "",
        gates: Sequence[str] = (),
        node: str = "",
        spec: Json | None = None,
        **metadata: object,
    ) -> Json:
        """A pod of one container ``main`` that uses all of its claims; it may go to this test's nodes only.

        ``claims`` are names of ResourceClaims, ``templates`` of ResourceClaimTemplates; ``node`` passes the scheduler
        by; ``spec`` are fields over those made here.
        """
        references = [{"name": each, "resourceClaimName": each} for each in claims]
        references += [{"name": each, "resourceClaimTemplateName": each} for each in templates]
        requests = {key: amount for key, amount in (("cpu", cpu), ("memory", memory)) if amount}
        container: Json = {"name": "main", "image": "registry.invalid/pause:1"}
        resources: Json = {}
        if requests:
            resources["requests"] = requests
        if references:
            resources["claims"] = [{"name": each["name"]} for each in references]
        if resources:
            container["resources"] = resources
        body: Json = {
            "containers": [container],
            "nodeSelector": {RUN: self.tag},
            "terminationGracePeriodSeconds": 0,
            **({"resourceClaims": references} if references else {}),
            **({"schedulingGates": [{"name": gate} for gate in gates]} if gates else {}),
            **({"nodeName": self.name(node)} if node else {}),
            **(spec or {}),
        }
        return self.create("Pod", {"metadata": {"name": name, **metadata}, "spec": body})

    def driver(self, name: str, node: str) -> Driver:
        """A driver on ``node``, with a ServiceAccount, what it needs to be allowed, and a token bound to the node."""
        full, where = self.name(name), self.name(node)
        account = f"{full}-{where}"
        self.service_account(account, role_rules(full))
        token = self.token(account, bound_to=self.get("Node", where))
        driver = Driver(self, full, where, self.token_client(token), account)
        # The authorizer takes a moment to learn of the role.
        eventually(lambda: driver.client.get(path("Node", where)), within=10)
        return driver

    def allocate(
        self, claim: str, driver: Driver, device: str, pod: str = "", stamped: bool = True, **consumed: str
    ) -> Json:
        """Write, as the scheduler does and without asking it, that ``claim`` has ``device``, and ``consumed`` of its
        capacity where it is shared; reserved for ``pod`` where that is given, with the time where it is ``stamped``.
        """
        there = self.get("ResourceClaim", claim)
        request = there["spec"]["devices"]["requests"][0]["name"]
        result: Json = {"request": request, "driver": driver.name, "pool": driver.node, "device": device}
        if consumed:
            result["consumedCapacity"] = {driver.key(key): amount for key, amount in consumed.items()}
            result["shareID"] = there["metadata"]["uid"]
        field = {"key": "metadata.name", "operator": "In", "values": [driver.node]}
        status: Json = {
            "allocation": {
                "devices": {"results": [result]},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
            }
        }
        if stamped:
            status["allocation"]["allocationTimestamp"] = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        if pod:
            uid = self.get("Pod", pod)["metadata"]["uid"]
            status["reservedFor"] = [{"resource": "pods", "name": pod, "uid": uid}]
        return self.as_scheduler.patch(self.path("ResourceClaim", claim, "status"), {"status": status})

    # What became of them

    def scheduled(self, pod: str, within: float = 30) -> Json:
        """The pod, once it has a node."""

        def look() -> Json | None:
            got = self.get("Pod", pod)
            return got if got["spec"].get("nodeName") else None

        try:
            got = eventually(look, within)
        except AssertionError as error:
            raise AssertionError(f"{pod} is not scheduled: {self.events(pod)}") from error
        assert got is not None
        return got

    def allocated(self, claim: str, within: float = 30) -> Json:
        """The claim, once it is allocated."""

        def look() -> Json | None:
            got = self.get("ResourceClaim", claim)
            return got if got.get("status", {}).get("allocation") else None

        got = eventually(look, within)
        assert got is not None
        return got

    def events(self, name: str, reason: str = "") -> list[str]:
        """The messages of the events about the namespaced object ``name``, with this reason where one is given."""
        found = self.as_admin.items(self.path("Event"), fieldSelector=f"involvedObject.name={name}")
        return [each.get("message") or each.get("note") or "" for each in found if reason in ("", each["reason"])]

    # Servers beside it

    def guard(
        self,
        *arguments: str,
        objects: Sequence[Json] | None = None,
        user: tuple[str, ...] = ("admin", "system:masters"),
        token: str = "",
        name: str = "",
        start: bool = True,
        ready: bool = True,
    ) -> Guard:
        """Our own server. With ``objects`` it judges by those; else by the live cluster, with the identity ``user``
        (or ``token``), and registers itself by url. ``arguments`` are more of ``allocguard serve``; ``{url}`` in them
        stands for its url.
        """
        name = name or f"guard-{len(self._guards)}"
        folder = self.folder / name
        folder.mkdir(parents=True)
        if objects is not None:
            file = folder / "objects.json"
            file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
            given = [f"--cluster={file}", f"--kubernetes-version={self.release}"]
        else:
            given = [
                f"--kubeconfig={self.plane.kubeconfig(*user, token=token)}",
                "--url={url}",
                f"--namespace={self.ns}",
            ]
        guard = Guard(name, folder, self.as_admin, [*given, *arguments])
        self._guards.append(guard)
        if start:
            guard.start(ready)
        return guard

    def recorder(self, **options: Any) -> Recorder:
        """A webhook that writes down every review and answers as it is told; see :class:`Recorder`."""
        recorder = Recorder(f"recorder-{len(self._recorders)}", self.folder, self.as_admin, self.ns, **options)
        self._recorders.append(recorder)
        return recorder

    def close(self) -> None:
        """Remove what this test made, registrations and servers first: they must not be asked about the rest."""
        admin = self.as_admin
        for guard in self._guards:
            guard.kill()
        for plural in KINDS.values():
            admin.delete(f"{CONFIGURATIONS}/{plural}")
        for version in ("v1", "v1beta2"):
            rules = f"/apis/resource.k8s.io/{version}/devicetaintrules"
            admin.gone(rules, labelSelector="app.kubernetes.io/managed-by=allocguard")
        for made in reversed(self._created):
            if "/pods/" in made:
                admin.gone(made, gracePeriodSeconds="0")
            elif "/customresourcedefinitions/" not in made:
                admin.gone(made)
        self.abandon()

    def abandon(self) -> None:
        """End servers and connections of this test, and leave the control plane as it is."""
        for guard in self._guards:
            guard.kill()
        for recorder in self._recorders:
            recorder.close()
        for client in self._clients.values():
            client.close()
