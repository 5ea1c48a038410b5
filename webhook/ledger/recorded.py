"""What a recorded object keeps: the fields that accounts and decisions depend on, and nothing that may be secret.

Named one by one, so that what is not known here is left out: environment, volumes, commands, annotations (`kubectl
apply` keeps a whole pod in one), parameters for drivers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import orjson

from webhook.kube.claims import EXTENDED_RESOURCE_ANNOTATION
from webhook.kube.raw import Json
from webhook.kube.rollout import GROUP

Keep = bool | dict[str, Any] | list[Any] | Callable[[Any], Any]
"""What is kept of a value: all of it (True), these members of an object (a dict), these of each object in an array (a
list), or what a function makes of it."""

METADATA: Final[dict[str, Keep]] = {
    "name": True,
    "namespace": True,
    "uid": True,
    "resourceVersion": True,
    "generation": True,
    "creationTimestamp": True,
    "deletionTimestamp": True,
    "deletionGracePeriodSeconds": True,
    "labels": True,
    "annotations": {EXTENDED_RESOURCE_ANNOTATION: True},
    "ownerReferences": [{"apiVersion": True, "kind": True, "name": True, "uid": True, "controller": True}],
    "managedFields": [{"time": True}],
}
_CONDITIONS: Final[Keep] = [{"type": True, "status": True}]
_POD_CONDITIONS: Final[Keep] = [{"type": True, "status": True, "reason": True}]
_CONTAINERS: Final[Keep] = [{"name": True, "resources": True, "restartPolicy": True}]
_CONTAINER_STATUSES: Final[Keep] = [{"name": True, "allocatedResources": True, "resources": True}]
_CLAIM_SPEC: Final[Keep] = {"devices": {"requests": True, "constraints": True}}

_FIELDS: Final[Mapping[tuple[str, str], dict[str, Keep]]] = {
    ("", "Node"): {
        "status": {
            "capacity": True,
            "allocatable": True,
            "conditions": _CONDITIONS,
            "declaredFeatures": True,
            "nodeInfo": {"bootID": True, "kubeletVersion": True},
        }
    },
    ("", "Namespace"): {},
    ("", "Pod"): {
        "spec": {
            "nodeName": True,
            "schedulerName": True,
            "containers": _CONTAINERS,
            "initContainers": _CONTAINERS,
            "overhead": True,
            "resources": True,
            "resourceClaims": True,
            "schedulingGates": True,
        },
        "status": {
            "phase": True,
            "nominatedNodeName": True,
            "startTime": True,
            "allocatedResources": True,
            "resources": True,
            "conditions": _POD_CONDITIONS,
            "containerStatuses": _CONTAINER_STATUSES,
            "initContainerStatuses": _CONTAINER_STATUSES,
            "resourceClaimStatuses": True,
            "extendedResourceClaimStatus": True,
            "nodeAllocatableResourceClaimStatuses": True,
        },
    },
    ("resource.k8s.io", "ResourceSlice"): {"spec": True},
    ("resource.k8s.io", "ResourceClaim"): {
        "spec": _CLAIM_SPEC,
        "status": {
            "allocation": {"devices": {"results": True}, "nodeSelector": True, "allocationTimestamp": True},
            "reservedFor": True,
        },
    },
    ("resource.k8s.io", "ResourceClaimTemplate"): {"spec": {"spec": _CLAIM_SPEC}},
    ("resource.k8s.io", "DeviceClass"): {"spec": {"selectors": True, "extendedResourceName": True}},
    ("topology.node.k8s.io", "NodeResourceTopology"): {"zones": True},
    (GROUP, "DriverRollout"): {"spec": True},
    (GROUP, "NodeLedger"): {"spec": True, "status": True},
}


def recorded(obj: Json) -> Json | None:
    """The part of ``obj`` that is recorded; None for a kind that no account and no refusal depends on, as roles."""
    group = str(obj.get("apiVersion", "")).rpartition("/")[0]
    fields = _FIELDS.get((group, str(obj.get("kind", ""))))
    if fields is None:
        return None
    found = kept(obj, {"metadata": METADATA, **fields})
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], **found}


def kept(value: Any, keep: Keep) -> Any:
    """The part of ``value`` that ``keep`` names; members that are null, and what is no object where one is named, are
    left out.
    """
    if keep is True:
        return value
    if isinstance(keep, dict):
        if not isinstance(value, dict):
            return {}
        return {name: kept(value[name], part) for name, part in keep.items() if value.get(name) is not None}
    if isinstance(keep, list):
        rows = value if isinstance(value, list) else []
        return [kept(row, keep[0]) for row in rows if isinstance(row, dict)]
    assert callable(keep)
    return keep(value)


def _fragment(value: object) -> orjson.Fragment:
    """The devices of a slice that nobody has decoded yet."""
    if isinstance(value, msgspec.Raw):
        return orjson.Fragment(bytes(value))
    raise TypeError(f"{type(value).__name__} is no JSON")


def encoded(value: object) -> bytes:
    """``value`` as JSON: members sorted, no white space (devices that were never decoded stay as they came)."""
    try:
        return orjson.dumps(value, default=_fragment, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # integers beyond 64 bits and halves of surrogate pairs, which files may hold
        return json.dumps(value, sort_keys=True, separators=(",", ":"), default=_decoded).encode()


def _decoded(value: object) -> Any:
    if isinstance(value, msgspec.Raw):
        return json.loads(bytes(value))
    raise TypeError(f"{type(value).__name__} is no JSON")


def digest(value: object) -> str:
    """The digest of a JSON value: the same for equal values, however they are written."""
    return f"sha256:{hashlib.sha256(encoded(value)).hexdigest()}"
