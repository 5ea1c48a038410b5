"""Which devices are tainted: those that every allocation of would be refused, and no others."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.facts.builders import (
    DRIVER,
    NOW,
    grp,
    node,
    rollout,
    slice_of,
    world,
)
from tests.facts.test_stopped_pool import reasons, said, told, two_nodes
from webhook.facts.pool_survey import Reason
from webhook.facts.taints import TaintWanted, wanted_taints
from webhook.kube.snapshot import Snapshot

Json = dict[str, Any]

HOLD = {"reason": "wrong mapping", "by": "on-call", "since": "2026-11-20T09:00:00Z"}
OTHER = grp(nodeAllocatableResourceMappings={"cpu": {"capacityKey": "cpus", "allocationMultiplier": "2"}})


def taints(snapshot: Snapshot, *full: TaintWanted) -> list[tuple[str, str, str, str]]:
    """Pool, device, rule and text of the taints."""
    wanted = wanted_taints(snapshot, reasons(snapshot), NOW, full)
    assert len({each.name for each in wanted}) == len(wanted)
    return [(each.pool, each.device, each.reason.rule, each.text) for each in wanted]


def digest(snapshot: Snapshot, name: str = "s1") -> str:
    [found] = snapshot.slices[name].digests
    return found


def test_pools_that_are_whole_are_left_alone() -> None:
    assert taints(two_nodes()) == []
    assert taints(two_nodes(rollout(stage="General"))) == []


def test_a_held_driver_is_tainted_as_a_whole_with_what_the_refusal_says() -> None:
    snapshot = two_nodes(rollout(hold=HOLD))
    [taint] = taints(snapshot)
    assert taint == (
        "",
        "",
        "driver-held",
        f"driver-held: has driver {DRIVER} held: wrong mapping, by on-call, since 2026-11-20T09:00:00Z, needs the hold "
        f"to be taken back; bound claims stay; take spec.hold out of DriverRollout {DRIVER} when it is repaired",
    )
    assert said(snapshot, "n1") == told(snapshot)


def test_a_hold_that_is_over_taints_nothing() -> None:
    until = (NOW - timedelta(seconds=1)).isoformat().replace("+00:00", "Z")
    assert taints(two_nodes(rollout(hold={**HOLD, "until": until}))) == []


def test_a_driver_that_is_held_before_it_has_slices_is_tainted() -> None:
    assert [each[:3] for each in taints(world(node(), rollout(hold=HOLD)))] == [("", "", "driver-held")]


def test_bad_mappings_taint_the_pools_that_have_them() -> None:
    bad = digest(two_nodes())
    snapshot = two_nodes(rollout(hold={**HOLD, "badMappings": [bad]}), second=OTHER)
    assert digest(snapshot, "s2") != bad
    assert [each[:3] for each in taints(snapshot)] == [("n1", "", "driver-held")]
    assert bad[:19] in taints(snapshot)[0][3]


def test_pools_that_were_resumed_are_not_tainted() -> None:
    good = digest(two_nodes())
    snapshot = two_nodes(rollout(hold=HOLD, resumeAt={"mappingDigests": [good]}), second=OTHER)
    assert [each[:3] for each in taints(snapshot)] == [("n2", "", "driver-held")]
    nobody = two_nodes(rollout(hold=HOLD, resumeAt={"mappingDigests": ["sha256:0"]}), second=OTHER)
    assert [each[:3] for each in taints(nobody)] == [("", "", "driver-held")], "all of its pools: one for the driver"


def test_the_only_pool_is_tainted_as_a_pool() -> None:
    """The next node's pool is not to be born tainted."""
    assert [each[:3] for each in taints(world(node(), slice_of(grp(), count=2)))] == [("n1", "", "pool-incomplete")]


def test_all_pools_of_a_driver_are_one_taint() -> None:
    snapshot = world(
        node(),
        node("n2", uid="u2"),
        slice_of(grp(), count=2),
        slice_of(grp(), name="s2", where="n2", count=3),
        slice_of(grp(), name="e1", where="n1", driver="e.example"),
    )
    assert [each[:3] for each in taints(snapshot)] == [("", "", "pool-incomplete")]


def test_full_zones_taint_devices_where_nothing_wider_stands() -> None:
    reason = Reason("zone-overcommit", "cpu 8 of 8 of zone 0 charged", "4 free")
    full = TaintWanted(DRIVER, "n1", "grp", reason)
    assert [each[:3] for each in taints(two_nodes(), full)] == [("n1", "grp", "zone-overcommit")]
    assert [each[:3] for each in taints(two_nodes(rollout(hold=HOLD)), full)] == [("", "", "driver-held")]
    half = world(node(), slice_of(grp(), count=2), node("n2", uid="u2"), slice_of(grp(), name="s2", where="n2"))
    assert [each[:3] for each in taints(half, full)] == [("n1", "", "pool-incomplete")]


def test_ages_are_no_part_of_the_text() -> None:
    """They would have it written anew every second."""
    quiet = rollout(freshness={"heartbeat": "30s"})
    snapshot = two_nodes(quiet)
    assert "of unknown age" in taints(snapshot)[0][3]
    reason = Reason("pool-rebuilding", "slice s1 last written 4m10s ago", "a write every 30s, as the driver promises")
    assert TaintWanted(DRIVER, "n1", "", reason).text == (
        "pool-rebuilding: has slice s1 last written too long ago, needs a write every 30s, as the driver promises"
    )
