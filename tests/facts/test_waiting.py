"""Why pods wait, and that it is said as the refusal of the allocation says it."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tests.facts.builders import (
    NOW,
    as_claim,
    as_pod,
    claim,
    device_class,
    gpu,
    grp,
    node,
    pod,
    result,
    rollout,
    slice_of,
    world,
)
from tests.facts.test_pod_needs import from_template, template
from webhook.facts.pools import allocation_pool_problems
from webhook.facts.rollout import allocation_rollout_problems
from webhook.facts.stopped_pool import stopped_pool
from webhook.facts.waiting import Waiting, waiting
from webhook.kube.resource import read_slice

Json = dict[str, Any]

HOLD = {"reason": "mapping v7 books half", "by": "on-call", "since": "2026-11-20T09:00:00Z"}
PLAIN = node("n2", labels={})
ASKED, MADE = pod(), claim()
OTHER = device_class("e", "e.example")


def reason(*objs: Json, asking: Json = ASKED, most: int | None = None, cls: Json | None = None):
    snapshot = world(node(), PLAIN, cls or device_class(), MADE, *objs)
    return waiting(as_pod(asking), snapshot, NOW, most)


def rule(*objs: Json, **how: Any) -> str:
    found = reason(*objs, **how)
    return "" if found is None else found.rule


def digest(device: Json) -> str:
    (found,) = read_slice(slice_of(device)).digests
    return found


GOOD, BAD = grp(), grp(nodeAllocatableResourceMappings={"cpu": {"capacityKey": "cpus", "allocationMultiplier": "2"}})
WHOLE, HALF = slice_of(GOOD), slice_of(GOOD, count=2)
SECOND = slice_of(GOOD, name="s2", where="n2")


@pytest.mark.parametrize(
    ("objs", "expected"),
    [
        pytest.param([WHOLE], "", id="all is well"),
        pytest.param([], "", id="nothing published: a node with such devices may come"),
        pytest.param([slice_of(gpu("a"))], "", id="an old driver without costs"),
        pytest.param([slice_of(gpu("a"), count=2)], "", id="an old driver's half-written pool"),
        pytest.param([WHOLE, rollout(hold=HOLD)], "driver-held", id="held"),
        pytest.param([rollout(hold=HOLD)], "driver-held", id="held and nothing published"),
        pytest.param([slice_of(gpu("a")), rollout(hold=HOLD)], "driver-held", id="an old driver, held"),
        pytest.param([WHOLE, rollout(hold={})], "driver-held", id="held without a reason"),
        pytest.param([WHOLE, rollout(stage="Off")], "stage-off", id="off"),
        pytest.param([slice_of(gpu("a")), rollout(stage="Off")], "", id="off, without costs"),
        pytest.param([slice_of(gpu("a"), GOOD), rollout(stage="Off")], "", id="off, a costless device beside"),
        pytest.param(
            [WHOLE, slice_of(gpu("a"), name="s2", where="n2"), rollout(stage="Off")], "", id="off, costless elsewhere"
        ),
        pytest.param([HALF], "pool-incomplete", id="half-written"),
        pytest.param([HALF, SECOND], "", id="half-written, another pool whole"),
        pytest.param([SECOND, rollout(stage="Canary")], "node-not-canary", id="its node lost the label"),
        pytest.param([WHOLE, SECOND, rollout(stage="Canary")], "", id="another node has the label"),
        pytest.param([WHOLE, rollout(stage="Canary", canaryNodeSelector=None)], "node-not-canary", id="no selector"),
        pytest.param([WHOLE, rollout(stage="Canary", canaryNodeSelector={})], "", id="a selector of everything"),
        pytest.param([slice_of(gpu("a"), where="n2"), rollout(stage="Canary")], "", id="costless outside the canary"),
    ],
)
def test_what_a_pod_waits_for(objs: list[Json], expected: str) -> None:
    assert rule(*objs) == expected
    # One snapshot asked about many pods says the same.
    snapshot = world(node(), PLAIN, device_class(), MADE, *objs)
    moment = Waiting(snapshot, NOW)
    assert moment.pod(as_pod(ASKED)) == moment.pod(as_pod(ASKED)) == waiting(as_pod(ASKED), snapshot, NOW)


@pytest.mark.parametrize(
    "objs",
    [
        pytest.param([WHOLE, rollout(hold=HOLD)], id="held"),
        pytest.param([WHOLE, rollout(hold={**HOLD, "badMappings": [digest(GOOD)]})], id="a bad mapping"),
        pytest.param([WHOLE, rollout(stage="Off")], id="off"),
        pytest.param([slice_of(GOOD, pool="n1", where="n2"), rollout(stage="Canary")], id="no canary node"),
        pytest.param([HALF], id="half-written"),
        pytest.param([WHOLE, slice_of(GOOD, name="old", generation=0)], id="rebuilding"),
        pytest.param([WHOLE, rollout(freshness={"heartbeat": "60s"})], id="no heartbeat"),
    ],
)
def test_the_text_is_that_of_the_refusal(objs: list[Json]) -> None:
    found = reason(*objs)
    where = next(obj["spec"]["nodeName"] for obj in objs if obj["kind"] == "ResourceSlice")
    write = as_claim(claim(results=[result()], where=where))
    snapshot = world(node(), PLAIN, device_class(), MADE, *objs)
    refused = allocation_rollout_problems(write, snapshot, NOW) + allocation_pool_problems(write, snapshot, NOW)
    assert found is not None
    assert (found.rule, found.has, found.needs, found.fix) in [(f.rule, f.has, f.needs, f.fix) for f in refused]


def test_a_wiped_driver_is_waited_for_as_long_as_something_is_bound() -> None:
    bound = claim("c9", results=[result()])
    canary = rollout(stage="Canary")
    assert rule(bound, canary) == "pool-gone"
    assert rule(bound, canary, WHOLE) == ""
    assert rule(canary) == ""


def test_a_stale_view_says_so() -> None:
    old = NOW - timedelta(seconds=200)
    snapshot = world(node(), device_class(), MADE, WHOLE)
    stale = replace(snapshot, seen=snapshot.seen.set("ResourceSlice", old))
    found = waiting(as_pod(ASKED), stale, NOW)
    assert found is not None
    assert found.rule == "view-stale"
    # The clock went back: what was seen in the future is not old.
    ahead = replace(snapshot, seen=snapshot.seen.set("ResourceSlice", NOW + timedelta(hours=1)))
    assert waiting(as_pod(ASKED), ahead, NOW) is None


@pytest.mark.parametrize(
    ("bad", "resume", "expected"),
    [
        ([BAD], [], ""),
        ([GOOD], [], "driver-held"),
        ([], [GOOD], ""),
        ([], [BAD], "driver-held"),
        ([GOOD], [GOOD], "driver-held"),
    ],
)
def test_holds_of_mappings_and_resumes_at_them(bad: list[Json], resume: list[Json], expected: str) -> None:
    digests = {"mappingDigests": [digest(each) for each in resume]}
    told = rollout(hold={**HOLD, "badMappings": [digest(each) for each in bad]}, resumeAt=digests)
    assert rule(WHOLE, told) == expected


def test_one_pool_with_another_mapping_lets_the_pod_go_on() -> None:
    told = rollout(hold={**HOLD, "badMappings": [digest(BAD)]})
    assert rule(slice_of(BAD), told) == "driver-held"
    assert rule(slice_of(BAD), SECOND, told) == ""


def test_a_hold_ends_by_itself_and_stands_when_the_clock_jumps() -> None:
    gone, soon = ((NOW + timedelta(minutes=m)).isoformat() for m in (-1, 1))
    assert rule(WHOLE, rollout(hold={**HOLD, "until": gone})) == ""
    assert rule(WHOLE, rollout(hold={**HOLD, "until": soon})) == "driver-held"
    later = (NOW + timedelta(hours=2)).isoformat()
    found = reason(WHOLE, rollout(hold={**HOLD, "since": later}))
    assert found is not None
    assert later in found.has
    assert "ago" not in found.has


def requests(*classes: str) -> list[Json]:
    return [{"name": f"r{n}", "exactly": {"deviceClassName": name}} for n, name in enumerate(classes)]


def first_of(*classes: str) -> list[Json]:
    return [{"name": "r", "firstAvailable": [{"name": name, "deviceClassName": name} for name in classes]}]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (requests("e"), ""),
        (requests("e", "d"), "driver-held"),
        (first_of("d", "e"), ""),
        (first_of("d"), "driver-held"),
        # Nothing of the class is there, so the held driver is what the pod waits for.
        (first_of("f", "d"), "driver-held"),
        # A class that nobody knows, or that names no driver, may be anything.
        (requests("unknown"), ""),
        (first_of("d", "any"), ""),
    ],
)
def test_every_request_needs_something_usable(asked: list[Json], expected: str) -> None:
    anything = {**device_class("any"), "spec": {}}
    classes = [OTHER, device_class("f", "f.example"), anything]
    objs = [WHOLE, slice_of(GOOD, name="e1", driver="e.example"), rollout(hold=HOLD), *classes]
    assert rule(*objs, claim("c2", requests=asked), asking=pod(claims={"c": "c2"})) == expected
    assert rule(*objs, template(requests=asked), asking=from_template("t")) == expected


def test_what_is_allocated_waits_for_nothing_and_its_neighbour_may() -> None:
    taken = claim("c2", results=[result()])
    objs = [WHOLE, rollout(hold=HOLD), taken]
    assert rule(*objs, asking=pod(claims={"a": "c2"})) == ""
    assert rule(*objs, asking=pod(claims={"a": "c2", "b": "c1"})) == "driver-held"
    assert rule(*objs, asking=pod(claims={})) == ""


def test_a_review_looks_at_so_many_pools_and_takes_the_others_to_be_like_them(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [node(f"m{n}") for n in range(9)]
    halves = [slice_of(GOOD, name=f"h{n}", where=f"m{n}", count=2) for n in range(9)]
    looked: list[str] = []

    def counted(snapshot: Any, driver: str, pool: str, now: Any) -> Any:
        looked.append(pool)
        return stopped_pool(snapshot, driver, pool, now)

    monkeypatch.setattr("webhook.facts.waiting.stopped_pool", counted)
    assert rule(*nodes, *halves, most=9) == rule(*nodes, *halves) == "pool-incomplete"
    assert len(looked) == 18
    looked.clear()
    assert rule(*nodes, *halves, most=2) == "pool-incomplete"
    assert len(looked) == 2
    # One that is not looked at may be whole: who looks at all lets the pod go.
    last = next(n for n in range(9) if f"m{n}" not in looked)
    halves[last] = slice_of(GOOD, name=f"h{last}", where=f"m{last}")
    assert rule(*nodes, *halves, most=2) == "pool-incomplete"
    assert rule(*nodes, *halves) == ""
    # Of those that are looked at, one that is usable is enough.
    first = int(looked[0][1:])
    halves[first] = slice_of(GOOD, name=f"h{first}", where=f"m{first}")
    assert rule(*nodes, *halves, most=2) == ""


@pytest.mark.parametrize("most", [64, None])
def test_a_fleet_of_many_pools_that_rebuilds_or_is_held_by_digest_is_waited_for(most: int | None) -> None:
    nodes = [node(f"m{n}") for n in range(70)]
    bad = [slice_of(BAD, name=f"h{n}", where=f"m{n}") for n in range(70)]
    assert rule(*nodes, *bad, most=most) == ""
    assert rule(*nodes, *bad, rollout(hold={**HOLD, "badMappings": [digest(BAD)]}), most=most) == "driver-held"
    halves = [slice_of(GOOD, name=f"h{n}", where=f"m{n}", count=2) for n in range(70)]
    assert rule(*nodes, *halves, most=most) == "pool-incomplete"
    bound = [claim(f"b{n}", results=[result(pool=f"m{n}")]) for n in range(70)]
    assert rule(*nodes, *bound, rollout(stage="Canary"), most=most) == "pool-gone"


def wide(number: int, **fields: Any) -> list[Json]:
    """A pool that is not whole, with a slice for each of 60 nodes."""
    names = [f"w{number}-{n}" for n in range(60)]
    slices = [slice_of(GOOD, name=name, where=name, pool=f"p{number}", count=61, **fields) for name in names]
    return [*map(node, names), *slices]


def test_a_review_looks_at_as_many_wide_pools_as_takes_little() -> None:
    one = wide(1)
    assert rule(*one, most=64) == "pool-incomplete"
    two = [*one, *wide(2)]
    assert rule(*two, most=64) == "pool-incomplete"
    # Pools of few slices come first, so that most are looked at.
    narrow = slice_of(GOOD, name="z", where="w1-0", pool="z")
    assert rule(*two, narrow, most=64) == ""
    assert rule(*two) == "pool-incomplete"


def test_a_review_does_not_look_for_the_nodes_of_very_many_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    term = {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "Exists"}]}
    racks = [
        slice_of(grp(f"d{n}"), name=f"r{n}", where="", pool="p", count=9, nodeSelector={"nodeSelectorTerms": [term]})
        for n in range(8)
    ]
    nodes = [node(f"m{n}", labels={"kubernetes.io/os": "linux"}) for n in range(700)]
    assert rule(*nodes[:300], *racks, most=64) == "pool-incomplete"
    assert rule(*nodes, *racks, most=64) == ""
    monkeypatch.setattr("webhook.facts.waiting._MOST_LOOKS", 7)
    assert rule(*nodes[:300], *racks, most=64) == ""
    assert rule(*nodes, *racks) == "pool-incomplete"


def test_the_reason_does_not_depend_on_what_was_heard_of_first() -> None:
    nodes = [node(f"m{n}") for n in range(9)]
    halves = [slice_of(GOOD, name=f"h{n}", where=f"m{n}", count=2) for n in range(9)]
    found, backwards = reason(*nodes, *halves), reason(*nodes, *reversed(halves))
    assert found == backwards
    assert found is not None
    assert "pool m0 of" in found.has
