from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.facts import test_zone_choice as zone_choice
from tests.facts.builders import NOW, claim, device_class, grp, node, pod, pod_ref, result, rollout, slice_of, world
from tests.ledger import builders as zones
from webhook.facts.pending import pending
from webhook.kube.core import GATE
from webhook.kube.snapshot import Snapshot

Json = dict[str, Any]

CLASS = device_class()
WAITS = pod()


def counts(snapshot: Snapshot, **refused: str) -> dict[tuple[str, str], int]:
    rules = {f"uid-{name}": rule for name, rule in refused.items()}
    found = pending(snapshot.claims.values(), snapshot, NOW, rules)
    return dict(Counter((each.driver, each.reason) for each in found))


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ([slice_of(grp())], "unscheduled"),
        ([], "no-device-yet"),
        ([slice_of(grp(), count=2)], "pool-incomplete"),
        ([slice_of(grp(), count=2), slice_of(grp(), name="s2", where="n2")], "unscheduled"),
        ([slice_of(grp()), rollout(hold={"reason": "repair"})], "driver-held"),
        ([slice_of(grp()), rollout(stage="Off")], "stage-off"),
        # A driver that never costs anything is not judged by its pools.
        ([slice_of({"name": "nic"}, count=2)], "unscheduled"),
    ],
)
def test_what_a_claim_waits_for(more: list[Json], reason: str) -> None:
    assert counts(world(node(), CLASS, WAITS, claim(), *more)) == {("d.example", reason): 1}


def test_the_rule_that_refused_it_last_is_the_reason_where_its_driver_is_not() -> None:
    snapshot = world(node(), CLASS, WAITS, claim(), slice_of(grp()))
    assert counts(snapshot, c1="node-overcommit") == {("d.example", "node-overcommit"): 1}
    held = world(node(), CLASS, WAITS, claim(), slice_of(grp()), rollout(hold={"reason": "repair"}))
    assert counts(held, c1="node-overcommit") == {("d.example", "driver-held"): 1}


@pytest.mark.parametrize(
    "objs",
    [
        [claim()],
        [claim(), pod(where="n1")],
        [claim(), pod(status={"phase": "Failed"})],
        [claim(results=[result()], reserved=[pod_ref()]), WAITS],
        [claim(metadata={"deletionTimestamp": "2026-11-20T09:00:00Z"}), WAITS],
    ],
)
def test_claims_that_nobody_waits_for(objs: list[Json]) -> None:
    assert counts(world(node(), CLASS, slice_of(grp()), *objs), c1="node-overcommit") == {}


def test_claims_are_counted_and_those_that_name_no_driver_too() -> None:
    loose = [{"name": "r", "exactly": {"deviceClassName": "none"}}]
    objs = [claim("c1"), claim("c2"), claim("c3", requests=loose)]
    waiting = [pod(f"p{n}", {"c": f"c{n}"}) for n in (1, 2, 3)]
    found = counts(world(node(), CLASS, slice_of(grp()), *objs, *waiting))
    assert found == {("d.example", "unscheduled"): 2, ("", "unscheduled"): 1}


def test_what_is_told_of_a_claim_that_waits() -> None:
    """Since when, who waits and the line for people; of no claim that was not asked about."""
    made = {"creationTimestamp": "2026-11-20T09:00:00Z"}
    waits = pod("p1", {"c": "c1"}, metadata={"creationTimestamp": "2026-11-20T09:00:05Z"})
    objs = [node(), CLASS, claim(metadata=made), claim("c2"), waits, pod("p2", {"c": "c2"})]
    snapshot = world(*objs)
    [told] = pending([snapshot.claims["ns", "c1"]], snapshot, NOW, {})
    assert (told.claim.name, [each.name for each in told.pods], told.driver) == ("c1", ["p1"], "d.example")
    assert told.since is not None
    assert told.since.isoformat() == "2026-11-20T09:00:05+00:00"
    assert told.text == ("no-device-yet: has no slice of d.example, needs one with a device that the claim can have")
    snapshot = world(*objs, slice_of(grp()))
    found = {each.claim.name: each.text for each in pending(snapshot.claims.values(), snapshot, NOW, {"uid-c1": "x"})}
    assert found == {
        "c1": "x: has a refusal of its last allocation, needs one that the guard allows",
        "c2": "unscheduled: has no allocation, needs one by the scheduler; no hold, pool or refusal that is known of "
        "keeps it back",
    }


def test_a_claim_of_pods_that_our_gate_keeps_for_room_in_a_zone_waits_for_that() -> None:
    """Not one that somebody else might give devices: the scheduler may have another of its pods."""
    gate: Json = {"schedulingGates": [{"name": GATE}]}
    waits, free = (
        zones.pod(name, zones.container(claims=("g",)), claims=("g",), node_name="", phase="Pending", **more)
        for name, more in (("p1", gate), ("p2", Json()))
    )
    objs = zone_choice.cpus(), zone_choice.gpus(zones.old("4"))
    snapshot = zone_choice.cluster(*objs, waits)
    assert counts(snapshot) == {("gpu.example", "zone-to-choose"): 1}
    assert counts(zone_choice.cluster(*objs, waits, free)) == {("gpu.example", "unscheduled"): 1}
