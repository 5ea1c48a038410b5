from __future__ import annotations

from datetime import UTC, datetime

from tests.bench import fleet
from webhook.kube.release import Release
from webhook.kube.snapshot import build
from webhook.ledger.book import Book
from webhook.server.gauges import gauges

NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)


def samples(*extra: dict[str, object]) -> dict[tuple[str, ...], float]:
    snapshot = build([*fleet.cluster(2), *extra], Release(36))
    return {
        (sample.name.removeprefix("allocguard_"), *sample.labels.values()): sample.value
        for family in gauges("abc", snapshot, Book(), NOW, {"ResourceSlice": 0.25})
        for sample in family.samples
    }


def test_accounts_by_node_zone_resource_and_source() -> None:
    found = samples()
    assert found["ledger_capacity", fleet.name(1), "", "cpu"] == 62
    assert found["ledger_used", fleet.name(1), "", "cpu", "claims"] == 2
    assert found["ledger_used", fleet.name(1), "", "cpu", "pods"] == 1.5
    assert found["ledger_used", fleet.name(1), "", "memory", "claims"] == 4 << 30
    assert found["ledger_capacity", fleet.name(1), "0", "cpu"] == 31
    assert found["ledger_used", fleet.name(1), "0", "cpu", "claims"] == 2


def test_a_node_without_node_costs_is_left_to_other_metrics() -> None:
    assert not [key for key in samples() if fleet.name(fleet.BIG) in key]


def test_pools_rollouts_revision_and_age() -> None:
    held = fleet.rollout()
    held["spec"]["hold"] = {"reason": "books half"}
    found = samples(held)
    driver = f"cpu.{fleet.DOMAIN}"
    assert found["pool_phase", driver, fleet.name(0), "Fresh"] == 1
    assert found["mapping_age_seconds", driver, fleet.name(0)] == 24 * 3600
    assert not [key for key in found if f"nic.{fleet.DOMAIN}" in key]
    assert found["rollout_stage", driver, "Canary"] == 1
    assert found["rollout_hold", driver] == 1
    assert found["policy_revision_info", "abc"] == 1
    assert found["snapshot_age_seconds", "ResourceSlice"] == 0.25
