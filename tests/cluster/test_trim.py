from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench import live
from webhook.cluster.files import documents
from webhook.cluster.kinds import KINDS
from webhook.cluster.trim import trimmed
from webhook.kube.documents import Document
from webhook.kube.rbac import BINDINGS, ROLES
from webhook.kube.snapshot import Snapshot

VERSIONS = {kind.name: kind.api_version for kind in KINDS}
TRIMMED = ("Node", "Pod", "ResourceSlice", *ROLES, *BINDINGS)
SAMPLES = ["webhook/cli/example/cluster", "tests/cases/field/base.yaml", "tests/cases/kinds"]
OBJECTS = [
    *(each.value for each in documents(SAMPLES) if isinstance(each, Document) and each.value.get("kind") in TRIMMED),
    *({"kind": kind, **obj} for kind in TRIMMED for obj in islice(live.fleet_of(kind), 8)),
    {
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ns", "deletionTimestamp": "2026-11-30T00:00:00Z"},
        "spec": {
            "initContainers": [{"name": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}],
            "containers": [{"name": "c", "resources": {"claims": [{"name": "x", "request": "r"}]}}],
            "resources": {"limits": {"cpu": "2"}},
            "overhead": {"memory": "1Mi"},
            "schedulerName": "other",
            "schedulingGates": [{"name": "g"}],
            "resourceClaims": [{"name": "x", "resourceClaimTemplateName": "t"}],
        },
        "status": {
            "nominatedNodeName": "n",
            "initContainerStatuses": [{"name": "i", "allocatedResources": {"cpu": "3"}}],
            "resourceClaimStatuses": [{"name": "x", "resourceClaimName": "made"}],
            "extendedResourceClaimStatus": {"resourceClaimName": "e"},
            "nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "made", "resources": {"cpu": "1"}}],
        },
    },
    {
        "kind": "ClusterRole",
        "metadata": {
            "name": "r",
            "labels": {"a": "b"},
            "annotations": {"allocguard.dev/profile": "NodeLocal", "allocguard.dev/driver": "d.example", "other": "x"},
            "managedFields": [{"manager": "m"}],
        },
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": ["x"]}],
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"c": "d"}}]},
    },
    {
        "kind": "Role",
        "metadata": {"name": "r", "namespace": "ns"},
        "rules": [{"nonResourceURLs": ["/x"], "verbs": ["*"]}],
    },
    *(
        {
            "kind": kind,
            "metadata": {"name": "b", "namespace": "ns", "annotations": {"x": "y"}},
            "roleRef": {"kind": "ClusterRole", "name": "r", "apiGroup": "rbac.authorization.k8s.io"},
            "subjects": [{"kind": "ServiceAccount", "name": "s"}, {"kind": "User", "name": "u"}],
        }
        for kind in BINDINGS
    ),
    {
        "kind": "Node",
        "metadata": {"name": "n", "deletionTimestamp": "2026-11-30T00:00:00Z"},
        "status": {"declaredFeatures": ["A"], "nodeInfo": {"kubeletVersion": "v1"}, "capacity": {"cpu": "1"}},
    },
]


def kept(obj: Any, kind: str) -> Any:
    """What a snapshot keeps of an object."""
    snapshot = Snapshot().put({**obj, "kind": kind, "apiVersion": VERSIONS[kind]})
    if kind == "ResourceSlice":
        return [replace(item, shape=b"") for item in snapshot.slices.values()]
    if kind in (*ROLES, *BINDINGS):
        return list((snapshot.roles if kind in ROLES else snapshot.bindings).values())
    return list((snapshot.nodes if kind == "Node" else snapshot.pods).values())


@pytest.mark.parametrize("obj", OBJECTS, ids=lambda obj: f"{obj['kind']}-{obj['metadata']['name']}")
def test_nothing_that_a_snapshot_keeps_is_lost(obj: Any) -> None:
    assert kept(trimmed(obj["kind"], json.dumps(obj).encode()), obj["kind"]) == kept(obj, obj["kind"])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "x", "1Gi", "Always"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "name",
                    "metadata",
                    "spec",
                    "status",
                    "containers",
                    "devices",
                    "resources",
                    "requests",
                    "conditions",
                    "kind",
                    "annotations",
                    "labels",
                    "verbs",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(kind=st.sampled_from(TRIMMED), metadata=JSON, spec=JSON, status=JSON)
def test_any_json_is_kept_as_if_it_had_been_decoded_whole(kind: str, metadata: Any, spec: Any, status: Any) -> None:
    obj = {"metadata": metadata, "spec": spec, "status": status}
    obj |= {"rules": spec, "aggregationRule": status, "roleRef": status, "subjects": spec}
    assert kept(trimmed(kind, json.dumps(obj).encode()), kind) == kept(obj, kind)


@pytest.mark.parametrize("kind", [*TRIMMED, "DeviceClass"])
@pytest.mark.parametrize("raw", [b"", b"{", b"[1]", b"7", b"null", b"\xff", b'{"a":1}x'])
def test_what_is_no_object_raises(kind: str, raw: bytes) -> None:
    with pytest.raises(ValueError):
        trimmed(kind, raw)
