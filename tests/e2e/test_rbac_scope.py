"""Roles and bindings are judged as they are written, by the guard as it is deployed, and nobody is kept from it."""

from __future__ import annotations

from typing import Any

from tests.e2e.cluster import Cluster
from tests.e2e.guarding import deployed
from tests.e2e.kinds import path
from tests.e2e.waiting import eventually

Json = dict[str, Any]

RBAC = "rbac.authorization.k8s.io"


def rules(cluster: Cluster, prefix: str = "associated-node") -> list[Json]:
    dra = ["resource.k8s.io"]
    names = [cluster.name("gpu.example.com")]
    return [
        {"apiGroups": dra, "resources": ["resourceclaims/status"], "verbs": ["patch"]},
        {
            "apiGroups": dra,
            "resources": ["resourceclaims/driver"],
            "resourceNames": names,
            "verbs": [f"{prefix}:patch"],
        },
    ]


def role(cluster: Cluster, prefix: str = "associated-node") -> Json:
    return {"metadata": {"name": cluster.name("plugin")}, "rules": rules(cluster, prefix)}


def warned(cluster: Cluster, kind: str, body: Json, update: bool = False) -> list[str]:
    """The rules by which writing ``body`` would be warned of."""
    admin = cluster.as_admin
    if update:
        admin.update(path(kind, body["metadata"]["name"]), body, dryRun="All")
    else:
        admin.create(path(kind), body, dryRun="All")
    return [each.partition(":")[0] for each in admin.warnings]


def test_a_role_is_judged_for_the_account_that_has_it_whatever_was_there_first(cluster: Cluster) -> None:
    deployed(cluster)
    wide = role(cluster, "arbitrary-node")
    assert warned(cluster, "ClusterRole", wide) == []
    writer = {"namespace": cluster.ns, "serviceAccount": "plugin", "profile": "NodeLocal"}
    rollout = {"metadata": {"name": cluster.name("gpu.example.com")}, "spec": {"writers": [writer]}}
    rollout |= {"apiVersion": "allocguard.dev/v1alpha1", "kind": "DriverRollout"}
    cluster.create("DriverRollout", rollout)
    binding = {
        "metadata": {"name": cluster.name("plugin")},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": wide["metadata"]["name"]},
        "subjects": [{"kind": "ServiceAccount", "name": "plugin", "namespace": cluster.ns}],
    }
    # The account has a role that nobody has made yet.
    eventually(lambda: warned(cluster, "ClusterRoleBinding", binding) == ["rbac-scope/rbac-role-missing"])
    cluster.create("ClusterRoleBinding", binding)
    eventually(lambda: warned(cluster, "ClusterRole", wide) == ["rbac-scope/rbac-arbitrary-node"])
    assert warned(cluster, "ClusterRole", role(cluster)) == []
    cluster.create("ClusterRole", role(cluster))
    assert warned(cluster, "ClusterRole", role(cluster), update=True) == []
    assert warned(cluster, "ClusterRole", wide, update=True) == ["rbac-scope/rbac-arbitrary-node"]
    nameless = role(cluster)
    del nameless["rules"][1]["resourceNames"]
    assert warned(cluster, "ClusterRole", nameless, update=True) == ["rbac-scope/rbac-driver-without-names"]
    assert "needs its own drivers in resourceName" in cluster.as_admin.warnings[0]
    # What is written is there, warned of or not.
    cluster.as_admin.update(path("ClusterRole", wide["metadata"]["name"]), wide)
    assert cluster.get("ClusterRole", "plugin")["rules"] == wide["rules"]
