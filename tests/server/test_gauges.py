from __future__ import annotations

from datetime import UTC, datetime

from tests.bench import fleet
from tests.facts.test_zone_choice import cluster, cpus, gpus
from tests.ledger.builders import container, old, pod
from webhook.facts.gates_found import GateEvidence
from webhook.kube.core import GATE
from webhook.kube.release import Release
from webhook.kube.snapshot import build
from webhook.ledger.book import Book
from webhook.server.gauges import gauges
from webhook.store.policies import PolicyStore, shipped

POLICIES = PolicyStore([shipped()])
NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)
EVIDENCE = GateEvidence(probe=False)


def samples(*extra: dict[str, object], **refused: str) -> dict[tuple[str, ...], float]:
    snapshot = build([*fleet.cluster(2), *extra], Release(36))
    return {
        (sample.name.removeprefix("allocguard_"), *sample.labels.values()): sample.value
        for family in gauges(POLICIES, snapshot, Book(), NOW, {"ResourceSlice": 0.25}, refused, EVIDENCE)
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
    assert found["policy_revision_info", POLICIES.revision.hash] == 1
    assert found["snapshot_age_seconds", "ResourceSlice"] == 0.25


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
    found = gauges(POLICIES, cluster(cpus(), gpus(old("4")), gated), Book(), NOW, {}, {}, EVIDENCE)
    rows = [sample for family in found for sample in family.samples if sample.name == "allocguard_pods_gated"]
    assert [(sample.labels, sample.value) for sample in rows] == [({"reason": "zone-to-choose"}, 1)]
