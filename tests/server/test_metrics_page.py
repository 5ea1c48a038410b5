"""docs/metrics.md names what there is."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.bench import fleet
from tests.server.test_gauges import NOW, made
from webhook.kube.core import GATE
from webhook.kube.release import Release
from webhook.kube.snapshot import build
from webhook.server.figures import MAX_OF_NODE, MAX_POOLS, MAX_SERIES
from webhook.telemetry.bounded import MAX_CHILDREN
from webhook.telemetry.metrics import MAX_SAMPLES, Metrics

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
ROW = re.compile(r"^\| `([a-z_]+)` ?(⊙?) \| (.*?) ?\| (.*?) \|$", re.MULTILINE)
TRACE = "c1a1000100004000800000000000000a"


def told() -> Metrics:
    """Metrics with a sample of every family, those of one claim with its trace."""
    held = fleet.rollout()
    held["spec"]["hold"] = {"reason": "books half"}
    gated = fleet.pod(90, "claim-0")
    gated["spec"]["schedulingGates"] = [{"name": GATE}]
    snapshot = build([*fleet.cluster(2), held, gated], Release(36))
    gauges = made(lambda: snapshot)
    metrics = Metrics(gauges.families, gauges.lines)
    metrics.review("validate", "resourceclaims", "CREATE", "allowed", 0.1, TRACE)
    metrics.finding("slice-mappings", "key-unknown", "Deny", TRACE)
    metrics.duplicate("cpu.example.org", TRACE)
    metrics.placement("cpu.example.org", "fit", TRACE)
    metrics.reservation("taken", 0.1, TRACE)
    metrics.write_failure("kubelet", "conflict", TRACE)
    metrics.dropped("cpu.example.org")
    metrics.series_dropped("pool_phase", 1)
    metrics.role_findings({("rule", "warning"): 1})
    metrics.audit_scan({("policy", "rule", "error"): 1}, NOW)
    metrics.certificates({"serving": NOW})
    return metrics


def test_the_page_names_every_metric_its_labels_and_whether_it_shows_traces() -> None:
    found: dict[str, tuple[set[str], bool]] = {}
    text = b"".join(told().pieces(exemplars=True)).decode()
    for family in text_string_to_metric_families(text):
        name = family.name.removeprefix("allocguard_") + ("_total" if family.type == "counter" else "")
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        found[name] = labels, any(sample.exemplar is not None for sample in family.samples)
    page = {
        name: ({label for label in re.sub(r"\(.*?\)", "", labels).replace(" ", "").split(",") if label}, bool(traced))
        for name, traced, labels, _ in ROW.findall(PAGE)
    }
    assert page == found


def test_the_page_tells_the_limits() -> None:
    for limit in (MAX_CHILDREN, MAX_OF_NODE, MAX_POOLS, MAX_SERIES, MAX_SAMPLES):
        assert f"{limit:,}" in PAGE
