"""The life of a claim beside the decisions about it, from the log alone and from the trace alone, whoever leads."""

from __future__ import annotations

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.e2e.client import ApiError, Json
from tests.e2e.cluster import Cluster
from tests.e2e.driver import Driver
from tests.e2e.guard import Guard
from tests.e2e.guarding import deployed
from tests.e2e.kinds import path
from tests.e2e.scenes import cpu_claim, shared_cpus
from tests.e2e.test_reservations import seen, sums
from tests.e2e.waiting import eventually, steady
from tests.telemetry.receiver import Receiver
from webhook.facts.times import instant
from webhook.kube.raw import members

KINDS = ("pending", "settled", "charged", "bound", "released")
SPANS = {
    "pending": "claim.pending",
    "settled": "claim.pending",
    "charged": "ledger.charge",
    "bound": "ledger.bind",
    "released": "ledger.release",
}


def moments(guard: Guard, uid: str) -> list[Json]:
    """The lines about what happened to the claim, but for the decisions."""
    return [line for line in guard.lines(claimUID=uid) if line["event"] in KINDS]


def told(guard: Guard, uid: str, *kinds: str) -> list[Json]:
    """As :func:`moments`, once there is one of each of ``kinds``."""

    def look() -> list[Json]:
        found = moments(guard, uid)
        assert set(kinds) <= {line["event"] for line in found}, found
        return found

    return eventually(look)


def exemplars(guard: Guard, name: str, **labels: str) -> list[str]:
    """The traces that samples of a metric with these labels show to whoever reads OpenMetrics."""
    text = guard.get("/metrics", metrics=True, accept="application/openmetrics-text").text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return [
        sample.exemplar.labels["trace_id"]
        for sample in samples
        if sample.name == name and sample.exemplar is not None and labels.items() <= sample.labels.items()
    ]


def allocate(cluster: Cluster, driver: Driver) -> None:
    cluster.allocate("c1", driver, "group-0", pod="p1", cpus="3")


def test_a_claim_is_refused_waits_is_charged_used_and_released(cluster: Cluster) -> None:
    """Another pod has the room, until it goes. The guard is started anew meanwhile, and tells nothing twice."""
    with Receiver() as receiver:
        guard = deployed(cluster, f"--otlp-endpoint={receiver.url}", "--trace-ratio=1")
        driver = shared_cpus(cluster, cpu="16")
        uid = cpu_claim(cluster, "c1", 3)["metadata"]["uid"]
        cluster.pod("other", cpu="14", node="n1")
        pod = cluster.pod("p1", claims=["c1"], cpu="1", spec={"schedulerName": "e2e"})
        eventually(lambda: seen(guard, driver) and sums(cluster, "n1").get("free") == "2")
        with pytest.raises(ApiError) as refused:
            allocate(cluster, driver)
        assert "node-overcommit" in refused.value.message
        assert uid.replace("-", "") in exemplars(guard, "allocguard_findings_total", rule="node-overcommit")
        [waits, *_] = told(guard, uid, "pending")
        assert (waits["reason"], waits["pods"], waits["drivers"]) == (
            "node-overcommit",
            [f"{cluster.ns}/p1"],
            [driver.name],
        )
        assert waits["since"] == pod["metadata"]["creationTimestamp"].replace("Z", ".000Z")

        cluster.delete("Pod", "other")
        eventually(lambda: sums(cluster, "n1").get("free") == "16")

        def allowed() -> bool:
            allocate(cluster, driver)
            return True

        eventually(allowed)
        settled, charged = told(guard, uid, "settled", "charged")[-2:]
        assert (settled["reason"], settled["since"]) == (waits["reason"], waits["since"])
        assert charged["amounts"] == {"cpu": "3", "memory": "1Gi"}
        stored = members(cluster.as_admin.get(path("ResourceSlice")).get("items"))
        versions = {each["metadata"]["uid"]: each["metadata"]["resourceVersion"] for each in stored}
        for row in charged["charges"]:
            mapping = row["mapping"]
            assert (row["driver"], row["pool"], row["device"]) == (driver.name, driver.node, "group-0")
            assert mapping["resourceVersion"] == versions[mapping["sliceUID"]]
        target = {"apiVersion": "v1", "kind": "Node", "name": driver.node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p1"}, "target": target}
        cluster.as_scheduler.create(cluster.path("Pod", "p1", "binding"), binding)
        bound = told(guard, uid, "bound")[-1]
        assert bound["node"] == driver.node
        guard.restart()
        eventually(lambda: "leader ok, leading" in guard.get("/readyz?verbose").text)
        cluster.delete("Pod", "p1")
        cluster.as_scheduler.patch(
            cluster.path("ResourceClaim", "c1", "status"), {"status": {"allocation": None, "reservedFor": None}}
        )
        released = told(guard, uid, "released")[-1]
        assert (released["reason"], released["amounts"], released["node"]) == (
            "deallocated",
            charged["amounts"],
            driver.node,
        )
        steady(lambda: [line["event"] for line in moments(guard, uid)].count("released") == 1, during=3)
        lines = moments(guard, uid)
        events = [line["event"] for line in lines]
        assert [events.count(kind) for kind in KINDS[1:]] == [1, 1, 1, 1]
        assert events == sorted(events, key=KINDS.index)
        assert guard.stop() == 0

    # The trace tells the same.
    spans = [span for span in receiver.spans if span.trace == uid.replace("-", "") and span.name in SPANS.values()]
    assert len(spans) == len(lines)
    by_line = {(line["event"], line["message"]): line for line in lines}
    for span in spans:
        said = span.attributes
        line = by_line[said["allocguard.verdict"], said["allocguard.message"]]
        assert span.name == SPANS[line["event"]]
        assert said.get("allocguard.rule", "") == line["reason"]
        assert said.get("allocguard.node", "") == line["node"]
        assert said.get("allocguard.amounts", []) == [
            f"{name} {amount}" for name, amount in line.get("amounts", {}).items()
        ]
        assert span.begun <= span.ended
        begun = instant(line["since"])
        assert begun is not None
        assert abs(span.begun / 1e9 - begun.timestamp()) < 0.002
