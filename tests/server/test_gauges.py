from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.bench import fleet
from tests.e2e.waiting import eventually
from tests.facts.test_zone_choice import cluster, cpus, gpus
from tests.ledger.builders import container, old, pod
from webhook.facts.gates_found import GateEvidence
from webhook.kube.core import GATE
from webhook.kube.release import Release
from webhook.kube.snapshot import Snapshot, build
from webhook.server import gauges as subject
from webhook.server.gauges import Gauges
from webhook.store.policies import PolicyStore, shipped
from webhook.telemetry.metrics import Metrics

POLICIES = PolicyStore([shipped()])
NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)
EVIDENCE = GateEvidence(probe=False)


def made(snapshot: Callable[[], Snapshot], now: Callable[[], datetime] = lambda: NOW, **refused: str) -> Gauges:
    return Gauges(POLICIES, snapshot, now, lambda: {"ResourceSlice": 0.25}, lambda: refused, lambda: EVIDENCE)


def shown(gauges: Gauges) -> dict[tuple[str, ...], float]:
    """What a scraper reads: name and labels, in the order of their names but for these, and value."""
    text = b"".join(Metrics(gauges.families, gauges.lines).pieces()).decode()
    order = ("node", "driver", "zone", "pool", "component", "resource", "source")
    return {
        (
            sample.name.removeprefix("allocguard_"),
            *(sample.labels[label] for label in sorted(sample.labels, key=lambda label: (*order, label).index(label))),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def samples(*extra: dict[str, object], **refused: str) -> dict[tuple[str, ...], float]:
    snapshot = build([*fleet.cluster(2), *extra], Release(36))
    return shown(made(lambda: snapshot, **refused))


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
    assert found["policy_revision_info", POLICIES.revision.hash] == 1
    assert found["snapshot_age_seconds", "ResourceSlice"] == 0.25


def test_a_hold_whose_time_is_over_holds_nobody() -> None:
    held = fleet.rollout()
    for until, stands in {"2026-11-21T09:00:01Z": 1, "2026-11-21T09:00:00Z": 0}.items():
        held["spec"]["hold"] = {"reason": "books half", "until": until}
        assert samples(held)["rollout_hold", f"cpu.{fleet.DOMAIN}"] == stands


def test_what_is_wrong_with_policies_is_counted_while_it_lasts() -> None:
    bad = {"metadata": {"name": "a", "uid": "u"}, "spec": {"action": "Deny"}}
    assert samples()["policy_problems",] == 0
    POLICIES.set_objects({"a": bad})
    assert samples()["policy_problems",] == len(POLICIES.problems) > 0
    POLICIES.set_objects({})
    assert samples()["policy_problems",] == 0


def test_claims_that_wait_and_why() -> None:
    cpu, gpu = f"cpu.{fleet.DOMAIN}", f"gpu.{fleet.DOMAIN}"
    waiting = fleet.claim(0)["metadata"]["uid"]
    assert samples()["claims_pending", cpu, "unscheduled"] == 1
    assert samples()["claims_pending", gpu, "unscheduled"] == 1
    assert samples(**{waiting: "node-overcommit"})["claims_pending", cpu, "node-overcommit"] == 1
    held = fleet.rollout()
    held["spec"]["hold"] = {"reason": "books half"}
    assert samples(held)["claims_pending", cpu, "driver-held"] == 1


def test_pods_with_the_gate_and_why() -> None:
    gated = fleet.pod(90, "claim-0")
    gated["spec"]["schedulingGates"] = [{"name": GATE}]
    assert not [key for key in samples() if key[0] == "pods_gated"]
    assert samples(gated)["pods_gated", "due"] == 1
    held = fleet.rollout()
    held["spec"]["hold"] = {"reason": "books half"}
    found = samples(held, gated)
    assert {key: found[key] for key in found if key[0] == "pods_gated"} == {("pods_gated", "driver-held"): 1}


def test_differences_by_kind() -> None:
    # The pod of the fleet is bound without an entry.
    found = samples()
    counts = {kind: found["ledger_differences", kind] for kind in ("missing", "surplus", "amount", "pod-status")}
    assert counts == {"missing": 0, "surplus": 0, "amount": 0, "pod-status": 1}
    lost = fleet.claim(7, on=1)
    lost["status"]["allocation"]["devices"]["results"][0]["device"] = "gone"
    assert samples(lost)["ledger_differences", "missing"] == 1


def test_the_gate_of_each_component() -> None:
    found = samples()
    states = {key[1:] for key in found if key[0] == "feature_gate"}
    assert states == {("kube-apiserver", "off"), ("kube-scheduler", "unknown"), ("kubelet", "unknown")}
    assert {found["feature_gate", *each] for each in states} == {1}


def test_a_pod_whose_zone_is_to_be_chosen_says_so() -> None:
    gated = pod("p", container(claims=("g",)), claims=("g",), node_name="")
    gated["spec"]["schedulingGates"] = [{"name": GATE}]
    found = shown(made(lambda: cluster(cpus(), gpus(old("4")), gated)))
    assert {key: found[key] for key in found if key[0] == "pods_gated"} == {("pods_gated", "zone-to-choose"): 1}


def test_how_long_the_oldest_of_them_has_waited() -> None:
    cpu, late = f"cpu.{fleet.DOMAIN}", fleet.claim(2)
    late["metadata"]["creationTimestamp"] = "2026-11-21T08:59:00Z"
    assert samples()["claims_pending_oldest_seconds", cpu, "unscheduled"] == 24 * 3600
    only = build([*fleet.classes(), late, fleet.pod(2, "claim-2")], Release(36))
    assert shown(made(lambda: only))["claims_pending_oldest_seconds", cpu, "no-device-yet"] == 60
    nobody = build([*fleet.classes(), late], Release(36))
    assert not [key for key in shown(made(lambda: nobody)) if key[0] == "claims_pending_oldest_seconds"]


def test_a_scrape_looks_itself_where_that_is_quick() -> None:
    worlds = [build(fleet.cluster(1), Release(36)), build(fleet.cluster(2), Release(36))]
    gauges = made(lambda: worlds[0])
    gauges.keep()
    assert ("ledger_capacity", fleet.name(1), "", "cpu") not in shown(gauges)
    worlds.pop(0)
    assert ("ledger_capacity", fleet.name(1), "", "cpu") in shown(gauges)


def test_a_scrape_takes_what_is_kept_up_where_a_look_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    worlds, nows = [build(fleet.cluster(1), Release(36)), build(fleet.cluster(2), Release(36))], [NOW]
    monkeypatch.setattr(subject, "QUICK", 0.0)
    gauges = made(lambda: worlds[0], lambda: nows[0])
    gauges.keep()
    worlds.pop(0)
    nows[0] = NOW + timedelta(seconds=7)
    found = shown(gauges)
    assert ("ledger_capacity", fleet.name(1), "", "cpu") not in found
    # Ages go on.
    assert found["mapping_age_seconds", f"cpu.{fleet.DOMAIN}", fleet.name(0)] == 24 * 3600 + 7
    gauges.keep()
    assert ("ledger_capacity", fleet.name(1), "", "cpu") in shown(gauges)
    # Whoever kept them up has given up.
    worlds[:] = [build(fleet.cluster(3), Release(36))]
    monkeypatch.setattr(subject, "GIVEN_UP", 0.0)
    assert ("ledger_capacity", fleet.name(2), "", "cpu") in shown(gauges)


def test_a_scrape_takes_the_look_that_it_waited_for() -> None:
    looks, go = [], threading.Event()

    def world() -> Snapshot:
        looks.append(1)
        assert go.wait(60)
        return build(fleet.cluster(1), Release(36))

    gauges = made(world)
    with ThreadPoolExecutor() as threads:
        keeping = threads.submit(gauges.keep)
        eventually(lambda: looks)
        scrape = threads.submit(shown, gauges)
        eventually(lambda: math.isfinite(gauges._asked))
        go.set()
        keeping.result()
        assert ("ledger_capacity", fleet.name(0), "", "cpu") in scrape.result()
    assert len(looks) == 1


def test_nothing_is_kept_up_that_nobody_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def world() -> Snapshot:
        looks.append(1)
        return build(fleet.cluster(1), Release(36))

    gauges = made(world)
    gauges.keep()
    gauges.keep()
    assert len(looks) == 1
    shown(gauges)
    gauges.keep()
    assert len(looks) == 3
    monkeypatch.setattr(subject, "GIVEN_UP", 0.0)
    gauges.keep()
    assert len(looks) == 3


def _gated() -> dict[str, object]:
    return {**fleet.pod(2, "claim-2"), "spec": {"schedulingGates": [{"name": GATE}]}}


@pytest.mark.parametrize("objs", [[fleet.claim(2), fleet.pod(2, "claim-2")], [_gated()]], ids=["claims", "pods"])
def test_a_look_rests_among_what_waits(monkeypatch: pytest.MonkeyPatch, objs: list[dict[str, object]]) -> None:
    monkeypatch.setattr(subject, "_WORK", 0.0)
    snapshot = build(objs, Release(36))
    gauges = made(lambda: snapshot)
    gauges.ended = True
    gauges.keep()
    assert not gauges._seen


def test_a_look_ends_with_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "_WORK", 0.0)
    snapshot = build(fleet.cluster(2), Release(36))
    gauges = made(lambda: snapshot)
    gauges.ended = True
    assert gauges.keep() == subject.EVERY
    assert not gauges._seen
    gauges.ended = False
    gauges.keep()
    assert ("ledger_capacity", fleet.name(1), "", "cpu") in shown(gauges)
