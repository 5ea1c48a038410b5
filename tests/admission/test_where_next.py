from __future__ import annotations

import shlex
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.bench import fleet
from webhook.admission.decide import decide
from webhook.admission.decode import read_review
from webhook.admission.where_next import _PENDING, _RUNBOOKS, runbooks, where_next
from webhook.kube.release import Release
from webhook.kube.snapshot import build
from webhook.ledger.book import Book
from webhook.store import policies

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
REVISION = policies.read([policies.shipped()])


def runs(review: dict[str, Any], *objects: dict[str, Any], endpoint: str = "validate") -> list[list[str]]:
    snapshot = build([*fleet.cluster(4), *objects], Release(36))
    verdict = decide(read_review(review), endpoint, REVISION, snapshot, Book(), NOW)
    return [shlex.split(each["run"])[1:] for each in where_next(verdict)]


def test_an_allocation_leads_to_its_claim_its_pod_its_node_and_its_drivers() -> None:
    assert runs(fleet.allocation_review(2, 3)) == [
        ["explain", "--claim", "bench/claim-2"],
        ["ledger", "explain", "claim/bench/claim-2"],
        ["ledger", "explain", "pod/bench/encoder-2"],
        ["ledger", "explain", "node/node-00003"],
        ["rollout", "status", "cpu.bench.example"],
        ["rollout", "status", "gpu.bench.example"],
    ]


def test_a_new_pod_leads_to_the_drivers_of_its_claims() -> None:
    assert runs(fleet.pod_review(900), fleet.claim(900), endpoint="mutate") == [
        ["rollout", "status", "cpu.bench.example"],
        ["rollout", "status", "gpu.bench.example"],
    ]


def test_a_writer_that_a_policy_refuses_leads_to_its_roles() -> None:
    account = {"namespace": "bench", "serviceAccount": "cpu", "profile": "NodeLocal"}
    rollout = {"apiVersion": "allocguard.dev/v1alpha1", "kind": "DriverRollout", "spec": {"writers": [account]}}
    rollout["metadata"] = {"name": "cpu.bench.example"}
    item = next(each for each in fleet.cluster(1) if each.get("spec", {}).get("driver") == "cpu.bench.example")
    changed = {**item, "spec": {**item["spec"], "devices": []}}
    review = fleet.review("UPDATE", changed, item, user="system:serviceaccount:shop:backend")
    assert runs(review, rollout) == [
        ["ledger", "show", "--node", "node-00000"],
        ["rollout", "status", "cpu.bench.example"],
        ["rbac", "lint", "--for-serviceaccount", "shop/backend"],
    ]


def test_a_name_that_a_shell_would_run_is_one_word() -> None:
    hostile = "x; rm -rf ~ #$(id)`id`"
    review = fleet.allocation_review(2, 3)
    review["request"]["name"] = hostile
    for obj in ("object", "oldObject"):
        review["request"][obj]["metadata"]["name"] = hostile
    assert runs(review)[0] == ["explain", "--claim", f"bench/{hostile}"]


def test_the_pages_of_what_refuses_are_there_and_named() -> None:
    objects = list(fleet.cluster(4))
    half = [deepcopy(each) for each in objects if each.get("spec", {}).get("driver") == "cpu.bench.example"]
    for each in half:
        each["spec"]["pool"]["resourceSliceCount"] += 1
    request = read_review(fleet.allocation_review(2, 3))
    worlds = (build(objects, Release(36)), build([*objects, *half], Release(36)))
    assert [runbooks(decide(request, "validate", REVISION, each, Book(), NOW)) for each in worlds] == [
        [],
        ["docs/runbooks/pools-stuck.md", "docs/runbooks/claims-pending.md"],
    ]


def test_every_page_that_may_be_named_is_there() -> None:
    for page in {*_RUNBOOKS.values(), _PENDING}:
        assert (ROOT / "docs" / "runbooks" / f"{page}.md").is_file()
