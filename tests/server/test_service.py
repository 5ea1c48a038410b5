"""What a review leaves behind: nothing that only the cycle collector finds, which stops the server while it does."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import math
from base64 import b64decode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from immutables import Map
from msgspec.structs import replace

from tests.bench import fleet
from webhook.admission.record import Record
from webhook.cluster.files import Cluster
from webhook.kube.release import Release
from webhook.kube.snapshot import Snapshot, build
from webhook.server.service import Reply, Service
from webhook.store.policies import PolicyStore, shipped
from webhook.telemetry.log import Log

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
POLICY = """
apiVersion: allocguard.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: everything}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*/*"]}]
  matchConditions: [{name: named, expression: "request.name != ''"}]
  variables:
  - {name: name, expression: "object.metadata.name"}
  - {name: twice, expression: "variables.name + variables.name"}
  - {name: unread, expression: "variables.twice"}
  validations:
  - {name: false-one, expression: "variables.twice == ''", messageExpression: "'has ' + variables.name"}
  - {name: failing-one, expression: "object.nothing == 1"}
  auditAnnotations: [{key: name, valueExpression: "variables.name"}]
  exceptions: [{name: old, expression: "variables.name != ''", expires: "2026-01-01T00:00:00Z", ticket: OPS-1}]
  action: Deny
"""
REVIEWS: dict[str, Callable[[], Any]] = {
    "pod": fleet.pod_review,
    "slice": fleet.slice_review,
    "allocation": lambda: fleet.allocation_review(2, 3),
    "denied": lambda: fleet.review("CREATE", {**fleet.big_slice(4), "metadata": {"name": "x", "labels": 7}}),
}


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def answered(service: Service, endpoint: str, text: bytes) -> None:
    reply = service.answer(endpoint, text, math.inf)
    assert isinstance(reply, Reply)
    reply.tell(0.0)


@pytest.mark.parametrize("what", REVIEWS)
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.usefixtures("uncollected")
def test_a_review_leaves_no_circles(tmp_path: Path, what: str, own: bool) -> None:
    objects, policy = tmp_path / "fleet.json", tmp_path / "policy.yaml"
    objects.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(fleet.cluster(4))}))
    policy.write_text(POLICY)
    policies = PolicyStore([str(policy) if own else shipped()])
    service = Service(policies, Cluster([str(objects)]), Log(io.StringIO()), lambda: NOW)
    text = json.dumps(REVIEWS[what]()).encode()
    for endpoint in ("validate", "mutate"):
        answered(service, endpoint, text)
    gc.collect()
    for endpoint in ("validate", "mutate"):
        for _ in range(5):
            answered(service, endpoint, text)
    assert gc.collect() == 0


MUTATING = """
apiVersion: allocguard.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: %s}
spec:
  endpoint: mutate
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  variables: [{name: patch, expression: "[{'op': 'add', 'path': '/metadata/labels/%s', 'value': pod.name}]"}]
  mutations: [{patchType: JSONPatch, expression: "variables.patch"}]
  failurePolicy: Ignore
  action: Warn
"""


@pytest.mark.usefixtures("uncollected")
def test_a_changed_object_leaves_no_circles(tmp_path: Path) -> None:
    objects, policy = tmp_path / "fleet.json", tmp_path / "policy.yaml"
    objects.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(fleet.cluster(4))}))
    policy.write_text("---".join(MUTATING % (name, label) for name, label in (("a", "x"), ("b", "y"), ("c", "z/z"))))
    service = Service(PolicyStore([str(policy)]), Cluster([str(objects)]), Log(io.StringIO()), lambda: NOW)
    text = json.dumps(fleet.pod_review()).encode()
    reply = service.answer("mutate", text, math.inf)
    assert isinstance(reply, Reply)
    response = json.loads(reply.body)["response"]
    assert [each["path"] for each in json.loads(b64decode(response["patch"]))] == [
        "/metadata/labels/x",
        "/metadata/labels/y",
    ]
    assert response["auditAnnotations"]["errors"].startswith("c/mutations: the patch does not apply: ")
    reply.tell(0.0)
    gc.collect()
    for _ in range(5):
        answered(service, "mutate", text)
    assert gc.collect() == 0


@pytest.mark.parametrize(
    ("action", "exception", "event"),
    [("Deny", "", "denied"), ("Warn", "", "warned"), ("Audit", "", "audited"), ("Deny", "2099-01-01T00:00:00Z", "")],
)
def test_what_is_found_is_logged_whatever_comes_of_it(tmp_path: Path, action: str, exception: str, event: str) -> None:
    policy = tmp_path / "policy.yaml"
    text = POLICY.replace("action: Deny", f"action: {action}").replace("  - {name: failing-one, ", "  - {name: sound, ")
    text = text.replace("object.nothing == 1", "true").replace(
        "2026-01-01T00:00:00Z", exception or "2026-01-01T00:00:00Z"
    )
    policy.write_text(text)
    (tmp_path / "fleet.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": []}))
    said = io.StringIO()
    log = Log(said)
    service = Service(PolicyStore([str(policy)]), Cluster([str(tmp_path / "fleet.json")]), log, lambda: NOW)
    answered(service, "validate", json.dumps(fleet.slice_review()).encode())
    log.close()
    lines = [json.loads(line) for line in said.getvalue().splitlines()]
    judged = [line for line in lines if line.get("findings")]
    assert [line["event"] for line in judged] == ([event] if event else [])
    for line in judged:
        found = {"denied": [line["message"]], "warned": line["warnings"], "audited": line["audited"]}
        assert [kind for kind, texts in found.items() if any("everything/false-one" in each for each in texts)] == [
            event
        ]


HOLDING = """
apiVersion: allocguard.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: waits}
spec:
  endpoint: mutate
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{name: closed, expression: "false", message: it is closed}]
  action: Hold
"""


@pytest.mark.parametrize(("may_hold", "event", "action"), [(True, "held", "Hold"), (False, "warned", "Warn")])
def test_pods_are_held_as_long_as_somebody_may_let_them_go(
    tmp_path: Path, may_hold: bool, event: str, action: str
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(HOLDING)
    (tmp_path / "fleet.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": []}))
    said = io.StringIO()
    log = Log(said)
    service = Service(PolicyStore([str(policy)]), Cluster([str(tmp_path / "fleet.json")]), log, lambda: NOW)
    service.may_hold = lambda: may_hold
    reply = service.answer("mutate", json.dumps(fleet.pod_review()).encode(), math.inf)
    assert isinstance(reply, Reply)
    response = json.loads(reply.body)["response"]
    assert (response["allowed"], "patch" in response) == (True, may_hold)
    assert response["warnings"] == ["waits/closed: it is closed"]
    reply.tell(0.0)
    log.close()
    assert [json.loads(line)["event"] for line in said.getvalue().splitlines()] == [event]
    series = f'allocguard_findings_total{{action="{action}",policy="waits",rule="closed"}} 1.0'
    assert series in b"".join(service.metrics.pieces()).decode()


NEEDS = """
apiVersion: allocguard.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: waits}
spec:
  endpoint: mutate
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{name: needs, findings: pod.waitingProblems}]
  action: Hold
"""


class Watched:
    """A cluster of which the claim of the pod is seen after it was looked at ``late`` times."""

    synced = True

    def __init__(self, late: int) -> None:
        held = fleet.rollout()
        held["spec"] |= {"hold": {"reason": "closed", "by": "dana", "since": "2026-11-29T11:00:00Z"}}
        self._whole = build([fleet.node(0), *fleet.slices(0), *fleet.classes(), fleet.claim(0), held], Release(36))
        self._late = late
        self.looks = 0

    @property
    def snapshot(self) -> Snapshot:
        self.looks += 1
        return self._whole if self.looks > self._late else replace(self._whole, claims=Map())

    def snapshot_for(self, obj: object) -> Snapshot:
        return self.snapshot

    def checks(self) -> list[tuple[str, bool, str]]:
        return []


def waited(folder: Path, late: int, patience: float) -> tuple[bool, bool]:
    """Whether the review waited, and whether the pod is held."""
    policy = folder / "policy.yaml"
    policy.write_text(NEEDS)
    service = Service(PolicyStore([str(policy)]), Watched(late), Log(io.StringIO()), lambda: NOW)
    service.patience = patience
    reply = service.answer("mutate", json.dumps(fleet.pod_review()).encode(), math.inf)
    waits = not isinstance(reply, Reply)
    if not isinstance(reply, Reply):
        reply = asyncio.run(reply)
    return waits, "patch" in json.loads(reply.body)["response"]


@pytest.mark.parametrize(
    ("late", "patience", "expected"),
    [(0, 60.0, (False, True)), (3, 60.0, (True, True)), (3, 0.0, (False, False)), (10**9, 0.02, (True, False))],
    ids=["seen", "seen in a moment", "nobody follows the cluster", "not there"],
)
def test_a_pod_waits_for_the_claims_that_are_made_with_it(
    tmp_path: Path, late: int, patience: float, expected: tuple[bool, bool]
) -> None:
    assert waited(tmp_path, late, patience) == expected


def test_an_allocation_that_is_allowed_is_logged_and_no_other_write(tmp_path: Path) -> None:
    objects = tmp_path / "fleet.json"
    objects.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(fleet.cluster(4))}))
    said = io.StringIO()
    log = Log(said)
    service = Service(PolicyStore([shipped()]), Cluster([str(objects)]), log, lambda: NOW)
    for review in (fleet.pod_review(), fleet.allocation_review(2, 3)):
        answered(service, "validate", json.dumps(review).encode())
    log.close()
    (line,) = [json.loads(line) for line in said.getvalue().splitlines()]
    assert (line["level"], line["event"], line["claim"], line["node"]) == (
        "info",
        "allowed",
        "bench/claim-2",
        "node-00003",
    )
    assert line["trace"] == line["claimUID"].replace("-", "")
    assert any(each.startswith("cpu: 62 allocatable") for each in line["sums"])


def test_a_refusal_counts_whatever_becomes_of_its_telling(tmp_path: Path) -> None:
    objects = tmp_path / "fleet.json"
    full = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "full", "namespace": "bench", "uid": "u-full"}}
    requests = {"requests": {"cpu": "59500m"}}
    full |= {"spec": {"nodeName": fleet.name(3), "containers": [{"name": "c", "image": "i", "resources": requests}]}}
    objects.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*fleet.cluster(4), full]}))
    log = Log(io.StringIO())
    service = Service(PolicyStore([shipped()]), Cluster([str(objects)]), log, lambda: NOW)

    def broken(record: Record) -> None:
        raise ValueError(record.rule)

    service.on_record.append(broken)
    review = fleet.allocation_review(2, 3)
    with pytest.raises(ValueError, match="node-overcommit"):
        answered(service, "validate", json.dumps(review).encode())
    log.close()
    uid = review["request"]["object"]["metadata"]["uid"]
    assert service.allocations.refused == {uid: "node-overcommit"}
