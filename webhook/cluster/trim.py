"""Objects as they arrive, decoded no further than the facts read them.

Managed fields, environment, volumes and images are most of a pod or a node: what is not decoded costs no time. The
devices of a slice stay as bytes, since most are equal to others that are known already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import orjson
from msgspec import UNSET, Raw, Struct, UnsetType

from webhook.kube.raw import Json
from webhook.kube.rbac import BINDINGS, DRIVERS, PROFILE, ROLES


class _Metadata(Struct, gc=False):
    name: Any = UNSET
    namespace: Any = UNSET
    uid: Any = UNSET
    resourceVersion: Any = UNSET  # noqa: N815 - names of the API, here and below
    creationTimestamp: Any = UNSET  # noqa: N815
    deletionTimestamp: Any = UNSET  # noqa: N815
    deletionGracePeriodSeconds: Any = UNSET  # noqa: N815
    labels: Any = UNSET


class _NodeStatus(Struct, gc=False):
    capacity: Any = UNSET
    allocatable: Any = UNSET
    conditions: Any = UNSET
    declaredFeatures: Any = UNSET  # noqa: N815
    nodeInfo: Any = UNSET  # noqa: N815


class _Node(Struct, gc=False):
    metadata: _Metadata
    status: _NodeStatus | UnsetType = UNSET


class _Container(Struct, gc=False):
    name: Any = UNSET
    resources: Any = UNSET
    restartPolicy: Any = UNSET  # noqa: N815


class _PodSpec(Struct, gc=False):
    nodeName: Any = UNSET  # noqa: N815
    schedulerName: Any = UNSET  # noqa: N815
    containers: list[_Container] | UnsetType = UNSET
    initContainers: list[_Container] | UnsetType = UNSET  # noqa: N815
    overhead: Any = UNSET
    resources: Any = UNSET
    resourceClaims: Any = UNSET  # noqa: N815
    schedulingGates: Any = UNSET  # noqa: N815


class _ContainerStatus(Struct, gc=False):
    name: Any = UNSET
    allocatedResources: Any = UNSET  # noqa: N815
    resources: Any = UNSET


class _Condition(Struct, gc=False):
    type: Any = UNSET
    status: Any = UNSET
    reason: Any = UNSET


class _PodStatus(Struct, gc=False):
    phase: Any = UNSET
    nominatedNodeName: Any = UNSET  # noqa: N815
    startTime: Any = UNSET  # noqa: N815
    allocatedResources: Any = UNSET  # noqa: N815
    resources: Any = UNSET
    conditions: list[_Condition] | UnsetType = UNSET
    containerStatuses: list[_ContainerStatus] | UnsetType = UNSET  # noqa: N815
    initContainerStatuses: list[_ContainerStatus] | UnsetType = UNSET  # noqa: N815
    resourceClaimStatuses: Any = UNSET  # noqa: N815
    extendedResourceClaimStatus: Any = UNSET  # noqa: N815
    nodeAllocatableResourceClaimStatuses: Any = UNSET  # noqa: N815


class _Pod(Struct, gc=False):
    metadata: _Metadata
    spec: _PodSpec | UnsetType = UNSET
    status: _PodStatus | UnsetType = UNSET


class _Written(Struct, gc=False):
    time: Any = UNSET


class _SliceMetadata(_Metadata, gc=False):
    ownerReferences: Any = UNSET  # noqa: N815
    managedFields: list[_Written] | UnsetType = UNSET  # noqa: N815


class _Slice(Struct, gc=False):
    metadata: _SliceMetadata
    spec: dict[str, Raw]


class _Annotations(Struct, gc=False, rename={"profile": PROFILE, "driver": DRIVERS}):
    profile: Any = UNSET
    driver: Any = UNSET


class _RoleMetadata(_Metadata, gc=False):
    annotations: _Annotations | UnsetType = UNSET


class _Role(Struct, gc=False):
    metadata: _RoleMetadata
    rules: Any = UNSET
    aggregationRule: Any = UNSET  # noqa: N815


class _Binding(Struct, gc=False):
    metadata: _Metadata
    roleRef: Any = UNSET  # noqa: N815
    subjects: Any = UNSET


_ROLE, _BINDING = msgspec.json.Decoder(_Role), msgspec.json.Decoder(_Binding)
_NODE, _POD, _SLICE = msgspec.json.Decoder(_Node), msgspec.json.Decoder(_Pod), msgspec.json.Decoder(_Slice)
_DEVICES = msgspec.json.Decoder(list[Raw])


def _slice(raw: bytes) -> Json:
    item = _SLICE.decode(raw)
    devices = item.spec.pop("devices", None)
    spec: Json = {name: msgspec.json.decode(value) for name, value in item.spec.items()}
    if devices is not None:
        spec["devices"] = _DEVICES.decode(devices)
    return {"metadata": msgspec.to_builtins(item.metadata), "spec": spec}


_READERS: dict[str, Callable[[bytes], Any]] = {
    "Node": lambda raw: msgspec.to_builtins(_NODE.decode(raw)),
    "Pod": lambda raw: msgspec.to_builtins(_POD.decode(raw)),
    "ResourceSlice": _slice,
    **dict.fromkeys(ROLES, lambda raw: msgspec.to_builtins(_ROLE.decode(raw))),
    **dict.fromkeys(BINDINGS, lambda raw: msgspec.to_builtins(_BINDING.decode(raw))),
}


def trimmed(kind: str, raw: bytes) -> Json:
    """The object of ``kind`` in ``raw`` with what :class:`webhook.kube.snapshot.Snapshot` keeps of it, or more. Raises
    ValueError for what is no JSON object.
    """
    read = _READERS.get(kind)
    if read is not None:
        try:
            found: Json = read(raw)
        except ValueError:  # a type that no API server stores: whoever reads the object treats it as absent
            pass
        else:
            return found
    found = orjson.loads(raw)
    if not isinstance(found, dict):
        raise ValueError(f"has {raw[:40].decode(errors='replace')!a}, needs an object")
    return found
