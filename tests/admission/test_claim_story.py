from __future__ import annotations

import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tests.facts.builders import claim, device_class, gpu, node, pod, slice_of, world
from webhook.admission.claim_story import claim_story, pods_of, subject
from webhook.admission.subject import Ref
from webhook.cluster.files import Cluster
from webhook.facts.footprint import TIMES
from webhook.kube.node_ledger import BookedCharge, NodeLedger
from webhook.kube.object_event import ObjectEvent
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book

NOW = datetime(2026, 11, 28, 9, 30, tzinfo=UTC)
EXAMPLE = Path(__file__).parents[2] / "webhook" / "cli" / "example" / "cluster"
SNAPSHOT = Cluster([str(EXAMPLE)]).snapshot
WAITS, USES = "c0000003-0000-4000-8000-000000000003", "c0000001-0000-4000-8000-000000000001"
POD = "e0000003-0000-4000-8000-000000000003"
REFUSAL = "claim-allocation/node-overcommit: status.allocation: has cpu 12 (13 - 8 - 12 = -7), needs at most 5"


def event(reason: str = "AllocationRefused", **more: Any) -> ObjectEvent:
    fields: dict[str, Any] = {
        "kind": "ResourceClaim",
        "namespace": "studio",
        "name": "batch",
        "uid": WAITS,
        "message": REFUSAL,
        "count": 1,
        "since": "2026-11-28T09:00:02.250000Z",
        "until": "2026-11-28T09:00:02Z",
        "by": "allocguard",
        "warning": True,
    }
    return ObjectEvent(reason=reason, **{**fields, **more})


def of_pod(reason: str, **more: Any) -> ObjectEvent:
    return event(reason, **{"kind": "Pod", "uid": POD, **more})


def told(name: str, *events: ObjectEvent, snapshot: Snapshot = SNAPSHOT) -> dict[str, Any]:
    ref = subject(snapshot, name, events)
    assert ref is not None
    return claim_story(Book(), snapshot, ref, events, NOW)


def test_a_claim_that_waits_tells_for_what_with_the_sum_and_what_would_help() -> None:
    refused = event(rule="node-overcommit", node="anvil-1", count=12, until="2026-11-28T09:11:02Z")
    story = told("studio/batch", refused, of_pod("ClaimRefused", rule="node-overcommit", related=WAITS))
    assert (story["claim"], story["uid"], story["trace"]) == ("studio/batch", WAITS, WAITS.replace("-", ""))
    assert (story["present"], story["state"], story["charges"]) == (True, "unallocated", [])
    # What the pod was told is the same, and not told twice.
    assert story["moments"] == [
        {
            "at": "2026-11-28T09:00:02.250000Z",
            "until": "2026-11-28T09:11:02Z",
            "count": 12,
            "kind": "refused",
            "reason": "node-overcommit",
            "node": "anvil-1",
            "about": "",
            "by": "",
            "text": REFUSAL,
        }
    ]
    assert (story["waits"]["reason"], story["waits"]["refusal"]) == ("node-overcommit", REFUSAL)
    assert story["waits"]["pods"] == ["studio/batch"]
    assert {"kind": "release", "node": "anvil-1", "claim": "studio/render", "resource": "cpu", "amount": "8"} in story[
        "smallestChange"
    ]
    assert story["remedy"]["why"] == {"node-overcommit": 1, "pool-incomplete": 1}
    assert story["runbooks"] == ["docs/runbooks/claims-pending.md"]


def test_the_node_that_refused_it_for_another_reason_than_room_is_told_apart_from_the_others() -> None:
    slices = [slice_of(gpu("g", {"cpu": {}}), name=f"s-{name}", where=name) for name in ("n1", "n2")]
    snapshot = world(node("n1"), node("n2", uid="u2"), *slices, device_class(), claim(), pod())
    refused = event(namespace="ns", name="c1", uid="uid-c1", rule="not-in-maintenance", node="n2")
    story = told("ns/c1", refused, snapshot=snapshot)
    assert (story["waits"]["reason"], story["waits"]["node"]) == ("not-in-maintenance", "n2")
    assert (story["remedy"]["fit"], story["remedy"]["here"]) == (["n2", "n1"], True)


def test_a_claim_in_use_has_its_charges_with_formula_and_mapping_and_waits_for_nothing() -> None:
    story = told("studio/render")
    [charge] = story["charges"]
    assert (charge["amount"], charge["formula"], charge["state"]) == ("8", f"8{TIMES}1", "bound")
    assert charge["mapping"]["digest"].startswith("sha256:")
    assert (story["waits"], story["remedy"], story["smallestChange"], story["runbooks"]) == (None, None, [], [])
    assert [each["kind"] for each in story["moments"]] == ["allocated"]
    commands = [shlex.split(each["run"]) for each in story["next"]]
    assert ["allocguard", "ledger", "explain", "claim/studio/render"] in commands
    assert ["allocguard", "rollout", "status", "cpu.ferrite.example"] in commands


def test_the_same_by_uid() -> None:
    assert told(USES) == told("studio/render")


def test_a_claim_in_a_file_that_has_no_uid() -> None:
    snapshot = world(claim("c1"), claim("c2"), pod("p1", {"c": "c1"}))
    claims = {key: replace(each, uid="") for key, each in snapshot.claims.items()}
    snapshot = replace(snapshot, claims=claims)
    about = event(namespace="ns", name="c1", uid="")
    story = told("ns/c1", about, replace(about, name="c2"), snapshot=snapshot)
    assert (story["present"], story["uid"], story["state"]) == (True, "", "unallocated")
    assert story["ledger"]["reason"]
    assert [each["kind"] for each in story["moments"]] == ["refused"]


def test_a_claim_that_is_gone_is_told_from_its_events_and_says_so() -> None:
    gone = event(name="old", uid="u-gone", reason="ClaimCharged", message="3 cpu", warning=False)
    later = replace(gone, reason="ClaimReleased", since="2026-11-28T09:20:00Z", until="2026-11-28T09:20:00Z")
    other = replace(gone, name="another", uid="u-other")
    for given in ("studio/old", "u-gone"):
        story = told(given, later, gone, other)
        assert (story["claim"], story["uid"], story["present"], story["state"]) == (
            "studio/old",
            "u-gone",
            False,
            "gone",
        )
        assert [(each["kind"], each["text"]) for each in story["moments"]] == [
            ("charged", "3 cpu"),
            ("released", "3 cpu"),
        ]
        assert (story["charges"], story["ledger"], story["waits"]) == ([], None, None)
    assert subject(SNAPSHOT, "studio/nobody", [gone]) is None
    assert subject(SNAPSHOT, "old", [gone]) is None


def test_of_several_claims_of_one_name_the_one_that_is_there_counts_and_else_the_last() -> None:
    before = event(uid="u-before")
    assert told("studio/batch", before)["moments"] == []
    first, second = event(name="old", uid="u1"), event(name="old", uid="u2", until="2026-11-28T09:20:00Z")
    assert told("studio/old", second, first)["uid"] == "u2"
    assert told("u1", second, first)["uid"] == "u1"


def test_a_claim_that_only_a_ledger_knows_is_told_with_what_is_charged_for_it() -> None:
    row = BookedCharge(
        claim_uid="u-lost",
        namespace="studio",
        name="lost",
        allocation="2026-11-27T09:00:00Z",
        request="cores",
        driver="cpu.ferrite.example",
        pool="anvil-1",
        device="group-0",
        share_id="",
        resource="cpu",
        amount=2,
        zone=0,
        formula=f"2{TIMES}1",
        slice="s",
        slice_uid="su",
        generation=2,
        resource_version="7",
        digest="sha256:d",
        since="2026-11-27T09:00:00Z",
        claim_version="8",
    )
    snapshot = SNAPSHOT.with_ledger(NodeLedger("anvil-1", resource_version="9", charges=(row,)))
    story = told("studio/lost", snapshot=snapshot)
    assert (story["uid"], story["present"]) == ("u-lost", False)
    assert [each["amount"] for each in story["charges"]] == ["2"]
    assert told("studio/render", snapshot=snapshot)["present"]


def test_pods_are_those_that_use_it_have_it_or_were_refused_with_it() -> None:
    refused = of_pod("ClaimRefused", name="gone-pod", uid="p-gone", related=WAITS)
    other = of_pod("ClaimRefused", name="other", uid="p-other", related="another claim")
    ref = Ref("studio", "batch", WAITS)
    assert [each.name for each in pods_of(SNAPSHOT, ref, [refused, other])] == ["batch", "gone-pod"]
    assert [each.name for each in pods_of(SNAPSHOT, Ref("studio", "render", USES), [])] == ["render"]
    pods = told("studio/batch", refused)["pods"]
    assert [(each["name"], each["present"]) for each in pods] == [("batch", True), ("gone-pod", False)]


def test_of_a_pods_events_those_count_that_say_what_becomes_of_its_claims() -> None:
    scheduler = {"by": "default-scheduler"}
    story = told(
        "studio/batch",
        of_pod("ClaimsHeld", rule="driver-held", since="2026-11-28T09:00:00Z"),
        of_pod("FailedScheduling", since="2026-11-28T09:00:01Z", **scheduler),
        of_pod("Pulled", by="kubelet"),
        of_pod("ClaimRefused", rule="zone-overcommit", related="another claim", since="2026-11-28T09:00:03Z"),
        of_pod("Scheduled", uid="another pod", **scheduler),
    )
    assert [(each["kind"], each["reason"], each["by"]) for each in story["moments"]] == [
        ("held", "driver-held", ""),
        ("event", "FailedScheduling", "default-scheduler"),
        ("event", "zone-overcommit", ""),
    ]
    assert {each["about"] for each in story["moments"]} == {"pod studio/batch"}


def test_what_somebody_else_says_under_our_reasons_is_no_moment_of_ours() -> None:
    [moment] = told("studio/batch", event("ClaimCharged", by="somebody"))["moments"]
    assert (moment["kind"], moment["by"]) == ("event", "somebody")


def test_moments_are_in_the_order_of_time_and_of_life_within_a_second() -> None:
    story = told(
        "studio/render",
        event("ClaimCharged", uid=USES, since="2026-11-20T07:00:00.100000Z"),
        event("AllocationRefused", uid=USES, since="2026-11-20T07:00:00.900000Z", rule="x"),
        event("ClaimPending", uid=USES, since="2026-11-20T06:59:59Z"),
        event("ClaimReleased", uid=USES, since="no time"),
    )
    kinds = [each["kind"] for each in story["moments"]]
    assert kinds == ["pending", "allocated", "charged", "refused", "released"]


def test_what_is_known_better_than_to_the_second_keeps_its_order_whoever_tells_it() -> None:
    scheduler = of_pod("Scheduled", since="2026-11-28T09:00:02.300000Z", by="default-scheduler")
    story = told(
        "studio/batch",
        of_pod("ClaimsHeld", since="2026-11-28T09:00:02Z", rule="driver-held"),
        event("ClaimCharged", since="2026-11-28T09:00:02.500000Z"),
        scheduler,
        event("ClaimSettled", since="2026-11-28T09:00:02Z"),
        event("ClaimReleased", since="2026-11-28T09:00:02Z"),
    )
    assert [each["kind"] for each in story["moments"]] == ["held", "settled", "event", "charged", "released"]


def test_attempts_of_a_scheduler_that_end_alike_are_one_moment() -> None:
    def attempt(second: int, **more: Any) -> ObjectEvent:
        at = f"2026-11-28T09:00:{second:02}.000000Z"
        return of_pod(
            "FailedScheduling", **{"since": at, "until": at, "by": "default-scheduler", "message": "x", **more}
        )

    later = attempt(20, count=3, until="2026-11-28T09:05:00Z")
    story = told("studio/batch", attempt(4), later, attempt(2), attempt(3, message="y"), attempt(6, name="other"))
    found = [
        (each["at"][17:19], each["text"], each["count"], each["until"], each["about"]) for each in story["moments"]
    ]
    assert found == [
        ("02", "x", 5, "2026-11-28T09:05:00Z", "pod studio/batch"),
        ("03", "y", 1, "", "pod studio/batch"),
        ("06", "x", 1, "", "pod studio/other"),
    ]
    assert story["omitted"] == 0


def test_of_very_many_events_the_latest_are_told_and_the_others_counted() -> None:
    many = [
        event("Other", by="x", message=str(n), since=f"2026-11-28T{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}Z")
        for n in range(5000)
    ]
    story = told("studio/batch", *many)
    assert (len(story["moments"]), story["omitted"]) == (200, 4800)
    assert story["moments"][-1]["at"] == "2026-11-28T01:23:19Z"
    # Ours are not crowded out by those of others, nor the other way round.
    refusal = event(rule="full", since="2026-11-28T00:00:00Z")
    first, *rest = told("studio/batch", refusal, *many)["moments"]
    assert (first["kind"], len(rest), {each["by"] for each in rest}) == ("refused", 199, {"x"})
    ours = [replace(each, by="allocguard", reason="AllocationRefused", since=each.until) for each in many]
    kinds = [each["kind"] for each in told("studio/batch", *ours, *many)["moments"]]
    assert (kinds.count("refused"), kinds.count("event")) == (150, 50)


def test_names_are_one_line_and_fit_for_a_shell() -> None:
    hostile = event(name="a; rm -rf $HOME", uid="u-bad", message="x\n\x1b[31mred", reason="Other", by="y\nz")
    story = told("u-bad", hostile)
    [moment] = story["moments"]
    assert (moment["text"], moment["by"]) == ("x  [31mred", "y z")
    assert all("$HOME" not in each["run"] or "'" in each["run"] for each in story["next"])


def test_of_very_many_pods_the_first_are_told() -> None:
    pods = [
        pod(f"p{n}", {"c": "c1"}, metadata={"creationTimestamp": f"2026-11-20T09:{n // 60:02}:{n % 60:02}Z"})
        for n in range(300)
    ]
    story = told("ns/c1", snapshot=world(claim("c1", metadata={"creationTimestamp": "2026-11-20T09:00:00Z"}), *pods))
    kinds = [each["kind"] for each in story["moments"]]
    assert (kinds[0], set(kinds[1:]), len(kinds), story["omitted"]) == ("created", {"wanted"}, 33, 0)
    assert story["moments"][-1]["at"] == "2026-11-20T09:00:31Z"
