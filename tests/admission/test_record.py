from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.bench import fleet
from webhook.admission.action import apply
from webhook.admission.decide import decide
from webhook.admission.decode import read_review
from webhook.admission.record import Record, of_interest
from webhook.kube.release import Release
from webhook.kube.snapshot import build
from webhook.ledger.book import Book
from webhook.store import policies

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
ENDED = datetime(2026, 11, 29, 12, 0, 1, tzinfo=UTC)
SNAPSHOT = build(fleet.cluster(4), Release(36))
REVISION = policies.read([policies.shipped()])


def record_of(review: dict[str, Any], endpoint: str = "validate") -> Record:
    verdict = decide(read_review(review), endpoint, REVISION, SNAPSHOT, Book(), NOW)
    assert of_interest(verdict)
    return Record(verdict, apply(verdict), ENDED, 0.25)


def test_an_allocation_names_claim_pods_and_node() -> None:
    review = fleet.allocation_review(2, 3)
    metadata = review["request"]["object"]["metadata"]
    record = record_of(review)
    assert record.claim is not None
    assert (record.claim.namespace, record.claim.name, record.claim.uid) == (
        metadata["namespace"],
        metadata["name"],
        metadata["uid"],
    )
    consumers = review["request"]["object"]["status"]["reservedFor"]
    assert [(pod.name, pod.uid) for pod in record.pods] == [(each["name"], each["uid"]) for each in consumers]
    assert (record.node, record.allocates, record.outcome, record.troubled) == (fleet.name(3), True, "allowed", False)
    assert (record.at, record.ended, record.resource) == (NOW, ENDED, "resourceclaims/status")


def test_what_is_refused_is_trouble_and_says_which_findings_did_it() -> None:
    review = fleet.allocation_review(2, 3)
    results = review["request"]["object"]["status"]["allocation"]["devices"]["results"]
    results[0]["device"] = "no-such-device"
    record = record_of(review)
    assert (record.outcome, record.troubled) == ("denied", True)
    assert {record.done(each) for each in record.judged} >= {"Deny"}
    assert record.tree["verdict"]["message"] == record.answer.message


def test_a_pod_without_claims_is_of_no_interest_and_one_with_claims_is_its_own_subject() -> None:
    review = fleet.pod_review()
    record = record_of(review)
    assert record.claim is None
    assert not record.allocates
    assert [pod.name for pod in record.pods] == [review["request"]["object"]["metadata"]["name"]]
    del review["request"]["object"]["spec"]["resourceClaims"]
    for container in review["request"]["object"]["spec"]["containers"]:
        container.get("resources", {}).pop("claims", None)
    verdict = decide(read_review(review), "validate", REVISION, SNAPSHOT, Book(), NOW)
    assert not of_interest(verdict)
