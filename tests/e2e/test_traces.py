"""Claims and pods as traces in a real Jaeger, found by their UIDs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.e2e import build
from tests.e2e.client import ApiError, Json
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import API_SERVER
from tests.e2e.driver import each, per
from tests.e2e.guarding import deployed, guarded, kubelet
from tests.e2e.jaeger import Jaeger, Span
from tests.e2e.scenes import cpu_claim, shared_cpus
from tests.e2e.waiting import eventually, steady
from webhook.kube.trace import trace_id
from webhook.telemetry.spans import anchor


def uid(obj: Json) -> str:
    found: str = obj["metadata"]["uid"]
    return found


def reviews(spans: list[Span]) -> list[tuple[str, str]]:
    """What was asked of the reviews of a trace, and what came of it."""
    return [
        (span.attributes["allocguard.operation"], span.attributes["allocguard.verdict"])
        for span in spans
        if span.name == "admission.review"
    ]


def test_a_refused_claim_is_a_trace_from_then_on_and_one_without_trouble_is_none(
    cluster: Cluster, jaeger: Jaeger
) -> None:
    options = (f"--otlp-endpoint={jaeger.otlp_grpc}", "--otlp-protocol=grpc", "--trace-ratio=0")
    guard = deployed(cluster, *options)
    narrow, wide = shared_cpus(cluster, "n1", cpu="4"), shared_cpus(cluster, "n2", cpu="16")
    big, small = cpu_claim(cluster, "big", 6), cpu_claim(cluster, "small", 2)
    for driver in (narrow, wide):
        eventually(lambda driver=driver: guard.metric("allocguard_ledger_capacity", node=driver.node, resource="cpu"))
        eventually(lambda driver=driver: guard.metric("allocguard_pool_phase", driver=driver.name, pool=driver.node))
    cluster.allocate("small", wide, "group-0", cpus="2")
    with pytest.raises(ApiError, match="claim-allocation/node-overcommit") as refused:
        cluster.allocate("big", narrow, "group-0", cpus="6")
    cluster.allocate("big", wide, "group-0", cpus="6")

    spans = eventually(lambda: two(jaeger.trace(trace_id(uid(big)))))
    assert reviews(spans) == [("UPDATE", "denied"), ("UPDATE", "allowed")]
    denied, allowed = (span for span in spans if span.name == "admission.review")
    message = denied.attributes["allocguard.message"]
    assert message in str(refused.value)
    assert (denied.attributes["k8s.node.name"], allowed.attributes["k8s.node.name"]) == (narrow.node, wide.node)
    assert denied.attributes["allocguard.claim.uid"] == uid(big)
    assert denied.status == "UNSET"
    assert denied.attributes["allocguard.rule"] == "node-overcommit"
    fired = [span for span in spans if span.parent == denied.id]
    [rule] = [span for span in fired if span.attributes.get("allocguard.rule") == "node-overcommit"]
    assert (rule.name, rule.attributes["allocguard.verdict"]) == ("policy.evaluate", "Deny")
    assert rule.attributes["allocguard.message"] == message
    [reserved] = [span for span in spans if span.name == "ledger.reserve"]
    assert (reserved.parent, reserved.attributes["allocguard.reserved"]) == (allowed.id, True)
    assert reserved.ended == allowed.ended
    # What the log says of the same decision.
    [line] = guard.lines(event="denied", claimUID=uid(big))
    assert (line["message"], line["trace"]) == (message, denied.trace)
    assert line["sums"] == told(denied.attributes["allocguard.sums"])
    assert line["uid"] == denied.attributes["allocguard.review.uid"]
    assert guard.metric("allocguard_spans_dropped_total") == 0
    steady(lambda: jaeger.trace(trace_id(uid(small))) == [], during=2)


def test_a_claim_of_which_the_book_finds_a_difference_is_a_trace_from_then_on(cluster: Cluster, jaeger: Jaeger) -> None:
    guard = deployed(cluster, f"--otlp-endpoint={jaeger.otlp_http}", "--trace-ratio=0")
    driver = shared_cpus(cluster, "n1", cpu="16")
    claim = cpu_claim(cluster, "c1", 2)
    eventually(lambda: guard.metric("allocguard_pool_phase", driver=driver.name, pool=driver.node))
    cluster.allocate("c1", driver, "group-0", cpus="2")
    eventually(lambda: guard.lines(event="charged", claimUID=uid(claim)))
    costs = {"cpu": per("cpus", "2"), "memory": each("1Gi")}
    driver.publish([driver.device("group-0", {"cpus": "8"}, costs, zone=0)], generation=2)
    # The leader found it by then: it stands in what it wrote.
    eventually(lambda: cluster.get("NodeLedger", "n1")["status"].get("differences", 0) > 0)
    cluster.delete("ResourceClaim", "c1")
    spans = jaeger.found(trace_id(uid(claim)), "ledger.release")
    assert "ledger.charge" not in {span.name for span in spans}


def two(spans: list[Span]) -> list[Span]:
    assert len(reviews(spans)) >= 2
    assert "ledger.reserve" in {span.name for span in spans}
    return spans


def told(value: object) -> list[object]:
    return list(value) if isinstance(value, list) else [value]


def test_a_claim_its_pod_and_the_api_server_lead_to_each_other_also_across_a_restart(
    fresh_plane: Callable[..., Cluster], jaeger: Jaeger, tmp_path: Path
) -> None:
    config = tmp_path / "tracing.json"
    tracing = {"apiVersion": "apiserver.config.k8s.io/v1beta1", "kind": "TracingConfiguration"}
    tracing |= {"endpoint": urlsplit(jaeger.otlp_grpc).netloc, "samplingRatePerMillion": 1_000_000}  # type: ignore[dict-item]
    config.write_text(json.dumps(tracing))
    cluster = fresh_plane(build.releases()[-1], flags={API_SERVER: [f"--tracing-config-file={config}"]})
    guard = guarded(cluster, f"--otlp-endpoint={jaeger.otlp_http}", "--trace-ratio=1")
    shared_cpus(cluster, "n1", cpu="8")
    claim = cpu_claim(cluster, "c1", 2)
    pod = cluster.pod("p1", claims=["c1"])
    cluster.scheduled("p1")

    spans = jaeger.found(trace_id(uid(claim)), "ledger.reserve")
    created = next(span for span in spans if span.name == "admission.review")
    assert (created.trace, created.id) == anchor(uid(claim))
    assert created.attributes["allocguard.operation"] == "CREATE"
    of_pod = next(span for span in jaeger.found(trace_id(uid(pod)), "admission.review") if not span.parent)
    assert (of_pod.trace, of_pod.id) == anchor(uid(pod))
    assert anchor(uid(claim)) in of_pod.links
    allocation = next(span for span in spans if anchor(uid(pod)) in span.links)
    assert allocation.attributes["allocguard.pods"] == f"{cluster.ns}/p1"
    # The caller's own spans are there, too.
    [called] = [link for link in created.links if link[0] not in (created.trace, of_pod.trace)]
    caller = eventually(lambda: [span for span in jaeger.trace(called[0]) if span.id == called[1]])
    assert caller[0].resource["service.name"] == "apiserver"

    before = len(jaeger.trace(trace_id(uid(claim))))
    assert guard.stop() == 0
    guard.start()
    with kubelet(cluster, cluster.ns):
        cluster.delete("Pod", "p1")

        def released() -> bool:
            found = jaeger.trace(trace_id(uid(claim)))
            assert len(found) > before
            return any(span.attributes.get("allocguard.verdict") == "allowed" for span in found[before:])

        eventually(released)
