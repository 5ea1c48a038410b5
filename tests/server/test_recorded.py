from __future__ import annotations

from uuid import UUID, uuid4

from tests.admission.recordings import REVISION, RecordingGuard, coming, taken
from webhook.admission.action import apply
from webhook.admission.decide import decide
from webhook.admission.record import Record
from webhook.kube.admission import raw_request, read_request
from webhook.ledger.book import Book
from webhook.server.recorded import Recorded
from webhook.telemetry.sampling import wanted


def allocation(uid: str, cpus: str = "1") -> Record:
    """An allocation of the claim with this UID, to a pod of its own, which more than 14 cpus do not fit."""
    guard = RecordingGuard()
    pod = f"p{uid[:8]}"
    claim = taken("a", cpus, pod)
    claim["metadata"]["uid"] = uid
    guard.sees(coming(pod, "a"))
    before = guard.sees({**claim, "status": {}})
    raw = raw_request("UPDATE", claim, before, sub_resource="status", user="system:kube-scheduler")
    verdict = decide(read_request(raw), "validate", REVISION, guard.snapshot, Book(), guard.now)
    return Record(verdict, apply(verdict), guard.now, 0.001)


def uid(drawn: bool, ratio: float = 0.1) -> str:
    """The UID of a claim that is, or is not, among the part that is kept."""
    return next(str(each) for each in iter(uuid4, UUID(int=0)) if wanted(str(each), ratio) is drawn)


def test_a_part_of_the_claims_is_recorded_by_their_uids() -> None:
    recorded = Recorded(0.1)
    assert recorded(allocation(uid(True)))
    none = [uid(False) for _ in range(20)]
    # The pod of one may be drawn.
    assert sum(recorded(allocation(each)) for each in none) < 10


def test_what_is_refused_always_is_and_what_then_becomes_of_the_claim_too() -> None:
    recorded, claim = Recorded(0.0), uid(False)
    assert not recorded(allocation(claim))
    assert recorded(allocation(claim, "15"))
    assert recorded(allocation(claim))
    assert not recorded(allocation(uid(False), "1"))


def test_attempts_that_end_alike_are_recorded_ever_more_rarely_and_another_end_at_once() -> None:
    recorded, claim = Recorded(0.0), uid(False)
    refused = allocation(claim, "15")
    assert [number for number in range(1, 20) if recorded(refused)] == [1, 2, 4, 8, 16]
    assert recorded(allocation(uid(False), "15"))
    assert recorded(allocation(claim))
    drawn = Recorded(0.1)
    assert all(drawn(allocation(uid(True), "15")) for _ in range(5))


def test_all_is_recorded_where_that_is_asked_for() -> None:
    recorded = Recorded(1.0)
    assert all(recorded(allocation(str(uuid4()))) for _ in range(20))
