from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.bench import fleet
from webhook.admission.decide import Verdict, decide
from webhook.admission.decode import read_review
from webhook.admission.subject import asked, claim_of, pods_of, trace_of
from webhook.kube.release import Release
from webhook.kube.snapshot import build
from webhook.ledger.book import Book
from webhook.store import policies

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
SNAPSHOT = build(fleet.cluster(4), Release(36))
REVISION = policies.read([policies.shipped()])


def verdict_of(review: dict[str, Any], endpoint: str = "validate") -> Verdict:
    return decide(read_review(review), endpoint, REVISION, SNAPSHOT, Book(), NOW)


def test_an_allocation_is_about_a_claim_its_new_pod_and_the_devices_it_gets() -> None:
    verdict = verdict_of(fleet.allocation_review(2, 3))
    told = asked(verdict)
    assert told["claim"] == {"namespace": "bench", "name": "claim-2", "uid": "c1a10001-0000-4000-8000-000000000002"}
    assert [pod["name"] for pod in told["pods"]] == ["encoder-2"]
    assert (told["node"], told["slice"]) == (fleet.name(3), None)
    assert [(each["request"], each["device"], each["consumed"]) for each in told["devices"]] == [
        ("cores", "numa-0", {"cpu.bench.example/cpus": "2"}),
        ("gpu", "gpu-2", {}),
    ]
    assert told["trace"] == "c1a10001000040008000000000000002"


def test_what_there_is_no_room_for_is_counted() -> None:
    review = fleet.allocation_review(2, 3)
    status = review["request"]["object"]["status"]
    status["reservedFor"] = [{"resource": "pods", "name": f"p-{i}", "uid": f"u-{i}"} for i in range(40)]
    status["allocation"]["devices"]["results"] *= 20
    requests = review["request"]["object"]["spec"]["devices"]["requests"]
    requests *= 17
    told = asked(verdict_of(review))
    assert {name: len(told[name]) for name in ("pods", "devices", "requests", "claims")} == {
        "pods": 32,
        "devices": 32,
        "requests": 32,
        "claims": 0,
    }
    assert told["more"] == {"pods": 8, "devices": 8, "requests": 2}
    pod = fleet.pod_review(900)
    pod["request"]["object"]["spec"]["resourceClaims"] = [{"name": f"c-{i}"} for i in range(33)]
    assert asked(verdict_of(pod, "mutate"))["more"] == {"claims": 1}
    assert asked(verdict_of(fleet.allocation_review(2, 3)))["more"] == {}


def test_a_template_asks_and_is_no_claim() -> None:
    spec = fleet.claim(2)["spec"]
    made = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "spec": {"spec": spec}}
    verdict = verdict_of(fleet.review("CREATE", {**made, "metadata": {"name": "t", "namespace": "bench"}}))
    told = asked(verdict)
    assert (told["claim"], told["trace"], told["devices"]) == (None, "", [])
    wanted = {"class": "cpu.bench.example", "count": 1, "capacity": {"cpu.bench.example/cpus": "2"}, "selectors": []}
    assert told["requests"][0] == {"request": "cores", **wanted}


def test_a_pod_is_its_own_subject_and_a_binding_is_about_its_pod() -> None:
    verdict = verdict_of(fleet.pod_review(900), "mutate")
    (pod,) = pods_of(verdict)
    assert claim_of(verdict) is None
    assert trace_of(verdict) == pod.uid.replace("-", "")
    assert asked(verdict)["claims"] == [{"name": "cpus", "claim": "claim-900", "template": ""}]
    known = next(pod for pod in SNAPSHOT.pods.values() if pod.claims)
    binding = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": fleet.name(3)}}
    binding["metadata"] = {"name": known.name, "namespace": known.namespace}
    bound = verdict_of(fleet.review("CREATE", binding, sub_resource="binding"))
    assert [each.uid for each in pods_of(bound)] == [known.uid]
    assert (trace_of(bound), asked(bound)["node"]) == (known.uid.replace("-", ""), fleet.name(3))


def test_a_slice_is_told_by_driver_pool_and_node() -> None:
    told = asked(verdict_of(fleet.slice_review()))
    assert told["slice"] == {
        "name": "00000-big.bench.example-node-99999-000",
        "driver": "big.bench.example",
        "pool": "node-99999",
        "generation": 1,
        "node": "node-99999",
        "devices": 128,
    }
    assert (told["claim"], told["pods"], told["trace"]) == (None, [], "")
