"""What runs in a cluster, from the folder ``deploy``: the part of kustomize that its files use, and nothing more.

``kubectl kustomize deploy/overlays/enforce`` gives the same objects; this way no kubectl is needed, and namespace and
image are replaced in every place where they stand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from posixpath import join, normpath
from typing import Any

import yaml

from webhook.kube.raw import Json, mapping, members, sequence, text
from webhook.registration.configurations import API_VERSION, MUTATING, NAME, VALIDATING

NAMESPACE = "allocguard-system"
IMAGE = "allocguard:0.1.0"
MODES = ("enforce", "audit")
# Who is the guard of a cluster: there is one.
RIGHTS: Json = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": NAME},
}

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Where each kind lives that is deployed, or made by what is: the API, the plural, and whether it has a namespace.
_KINDS = {
    "Namespace": ("/api/v1", "namespaces", False),
    "ServiceAccount": ("/api/v1", "serviceaccounts", True),
    "Secret": ("/api/v1", "secrets", True),
    "Lease": ("/apis/coordination.k8s.io/v1", "leases", True),
    "Service": ("/api/v1", "services", True),
    "CustomResourceDefinition": ("/apis/apiextensions.k8s.io/v1", "customresourcedefinitions", False),
    "ClusterRole": ("/apis/rbac.authorization.k8s.io/v1", "clusterroles", False),
    "ClusterRoleBinding": ("/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings", False),
    "Role": ("/apis/rbac.authorization.k8s.io/v1", "roles", True),
    "RoleBinding": ("/apis/rbac.authorization.k8s.io/v1", "rolebindings", True),
    "Deployment": ("/apis/apps/v1", "deployments", True),
    "PodDisruptionBudget": ("/apis/policy/v1", "poddisruptionbudgets", True),
    "PriorityLevelConfiguration": ("/apis/flowcontrol.apiserver.k8s.io/v1", "prioritylevelconfigurations", False),
    "FlowSchema": ("/apis/flowcontrol.apiserver.k8s.io/v1", "flowschemas", False),
    "ValidatingWebhookConfiguration": (
        "/apis/admissionregistration.k8s.io/v1",
        "validatingwebhookconfigurations",
        False,
    ),
    "MutatingWebhookConfiguration": ("/apis/admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", False),
}


@dataclass(frozen=True, slots=True)
class Target:
    """What the manifests are made for."""

    mode: str = "enforce"
    namespace: str = NAMESPACE
    image: str = IMAGE


def manifests(files: Mapping[str, bytes], target: Target) -> list[Json]:
    """The objects of the overlay of ``target.mode``, in an order in which they can be applied.

    ``files`` are those of the folder ``deploy`` by their path in it. Raises KeyError for a file that is not there.
    """
    objects = _folder(files, f"overlays/{target.mode}")
    return [_placed(obj, target) for obj in objects]


def made_by_it(namespace: str) -> tuple[list[Json], list[Json]]:
    """What the guard makes itself: the registration, and what it keeps in its namespace."""
    registration = [(API_VERSION, kind, {"name": NAME}) for kind in (VALIDATING, MUTATING)]
    kept = [
        ("v1", "Secret", {"namespace": namespace, "name": f"{NAME}-certs"}),
        ("coordination.k8s.io/v1", "Lease", {"namespace": namespace, "name": NAME}),
    ]
    return _references(registration), _references(kept)


def _references(named: list[tuple[str, str, dict[str, str]]]) -> list[Json]:
    return [{"apiVersion": version, "kind": kind, "metadata": metadata} for version, kind, metadata in named]


def ours(namespace: Json) -> bool:
    """Whether a stored Namespace was made by an installation, and is not one that has other things in it."""
    labels = mapping(mapping(namespace.get("metadata")).get("labels"))
    return labels.get("app.kubernetes.io/name") == NAME


def path(obj: Json) -> str:
    """The URL path of a deployed object."""
    base, plural, namespaced = _KINDS[obj["kind"]]
    metadata = obj["metadata"]
    middle = f"/namespaces/{metadata['namespace']}" if namespaced else ""
    return f"{base}{middle}/{plural}/{metadata['name']}"


def _folder(files: Mapping[str, bytes], folder: str) -> list[Json]:
    [recipe] = _documents(files[f"{folder}/kustomization.yaml"])
    objects: list[Json] = []
    for resource in sequence(recipe.get("resources")):
        place = normpath(join(folder, resource))
        objects += _documents(files[place]) if place in files else _folder(files, place)
    for patch in members(recipe.get("patches")):
        [change] = _documents(patch["patch"])
        objects = [_merged(obj, change) if _identity(obj) == _identity(change) else obj for obj in objects]
    return objects


def _documents(data: bytes | str) -> list[Json]:
    return [document for document in yaml.load_all(data, Loader=_LOADER) if document]


def _identity(obj: Json) -> tuple[str, str, str]:
    metadata = mapping(obj.get("metadata"))
    return text(obj.get("kind")), text(metadata.get("namespace")), text(metadata.get("name"))


def _merged(value: Any, change: Any) -> Any:
    """A strategic merge, of maps and of lists whose members have names."""
    if isinstance(value, dict) and isinstance(change, dict):
        return {**value, **{key: _merged(value.get(key), each) for key, each in change.items()}}
    if isinstance(value, list) and isinstance(change, list):
        changes = {each["name"]: each for each in change}
        return [_merged(each, changes[each["name"]]) if each["name"] in changes else each for each in value]
    return change


def _placed(value: Any, target: Target, key: str = "", kind: str = "") -> Any:
    """``value`` with the namespace and the image of ``target`` wherever a field holds ours."""
    if isinstance(value, dict):
        kind = value.get("kind", kind)
        return {name: _placed(each, target, name, kind) for name, each in value.items()}
    if isinstance(value, list):
        return [_placed(each, target, "", kind) for each in value]
    if value == NAMESPACE and (key == "namespace" or (key == "name" and kind == "Namespace")):
        return target.namespace
    return target.image if value == IMAGE and key == "image" else value
