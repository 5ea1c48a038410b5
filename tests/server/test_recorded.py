from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.admission.recordings import NOW, REVISION, RecordingGuard, coming, taken
from webhook.admission.action import apply
from webhook.admission.decide import decide
from webhook.admission.record import Record
from webhook.kube.admission import raw_request, read_request
from webhook.ledger.book import Book
from webhook.policy.compile import compile_object
from webhook.policy.revision import revision_of
from webhook.server import recorded as server_recorded
from webhook.server.recorded import Recorded
from webhook.telemetry import sampling
from webhook.telemetry.sampling import wanted

Json = dict[str, Any]
NO = {
    "apiVersion": "allocguard.dev/v1alpha1",
    "kind": "AdmissionPolicy",
    "metadata": {"name": "no"},
    "spec": {
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["pods", "pods/eviction"],
                }
            ]
        },
        "validations": [{"name": "never", "expression": "false"}],
        "action": "Deny",
    },
}
REFUSING = revision_of([compile_object(NO, "no")])


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


def creation(name: str, user: str = "rs", review: Json | None = None, **metadata: str) -> Record:
    """A new pod that is refused, as the API server asks: with a UID of this attempt."""
    guard = RecordingGuard()
    made = coming(name, "a")
    made["metadata"] |= {"uid": str(uuid4()), **metadata}
    request = {**raw_request("CREATE", made, user=user), **(review or {})}
    verdict = decide(read_request(request), "validate", REFUSING, guard.snapshot, Book(), guard.now)
    return Record(verdict, apply(verdict), guard.now, 0.001)


def test_creations_that_are_refused_alike_are_recorded_ever_more_rarely_though_each_has_a_uid_of_its_own() -> None:
    recorded = Recorded(0.0)
    assert creation("web").outcome == "denied"
    assert [number for number in range(1, 65) if recorded(creation("web"))] == [1, 2, 4, 8, 16, 32, 64]
    # As a controller makes them, with another name each time.
    names = (creation(f"web-{number}", generateName="web-") for number in range(1, 65))
    assert sum(map(recorded, names)) == 7
    assert recorded(creation("web", user="another"))
    assert recorded(creation("web", namespace="another"))
    assert recorded(creation("other"))
    assert not recorded(creation("web"))


def test_what_is_made_in_vain_takes_no_memory_from_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_MOST_KEPT", 4)
    recorded, claim = Recorded(0.0), uid(False)
    assert recorded(allocation(claim, "15"))
    for number in range(20):
        recorded(creation(f"web-{number}"))
        recorded(creation("dry", review={"dryRun": True}))
    assert recorded(allocation(claim))


def test_how_often_attempts_ended_alike_is_remembered_of_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_recorded, "_MOST_ALIKE", 10)
    recorded = Recorded(0.0)
    assert sum(recorded(creation(f"web-{number}")) for number in range(30)) == 30
    assert len(recorded._alike) == 10
    # The latest is known, and the first is not any more.
    assert [recorded(creation("web-29")) for _ in range(2)] == [True, False]
    assert [recorded(creation("web-0")) for _ in range(3)] == [True, True, False]


def test_evictions_that_are_refused_alike_are_alike() -> None:
    """They have no UID, and those of their reviews are new each time."""
    recorded = Recorded(0.0)
    eviction: Json = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": "ns"}}

    def refused() -> Record:
        request = raw_request("CREATE", eviction, sub_resource="eviction", user="drain", uid=str(uuid4()))
        request["resource"] = request["requestResource"] = {"group": "", "version": "v1", "resource": "pods"}
        verdict = decide(read_request(request), "validate", REFUSING, RecordingGuard().snapshot, Book(), NOW)
        return Record(verdict, apply(verdict), NOW, 0.001)

    assert refused().outcome == "denied"
    assert sum(recorded(refused()) for _ in range(64)) == 7


def test_all_is_recorded_where_that_is_asked_for() -> None:
    recorded = Recorded(1.0)
    assert all(recorded(allocation(str(uuid4()))) for _ in range(20))


def test_the_page_says_how_many_attempts_are_remembered() -> None:
    page = (Path(__file__).parents[2] / "docs" / "recording.md").read_text()
    assert f"the last {server_recorded._MOST_ALIKE:,} attempts" in page
