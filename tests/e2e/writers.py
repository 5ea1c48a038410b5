"""Who writes to a driver's objects: identities with the rights that their kind has, as the API server sees them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tests.e2e.client import Client, Json
from tests.e2e.cluster import Cluster
from tests.e2e.driver import role_rules
from tests.e2e.waiting import eventually

DRA = "resource.k8s.io"
NODE_NAME = "authentication.kubernetes.io/node-name"
POD_NAME, POD_UID = "authentication.kubernetes.io/pod-name", "authentication.kubernetes.io/pod-uid"
MASTERS, KUBELETS, ACCOUNTS = "system:masters", "system:nodes", "system:serviceaccounts"


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


def wide_rules() -> list[Json]:
    """Far more than any writer needs: all that the objects of the matrix can be written with, but no impersonation."""
    return [
        rule(["*"], ["*"]),
        rule(
            ["pods", "pods/status", "pods/binding", "nodes", "nodes/status", "serviceaccounts/token"], ["*"], group=""
        ),
    ]


class Identities:
    """Who writes: the accounts of ``driver`` and of ``other`` in the test's namespace, the API server's own components,
    and strangers. ``node`` is where the first driver's account is, ``elsewhere`` another one.
    """

    def __init__(self, cluster: Cluster, driver: str, other: str, node: str, elsewhere: str) -> None:
        self.cluster, self.driver, self.other, self.node, self.elsewhere = cluster, driver, other, node, elsewhere
        for account, rules in self._accounts().items():
            cluster.service_account(account, rules)
        of_plugin = {"serviceAccountName": "plugin"}
        cluster.pod("early", gates=["e2e.example.org/wait"], spec=of_plugin)
        cluster.pod("placed", spec={**of_plugin, "nodeName": node})

    def _accounts(self) -> dict[str, list[Json]]:
        return {
            "plugin": role_rules(self.driver),
            "fabric": multi_node_rules(self.driver),
            "allocator": allocator_rules(),
            "wide-plugin": wide_rules(),
            "wide-fabric": wide_rules(),
            "wide-allocator": wide_rules(),
            "stranger": wide_rules(),
            "other-plugin": role_rules(self.other),
        }

    def settled(self) -> None:
        """Wait until the authorizer knows of every role: it learns of them one after the other."""
        question = {"group": DRA, "resource": "resourceclaims", "subresource": "status", "verb": "patch"}
        asked = {"spec": {"resourceAttributes": {**question, "namespace": self.cluster.ns}}}

        def allowed(client: Client) -> bool:
            answer = client.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", asked)
            return bool(answer["status"]["allowed"])

        for client in [self.account(name) for name in self._accounts()]:
            eventually(partial(allowed, client))

    # Accounts

    def account(self, name: str, bound_to: Json | None = None) -> Client:
        """The ServiceAccount ``name`` with a real token, bound to the object."""
        return self.cluster.token_client(self.cluster.token(name, bound_to))

    def of_node(self, name: str, node: str = "") -> Client:
        """The ServiceAccount with a token bound to its node, or to ``node``."""
        return self.account(name, self._bound("Node", node or self.node))

    def of_pod(self, pod: str) -> Client:
        """The ServiceAccount of ``pod``, with the token that the pod has."""
        return self.account("plugin", self._bound("Pod", pod))

    def standing_for(self, name: str, *nodes: str, pod: str = "") -> Client:
        """The ServiceAccount as somebody who may impersonate can be it: with any node names, as none or several."""
        extra = [(NODE_NAME, node) for node in nodes]
        extra += [(POD_NAME, pod), (POD_UID, "e7f1a2f6-0000-4000-8000-000000000000")] if pod else []
        return self.named(f"system:serviceaccount:{self.cluster.ns}:{name}", extra=extra)

    def named(self, user: str, *groups: str, extra: Sequence[tuple[str, str]] = ()) -> Client:
        """Whoever says to be ``user``; in the groups of its namespace where that is a ServiceAccount's name."""
        return self.cluster.impersonated(user, *groups, extra=extra)

    def _bound(self, kind: str, name: str) -> Json:
        return {**self.cluster.get(kind, name), "kind": kind, "apiVersion": "v1"}

    def controller(self, name: str) -> Client:
        """A controller of the controller-manager, which has an account of its own."""
        return self.named(f"system:serviceaccount:kube-system:{name}")

    def kubelet(self, node: str) -> Client:
        """The kubelet of the node, by its certificate."""
        return self.cluster.as_kubelet(node)
