"""Whole objects that are stored, against the cluster that they are a part of."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.ledger.booked import at, book, claim, grp, unallocated
from tests.ledger.builders import DRIVER, container, device, entry, node, old, pod, slice_of, world
from webhook.admission import scan as scanning
from webhook.admission.at_rest import GUARD
from webhook.admission.scan import Scan, Stored
from webhook.kube.snapshot import Snapshot
from webhook.ledger import stored
from webhook.store.policies import read, shipped

Json = dict[str, Any]
NOW = datetime(2026, 1, 1, 0, 10, tzinfo=UTC)
REVISION = read([shipped()])


def scanned(snapshot: Snapshot, *objs: Json) -> dict[str, Stored]:
    """What a scan finds, by kind and name."""
    scan = Scan(REVISION)
    assert list(scan.look(snapshot, NOW))
    found = [stored for obj in objs if (stored := scan.judge(obj, snapshot, NOW)) is not None]
    return {f"{each.kind}/{each.name}": each for each in (*found, *scan.rest(snapshot))}


def rules(found: Iterable[Stored], *severities: str) -> set[tuple[str, str]]:
    return {(policy, f.rule) for each in found for policy, f in each.problems if f.severity in severities}


USED = pod("p1", container(cpu="5", claims=("c",)), claims=("c",), entries=[entry("c", cpu="4")])


@pytest.mark.parametrize("booked", [False, True])
def test_what_is_stored_and_counted_is_not_in_its_own_way(booked: bool) -> None:
    # The claim's 4 CPUs, which pod status and ledger say too, and the pod's own 5. Not one more.
    objs = [node(cpu="9"), grp(), claim(pods=("p1",)), USED]
    snapshot = world(*objs)
    if booked:
        snapshot = snapshot.with_ledger(book(*objs))
    assert rules(scanned(snapshot, *objs).values(), "error", "warning") == set()


def test_what_would_be_refused_today_is_an_error_with_its_policy() -> None:
    objs = [node(cpu="8"), grp(), claim(pods=("p1",)), USED]
    found = scanned(world(*objs), *objs)
    assert ("claim-allocation", "node-overcommit") in rules([found["ResourceClaim/c"]], "error")
    assert rules([found["Node/n1"]], "error") == {("ledger", "node-overcommit")}


def test_an_object_is_told_once_with_what_policies_and_the_ledger_say_of_it() -> None:
    objs = [node(cpu="64"), grp(), claim("a", "8"), claim("b", "8")]
    found = scanned(world(*objs), *objs)
    for each in found.values():
        told = [(f.rule, f.path, f.message) for _, f in each.problems]
        assert len(told) == len(set(told))
    assert {each.uid for each in found.values() if each.kind == "ResourceClaim"} == {"uid-a", "uid-b"}
    assert rules([found["Node/n1"]], "info") >= {("ledger", "leftover-claims")}
    assert found["Node/n1"].uid == "u1"
    assert rules([found["ResourceClaim/b"]], "error") >= {("claim-allocation", "shareid-duplicate")}


def test_a_second_scan_begins_with_nothing() -> None:
    objs = [node(cpu="8"), grp(), claim(pods=("p1",)), USED]
    assert scanned(world(*objs), *objs) == scanned(world(*objs), *objs)


def test_a_rollout_is_judged_by_what_the_guard_reads_of_it() -> None:
    rollout = {"apiVersion": "allocguard.dev/v9", "kind": "DriverRollout", "metadata": {"name": "gpu.example.com"}}
    rollout["spec"] = {"stage": "Of"}  # type: ignore[assignment]  # as JSON has it
    found = scanned(world(node(), grp()), rollout)
    assert {policy for policy, _ in found["DriverRollout/gpu.example.com"].problems} == {"rollout"}


def rollout(**spec: Any) -> Json:
    metadata = {"name": DRIVER}
    return {"apiVersion": "allocguard.dev/v1alpha1", "kind": "DriverRollout", "metadata": metadata, "spec": spec}


HOLD = {"reason": "firmware", "by": "on-call", "since": "2026-01-01T00:05:00Z"}
MAPPED = device("grp", old("1", "cpus"), capacity={"cpus": "8"}, zone=1)
PODS = {"evidence": ["DriverPodReady"], "driverPods": {"namespace": "d", "selector": {"matchLabels": {"a": "b"}}}}
DAYS = {
    "driver-held": [grp(), rollout(hold=HOLD)],
    "stage-off": [grp(), rollout(stage="Off")],
    "node-not-canary": [grp(), rollout(stage="Canary", canaryNodeSelector={"matchLabels": {"a": "b"}})],
    "pool-incomplete": [grp(count=2)],
    "pool-rebuilding": [grp(), at(11, slice_of(MAPPED, name="s2", generation=2))],
    "pool-invalid": [grp(), slice_of(device("x"), name="s2", count=3)],
    # A driver that is being updated takes its slices away; it is the pool that alerts.
    "device-unknown": [slice_of(device("new"), name="s2", generation=2, count=2)],
    "pool-unknown": [slice_of(MAPPED, name="s9", pool="n9", nodeName="n9")],
}


@pytest.mark.parametrize("rule", DAYS)
def test_what_is_only_so_today_is_no_fault_of_an_allocation_that_is_there(rule: str) -> None:
    objs = [node(), claim(pods=("p1",)), USED]
    snapshot = world(*objs, *DAYS[rule]).with_ledger(book(*objs, grp()))
    found = scanned(snapshot, *objs[1:])
    assert ("claim-allocation", rule) in rules([found["ResourceClaim/c"]], "info")
    assert rules(found.values(), "error") == set()


def test_a_device_that_a_whole_pool_does_not_have_is_a_fault() -> None:
    objs = [node(), slice_of(MAPPED | {"name": "other"}), claim(pods=("p1",)), USED]
    found = scanned(world(*objs), *objs)
    assert ("claim-allocation", "device-unknown") in rules([found["ResourceClaim/c"]], "error")


def test_a_claim_of_the_same_pod_that_waits_is_no_fault_of_the_one_that_is_there() -> None:
    used = pod("p1", container(claims=("c", "w")), claims=("c", "w"))
    objs = [node(cpu="4"), grp(), claim(pods=("p1",)), unallocated("w"), used]
    objs += [{"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": DRIVER}, "spec": {}}]
    objs[-1]["spec"] = {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]}
    found = scanned(world(*objs, rollout(hold=HOLD)), *objs)
    assert ("claim-allocation", "sibling-not-possible") in rules([found["ResourceClaim/c"]], "info")
    assert rules([found["ResourceClaim/c"]], "error") == set()


def test_claims_and_pods_that_wait_for_the_end_of_a_hold_are_no_fault() -> None:
    waits = pod("p2", container(claims=("w",)), claims=("w",), node_name="", phase="Pending")
    objs = [node(), grp(), unallocated("w"), waits]
    objs += [{"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": DRIVER}, "spec": {}}]
    objs[-1]["spec"] = {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]}
    found = scanned(world(*objs, rollout(hold=HOLD)), *objs)
    assert ("claim-requests", "driver-held") in rules([found["ResourceClaim/w"]], "info")
    assert ("pod-hold", "driver-held") in rules([found["Pod/p2"]], "info")
    assert rules([found["ResourceClaim/w"], found["Pod/p2"]], "error", "warning") == set()


def test_one_that_nobody_can_judge_is_told_and_the_others_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    judge, look = scanning.at_rest, stored.page_differences

    def at_rest(obj: Json, *rest: Any) -> Any:
        if obj["metadata"]["name"] == "odd":
            raise KeyError("what\nnobody thought of")
        return judge(obj, *rest)

    def differences(page: Any, *rest: Any) -> Any:
        if page.account.node == "n2":
            raise RecursionError("too deep")
        return look(page, *rest)

    monkeypatch.setattr(scanning, "at_rest", at_rest)
    monkeypatch.setattr(stored, "page_differences", differences)
    there = slice_of(MAPPED, name="s2", pool="n2", nodeName="n2")
    objs = [node("n1", cpu="64"), node("n2"), grp(), there, claim("a", "8"), claim("b", "8"), claim("odd", "1")]
    found = scanned(world(*objs), *objs)
    [(policy, finding)] = [each for each in found["ResourceClaim/odd"].problems if each[0] != "ledger"]
    assert (policy, finding.rule, finding.severity) == (GUARD, "not-judged", "error")
    assert "KeyError: 'what\\nnobody thought of'" in finding.message
    assert ("ledger", "not-judged") in rules([found["Node/n2"]], "error")
    assert ("ledger", "leftover-claims") in rules([found["Node/n1"]], "info")
    assert ("claim-allocation", "shareid-duplicate") in rules([found["ResourceClaim/b"]], "error")
