"""What a recording keeps of a request: what facts are computed from, and nothing that may be secret.

Named field by field, as for the journal (:mod:`webhook.ledger.recorded`), so that what is not known here is left out:
environment, commands, volumes, what anybody annotates, tokens, whole objects of kinds that no fact is about. Where a
fact compares what may be secret, or asks for its size, something of the same kind stands in its place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

from webhook.facts.request_structure import PARAMETERS_MAX
from webhook.kube.claims import EXTENDED_RESOURCE_ANNOTATION
from webhook.kube.core import MIRROR
from webhook.kube.raw import Json, mapping, text
from webhook.kube.rbac import BINDINGS, ROLES
from webhook.kube.rbac import GROUP as RBAC
from webhook.kube.rollout import GROUP
from webhook.ledger.recorded import METADATA, Keep, encoded, kept

STANDS_FOR: Final = "redacted"
"""The member of what stands for something that is left out."""

# What is only of use to whoever has the key, and so says no more than whether two are equal.
_DIGEST: Final = 16
# What authenticators say of a token (KEP-4193); others may say anything.
_TOKEN_EXTRAS: Final = "authentication.kubernetes.io/"
_ANNOTATIONS: Final = frozenset({EXTENDED_RESOURCE_ANNOTATION, MIRROR, "resource.kubernetes.io/pod-claim-name"})

# A name, or what stands in brackets, in a field path.
_STEP: Final = re.compile(r"\[[^]]*]|[^.\[]+")

_TYPE: Final[Keep] = {"group": True, "version": True, "kind": True, "resource": True}
_OPTIONS: Final[Keep] = dict.fromkeys(
    ("kind", "apiVersion", "dryRun", "fieldManager", "fieldValidation", "force", "gracePeriodSeconds", "preconditions"),
    True,
)


def redacted(request: Json, key: bytes) -> Json:
    """The part of the raw ``request`` of a review that is recorded; ``key`` is what nobody knows who reads it.

    Equal blobs of drivers are equal in it, as far as they were made with one ``key``.
    """
    whole = _object(request, key)
    found: Json = kept(request, {**_REQUEST, "object": whole, "oldObject": whole})
    return found


def visible(request: Json, path: str) -> str:
    """The field ``path`` of the request's object, as far as it leads to what is recorded as it is."""
    at: Any = _object(request, b"")
    end = 0
    for step in _STEP.finditer(path):
        if isinstance(at, list) and step[0].startswith("["):
            at = at[0]
        elif isinstance(at, dict) and not callable(at.get(step[0], len)):
            at = at[step[0]]
        elif at is not True:
            return path[:end]
        end = step.end()
    return path


def _object(request: Json, key: bytes) -> dict[str, Keep]:
    kind = mapping(request.get("kind"))
    by_kind = _kinds(key).get((text(kind.get("group")), text(kind.get("kind"))), {})
    return {**_HEAD, "metadata": _fields(key)["metadata"], **by_kind}


def _extra(value: Any) -> Json:
    return {name: each for name, each in mapping(value).items() if str(name).startswith(_TOKEN_EXTRAS)}


def _annotations(value: Any) -> Json:
    return {
        name: each
        for name, each in mapping(value).items()
        if name in _ANNOTATIONS or str(name).partition("/")[0] == GROUP
    }


_HEAD: Final[dict[str, Keep]] = {"apiVersion": True, "kind": True}
_REQUEST: Final[dict[str, Keep]] = {
    "uid": True,
    "kind": _TYPE,
    "resource": _TYPE,
    "subResource": True,
    "requestKind": _TYPE,
    "requestResource": _TYPE,
    "requestSubResource": True,
    "name": True,
    "namespace": True,
    "operation": True,
    "userInfo": {"username": True, "uid": True, "groups": True, "extra": _extra},
    "dryRun": True,
    "options": _OPTIONS,
}


@lru_cache(maxsize=4)
def _fields(key: bytes) -> Mapping[str, Any]:
    """Parts that several kinds have in common."""

    def mark(value: Any) -> str:
        return blake2b(encoded(value), digest_size=_DIGEST, key=key).hexdigest()

    def blob(value: Any) -> Any:
        """What stands for JSON of a driver: an object for an object, too large for what is too large."""
        if not isinstance(value, dict):
            return f"{STANDS_FOR} {mark(value)}"
        size = len(encoded(value))
        return {STANDS_FOR: mark(value).ljust(PARAMETERS_MAX + 1 if size > PARAMETERS_MAX else 0)}

    def config(value: Any) -> Any:
        parts = {"source": True, "requests": True, "opaque": {"driver": True, "parameters": blob}}
        return kept(value, [parts])

    metadata = METADATA | {
        "generateName": True,
        "finalizers": True,
        "annotations": _annotations,
        "ownerReferences": [
            dict.fromkeys(("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"), True)
        ],
    }
    devices = {"requests": True, "constraints": True, "config": config}
    condition = dict.fromkeys(("type", "status", "reason", "observedGeneration", "lastTransitionTime"), True)
    device = {
        **dict.fromkeys(("driver", "pool", "device", "shareID"), True),
        "conditions": [{**condition, "message": blob}],
        "data": blob,
        "networkData": blob,
    }
    return {"metadata": metadata, "config": config, "claim": {"devices": devices}, "device": device}


@lru_cache(maxsize=4)
def _kinds(key: bytes) -> Mapping[tuple[str, str], dict[str, Keep]]:
    """What is kept of an object by its group and kind, beside its metadata."""
    fields = _fields(key)
    container: Keep = [{"name": True, "resources": True, "restartPolicy": True}]
    status: Keep = [{"name": True, "allocatedResources": True, "resources": True}]
    conditions: Keep = [{"type": True, "status": True, "reason": True, "lastTransitionTime": True}]
    pod_spec: dict[str, Keep] = {
        **dict.fromkeys(
            (
                "nodeName",
                "schedulerName",
                "overhead",
                "resources",
                "resourceClaims",
                "schedulingGates",
                "nodeSelector",
                "affinity",
                "tolerations",
                "priority",
                "priorityClassName",
                "preemptionPolicy",
                "serviceAccountName",
                "restartPolicy",
                "terminationGracePeriodSeconds",
            ),
            True,
        ),
        **dict.fromkeys(("containers", "initContainers", "ephemeralContainers"), container),
    }
    pod_status: dict[str, Keep] = {
        **dict.fromkeys(
            (
                "phase",
                "nominatedNodeName",
                "startTime",
                "allocatedResources",
                "resources",
                "resourceClaimStatuses",
                "extendedResourceClaimStatus",
                "nodeAllocatableResourceClaimStatuses",
            ),
            True,
        ),
        **dict.fromkeys(("containerStatuses", "initContainerStatuses"), status),
        "conditions": conditions,
    }
    allocation = {
        "devices": {"results": True, "config": fields["config"]},
        "nodeSelector": True,
        "allocationTimestamp": True,
    }
    template_metadata = {"labels": True, "annotations": _annotations}
    role: dict[str, Keep] = {"rules": True, "aggregationRule": True}
    binding: dict[str, Keep] = {"roleRef": True, "subjects": True}
    own: dict[str, Keep] = {"spec": True, "status": True}
    return {
        ("", "Pod"): {"spec": pod_spec, "status": pod_status},
        ("", "Binding"): {"target": True},
        ("", "Node"): {
            "spec": {"taints": True, "unschedulable": True},
            "status": {
                **dict.fromkeys(("capacity", "allocatable", "declaredFeatures"), True),
                "conditions": conditions,
                "nodeInfo": {"bootID": True, "kubeletVersion": True},
            },
        },
        ("authentication.k8s.io", "TokenRequest"): {"spec": True},
        ("resource.k8s.io", "ResourceSlice"): {"spec": True},
        ("resource.k8s.io", "ResourceClaim"): {
            "spec": fields["claim"],
            "status": {"allocation": allocation, "reservedFor": True, "devices": [fields["device"]]},
        },
        ("resource.k8s.io", "ResourceClaimTemplate"): {
            "spec": {"metadata": template_metadata, "spec": fields["claim"]}
        },
        ("resource.k8s.io", "DeviceClass"): {
            "spec": {"selectors": True, "extendedResourceName": True, "config": fields["config"]}
        },
        ("topology.node.k8s.io", "NodeResourceTopology"): {"zones": True, "topologyPolicies": True, "attributes": True},
        **{(RBAC, kind): role for kind in ROLES},
        **{(RBAC, kind): binding for kind in BINDINGS},
        **{(GROUP, kind): own for kind in ("DriverRollout", "NodeLedger", "AdmissionPolicy")},
    }
