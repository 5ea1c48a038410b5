from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.admission.test_record import FULL, SNAPSHOT, record_of
from tests.bench import fleet
from webhook.controllers import evidence_events
from webhook.controllers.event_queue import Happening
from webhook.controllers.evidence_events import EvidenceEvents
from webhook.controllers.events import about_claim, about_pod
from webhook.ledger.moments import Kind, Moment

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
CLAIM, NODE = fleet.claim(2), fleet.name(3)
UID, NAME = CLAIM["metadata"]["uid"], CLAIM["metadata"]["name"]
ABOUT = about_claim("bench", NAME, UID)
RECENT = {"creationTimestamp": "2026-11-29T12:00:00Z"}


class Told(list[Happening]):
    """What an EvidenceEvents offers."""

    def __init__(self) -> None:
        super().__init__()
        self.events = EvidenceEvents(self.append)

    def reasons(self) -> list[tuple[str, str]]:
        return [(each.about["kind"], each.reason) for each in self]


def allocation(**metadata: str) -> dict[str, Any]:
    review = copy.deepcopy(fleet.allocation_review(2, 3))
    for part in ("object", "oldObject"):
        review["request"][part]["metadata"] |= metadata
    return review


def test_a_refused_allocation_is_told_at_the_claim_and_at_its_pods_in_the_words_of_the_refusal() -> None:
    told, record = Told(), record_of(allocation(), snapshot=FULL)
    told.events.record(record)
    assert told.reasons() == [("ResourceClaim", "AllocationRefused"), ("Pod", "ClaimRefused")]
    claim, pod = told
    assert claim.message == record.answer.message
    assert claim.message.startswith("claim-allocation/node-overcommit: ")
    assert (claim.about, claim.rule, claim.node, claim.warning, claim.at) == (
        ABOUT,
        "node-overcommit",
        NODE,
        True,
        record.ended,
    )
    [consumer] = record.pods
    assert pod.about == about_pod("bench", consumer.name, consumer.uid)
    assert (pod.message, pod.related, pod.rule) == (f"claim {NAME}: {claim.message}", ABOUT, "node-overcommit")


def test_refusals_by_one_rule_are_alike_and_by_another_are_not() -> None:
    told = Told()
    other = allocation()
    other["request"]["object"]["status"]["allocation"]["devices"]["results"][0]["device"] = "no-such-device"
    for review, snapshot in ((allocation(), FULL), (allocation(), FULL), (other, SNAPSHOT)):
        told.events.record(record_of(review, snapshot=snapshot))
    marks = [each.mark for each in told if each.reason == "AllocationRefused"]
    assert marks[0] == marks[1] == "node-overcommit"
    assert marks[2] != marks[0]


def test_a_dry_run_a_creation_and_a_pod_make_no_event() -> None:
    told = Told()
    dry = allocation()
    dry["request"]["dryRun"] = True
    told.events.record(record_of(dry, snapshot=FULL))
    spec = copy.deepcopy(CLAIM)
    spec["spec"]["devices"]["requests"][0]["exactly"]["count"] = 0
    told.events.record(record_of(fleet.review("CREATE", spec)))
    told.events.record(record_of(fleet.pod_review()))
    assert told == []


def test_what_is_allowed_is_told_only_after_trouble() -> None:
    told = Told()
    told.events.record(record_of(allocation(**RECENT)))
    assert told == []
    for _ in range(2):
        told.events.record(record_of(allocation(**RECENT), snapshot=FULL))
    told.clear()
    for _ in range(2):
        told.events.record(record_of(allocation(**RECENT)))
    [allowed] = told
    assert (allowed.reason, allowed.warning, allowed.about, allowed.node) == ("AllocationAllowed", False, ABOUT, NODE)
    assert f"its allocation on node {NODE} is allowed" in allowed.message
    assert allowed.message.endswith("this replica had refused 2 before")


@pytest.mark.parametrize(("waited", "count"), [(29, 0), (30, 1), (250, 1)])
def test_another_replica_that_refused_nothing_tells_of_what_was_waited_for(waited: int, count: int) -> None:
    """By the claim's own time, alike at each of them."""
    told = Told()
    ended = datetime(2026, 11, 29, 12, 0, 1, tzinfo=UTC)
    made = (ended - timedelta(seconds=waited)).isoformat().replace("+00:00", "Z")
    told.events.record(record_of(allocation(creationTimestamp=made)))
    assert len(told) == count
    if waited == 250:
        assert "is allowed, 4m10s after it was made: " in told[0].message


def test_one_more_consumer_of_what_is_allocated_is_no_allocation() -> None:
    told = Told()
    review = allocation(creationTimestamp="2026-11-01T00:00:00Z")
    before = copy.deepcopy(review["request"]["object"])
    before["status"]["reservedFor"] = []
    review["request"]["oldObject"] = before
    record = record_of(review)
    assert record.allocates
    told.events.record(record)
    assert [each.reason for each in told] == ([] if record.answer.allowed else ["AllocationRefused", "ClaimRefused"])


def moment(kind: Kind, **more: Any) -> Moment:
    fields = {"begun": NOW, "at": NOW, "uid": UID, "namespace": "bench", "name": NAME, "text": f"{kind}!", **more}
    return Moment(kind=kind, **fields)


def test_what_the_book_says_is_told_once_for_each_allocation() -> None:
    told = Told()
    kinds: tuple[Kind, ...] = ("charged", "bound", "released", "lapsed", "settled")
    told.events.moments([moment(kind, node=NODE, allocation="a") for kind in kinds])
    assert [(each.reason, each.message, each.node) for each in told] == [
        ("ClaimCharged", "charged!", NODE),
        ("ClaimReleased", "released!", NODE),
        ("ClaimReleased", "lapsed!", NODE),
    ]
    assert not any(each.warning for each in told)
    told.events.moments([moment("charged", node=NODE, allocation="b")])
    assert len({(each.reason, each.mark) for each in told}) == 4


def test_a_wait_is_a_warning_alike_as_long_as_its_reason_is() -> None:
    told = Told()
    told.events.moments([moment("pending", reason=reason) for reason in ("driver-held", "driver-held", "unscheduled")])
    assert [(each.reason, each.mark, each.rule, each.warning) for each in told] == [
        ("ClaimPending", "driver-held", "driver-held", True),
        ("ClaimPending", "driver-held", "driver-held", True),
        ("ClaimPending", "unscheduled", "unscheduled", True),
    ]


def test_what_is_remembered_of_refused_claims_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence_events, "_MOST", 2)
    told = Told()
    for number in (2, 4, 6):
        told.events.record(record_of(fleet.allocation_review(number, 3), snapshot=FULL))
    told.clear()
    told.events.record(record_of(allocation(**RECENT)))
    assert told == []
    assert len(told.events._refused) == 2
