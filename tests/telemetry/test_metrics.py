from __future__ import annotations

from datetime import UTC, datetime

from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as plain_families

from webhook.telemetry.lines import heading
from webhook.telemetry.metrics import MAX_SAMPLES, Metrics, gauge


def lines(metrics: Metrics) -> list[str]:
    return b"".join(metrics.pieces()).decode().splitlines()


def test_reviews_are_counted_and_timed() -> None:
    metrics = Metrics()
    for seconds in (0.001, 0.2):
        metrics.review("validate", "resourceslices", "CREATE", "denied", seconds)
    found = lines(metrics)
    labels = 'endpoint="validate",operation="CREATE",outcome="denied",resource="resourceslices"'
    assert f"allocguard_admission_reviews_total{{{labels}}} 2.0" in found
    labels = 'endpoint="validate",le="{}",resource="resourceslices"'
    buckets = {
        le: f"allocguard_admission_duration_seconds_bucket{{{labels.format(le)}}}" for le in ("0.005", "0.1", "0.5")
    }
    assert f"{buckets['0.005']} 1.0" in found
    assert f"{buckets['0.1']} 1.0" in found
    assert f"{buckets['0.5']} 2.0" in found


def test_invented_resources_share_one_label() -> None:
    metrics = Metrics()
    for number in range(1000):
        metrics.review("validate", f"r{number}", "CREATE", "allowed", 0)
    assert len([line for line in lines(metrics) if line.startswith("allocguard_admission_reviews_total{")]) == 1


def test_released_pods_are_counted_from_the_beginning() -> None:
    metrics = Metrics()
    assert "allocguard_pods_released_total 0.0" in lines(metrics)
    metrics.released()
    assert "allocguard_pods_released_total 1.0" in lines(metrics)


def test_findings_and_reloads_are_counted() -> None:
    metrics = Metrics()
    metrics.finding("slice-mappings", "key-unknown", "Deny")
    metrics.finding("slice-mappings", "key-unknown", "Deny")
    metrics.reload("refused")
    found = lines(metrics)
    assert 'allocguard_findings_total{action="Deny",policy="slice-mappings",rule="key-unknown"} 2.0' in found
    assert 'allocguard_policy_reloads_total{outcome="refused"} 1.0' in found
    assert 'allocguard_policy_reloads_total{outcome="loaded"} 0.0' in found


def test_placements_and_duplicates_are_counted() -> None:
    metrics = Metrics()
    metrics.placement("d.example", "unfit")
    metrics.duplicate("d.example")
    found = lines(metrics)
    assert 'allocguard_numa_placement_checks_total{driver="d.example",outcome="unfit"} 1.0' in found
    assert 'allocguard_duplicate_charges_refused_total{driver="d.example"} 1.0' in found


def test_events_that_came_too_late_are_counted_by_kind() -> None:
    metrics = Metrics()
    metrics.stale("Node")
    found = lines(metrics)
    assert 'allocguard_stale_events_total{kind="Node"} 1.0' in found
    assert 'allocguard_stale_events_total{kind="ResourceClaim"} 0.0' in found


def test_there_are_no_series_beside_the_named_ones() -> None:
    metrics = Metrics()
    metrics.review("validate", "pods", "CREATE", "allowed", 0)
    assert "_created" not in b"".join(metrics.pieces()).decode()


def test_gauges_are_asked_for_at_each_scrape() -> None:
    values = iter((1.0, 2.0))
    metrics = Metrics(lambda: [gauge("rollout_hold", "held", ["driver"], [(["d"], next(values))])])
    assert 'allocguard_rollout_hold{driver="d"} 1.0' in lines(metrics)
    assert 'allocguard_rollout_hold{driver="d"} 2.0' in lines(metrics)


def test_findings_about_roles_are_those_of_the_last_look() -> None:
    metrics = Metrics()
    assert not [line for line in lines(metrics) if line.startswith("allocguard_rbac_findings{")]
    metrics.role_findings({("rbac-everything", "error"): 2, ("rbac-unused-status", "info"): 1})
    assert 'allocguard_rbac_findings{rule="rbac-everything",severity="error"} 2.0' in lines(metrics)
    metrics.role_findings({})
    assert not [line for line in lines(metrics) if line.startswith("allocguard_rbac_findings{")]


def test_failed_status_writes_and_audit_events() -> None:
    metrics = Metrics()
    assert 'allocguard_audit_events_total{outcome="failed"} 0.0' in lines(metrics)
    metrics.audit_events("failed", 3)
    metrics.write_failure("kubelet", "status-role-missing")
    found = lines(metrics)
    assert 'allocguard_audit_events_total{outcome="failed"} 3.0' in found
    assert 'allocguard_status_write_failures_total{reason="status-role-missing",writer="kubelet"} 1.0' in found


def test_lost_evidence_is_counted_from_the_beginning() -> None:
    metrics = Metrics()
    for name in ("spans_dropped", "events_dropped", "recording_failures"):
        assert f"allocguard_{name}_total 0.0" in lines(metrics)
    metrics.spans_dropped(3)
    metrics.events_dropped(2)
    metrics.recording_failure(1)
    found = lines(metrics)
    assert "allocguard_spans_dropped_total 3.0" in found
    assert "allocguard_events_dropped_total 2.0" in found
    assert "allocguard_recording_failures_total 1.0" in found


def test_findings_of_a_scan_are_those_of_the_last_one() -> None:
    metrics = Metrics()
    assert not [line for line in lines(metrics) if line.startswith("allocguard_audit_scan_")]
    at = datetime(2026, 11, 30, 3, tzinfo=UTC)
    metrics.audit_scan({("allocations", "leftover", "warning"): 2}, at)
    labels = 'policy="allocations",rule="leftover",severity="warning"'
    assert f"allocguard_audit_scan_findings{{{labels}}} 2.0" in lines(metrics)
    told = [line.split()[-1] for line in lines(metrics) if line.startswith("allocguard_audit_scan_timestamp_seconds")]
    assert [float(value) for value in told] == [at.timestamp()]
    metrics.audit_scan({}, at)
    assert not [line for line in lines(metrics) if line.startswith("allocguard_audit_scan_findings{")]


def test_when_certificates_end() -> None:
    metrics = Metrics()
    end = datetime(2027, 1, 1, tzinfo=UTC)
    metrics.certificates({"serving": end})
    line = next(line for line in lines(metrics) if line.startswith("allocguard_certificate_expiry_timestamp_seconds{"))
    assert line.startswith('allocguard_certificate_expiry_timestamp_seconds{use="serving"} ')
    assert float(line.split()[-1]) == end.timestamp()


TRACE = "c1a1000100004000800000000000000a"


def exemplars(metrics: Metrics) -> dict[str, set[str]]:
    """By name of the sample the traces that it shows, as an OpenMetrics scraper reads them."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(b"".join(metrics.pieces(exemplars=True)).decode()):
        for sample in family.samples:
            if sample.exemplar is not None:
                found.setdefault(sample.name, set()).add(sample.exemplar.labels["trace_id"])
    return found


def test_what_concerns_one_claim_shows_its_trace() -> None:
    metrics = Metrics()
    metrics.review("validate", "resourceclaims/status", "UPDATE", "denied", 0.01, TRACE)
    metrics.finding("allocations", "node-overcommit", "Deny", TRACE)
    metrics.reservation("failed", 0.01, TRACE)
    metrics.placement("d.example", "unfit", TRACE)
    metrics.duplicate("d.example", TRACE)
    metrics.write_failure("kubelet", "status-role-missing", TRACE)
    names = [
        "admission_reviews_total",
        "admission_duration_seconds_bucket",
        "findings_total",
        "reservations_total",
        "reservation_duration_seconds_bucket",
        "numa_placement_checks_total",
        "duplicate_charges_refused_total",
        "status_write_failures_total",
    ]
    assert exemplars(metrics) == {f"allocguard_{name}": {TRACE} for name in names}


def test_what_concerns_no_claim_shows_none() -> None:
    metrics = Metrics()
    metrics.review("validate", "pods", "CREATE", "denied", 0.01)
    metrics.finding("slices", "key-unknown", "Deny")
    assert exemplars(metrics) == {}


def test_what_is_not_kept_of_a_claim_is_counted_all_the_same() -> None:
    metrics, other = Metrics(), TRACE.replace("c", "d")
    metrics.traced = TRACE.__eq__
    for trace in (TRACE, other):
        metrics.duplicate("d.example", trace)
    assert exemplars(metrics) == {"allocguard_duplicate_charges_refused_total": {TRACE}}
    assert 'allocguard_duplicate_charges_refused_total{driver="d.example"} 2.0' in lines(metrics)


def test_the_old_format_has_the_same_samples_and_no_exemplar() -> None:
    metrics = Metrics(
        lambda: [gauge("rollout_hold", "held", ["driver"], [(["d"], 1)])],
        lambda _: [heading("things", "things"), b"allocguard_things 1.0\n"],
    )
    metrics.finding("allocations", "node-overcommit", "Deny", TRACE)
    text = b"".join(metrics.pieces()).decode()
    assert TRACE not in text
    assert "# EOF" not in text
    old = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in plain_families(text)
        for sample in family.samples
    }
    made = b"".join(metrics.pieces(exemplars=True)).decode()
    assert made.endswith("# EOF\n")
    new = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(made)
        for sample in family.samples
    }
    assert old == new
    assert new["allocguard_things",] == new["allocguard_rollout_hold", ("driver", "d")] == 1


def test_a_family_that_is_computed_ends_somewhere() -> None:
    rows = [([f"driver-{number}"], 1.0) for number in range(MAX_SAMPLES + 5)]
    metrics = Metrics(lambda: [gauge("rollout_hold", "held", ["driver"], [(["\ud800"], 1.0), *rows])])
    found = lines(metrics)
    assert len([line for line in found if line.startswith("allocguard_rollout_hold{")]) == MAX_SAMPLES
    assert 'allocguard_series_dropped_total{metric="rollout_hold"} 6.0' in lines(metrics)
