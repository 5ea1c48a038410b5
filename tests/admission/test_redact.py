from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.cases.test_reviews import GATES, STEPS, clock, cluster_paths, expected
from webhook.admission.decide import Verdict, decide
from webhook.admission.decode import read_review
from webhook.admission.redact import redacted, visible
from webhook.cluster.files import Cluster
from webhook.kube.admission import raw_request
from webhook.kube.release import Release
from webhook.kube.snapshot import build
from webhook.ledger.book import Book
from webhook.policy.suite import read_suites
from webhook.store import policies

KEY = b"k" * 32
SECRET = "hunter2-hunter2"
REVISION = policies.read([policies.shipped()])
Json = dict[str, Any]


def review(obj: Json | None, old: Json | None = None, operation: str = "CREATE", **options: Any) -> Json:
    return raw_request(operation, obj, old, **options)


def said(verdict: Verdict) -> tuple[Any, ...]:
    return (verdict.judged, verdict.errors, verdict.patch)


METADATA: Json = {
    "name": "x",
    "namespace": "ns",
    "labels": {"app": "kept"},
    "annotations": {
        "kubectl.kubernetes.io/last-applied-configuration": SECRET,
        "example.org/token": SECRET,
        SECRET: "y",
        "allocguard.dev/profile": "NodeLocal",
    },
    "managedFields": [{"manager": SECRET, "time": "2026-11-30T12:00:00Z", "fieldsV1": {SECRET: {}}}],
}
CONTAINER: Json = {
    "name": "c",
    "image": SECRET,
    "command": [SECRET],
    "args": [SECRET],
    "env": [{"name": SECRET, "value": SECRET}, {"name": "A", "valueFrom": {"secretKeyRef": {"name": SECRET}}}],
    "envFrom": [{"secretRef": {"name": SECRET}}],
    "lifecycle": {"preStop": {"exec": {"command": [SECRET]}}},
    "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "A", "value": SECRET}]}},
    "resources": {"requests": {"cpu": "1"}},
}
OPAQUE: Json = {"opaque": {"driver": "gpu.example.com", "parameters": {"password": SECRET, SECRET: 1}}}
CLAIM_SPEC: Json = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}], "config": [OPAQUE]}}
OBJECTS: list[Json] = [
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {
            "containers": [CONTAINER],
            "initContainers": [CONTAINER],
            "ephemeralContainers": [CONTAINER],
            "volumes": [{"name": "v", "csi": {"volumeAttributes": {"secret": SECRET}}}, {"secret": {"name": SECRET}}],
            "imagePullSecrets": [{"name": SECRET}],
            "securityContext": {"seLinuxOptions": {"user": SECRET}},
            "nodeName": "n1",
        },
        "status": {
            "message": SECRET,
            "containerStatuses": [{"name": "c", "state": {"terminated": {"message": SECRET}}}],
            "conditions": [{"type": "Ready", "status": "False", "message": SECRET}],
        },
    },
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "spec": CLAIM_SPEC,
        "status": {
            "allocation": {"devices": {"results": [], "config": [{"source": "FromClaim", **OPAQUE}]}},
            "devices": [
                {
                    "driver": "gpu.example.com",
                    "pool": "n1",
                    "device": "gpu-0",
                    "data": {"token": SECRET},
                    "networkData": {"interfaceName": SECRET},
                    "conditions": [{"type": "Ready", "status": "True", "message": SECRET}],
                }
            ],
        },
    },
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "spec": {"metadata": {"annotations": {"a": SECRET}}, "spec": CLAIM_SPEC},
    },
    {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "spec": {"config": [OPAQUE], "selectors": []}},
    {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": ["a"], "boundObjectRef": {"kind": "Pod", "name": "p"}},
        "status": {"token": SECRET, "expirationTimestamp": "2026-11-30T12:00:00Z"},
    },
    {"apiVersion": "v1", "kind": "Secret", "data": {"a": SECRET}, "stringData": {"b": SECRET}},
    {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": SECRET}, "binaryData": {"b": SECRET}},
    {"apiVersion": "example.org/v1", "kind": "Pod", "spec": {"password": SECRET}},
    {
        "apiVersion": "v1",
        "kind": "Node",
        "spec": {"providerID": SECRET},
        "status": {"addresses": [{"address": SECRET}]},
    },
]


@pytest.mark.parametrize("obj", OBJECTS, ids=lambda obj: f"{obj['apiVersion']}-{obj['kind']}".replace("/", "-"))
def test_no_secret_is_left_of_an_object_or_of_who_writes_it(obj: Json) -> None:
    whole = {**obj, "metadata": METADATA}
    extra = {"authentication.kubernetes.io/node-name": ["n1"], "example.org/session": [SECRET], SECRET: ["x"]}
    for raw in (
        review(whole, user="jane", extra=extra),
        review(whole, whole, "UPDATE", sub_resource="status"),
        review(None, whole, "DELETE"),
    ):
        raw["options"] = {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", SECRET: SECRET}
        raw[SECRET] = SECRET
        assert SECRET in json.dumps(raw)
        kept = redacted(raw, KEY)
        assert SECRET not in json.dumps(kept)
        metadata = (kept.get("object") or kept["oldObject"])["metadata"]
        assert metadata["annotations"] == {"allocguard.dev/profile": "NodeLocal"}
        assert metadata["labels"] == {"app": "kept"}


def test_who_writes_is_kept_as_far_as_authenticators_of_kubernetes_say_it() -> None:
    extra = {"authentication.kubernetes.io/credential-id": ["JTI=1"], "scopes.example.org": ["all"]}
    kept = redacted(review(OBJECTS[0], user="jane", groups=("dev",), extra=extra), KEY)
    assert kept["userInfo"] == {
        "username": "jane",
        "groups": ["dev"],
        "extra": {"authentication.kubernetes.io/credential-id": ["JTI=1"]},
    }


def test_what_decides_where_a_pod_may_go_is_kept() -> None:
    spec = {
        "nodeSelector": {"zone": "a"},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
        "schedulingGates": [{"name": "allocguard.dev/claims"}],
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "resourceClaims": [{"name": "c", "resourceClaimTemplateName": "t"}],
        "containers": [{"name": "c", "resources": {"claims": [{"name": "c"}]}}],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    assert redacted(review(pod), KEY)["object"] == pod


def test_what_drivers_keep_is_left_out_and_stays_comparable() -> None:
    claim = OBJECTS[1]
    changed = deepcopy(claim)
    changed["status"]["devices"][0]["data"]["token"] = "another"
    kept = redacted(review(changed, claim, "UPDATE"), KEY)
    was, now = (kept[name]["status"]["devices"][0] for name in ("oldObject", "object"))
    assert was["data"] != now["data"]
    assert was["networkData"] == now["networkData"]
    assert kept["object"]["spec"] == kept["oldObject"]["spec"]
    other = redacted(review(changed, claim, "UPDATE"), b"another key")
    assert other["object"]["status"]["devices"][0]["data"] != now["data"]


@pytest.mark.parametrize(
    "parameters", [{}, {"a": 1}, {"a": "x" * 10_300}, "text", ["a"], None, 7], ids=lambda value: str(value)[:10]
)
def test_parameters_that_the_api_server_refuses_are_refused_in_the_recording_too(parameters: Any) -> None:
    spec = deepcopy(CLAIM_SPEC)
    spec["devices"]["config"][0]["opaque"]["parameters"] = parameters
    raw = review({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": spec})
    rules = []
    for each in (raw, redacted(raw, KEY)):
        whole = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": each}
        verdict = decide(read_review(whole), "validate", REVISION, build([], Release(36)), Book(), clock(STEPS[0]))
        rules.append([(found.policy, found.finding.rule, found.finding.path) for found in verdict.judged])
    assert rules[0] == rules[1]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_redacted_review_is_judged_as_the_whole_one(step: Path) -> None:
    cluster = Cluster(cluster_paths(step), None, GATES)
    for file, wanted in expected(step)["reviews"].items():
        whole = json.loads((step / file).read_text())
        pair = [
            decide(read_review(each), wanted["endpoint"], REVISION, cluster.snapshot, Book(), clock(step))
            for each in (whole, {**whole, "request": redacted(whole["request"], KEY)})
        ]
        assert said(pair[0]) == said(pair[1]), file


def suites() -> list[Any]:
    files = {str(path): path.read_bytes() for path in sorted(Path(policies.shipped()).glob("*.test.yaml"))}
    found, problems = read_suites(files, lambda file, name: (Path(file).parent / name).read_bytes())
    assert not problems
    return [pytest.param(suite, id=suite.policy) for suite in found]


@pytest.mark.parametrize("suite", suites())
def test_the_cases_of_a_shipped_policy_come_out_the_same(suite: Any) -> None:
    for case in suite.cases:
        snapshot = build(case.objects, case.release)
        whole = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": redacted(dict(case.request.raw), KEY),
        }
        pair = [
            decide(each, case.endpoint, REVISION, snapshot, Book(), case.now)
            for each in (case.request, read_review(whole))
        ]
        # What the bytes of a review tell is not recorded.
        pair = [[found for found in verdict.judged if found.finding.rule != "blob-not-canonical"] for verdict in pair]
        assert pair[0] == pair[1], case.name


def test_a_path_is_shown_as_far_as_what_it_names_is_recorded() -> None:
    raw = review(OBJECTS[0])
    assert visible(raw, "spec.containers[0].resources.requests[cpu]") == "spec.containers[0].resources.requests[cpu]"
    assert visible(raw, f"spec.containers[0].env[{SECRET}].value") == "spec.containers[0]"
    assert visible(raw, f"metadata.annotations[{SECRET}]") == "metadata"
    assert visible(raw, f"metadata.labels[{SECRET}.x/y]") == f"metadata.labels[{SECRET}.x/y]"
    claim = review(OBJECTS[1])
    assert visible(claim, "spec.devices.config[0].opaque.parameters") == "spec.devices"
    assert (
        visible(claim, "status.allocation.devices.results[0].device") == "status.allocation.devices.results[0].device"
    )
    assert visible(claim, "") == ""
