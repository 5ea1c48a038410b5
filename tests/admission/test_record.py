from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from tests.bench import fleet
from webhook.admission.action import MAX_CAUSES, MESSAGE_SIZE, apply
from webhook.admission.decide import decide
from webhook.admission.decode import read_review
from webhook.admission.record import Record, Reserved, log_fields, of_interest
from webhook.kube.release import Release
from webhook.kube.snapshot import Snapshot, build
from webhook.ledger.book import Book
from webhook.policy.compile import compile_files
from webhook.store import policies

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
ENDED = datetime(2026, 11, 29, 12, 0, 1, tzinfo=UTC)
SNAPSHOT = build(fleet.cluster(4), Release(36))
REVISION = policies.read([policies.shipped()])


def filling(cpu: str) -> dict[str, Any]:
    """A pod on the fourth node that asks for so much."""
    requests = {"requests": {"cpu": cpu}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "filler", "namespace": "bench", "uid": "f111e400-0000-4000-8000-000000000001"},
        "spec": {"nodeName": fleet.name(3), "containers": [{"name": "c", "image": "i", "resources": requests}]},
    }


# One cpu is left for a claim that costs two and a pod that asks for a half more than one.
FULL = build([*fleet.cluster(4), filling("59500m")], Release(36))


def record_of(
    review: dict[str, Any], endpoint: str = "validate", snapshot: Snapshot = SNAPSHOT, reserved: Reserved | None = None
) -> Record:
    verdict = decide(read_review(review), endpoint, REVISION, snapshot, Book(), NOW)
    assert of_interest(verdict)
    return Record(verdict, apply(verdict), ENDED, 0.25, reserved)


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


SUM = "cpu: 62 allocatable - 61 pods - 2 claims - 2 this claim - 1500m this pod = -4500m"


def test_the_log_tells_the_story_of_a_refusal_by_itself() -> None:
    record = record_of(fleet.allocation_review(2, 3), snapshot=FULL, reserved=Reserved(fleet.name(3), 0.002, 1, True))
    fields = log_fields(record)
    uid = "c1a10001-0000-4000-8000-000000000002"
    assert (fields["claim"], fields["claimUID"], fields["trace"]) == ("bench/claim-2", uid, uid.replace("-", ""))
    assert (fields["pods"], fields["node"], fields["ms"]) == (["bench/encoder-2"], fleet.name(3), 250.0)
    assert "claim-allocation/node-overcommit" in str(fields["findings"]).split(",")
    assert fields["reason"] == record.rule == "node-overcommit"
    assert str(fields["message"]).startswith("claim-allocation/node-overcommit: status.allocation: has cpu 2 for claim")
    sums = fields["sums"]
    assert isinstance(sums, list)
    assert sums[0] == SUM
    assert fields["fix"] == ["release a claim or move a pod there, or allocate elsewhere"]
    told = {"node": fleet.name(3), "taken": True, "conflicts": 1, "problem": "", "ms": 2.0}
    assert fields["reservation"] == told


def test_the_audit_log_has_the_sums_of_a_refusal_for_fit_and_of_nothing_else() -> None:
    annotations = record_of(fleet.allocation_review(2, 3), snapshot=FULL).answer.annotations
    assert annotations["sums"].split("; ")[0] == SUM
    assert "sums" not in record_of(fleet.allocation_review(2, 3)).answer.annotations
    review = fleet.allocation_review(2, 3)
    review["request"]["object"]["status"]["allocation"]["devices"]["results"][0]["device"] = "no-such-device"
    other = record_of(review)
    assert (other.outcome, other.sums != ()) == ("denied", True)
    assert "sums" not in other.answer.annotations


def test_a_write_about_no_claim_has_no_trace_and_a_pod_its_own() -> None:
    fields = log_fields(record_of(fleet.slice_review()))
    assert (fields["claim"], fields["claimUID"], fields["trace"], fields["pods"]) == ("", "", "", [])
    assert "reservation" not in fields
    review = fleet.pod_review()
    pod = record_of(review)
    assert pod.trace == review["request"]["object"]["metadata"]["uid"].replace("-", "")
    del review["request"]["object"]["metadata"]["uid"]
    assert (record_of(review, "mutate").trace, record_of(review, "mutate").rule) == ("", "")


def finding_and_failing(action: str, times: int) -> bytes:
    """A policy with so many rules that find something, and as many that fail, all with long texts."""
    long = "x" * 5_000
    rules = [
        *({"name": f"finds-{i}", "expression": "false", "message": f"{i} {long}"} for i in range(times)),
        *({"name": f"fails-{i}", "expression": f"object['{long}']"} for i in range(times)),
    ]
    every = {"apiGroups": ["*"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["*/*"]}
    spec = {"matchConstraints": {"resourceRules": [every]}, "validations": rules, "failurePolicy": "Ignore"}
    kind = {"apiVersion": "allocguard.dev/v1alpha1", "kind": "AdmissionPolicy"}
    return orjson.dumps({**kind, "metadata": {"name": action.lower()}, "spec": {**spec, "action": action}})


def sizes(value: object) -> list[tuple[int, int]]:
    """The greatest length of a text, and of a list, in the value of each field, whatever it holds."""
    match value:
        case str():
            return [(len(value), 0)]
        case dict():
            return [size for each in value.values() for size in sizes(each)]
        case list() | tuple():
            return [(0, len(value)), *(size for each in value for size in sizes(each))]
    return []


def test_no_text_of_a_line_of_the_log_is_longer_than_a_message_and_no_list_longer_than_the_causes() -> None:
    review = fleet.allocation_review(2, 3)
    review["request"]["userInfo"]["username"] = "u" * 10_000
    consumers = [{"resource": "pods", "name": f"p-{i}", "uid": f"u-{i}"} for i in range(300)]
    review["request"]["object"]["status"]["reservedFor"] = consumers
    files = {f"{action}.yaml": finding_and_failing(action, 300) for action in ("Deny", "Warn", "Audit")}
    verdict = decide(read_review(review), "validate", compile_files(files), FULL, Book(), NOW)
    answer = apply(verdict)
    record = Record(verdict, answer, ENDED, 0.25, Reserved(fleet.name(3), 0.002, 1, False, "y" * 10_000))
    # No node has resources for so many sums.
    vars(record)["sums"] = ("z" * 10_000,) * 300
    fields = log_fields(record)
    assert (len(verdict.errors), len(record.audited)) == (900, 300)
    assert {name: found for name, value in fields.items() for found in sizes(value) if max(found) > MESSAGE_SIZE} == {}
    assert {name for name, value in fields.items() for _, items in sizes(value) if items > MAX_CAUSES} == set()
    assert str(fields["message"]).endswith("... (and 299 more)")


def test_every_field_of_the_line_is_documented() -> None:
    reserved = Reserved(fleet.name(3), 0.002, 1, True)
    fields = log_fields(record_of(fleet.allocation_review(2, 3), snapshot=FULL, reserved=reserved))
    page = (Path(__file__).parents[2] / "docs" / "decisions.md").read_text()
    named = {each for line in page.splitlines() if line.startswith("| `") for each in re.findall(r"`(\w+)`", line)}
    assert set(fields) <= named
    kept = fields["reservation"]
    assert isinstance(kept, dict)
    assert set(kept) <= named


def test_a_pod_that_is_made_to_wait_says_by_which_rule() -> None:
    spec = {"stage": "General", "hold": {"reason": "books half", "by": "x", "since": "2026-11-29T00:00:00Z"}}
    rollout = {"apiVersion": "allocguard.dev/v1alpha1", "kind": "DriverRollout", "spec": spec}
    objects = [fleet.claim(900), {**rollout, "metadata": {"name": "cpu.bench.example"}}]
    record = record_of(fleet.pod_review(900), "mutate", build([*fleet.cluster(4), *objects], Release(36)))
    assert (record.outcome, record.rule, log_fields(record)["reason"]) == ("held", "driver-held", "driver-held")
