from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from webhook.telemetry.bounded import MAX_CHILDREN
from webhook.telemetry.metrics import Metrics


def series(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(sample.labels[key] for key in sorted(sample.labels)): sample.value
        for family in text_string_to_metric_families(b"".join(metrics.pieces()).decode())
        for sample in family.samples
        if sample.name == f"allocguard_{name}_total"
    }


def test_what_is_beyond_the_limit_counts_under_other() -> None:
    metrics = Metrics()
    for turn in range(2):
        for number in range(MAX_CHILDREN + 500):
            metrics.placement(f"driver-{number}", "fit" if number % 2 else "unfit")
        found = series(metrics, "numa_placement_checks")
        assert len(found) == MAX_CHILDREN + 2
        assert found["driver-7", "fit"] == turn + 1
        assert found["other", "fit"] == found["other", "unfit"] == 250 * (turn + 1)
        assert sum(found.values()) == (MAX_CHILDREN + 500) * (turn + 1)
        assert series(metrics, "series_dropped") == {("numa_placement_checks_total",): 500 * (turn + 1)}


def test_families_that_others_cannot_widen_count_nothing_as_dropped() -> None:
    metrics = Metrics()
    metrics.placement("d.example", "fit")
    assert series(metrics, "series_dropped") == {}


@pytest.mark.parametrize("name", ["x" * 300, "\ud800"])
def test_names_that_cannot_be_shown_count_under_other(name: str) -> None:
    metrics = Metrics()
    metrics.duplicate(name)
    metrics.finding("mine", name, "Deny")
    metrics.write_failure(name, "status-role-missing")
    assert series(metrics, "duplicate_charges_refused") == {("other",): 1}
    assert series(metrics, "findings") == {("Deny", "other", "other"): 1}
    assert series(metrics, "status_write_failures") == {("other", "other"): 1}
    assert sum(series(metrics, "series_dropped").values()) == 3


@pytest.mark.parametrize("name", ['a"b', "a\nb", "a\\", '"} 1\nallocguard_faked_total 7\n#', "\u2028\x1b[2J"])
def test_names_of_others_stay_names(name: str) -> None:
    metrics = Metrics()
    metrics.duplicate(name)
    assert series(metrics, "duplicate_charges_refused") == {(name,): 1}
    assert not series(metrics, "faked")
