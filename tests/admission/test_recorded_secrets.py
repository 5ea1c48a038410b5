"""Nothing secret is in a line of a recording: reviews with a secret wherever one may be, judged and written down."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.admission.recordings import KEY, REVISION
from tests.admission.test_redact import SECRET, suites
from tests.cases.test_reviews import GATES, STEPS, clock, cluster_paths, expected
from webhook.admission.action import apply
from webhook.admission.decide import decide
from webhook.admission.decode import decode
from webhook.admission.record import Record
from webhook.admission.recorded_line import line, take
from webhook.admission.redact import _object
from webhook.cluster.files import Cluster
from webhook.kube.snapshot import Snapshot, build
from webhook.ledger.book import Book
from webhook.ledger.recorded import Keep, encoded

Json = dict[str, Any]


def poisoned(value: Any, keep: Keep) -> Any:
    """``value`` with the secret in everything that is not kept as it is: in members of names that nobody knows, and in
    those that are left out.
    """
    match value:
        case dict() if isinstance(keep, dict):
            known = {name: poisoned(each, keep[name]) if name in keep else each for name, each in value.items()}
            return {**known, SECRET: {SECRET: SECRET}, "env": [{"name": SECRET, "value": SECRET}]}
        case dict() if callable(keep):
            return {**value, SECRET: SECRET, "z": SECRET, "a": 1.0}
        case list() if isinstance(keep, list):
            return [poisoned(each, keep[0]) for each in value]
        case list() if callable(keep):
            return [poisoned(each, {"opaque": {"driver": True, "parameters": keep}}) for each in value]
    return value


def written(raw: Json, endpoint: str, snapshot: Snapshot, now: datetime) -> tuple[bytes, bytes]:
    """The review with the secret in it, as the API server sends it, and the line of what is decided about it."""
    raw = dict(raw)
    for name in ("object", "oldObject"):
        if isinstance(raw.get(name), dict):
            obj = poisoned(raw[name], _object(raw, b""))
            metadata = obj.get("metadata") or {}
            annotations = {**(metadata.get("annotations") or {}), "example.org/token": SECRET, SECRET: "x"}
            managed = [{"manager": SECRET, "time": "2026-11-30T12:00:00Z", "fieldsV1": {f"f:{SECRET}": {}}}]
            raw[name] = {**obj, "metadata": {**metadata, "annotations": annotations, "managedFields": managed}}
    person = raw.get("userInfo") or {}
    raw["userInfo"] = {**person, "extra": {**(person.get("extra") or {}), "example.org/session": [SECRET]}}
    sent = orjson.dumps({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": raw})
    verdict = decide(decode(sent), endpoint, REVISION, snapshot, Book(), now)
    return sent, encoded(line(take(Record(verdict, apply(verdict), now, 0.001)), KEY))


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_recorded_reviews(step: Path) -> None:
    cluster = Cluster(cluster_paths(step), None, GATES)
    for file, wanted in expected(step)["reviews"].items():
        raw = json.loads((step / file).read_text())["request"]
        sent, told = written(raw, wanted["endpoint"], cluster.snapshot, clock(step))
        assert SECRET.encode() in sent
        assert SECRET.encode() not in told, file


@pytest.mark.parametrize("suite", suites())
def test_reviews_of_the_cases_of_shipped_policies(suite: Any) -> None:
    for case in suite.cases:
        sent, told = written(dict(case.request.raw), case.endpoint, build(case.objects, case.release), case.now)
        assert SECRET.encode() in sent
        assert SECRET.encode() not in told, case.name
