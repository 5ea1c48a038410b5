from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from tests.bench import fleet
from webhook.admission.action import apply
from webhook.admission.decide import decide
from webhook.admission.decode import read_review
from webhook.admission.explain import Tree, explain, lines
from webhook.kube.release import Release
from webhook.kube.snapshot import build
from webhook.ledger.book import Book
from webhook.store import policies

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
SNAPSHOT = build(fleet.cluster(4), Release(36))
REVISION = policies.read([policies.shipped()])


def tree_of(review: dict[str, Any], now: datetime = NOW, endpoint: str = "validate") -> Tree:
    verdict = decide(read_review(review), endpoint, REVISION, SNAPSHOT, Book(), now)
    tree = explain(verdict, apply(verdict))
    json.dumps(tree)
    assert all(line.isprintable() for line in lines(tree))
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
    text = lines(tree)
    assert text[0] == "allowed: UPDATE resourceclaims/status bench/claim-2"
    assert f"  cpu: {cpu['equation']}" in text
    assert "  claim.node: node-00003" in text


def test_a_refusal_begins_with_what_was_found_and_what_to_do() -> None:
    review = fleet.slice_review()
    review["request"]["object"]["spec"]["devices"][5]["nodeAllocatableResourceMappings"] = {"cpus": {}}
    tree = tree_of(review)
    assert not tree["verdict"]["allowed"]
    finding = next(f for p in tree["policies"] for r in p["rules"] for f in r["findings"] if f["does"] == "denies")
    assert finding["rule"] == "key-unknown"
    assert finding["path"].startswith("spec.devices[5]")
    text = lines(tree)
    assert text[0] == f"denied: CREATE resourceslices {review['request']['name']}"
    assert f"asked by {review['request']['userInfo']['username']}, in review {review['request']['uid']}" in text
    assert text[1].strip() == tree["verdict"]["message"]
    assert any(finding["message"] in line for line in text)
    user = review["request"]["userInfo"]["username"]
    assert tree["facts"]["writer"]["evidence"] == f"{user}, an account that writes for no driver"


def test_a_policy_that_does_not_match_says_why() -> None:
    claim = fleet.claim(1, 1)
    tree = tree_of(fleet.review("UPDATE", claim, claim, "status"))
    policy = next(policy for policy in tree["policies"] if policy["policy"] == "claim-allocation")
    assert not policy["matched"]
    assert policy["rules"] == []
    assert f"policy claim-allocation: does not match, {policy['skipped']}" in lines(tree)


def test_the_facts_of_a_device_class_are_shown() -> None:
    spec = {"selectors": [{"cel": {"expression": "device.driver =="}}]}
    made = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "c"}, "spec": spec}
    tree = tree_of(fleet.review("CREATE", made), endpoint="check")
    assert list(tree["facts"]) == ["deviceClass"]
    assert any(line.startswith("  deviceClass.structureProblems: ") for line in lines(tree))


def test_a_write_nobody_judges_says_so() -> None:
    review = fleet.review("CREATE", {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}})
    assert "no policy is about this resource and operation" in lines(tree_of(review))


def test_hostile_names_stay_on_one_line() -> None:
    review = fleet.review("CREATE", {**fleet.big_slice(1), "metadata": {"name": "a\nb\x1b[0m"}}, user="c\rd")
    tree_of(review)


def test_a_patch_and_a_hold_are_shown() -> None:
    held = {"stage": "General", "hold": {"reason": "books half", "by": "x", "since": "2026-11-29T00:00:00Z"}}
    rollout = {
        "apiVersion": "allocguard.dev/v1alpha1",
        "kind": "DriverRollout",
        "metadata": {"name": "cpu.bench.example"},
    }
    snapshot = build([*fleet.cluster(4), fleet.claim(900), {**rollout, "spec": held}], Release(36))
    review = fleet.pod_review(900)
    verdict = decide(read_review(review), "mutate", REVISION, snapshot, Book(), NOW)
    tree = explain(verdict, apply(verdict))
    gate = {"op": "add", "path": "/spec/schedulingGates", "value": [{"name": "allocguard.dev/claims"}]}
    assert tree["verdict"]["patch"] == [gate]
    text = lines(tree)
    assert text[0] == "allowed, to wait: CREATE pods bench/encoder-900"
    assert '  patch: add /spec/schedulingGates: [{"name":"allocguard.dev/claims"}]' in text
    assert "    error driver-held holds: spec.resourceClaims" in text
    canary = next(policy for policy in tree["policies"] if policy["policy"] == "pod-canary")
    assert (canary["mutations"], canary["patch"]) == (["pod.canaryPatch"], [])
    assert "  mutations: change nothing" in text
