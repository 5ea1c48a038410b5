"""Where the kinds that tests speak of live in the API."""

from __future__ import annotations

_KINDS = {
    "Namespace": ("/api/v1", False, "namespaces"),
    "Node": ("/api/v1", False, "nodes"),
    "Pod": ("/api/v1", True, "pods"),
    "ServiceAccount": ("/api/v1", True, "serviceaccounts"),
    "Secret": ("/api/v1", True, "secrets"),
    "ConfigMap": ("/api/v1", True, "configmaps"),
    "Event": ("/api/v1", True, "events"),
    "ClusterRole": ("/apis/rbac.authorization.k8s.io/v1", False, "clusterroles"),
    "ClusterRoleBinding": ("/apis/rbac.authorization.k8s.io/v1", False, "clusterrolebindings"),
    "Role": ("/apis/rbac.authorization.k8s.io/v1", True, "roles"),
    "RoleBinding": ("/apis/rbac.authorization.k8s.io/v1", True, "rolebindings"),
    "Lease": ("/apis/coordination.k8s.io/v1", True, "leases"),
    "DeviceClass": ("/apis/resource.k8s.io/v1", False, "deviceclasses"),
    "ResourceSlice": ("/apis/resource.k8s.io/v1", False, "resourceslices"),
    "ResourceClaim": ("/apis/resource.k8s.io/v1", True, "resourceclaims"),
    "ResourceClaimTemplate": ("/apis/resource.k8s.io/v1", True, "resourceclaimtemplates"),
    "AdmissionPolicy": ("/apis/allocguard.dev/v1alpha1", False, "admissionpolicies"),
    "DriverRollout": ("/apis/allocguard.dev/v1alpha1", False, "driverrollouts"),
    "NodeLedger": ("/apis/allocguard.dev/v1alpha1", False, "nodeledgers"),
    "NodeResourceTopology": ("/apis/topology.node.k8s.io/v1alpha2", False, "noderesourcetopologies"),
    "CustomResourceDefinition": ("/apis/apiextensions.k8s.io/v1", False, "customresourcedefinitions"),
    "ValidatingWebhookConfiguration": (
        "/apis/admissionregistration.k8s.io/v1",
        False,
        "validatingwebhookconfigurations",
    ),
    "MutatingWebhookConfiguration": ("/apis/admissionregistration.k8s.io/v1", False, "mutatingwebhookconfigurations"),
}


def namespaced(kind: str) -> bool:
    """Whether objects of ``kind`` have a namespace."""
    return _KINDS[kind][1]


def path(kind: str, name: str = "", namespace: str = "", sub: str = "") -> str:
    """The URL path of the collection of ``kind``, of the object ``name`` in it, or of a subresource of that."""
    base, _, plural = _KINDS[kind]
    middle = f"/namespaces/{namespace}" if namespace else ""
    tail = (f"/{name}" if name else "") + (f"/{sub}" if sub else "")
    return f"{base}{middle}/{plural}{tail}"
