"""Stages, canary nodes and holds."""

from datetime import timedelta

import pytest

from tests.facts.builders import (
    NOW,
    as_claim,
    claim,
    device_class,
    gpu,
    grp,
    node,
    result,
    rollout,
    rules,
    samples,
    slice_of,
    world,
)
from webhook.facts.rollout import (
    allocation_rollout_problems,
    held,
    request_hold_problems,
    slice_canary_problems,
)
from webhook.kube.resource import read_slice
from webhook.kube.rollout import read_rollout

HOLD = {"reason": "mapping v7 books half", "by": "on-call", "since": "2026-11-20T09:00:00Z"}
PLAIN = node("n2", labels={})


def allocated(*objs, where="n1", device="grp", pool="n1"):
    write = claim(results=[result(device, pool=pool)], where=where)
    return allocation_rollout_problems(as_claim(write), world(node(), PLAIN, *objs), NOW)


def written(obj, *objs):
    return slice_canary_problems(read_slice(obj), world(node(), PLAIN, *objs))


def digest(*devices):
    (found,) = read_slice(slice_of(*devices)).digests
    return found


@pytest.mark.parametrize(
    ("stage", "where", "expected"),
    [
        ("General", "n1", []),
        ("General", "n2", []),
        ("Canary", "n1", []),
        ("Canary", "n2", ["node-not-canary"]),
        ("Expanding", "n1", []),
        ("Expanding", "n2", ["node-not-canary"]),
        ("Off", "n1", ["stage-off"]),
    ],
)
def test_a_stage_decides_for_allocations_and_slices_alike(stage, where, expected):
    obj = slice_of(grp(), where=where)
    told = rollout(stage=stage)
    assert rules(allocated(obj, told, where=where, pool=where)) == expected
    assert rules(written(obj, told)) == expected


def test_devices_without_costs_are_general():
    obj = slice_of(gpu("a"), where="n2")
    told = rollout(stage="Off")
    assert written(obj, told) == []
    assert allocated(obj, told, where="n2", pool="n2", device="a") == []


def test_a_device_nobody_offers_is_judged_by_its_drivers_habits():
    told = rollout(stage="Canary")
    assert rules(allocated(slice_of(grp()), told, where="n2", pool="n2", device="ghost")) == ["node-not-canary"]
    assert allocated(slice_of(gpu("a")), told, where="n2", pool="n2", device="ghost") == []


def test_without_a_rollout_the_stage_is_general_and_somebody_is_told():
    obj = slice_of(grp())
    for problems in (allocated(obj), written(obj)):
        assert rules(problems) == rules(problems, "info") == ["driver-without-rollout"]


def test_a_canary_stage_without_a_selector_lets_nothing_through():
    told = rollout(stage="Canary", canaryNodeSelector=None)
    assert rules(written(slice_of(grp()), told)) == ["node-not-canary"]


@pytest.mark.parametrize("selector", [[], "x", {"matchLabels": 7}, {"matchExpressions": [{"key": "a"}]}])
def test_a_selector_that_cannot_be_read_lets_nothing_through(selector):
    told = rollout(stage="Canary", canaryNodeSelector=selector)
    assert rules(written(slice_of(grp()), told)) == ["node-not-canary"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ({"key": "ring", "operator": "In", "values": ["one", "two"]}, True),
        ({"key": "ring", "operator": "NotIn", "values": ["one"]}, False),
        ({"key": "ring", "operator": "Exists"}, True),
        ({"key": "ring", "operator": "DoesNotExist"}, False),
        ({"key": "other", "operator": "NotIn", "values": ["one"]}, True),
        ({"key": "other", "operator": "DoesNotExist"}, True),
    ],
)
def test_canary_nodes_are_chosen_by_a_whole_label_selector(expression, expected):
    told = rollout(stage="Canary", canaryNodeSelector={"matchExpressions": [expression]})
    snapshot = world(node(labels={"ring": "one"}), told)
    assert (slice_canary_problems(read_slice(slice_of(grp())), snapshot) == []) is expected


def test_every_node_that_a_slice_selects_has_to_qualify():
    told = rollout(stage="Canary")
    everywhere = slice_of(grp(), where="", pool="shelf", allNodes=True)
    assert rules(written(everywhere, told)) == ["node-not-canary"]
    assert slice_canary_problems(read_slice(everywhere), world(node(), told)) == []
    each = [gpu("a", {"cpu": {}}, nodeName="n1"), gpu("b", nodeName="n2")]
    per_device = slice_of(*each, where="", pool="shelf", perDeviceNodeSelection=True)
    assert written(per_device, told) == []
    each[1]["nodeAllocatableResourceMappings"] = {"cpu": {}}
    assert rules(written(per_device, told)) == ["node-not-canary"]


def test_an_unknown_node_is_doubted_for_a_slice_and_refused_for_an_allocation():
    told, obj = rollout(stage="Canary"), slice_of(grp(), where="n9")
    assert rules(written(obj, told), "warning") == ["node-not-canary"]
    assert rules(allocated(obj, told, where="n9", pool="n9"), "error") == ["node-not-canary"]


def test_a_hold_names_its_reason_who_and_since_when():
    (problem,) = allocated(slice_of(grp()), rollout(hold=HOLD))
    assert problem.rule == "driver-held"
    for part in ("mapping v7 books half", "on-call", "2026-11-20T09:00:00Z", "30m ago"):
        assert part in problem.has


def test_a_hold_ends_at_its_time():
    soon, gone = ((NOW + timedelta(minutes=m)).isoformat() for m in (5, -5))
    assert rules(allocated(slice_of(grp()), rollout(hold={**HOLD, "until": soon}))) == ["driver-held"]
    assert allocated(slice_of(grp()), rollout(hold={**HOLD, "until": gone})) == []
    assert rules(allocated(slice_of(grp()), rollout(hold={**HOLD, "until": "soon"}))) == ["driver-held"]


GOOD, BAD = grp(), grp(nodeAllocatableResourceMappings={"cpu": {"capacityKey": "cpus", "allocationMultiplier": "2"}})


@pytest.mark.parametrize(
    ("devices", "bad", "resume", "expected"),
    [
        ([GOOD], [], [], True),
        ([GOOD], [BAD], [], False),
        ([BAD], [BAD], [], True),
        ([GOOD, {**BAD, "name": "g2"}], [BAD], [], True),
        ([GOOD], [], [GOOD], False),
        ([GOOD], [], [BAD], True),
        ([GOOD, {**BAD, "name": "g2"}], [], [GOOD], True),
        ([GOOD, {**BAD, "name": "g2"}], [], [GOOD, BAD], False),
        ([BAD], [BAD], [BAD], True),
    ],
)
def test_digests_choose_what_is_held_and_what_goes_on(devices, bad, resume, expected):
    hold = {**HOLD, "badMappings": [digest(d) for d in bad]}
    told = rollout(hold=hold, resumeAt={"mappingDigests": [digest(d) for d in resume]})
    assert (rules(allocated(slice_of(*devices), told)) == ["driver-held"]) is expected


def test_a_hold_stops_devices_without_costs_too_and_never_slices():
    obj = slice_of(gpu("a"))
    assert rules(allocated(obj, rollout(hold=HOLD), device="a")) == ["driver-held"]
    assert written(slice_of(grp()), rollout(hold=HOLD)) == []


def test_an_empty_hold_holds():
    assert held(read_rollout(rollout(hold={})), frozenset(), NOW) is not None
    assert held(read_rollout(rollout(hold=None)), frozenset(), NOW) is None
    assert held(None, frozenset(), NOW) is None


def test_each_driver_speaks_once():
    write = claim(results=[result(share="a"), result(share="b")])
    told = world(node(), slice_of(grp()), rollout(hold=HOLD))
    assert rules(allocation_rollout_problems(as_claim(write), told, NOW)) == ["driver-held"]


def asked(*objs, request=None):
    wanted = request or {"name": "r", "exactly": {"deviceClassName": "d"}}
    return request_hold_problems(as_claim(claim(requests=[wanted])), world(node(), device_class(), *objs), NOW)


def test_a_new_claim_is_warned_of_a_held_driver():
    (problem,) = asked(rollout(hold=HOLD))
    assert (problem.rule, problem.severity) == ("driver-held", "warning")
    assert problem.path == "spec.devices.requests[0]"


def test_a_new_claim_is_warned_of_a_driver_that_is_off():
    assert rules(asked(slice_of(grp()), rollout(stage="Off")), "warning") == ["stage-off"]


def test_a_driver_that_is_off_still_serves_with_what_costs_nothing():
    assert asked(slice_of(grp(), gpu("a")), rollout(stage="Off")) == []


def test_a_new_claim_is_not_warned_where_another_driver_could_serve_it():
    other = device_class("e", "e.example")
    choice = {"name": "r", "firstAvailable": [{"name": n, "deviceClassName": n} for n in ("d", "e")]}
    assert asked(other, rollout(hold=HOLD), request=choice) == []
    assert rules(asked(other, rollout(hold=HOLD), rollout("e.example", hold=HOLD), request=choice)) == [
        "driver-held",
        "driver-held",
    ]


def test_a_hold_of_some_mappings_is_no_news_for_a_new_claim():
    assert asked(rollout(hold={**HOLD, "badMappings": [digest(GOOD)]})) == []


def test_the_samples():
    snapshot = world(*samples("01", "02", "03", "04", "05", "06", "07", "08", "15", "24"))
    for obj in samples("02", "03", "05", "06", "07", "08"):
        assert slice_canary_problems(read_slice(obj), snapshot) == [], obj["metadata"]["name"]
    (wide,) = samples("04")
    assert rules(slice_canary_problems(read_slice(wide), snapshot)) == ["node-not-canary"]
    bad = {obj["metadata"]["name"]: obj for obj in samples("16")}
    assert rules(allocation_rollout_problems(as_claim(bad["not-canary"]), snapshot, NOW)) == ["node-not-canary"]
    for obj in samples("15"):
        assert allocation_rollout_problems(as_claim(obj), snapshot, NOW) == []


def test_an_allocation_of_no_one_node_is_judged_by_the_nodes_its_devices_are_for():
    shelf = slice_of(grp(), where="", pool="n1", allNodes=True)
    assert rules(allocated(shelf, rollout(stage="Canary"), where="")) == ["node-not-canary"]
    write = claim(results=[result()], where="")
    snapshot = world(node(), shelf, rollout(stage="Canary"))
    assert allocation_rollout_problems(as_claim(write), snapshot, NOW) == []


def test_a_claim_without_allocation_is_judged_by_no_stage():
    assert allocation_rollout_problems(as_claim(claim()), world(rollout(stage="Off", hold=HOLD)), NOW) == []
