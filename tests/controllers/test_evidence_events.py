from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.admission.test_record import FULL, SNAPSHOT, record_of
from tests.bench import fleet
from webhook.controllers.event_queue import Happening
from webhook.controllers.events import about_claim, about_pod
from webhook.controllers.evidence_events import EvidenceEvents
from webhook.ledger.moments import Kind, Moment

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
CLAIM, NODE = fleet.claim(2), fleet.name(3)
UID, NAME = CLAIM["metadata"]["uid"], CLAIM["metadata"]["name"]
ABOUT = about_claim("bench", NAME, UID)


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


@pytest.mark.parametrize("consumer", [False, True], ids=["allocation", "one more consumer"])
def test_what_is_allowed_is_told_by_its_charge(consumer: bool) -> None:
    told, review = Told(), allocation()
    if consumer:
        review["request"]["oldObject"] = copy.deepcopy(review["request"]["object"])
        review["request"]["oldObject"]["status"]["reservedFor"] = []
    record = record_of(review)
    assert record.allocates
    told.events.record(record)
    assert bool(told) is not record.answer.allowed


def moment(kind: Kind, **more: Any) -> Moment:
    fields = {"begun": NOW, "at": NOW, "uid": UID, "namespace": "bench", "name": NAME, "text": f"{kind}!", **more}
    return Moment(kind=kind, **fields)


def test_what_the_book_says_is_told_once_for_each_allocation() -> None:
    told = Told()
    kinds: tuple[Kind, ...] = ("charged", "bound", "released", "lapsed", "settled")
    told.events.moments([moment(kind, node=NODE, allocation="a", reason="unscheduled") for kind in kinds])
    assert [(each.reason, each.message, each.node) for each in told] == [
        ("ClaimCharged", "charged!", NODE),
        ("ClaimReleased", "released!", NODE),
        ("ClaimReleased", "lapsed!", NODE),
    ]
    assert [each.warning for each in told] == [False, False, True]
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


@pytest.mark.parametrize(
    ("reason", "seconds", "count"), [("unscheduled", 14, 0), ("unscheduled", 15, 1), ("driver-held", 1, 1)]
)
def test_the_end_of_a_wait_is_told_where_somebody_had_asked_about_it(reason: str, seconds: int, count: int) -> None:
    told = Told()
    told.events.moments([moment("settled", reason=reason, begun=NOW - timedelta(seconds=seconds))])
    assert [(each.reason, each.warning) for each in told] == [("ClaimSettled", False)] * count
