from __future__ import annotations

import json
import timeit
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.bench import fleet
from tests.telemetry.receiver import Receiver
from tests.telemetry.receiver import Span as Received
from webhook.admission.action import apply
from webhook.admission.decide import decide
from webhook.admission.decode import read_review
from webhook.admission.record import Record, Reserved
from webhook.kube.core import GATE
from webhook.kube.release import Release
from webhook.kube.snapshot import Snapshot, build
from webhook.kube.trace import trace_id
from webhook.ledger.book import Book
from webhook.policy.compile import compile_files
from webhook.store import policies
from webhook.telemetry.review_spans import ReviewSpans, spans
from webhook.telemetry.spans import Span, anchor
from webhook.telemetry.tracing import Tracing

NOW = datetime(2026, 11, 20, 9, 0, 10, tzinfo=UTC)
ENDED = datetime(2026, 11, 20, 9, 0, 12, tzinfo=UTC)
SNAPSHOT = build(fleet.cluster(4), Release(36))
REVISION = policies.read([policies.shipped()])
CLAIM, POD = "c1a10001-0000-4000-8000-000000000002", "9bd10001-0000-4000-8000-000000000002"
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

Json = dict[str, Any]


def filling(cpu: str) -> Json:
    requests = {"requests": {"cpu": cpu}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "filler", "namespace": "bench", "uid": "f111e400-0000-4000-8000-000000000001"},
        "spec": {"nodeName": fleet.name(3), "containers": [{"name": "c", "image": "i", "resources": requests}]},
    }


FULL = build([*fleet.cluster(4), filling("59500m")], Release(36))


def record_of(
    review: Json,
    endpoint: str = "validate",
    snapshot: Snapshot = SNAPSHOT,
    reserved: Reserved | None = None,
    parent: str = "",
    at: datetime = NOW,
) -> Record:
    verdict = decide(read_review(review), endpoint, REVISION, snapshot, Book(), at)
    return Record(verdict, apply(verdict), ENDED, 0.25, reserved, parent)


def spans_of(record: Record) -> list[Span]:
    subject = record.claim or record.pods[0]
    return list(spans(record, subject))


def rules_of(children: list[Span]) -> list[tuple[object, object]]:
    """Policy and rule of each, the rule empty where none fired."""
    return [(each.attributes["allocguard.policy"], each.attributes.get("allocguard.rule", "")) for each in children]


def consumer(review: Json) -> Json:
    (pod,) = review["request"]["object"]["status"]["reservedFor"]
    found: Json = pod
    return found


def test_a_refused_allocation_is_a_story_by_itself() -> None:
    review = fleet.allocation_review(2, 3)
    record = record_of(review, snapshot=FULL, parent=PARENT)
    root, *children = spans_of(record)
    assert (root.name, root.id.trace, root.parent, root.serves) == ("admission.review", trace_id(CLAIM), "", True)
    assert (root.begun, root.ended) == (ENDED - timedelta(seconds=0.25), ENDED)
    assert root.attributes == {
        "allocguard.endpoint": "validate",
        "allocguard.resource": "resourceclaims/status",
        "allocguard.operation": "UPDATE",
        "allocguard.review.uid": review["request"]["uid"],
        "user.name": "system:kube-scheduler",
        "allocguard.revision": REVISION.hash,
        "allocguard.verdict": "denied",
        "allocguard.rule": "node-overcommit",
        "allocguard.message": record.answer.message,
        "allocguard.sums": record.sums,
        "k8s.namespace.name": "bench",
        "k8s.pod.name": consumer(review)["name"],
        "k8s.pod.uid": consumer(review)["uid"],
        "allocguard.claim.name": "claim-2",
        "allocguard.claim.uid": CLAIM,
        "allocguard.pods": f"bench/{consumer(review)['name']}",
        "allocguard.driver": root.attributes["allocguard.driver"],
        "allocguard.pool": fleet.name(3),
        "allocguard.device": root.attributes["allocguard.device"],
        "allocguard.mapping.digest": root.attributes["allocguard.mapping.digest"],
        "allocguard.amounts": root.attributes["allocguard.amounts"],
        "k8s.node.name": fleet.name(3),
        "allocguard.node": fleet.name(3),
    }
    results = review["request"]["object"]["status"]["allocation"]["devices"]["results"]
    for key, field in (("driver", "driver"), ("device", "device")):
        named = tuple(dict.fromkeys(result[field] for result in results))
        assert root.attributes[f"allocguard.{key}"] == (named[0] if len(named) == 1 else named)
    assert str(root.attributes["allocguard.message"]).startswith("claim-allocation/node-overcommit: ")
    # A refusal is an answer, and no error.
    assert root.failed == ""
    assert [*root.links] == [("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"), anchor(consumer(review)["uid"])]
    assert {(each.name, each.id.trace, each.parent) for each in children} == {
        ("policy.evaluate", trace_id(CLAIM), root.id.span)
    }
    assert len({each.id for each in (root, *children)}) == len(children) + 1
    rules = rules_of(children)
    matched = {result.policy for result in record.verdict.evaluation.policies if result.matched}
    assert {policy for policy, _ in rules} == matched
    assert ("claim-allocation", "node-overcommit") in rules
    refused = next(each for each in children if each.attributes.get("allocguard.rule") == "node-overcommit")
    [judged] = [each for each in record.judged if each.finding.rule == "node-overcommit"]
    assert refused.attributes == {
        "allocguard.policy": "claim-allocation",
        "allocguard.rule": "node-overcommit",
        "allocguard.verdict": "Deny",
        "allocguard.severity": "error",
        "allocguard.message": judged.text,
        "allocguard.path": judged.finding.path,
        "allocguard.fix": judged.finding.fix,
    }
    fired = {(each.policy, each.finding.rule): record.done(each) for each in record.judged}
    told = {
        name: each.attributes["allocguard.verdict"] for name, each in zip(rules_of(children), children, strict=True)
    }
    assert told == {name: fired.get(name, "Allow") for name in told}
    assert fired.keys() <= told.keys()


def test_the_reservation_is_a_span_at_the_end_of_the_review() -> None:
    reserved = Reserved(fleet.name(3), 0.125, 2, True)
    root, *children, last = spans_of(record_of(fleet.allocation_review(2, 3), reserved=reserved))
    assert root.attributes["allocguard.verdict"] == "allowed"
    assert (last.name, last.parent, last.begun, last.ended) == (
        "ledger.reserve",
        root.id.span,
        ENDED - timedelta(seconds=0.125),
        ENDED,
    )
    assert last.attributes == {
        "k8s.node.name": fleet.name(3),
        "allocguard.node": fleet.name(3),
        "allocguard.reserved": True,
        "allocguard.conflicts": 2,
    }
    assert last.failed == ""
    assert {each.ended for each in children} == {last.begun}


def test_a_reservation_that_was_not_written_is_an_error() -> None:
    reserved = Reserved(fleet.name(3), 0.125, 0, False, "the API server does not answer: refused")
    *_, last = spans_of(record_of(fleet.allocation_review(2, 3), reserved=reserved))
    assert last.failed == "the API server does not answer: refused"
    assert last.attributes["error.type"] == "not-reserved"
    assert last.attributes["allocguard.reserved"] is False


def test_what_created_an_object_is_where_links_to_it_lead() -> None:
    review = fleet.pod_review()
    uid = review["request"]["object"]["metadata"]["uid"]
    root, *_ = spans_of(record_of(review))
    assert root.id == anchor(uid)
    assert (root.attributes["k8s.pod.name"], root.attributes["k8s.pod.uid"]) == (
        review["request"]["object"]["metadata"]["name"],
        uid,
    )
    # The same write at the other endpoint is another span, and so is every later write.
    other, *_ = spans_of(record_of(review, "mutate"))
    assert other.id.trace == root.id.trace
    assert other.id != root.id
    allocation, *_ = spans_of(record_of(fleet.allocation_review(2, 3)))
    assert allocation.id != anchor(CLAIM)


def test_a_claim_leads_to_the_pod_that_it_was_made_for_and_a_pod_to_its_claims() -> None:
    claim = fleet.claim(2)
    claim["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": POD, "controller": True},
        {"apiVersion": "apps/v1", "kind": "Other", "name": "p", "uid": "other"},
    ]
    root, *_ = spans_of(record_of(fleet.review("CREATE", claim)))
    assert root.id == anchor(CLAIM)
    assert [*root.links] == [anchor(POD)]
    pod = fleet.pod(2, "claim-2")
    of_pod, *_ = spans_of(
        record_of(fleet.review("CREATE", pod), snapshot=build([*fleet.cluster(4), claim], Release(36)))
    )
    assert [*of_pod.links] == [anchor(CLAIM)]


@pytest.mark.parametrize(
    "parent",
    [
        "",
        "garbage",
        PARENT.replace("-01", "-00"),
        PARENT.replace("00-", "ff-", 1),
        PARENT.upper(),
        PARENT + "-more",
        PARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32),
        PARENT.replace("00f067aa0ba902b7", "0" * 16),
        PARENT + "\n",
    ],
)
def test_a_caller_that_names_no_span_that_is_kept_is_not_linked_to(parent: str) -> None:
    root, *_ = spans_of(record_of(fleet.review("CREATE", fleet.claim(2)), parent=parent))
    assert [*root.links] == []


def test_a_caller_of_a_later_version_is_linked_to() -> None:
    parent = PARENT.replace("00-", "01-", 1) + "-more"
    root, *_ = spans_of(record_of(fleet.review("CREATE", fleet.claim(2)), parent=parent))
    assert [*root.links] == [("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")]


def test_a_dry_run_says_so() -> None:
    review = fleet.allocation_review(2, 3)
    assert "allocguard.dry_run" not in spans_of(record_of(review))[0].attributes
    review["request"]["dryRun"] = True
    assert spans_of(record_of(review))[0].attributes["allocguard.dry_run"] is True


def held(driver: str) -> Snapshot:
    """The fleet with the driver of its pods' claims on hold."""
    rollout = fleet.rollout()
    rollout["metadata"]["name"] = driver
    rollout["spec"]["hold"] = {"reason": "books half", "by": "on-call"}
    return build([*fleet.cluster(4), rollout, fleet.claim(2)], Release(36))


def test_a_pod_that_was_made_to_wait_says_why_where_its_uid_is_known() -> None:
    pod = fleet.pod(2, "claim-2")
    snapshot = held(fleet.rollout()["metadata"]["name"])
    waiting = record_of(fleet.review("CREATE", pod), "mutate", snapshot)
    assert waiting.outcome == "held"
    pod["spec"]["schedulingGates"] = [{"name": GATE}]
    pod["spec"].pop("nodeName", None)
    root, *_ = spans_of(record_of(fleet.review("CREATE", pod), snapshot=snapshot))
    assert root.attributes["allocguard.verdict"] == "held"
    [message] = root.attributes["allocguard.message"]  # type: ignore[misc]
    assert "books half" in message
    assert message in waiting.answer.annotations["held"]


class Kept:
    """What is sent of records, as a receiver has it."""

    def __init__(self, *records: Record, ratio: float) -> None:
        with Receiver() as receiver:
            tracing = Tracing(receiver.url, ratio=ratio)
            reviews = ReviewSpans(tracing)
            for each in records:
                reviews.tell(each)
            self.sampling = tracing.sampling
            assert tracing.close() == 0
        self.spans: list[Received] = receiver.spans


def test_of_what_nobody_will_ask_about_a_part_is_kept() -> None:
    record = record_of(fleet.allocation_review(2, 3), at=datetime(2026, 11, 20, 9, 0, 30, tzinfo=UTC))
    assert (record.outcome, record.troubled) == ("allowed", False)
    assert Kept(record, ratio=0).spans == []
    assert {span.name for span in Kept(record, ratio=1).spans} == {"admission.review", "policy.evaluate"}


def test_a_refusal_is_kept_and_what_comes_after_it() -> None:
    refused, allowed = record_of(fleet.allocation_review(2, 3), snapshot=FULL), record_of(fleet.allocation_review(2, 3))
    assert Kept(allowed, ratio=0).spans == []
    kept = Kept(refused, allowed, ratio=0)
    reviews = [span.attributes["allocguard.verdict"] for span in kept.spans if span.name == "admission.review"]
    assert reviews == ["denied", "allowed"]
    # Whoever follows the claim comes to its pod.
    assert kept.sampling.wanted(refused.pods[0].uid)


def test_what_would_be_refused_is_kept_where_a_guard_only_audits() -> None:
    audits = policies.PolicyStore([policies.shipped()], True).revision
    verdict = decide(read_review(fleet.allocation_review(2, 3)), "validate", audits, FULL, Book(), NOW)
    record = Record(verdict, apply(verdict), ENDED, 0.25)
    assert (record.outcome, record.troubled) == ("audited", False)
    roots = [span for span in Kept(record, ratio=0).spans if span.name == "admission.review"]
    assert [root.attributes["allocguard.verdict"] for root in roots] == ["audited"]


BOUND = "c1a10001-0000-4000-8000-000000000001"


def status_write(cpu: str, claim: str = "claim-1", snapshot: Snapshot = SNAPSHOT) -> Record:
    """What a scheduler writes into the status of pod 1, whose claim costs 2 cpus and 4Gi of memory."""
    before = fleet.pod(1, "claim-1")
    before["spec"]["nodeName"] = fleet.name(1)
    before["status"] = {"phase": "Pending"}
    users = [each["name"] for each in before["spec"]["containers"]]
    entry = {"resourceClaimName": claim, "containers": users, "resources": {"cpu": cpu, "memory": "4Gi"}}
    after = {**before, "status": {"phase": "Pending", "nodeAllocatableResourceClaimStatuses": [entry]}}
    return record_of(fleet.review("UPDATE", after, before, "status", "system:kube-scheduler"), snapshot=snapshot)


def rules(record: Record) -> list[tuple[str, str]]:
    return [(each.finding.rule, each.finding.severity) for each in record.judged]


def test_a_status_that_disagrees_with_the_ledger_is_kept_and_what_becomes_of_pod_and_claim() -> None:
    right, wrong = status_write("2"), status_write("1")
    assert rules(right) == []
    assert rules(wrong) == [("pod-status-disagrees", "warning")]
    assert (wrong.outcome, wrong.troubled) == ("warned", False)
    assert Kept(right, ratio=0).spans == []
    kept = Kept(wrong, right, ratio=0)
    assert [span.attributes["allocguard.verdict"] for span in kept.spans if span.name == "admission.review"] == [
        "warned",
        "allowed",
    ]
    assert {span.trace for span in kept.spans} == {trace_id(wrong.pods[0].uid)}
    assert kept.sampling.wanted(BOUND)


def test_a_claim_without_its_entry_is_a_difference_too_and_an_entry_ahead_of_the_view_is_none() -> None:
    uncounted = status_write("2", "claim-2")
    assert rules(uncounted) == [("pod-status-disagrees", "info"), ("uncounted", "warning")]
    kept = Kept(uncounted, ratio=0)
    assert kept.spans
    assert kept.sampling.wanted(BOUND)
    # Whose claim the entry names, too: somebody charges it to the pod.
    assert kept.sampling.wanted(CLAIM)
    unseen = build([each for each in fleet.cluster(4) if each["metadata"]["name"] != "claim-1"], Release(36))
    ahead = status_write("2", snapshot=unseen)
    assert rules(ahead) == [("pod-status-disagrees", "info")]
    assert Kept(ahead, ratio=0).spans == []


def test_a_binding_that_does_not_fit_is_kept_in_the_trace_of_its_pod() -> None:
    pod = fleet.pod(1, "claim-1")
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod["metadata"]["name"], "namespace": "bench"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": fleet.name(3)},
    }
    review = fleet.review("CREATE", binding, None, "binding", "system:kube-scheduler")
    record = record_of(review, snapshot=FULL)
    assert ("node-overcommit", "error") in rules(record)
    assert record.outcome == "warned"
    kept = Kept(record, ratio=0)
    [root] = [span for span in kept.spans if span.name == "admission.review"]
    assert root.trace == trace_id(pod["metadata"]["uid"])
    assert (root.attributes["k8s.pod.name"], root.attributes["k8s.node.name"]) == (
        pod["metadata"]["name"],
        fleet.name(3),
    )
    assert kept.sampling.wanted(BOUND)
    # The write is none that made the pod.
    assert spans_of(record)[0].id != anchor(pod["metadata"]["uid"])


def test_a_claim_that_waited_for_its_devices_is_kept_by_whoever_hears_of_it() -> None:
    created = datetime(2026, 11, 20, 9, 0, 0, tzinfo=UTC)
    assert fleet.CREATED == "2026-11-20T09:00:00Z"
    for seconds, kept in ((30, False), (31, True)):
        record = record_of(fleet.allocation_review(2, 3), at=created + timedelta(seconds=seconds))
        assert record.outcome == "allowed"
        assert bool(Kept(record, ratio=0).spans) is kept


NIC = {"driver": f"nic.{fleet.DOMAIN}", "pool": fleet.name(1), "device": "nic-0", "request": "cores"}


def later(after: str, user: str, **status: Any) -> Record:
    """A write to the status of a claim that was made at 9:00:00, days after its allocation at the time ``after``: it
    has a device that costs nothing, so that others may use it too.
    """
    before = fleet.claim(1, 1)
    before["status"]["allocation"]["allocationTimestamp"] = f"2026-11-20T{after}Z"
    before["status"]["allocation"]["devices"] = {"results": [NIC]}
    review = fleet.review("UPDATE", {**before, "status": {**before["status"], **status}}, before, "status", user)
    return record_of(review, at=datetime(2026, 11, 25, tzinfo=UTC))


def test_a_further_consumer_of_a_claim_that_had_its_devices_at_once_is_kept_as_any_other() -> None:
    pods = fleet.claim(1, 1)["status"]["reservedFor"]
    added = [*pods, {"resource": "pods", "name": "another", "uid": "90d00001-0000-4000-8000-000000000099"}]
    for after, kept in (("09:00:30", False), ("09:00:31", True)):
        record = later(after, "system:kube-scheduler", reservedFor=added)
        assert (record.outcome, record.allocates) == ("allowed", True)
        assert bool(Kept(record, ratio=0).spans) is kept


@pytest.mark.parametrize(("after", "kept"), [("09:00:30", False), ("09:00:31", True)])
def test_what_becomes_of_a_claim_that_waited_is_kept_by_who_did_not_hear_of_its_allocation(
    after: str, kept: bool
) -> None:
    account = "system:serviceaccount:kube-system:resource-claim-controller"
    record = later(after, account, allocation=None, reservedFor=[])
    assert (record.outcome, record.allocates) == ("allowed", False)
    assert bool(Kept(record, ratio=0).spans) is kept


def test_a_refusal_without_a_uid_has_a_trace_of_its_review() -> None:
    review = fleet.review("CREATE", fleet.claim(2))
    del review["request"]["object"]["metadata"]["uid"]
    review["request"]["object"]["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [
        {"cel": {"expression": "("}}
    ]
    record = record_of(review)
    assert record.outcome == "denied"
    found = Kept(record, ratio=0).spans
    assert {span.trace for span in found} == {trace_id(review["request"]["uid"])}


def test_refused_creations_take_no_memory_and_yet_have_their_exemplars() -> None:
    """Each has a UID of its own, that nobody will hear of again."""
    review = fleet.review("CREATE", fleet.claim(2))
    review["request"]["object"]["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [
        {"cel": {"expression": "("}}
    ]
    record = record_of(review)
    assert record.outcome == "denied"
    assert record.in_vain
    kept = Kept(record, ratio=0)
    assert {span.trace for span in kept.spans} == {trace_id(CLAIM)}
    assert kept.sampling.wanted(record.trace)
    kept.sampling.pass_by("")
    assert not kept.sampling.wanted(CLAIM)
    # A refused write of what is there is remembered.
    kept = Kept(record_of(fleet.allocation_review(2, 3), snapshot=FULL), ratio=0)
    kept.sampling.pass_by("")
    assert kept.sampling.wanted(CLAIM)


def test_a_creation_that_is_only_tried_takes_no_memory() -> None:
    pod = fleet.pod(2, "claim-2")
    pod["spec"]["schedulingGates"] = [{"name": GATE}]
    pod["spec"].pop("nodeName", None)
    review = fleet.review("CREATE", pod)
    for tried in (False, True):
        review["request"]["dryRun"] = tried
        kept = Kept(record_of(review, snapshot=held(fleet.rollout()["metadata"]["name"])), ratio=0)
        assert kept.spans
        kept.sampling.pass_by("")
        assert kept.sampling.wanted(pod["metadata"]["uid"]) is not tried


def test_a_policy_of_which_nobody_can_tell_whether_it_matches_has_a_span_with_the_error() -> None:
    about = {"apiGroups": ["*"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["*/*"]}
    spec = {
        "matchConstraints": {"resourceRules": [about]},
        "matchConditions": [{"name": "ours", "expression": "object.spec.nope"}],
        "validations": [{"name": "r", "expression": "false"}],
        "action": "Deny",
        "failurePolicy": "Ignore",
    }
    kind = {"apiVersion": "allocguard.dev/v1alpha1", "kind": "AdmissionPolicy", "metadata": {"name": "p"}}
    revision = compile_files({"p.yaml": json.dumps({**kind, "spec": spec}).encode()})
    verdict = decide(read_review(fleet.allocation_review(2, 3)), "validate", revision, SNAPSHOT, Book(), NOW)
    review, told = spans_of(Record(verdict, apply(verdict), ENDED, 0.25))
    assert review.failed == "p/ours: 1:12: no such key: nope"
    assert rules_of([told]) == [("p", "ours")]
    assert (told.failed, told.attributes["error.type"]) == ("1:12: no such key: nope", "evaluation-failed")


def test_other_writes_are_not_traced() -> None:
    record = record_of(fleet.slice_review())
    assert Kept(record, ratio=1).spans == []


def test_hostile_names_arrive_as_text_and_take_nobody_with_them() -> None:
    review = fleet.allocation_review(2, 3)
    review["request"]["userInfo"]["username"] = "who\ud800 am\nI\x1b[31m"
    review["request"]["object"]["status"]["allocation"]["devices"]["results"][0]["device"] = "d" * 10_000
    found = Kept(record_of(review), record_of(fleet.allocation_review(2, 3)), ratio=1).spans
    roots = [span for span in found if span.name == "admission.review"]
    assert [root.attributes["allocguard.verdict"] for root in roots] == ["denied", "allowed"]
    assert roots[0].attributes["user.name"] == "who? am\nI\x1b[31m"
    assert max(len(value) for span in found for value in span.attributes.values() if isinstance(value, str)) <= 4096


def test_what_is_not_kept_costs_the_event_loop_nothing() -> None:
    record = record_of(fleet.allocation_review(2, 3), at=NOW)
    reviews = ReviewSpans(Tracing("http://127.0.0.1:1", ratio=0))
    reviews.tell(record)
    seconds = min(timeit.repeat(lambda: reviews.tell(record), number=200, repeat=5)) / 200
    assert seconds < 50e-6
