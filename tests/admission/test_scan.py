"""Whole objects that are stored, against the cluster that they are a part of."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.ledger.booked import book, claim, grp
from tests.ledger.builders import container, entry, node, pod, world
from webhook.admission.scan import Scan, Stored
from webhook.kube.snapshot import Snapshot
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
