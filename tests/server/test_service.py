"""What a review leaves behind: nothing that only the cycle collector finds, which stops the server while it does."""

from __future__ import annotations

import gc
import io
import json
import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.bench import fleet
from webhook.cluster.files import Cluster
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
    reply.tell()


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
