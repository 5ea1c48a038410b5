from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from tests.bench import fleet
from webhook.admission.action import apply
from webhook.admission.decide import decide
from webhook.admission.decode import read_review
from webhook.admission.explain import Tree, explain
from webhook.kube.release import Release
from webhook.kube.snapshot import build
from webhook.ledger.book import Book
from webhook.policy.compile import compile_files
from webhook.store import policies

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
SNAPSHOT = build(fleet.cluster(4), Release(36))
REVISION = policies.read([policies.shipped()])


def tree_of(review: dict[str, Any], now: datetime = NOW, endpoint: str = "validate") -> Tree:
    verdict = decide(read_review(review), endpoint, REVISION, SNAPSHOT, Book(), now)
    tree = explain(verdict, apply(verdict))
    json.dumps(tree)
    return tree


def test_an_allocation_shows_conditions_rules_facts_and_the_sum() -> None:
    tree = tree_of(fleet.allocation_review(2, 3))
    assert tree["review"]["resource"] == "resourceclaims/status"
    assert tree["verdict"]["allowed"] is True
    policy = next(policy for policy in tree["policies"] if policy["policy"] == "claim-allocation")
    assert policy["matched"]
    assert policy["conditions"][0]["value"] is True
    assert {rule["name"] for rule in policy["rules"]} >= {"pools", "devices", "fit"}
    assert tree["facts"]["claim"]["node"] == fleet.name(3)
    cpu = next(row for row in tree["sums"] if (row["resource"], row["zone"]) == ("cpu", ""))
    assert cpu["equation"] == "62 allocatable - 1500m pods - 2 claims - 2 this claim - 1500m this pod = 55"
    assert cpu["fits"] is True


def test_the_ledger_is_told_of_the_resources_that_the_sums_are_about() -> None:
    ledger = tree_of(fleet.allocation_review(2, 3))["ledger"]
    assert ledger["node"] == fleet.name(3)
    held = {"pods": "1500m", "claims": "2", "overhead": "0", "reserved": "0"}
    assert ledger["resources"]["cpu"] == {"allocatable": "62", **held, "free": "58500m"}
    assert set(ledger["resources"]) == {"cpu", "memory"}
    assert ledger["zones"][0]["resources"]["cpu"] == {"capacity": "31", "claims": "2", "reserved": "0", "free": "29"}
    assert tree_of(fleet.slice_review())["ledger"] is None


def test_a_refusal_has_what_was_found_and_what_to_do() -> None:
    review = fleet.slice_review()
    review["request"]["object"]["spec"]["devices"][5]["nodeAllocatableResourceMappings"] = {"cpus": {}}
    tree = tree_of(review)
    assert not tree["verdict"]["allowed"]
    finding = next(f for p in tree["policies"] for r in p["rules"] for f in r["findings"] if f["does"] == "denies")
    assert finding["rule"] == "key-unknown"
    assert finding["path"].startswith("spec.devices[5]")
    user = review["request"]["userInfo"]["username"]
    assert tree["facts"]["writer"]["evidence"] == f"{user}, an account that writes for no driver"


def test_what_explain_itself_looks_at_does_not_count_as_read() -> None:
    facts = tree_of(fleet.slice_review())["facts"]
    assert "driver" not in facts["slice"]
    assert "claims" not in tree_of(fleet.pod_review())["facts"].get("pod", {})


def test_a_policy_that_does_not_match_says_why() -> None:
    claim = fleet.claim(1, 1)
    tree = tree_of(fleet.review("UPDATE", claim, claim, "status"))
    policy = next(policy for policy in tree["policies"] if policy["policy"] == "claim-allocation")
    assert not policy["matched"]
    assert policy["rules"] == []
    assert policy["skipped"] == "matchConditions: allocates-or-adds-a-consumer"


def test_the_facts_of_a_device_class_are_shown() -> None:
    spec = {"selectors": [{"cel": {"expression": "device.driver =="}}]}
    made = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "c"}, "spec": spec}
    tree = tree_of(fleet.review("CREATE", made), endpoint="check")
    assert list(tree["facts"]) == ["deviceClass"]


def test_entries_of_a_fact_that_are_not_shown_are_counted() -> None:
    kind = {"apiVersion": "allocguard.dev/v1alpha1", "kind": "AdmissionPolicy", "metadata": {"name": "p"}}
    about = {"apiGroups": ["*"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["resourceslices"]}
    rule = {"name": "r", "expression": "writer.profiles != {}"}
    writers = [{"namespace": "bench", "serviceAccount": f"big.{fleet.DOMAIN}"}]
    params = {"drivers": {f"d{i}.example": writers for i in range(23)}}
    spec = {"matchConstraints": {"resourceRules": [about]}, "validations": [rule], "params": params, "action": "Warn"}
    revision = compile_files({"p.yaml": json.dumps({**kind, "spec": spec}).encode()})
    verdict = decide(read_review(fleet.slice_review()), "validate", revision, SNAPSHOT, Book(), NOW)
    profiles = explain(verdict, apply(verdict))["facts"]["writer"]["profiles"]
    assert (len(profiles), profiles["and more"]) == (21, 3)


def test_a_patch_and_a_hold_are_shown() -> None:
    held = {"stage": "General", "hold": {"reason": "books half", "by": "x", "since": "2026-11-29T00:00:00Z"}}
    rollout = {
        "apiVersion": "allocguard.dev/v1alpha1",
        "kind": "DriverRollout",
        "metadata": {"name": "cpu.bench.example"},
    }
    snapshot = build([*fleet.cluster(4), fleet.claim(900), {**rollout, "spec": held}], Release(36))
    verdict = decide(read_review(fleet.pod_review(900)), "mutate", REVISION, snapshot, Book(), NOW)
    tree = explain(verdict, apply(verdict))
    gate = {"op": "add", "path": "/spec/schedulingGates", "value": [{"name": "allocguard.dev/claims"}]}
    assert (tree["verdict"]["patch"], tree["verdict"]["held"]) == ([gate], True)
    canary = next(policy for policy in tree["policies"] if policy["policy"] == "pod-canary")
    assert (canary["mutations"], canary["patch"]) == (["pod.canaryPatch"], [])
