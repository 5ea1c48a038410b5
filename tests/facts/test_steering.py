"""Canary nodes that pods need, and the patches that steer them; patches are applied by a library of its own."""

from copy import deepcopy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.facts.builders import (
    CANARY,
    as_pod,
    claim,
    device_class,
    gpu,
    grp,
    node,
    pod,
    result,
    rollout,
    rules,
    slice_of,
    world,
)
from tests.facts.test_pod_needs import from_template, template
from webhook.facts import steering
from webhook.facts.matching import node_selected
from webhook.facts.rollout import qualifies
from webhook.facts.steering import (
    MOST_LOOKS,
    affinity_patch,
    canary_problems,
    canary_terms,
    gate_patch,
    hostnames_patch,
    ungate_patch,
)
from webhook.kube.core import GATE, Node, read_node
from webhook.kube.rollout import DriverRollout

Json = dict[str, Any]

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
YES = ({"key": "example.org/canary", "operator": "In", "values": ["yes"]},)
WHOLE, PLAIN = slice_of(grp()), node("n2", labels={})
CLASSES = [device_class(), device_class("e", "e.example"), {**device_class("any"), "spec": {}}]


def terms(*objs: Json, asking: Json | None = None, requests: list[Json] | None = None):
    snapshot = world(node(), PLAIN, *CLASSES, claim(requests=requests), *objs)
    asked = as_pod(asking or pod())
    found = canary_terms(asked, snapshot)
    assert not (found and canary_problems(asked, snapshot))
    return found


def ring(value: str, driver: str = "e.example") -> Json:
    return rollout(driver, stage="Canary", canaryNodeSelector={"matchLabels": {"ring": value}})


def rings(*values: str) -> Json:
    return {"key": "ring", "operator": "In", "values": list(values)}


def both(*classes: str) -> list[Json]:
    return [{"name": f"r{n}", "exactly": {"deviceClassName": name}} for n, name in enumerate(classes)]


def either(*classes: str) -> list[Json]:
    return [{"name": "r", "firstAvailable": [{"name": name, "deviceClassName": name} for name in classes]}]


@pytest.mark.parametrize(
    ("objs", "expected"),
    [
        pytest.param([WHOLE, rollout(stage="Canary")], (YES,), id="canary"),
        pytest.param([WHOLE, rollout(stage="Expanding")], (YES,), id="expanding"),
        pytest.param([rollout(stage="Canary")], (YES,), id="nothing published yet"),
        pytest.param([WHOLE], (), id="no rollout"),
        pytest.param([WHOLE, rollout(stage="General")], (), id="general"),
        pytest.param([WHOLE, rollout(stage="Off")], (), id="off: no node is good"),
        pytest.param([WHOLE, rollout(stage="Canary", canaryNodeSelector={})], (), id="every node is a canary"),
        pytest.param([WHOLE, rollout(stage="Canary", canaryNodeSelector=None)], (), id="no node is one"),
        pytest.param(
            [WHOLE, rollout(stage="Canary", canaryNodeSelector={"matchExpressions": [{"key": "a"}]})],
            (),
            id="a selector that cannot be read matches no node",
        ),
        pytest.param(
            [WHOLE, slice_of(gpu("a"), name="s2", where="n2"), rollout(stage="Canary")],
            (),
            id="the old driver serves other nodes as before",
        ),
        pytest.param(
            [WHOLE, slice_of(gpu("a"), name="s2"), rollout(stage="Canary")],
            (YES,),
            id="the old driver on a canary node",
        ),
        pytest.param(
            [slice_of(gpu("a"), where="", pool="shelf", allNodes=True), rollout(stage="Canary")],
            (),
            id="costless devices for all nodes",
        ),
    ],
)
def test_which_canary_nodes_a_pod_needs(objs: list[Json], expected: tuple[Any, ...]) -> None:
    assert terms(*objs) == expected
    assert terms(*objs, template(), asking=from_template("t")) == expected


def test_a_selector_is_taken_whole_and_in_one_order() -> None:
    rows = [{"key": "z", "operator": "Exists"}, {"key": "a", "operator": "NotIn", "values": ["2", "1"]}]
    selector = {"matchLabels": {"m": "1"}, "matchExpressions": rows}
    (found,) = terms(WHOLE, rollout(stage="Canary", canaryNodeSelector=selector))
    assert found == (
        {"key": "a", "operator": "NotIn", "values": ["1", "2"]},
        {"key": "m", "operator": "In", "values": ["1"]},
        {"key": "z", "operator": "Exists"},
    )


def test_each_device_is_judged_by_its_own_nodes() -> None:
    told = rollout(stage="Canary")
    here = [grp("a", nodeName="n1"), gpu("b", nodeName="n1")]
    assert terms(slice_of(*here, where="", pool="shelf", perDeviceNodeSelection=True), told) == (YES,)
    there = [grp("a", nodeName="n1"), gpu("b", nodeName="n2")]
    assert terms(slice_of(*there, where="", pool="shelf", perDeviceNodeSelection=True), told) == ()


def test_very_many_devices_without_costs_are_told_by_some(monkeypatch: pytest.MonkeyPatch) -> None:
    told, names = rollout(stage="Canary"), [f"m{n}" for n in range(2 * MOST_LOOKS)]
    slices = [slice_of(gpu("a"), name=name, where=name) for name in names]
    looked: list[str] = []

    def counted(each: DriverRollout, at: Node) -> bool:
        looked.append(at.name)
        return qualifies(each, at)

    monkeypatch.setattr(steering, "qualifies", counted)
    assert terms(WHOLE, told, *map(node, names), *slices) == (YES,)
    # Canary terms and problems are asked for one after the other.
    assert len(looked) == 2 * MOST_LOOKS
    assert terms(WHOLE, told, *(node(name, labels={}) for name in names), *slices) == ()
    assert len(looked) < 2 * MOST_LOOKS + 3


def test_devices_without_costs_on_nodes_that_are_hard_to_find_may_be_anywhere() -> None:
    told = rollout(stage="Canary")
    names = [f"m{n}" for n in range(2 * MOST_LOOKS)]
    term = {"matchExpressions": [{"key": "rack", "operator": "Exists"}]}
    rack = slice_of(gpu("a"), where="", pool="rack", nodeSelector={"nodeSelectorTerms": [term]})
    assert terms(WHOLE, told, rack, *map(node, names[:9])) == (YES,)
    assert terms(WHOLE, told, rack, *map(node, names)) == ()


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        (both("d", "e"), ((*YES, rings("one")),)),
        (either("d", "e"), (YES, (rings("one"),))),
        (both("d", "d"), (YES,)),
        ([*either("d", "e"), *both("d")], (YES,)),
        (either("d", "any"), ()),
        (both("d", "any"), (YES,)),
        (both("unknown"), ()),
    ],
)
def test_requests_are_joined_and_drivers_are_alternatives(requests: list[Json], expected: tuple[Any, ...]) -> None:
    assert terms(WHOLE, rollout(stage="Canary"), ring("one"), requests=requests) == expected


def test_a_driver_that_serves_every_node_makes_the_request_free() -> None:
    for other in (rollout("e.example"), slice_of(grp(), name="e1", driver="e.example")):
        assert terms(WHOLE, rollout(stage="Canary"), other, requests=either("d", "e")) == ()
    off = [slice_of(grp(), name="e1", driver="e.example"), rollout("e.example", stage="Off")]
    assert terms(WHOLE, rollout(stage="Canary"), *off, requests=either("d", "e")) == (YES,)


def test_a_claim_that_is_allocated_needs_no_steering() -> None:
    taken = claim("c2", results=[result()])
    assert terms(WHOLE, rollout(stage="Canary"), taken, asking=pod(claims={"a": "c2"})) == ()
    assert terms(WHOLE, rollout(stage="Canary"), taken, asking=pod(claims={"a": "c2", "b": "c1"})) == (YES,)


def test_too_many_combinations_steer_nothing_and_are_told() -> None:
    def asked(count: int) -> tuple[Any, ...]:
        names = [f"x{n}" for n in range(2 * count)]
        objs = [device_class(name, f"{name}.example") for name in names]
        objs += [ring(name, f"{name}.example") for name in names]
        requests = [{**either(*names[n : n + 2])[0], "name": f"r{n}"} for n in range(0, 2 * count, 2)]
        snapshot = world(node(), claim(requests=requests), *objs)
        return canary_terms(as_pod(pod()), snapshot), canary_problems(as_pod(pod()), snapshot)

    four, problems = asked(4)
    assert (len(four), problems) == (16, [])
    five, problems = asked(5)
    assert (five, rules(problems, "warning")) == ((), ["canary-terms"])


EXPRESSION = st.one_of(
    st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": values},
        st.sampled_from("abc"),
        st.sampled_from(["In", "NotIn"]),
        st.lists(st.sampled_from("123"), min_size=1, max_size=2, unique=True),
    ),
    st.builds(
        lambda key, operator: {"key": key, "operator": operator},
        st.sampled_from("abc"),
        st.sampled_from(["Exists", "DoesNotExist"]),
    ),
)
FIELD = st.builds(
    lambda value, operator: {"key": "metadata.name", "operator": operator, "values": [value]},
    st.sampled_from(["n1", "n2"]),
    st.sampled_from(["In", "NotIn"]),
)
TERM = st.fixed_dictionaries(
    {},
    optional={
        "matchExpressions": st.one_of(st.none(), st.lists(EXPRESSION, max_size=3)),
        "matchFields": st.lists(FIELD, max_size=1),
    },
)
TERMS = st.lists(st.lists(EXPRESSION, min_size=1, max_size=2), min_size=1, max_size=3)
NODES = [
    read_node(node(name, labels={key: value for key, value in zip("abc", values, strict=True) if value}))
    for name in ("n1", "n2")
    for values in [(x, y, z) for x in ("", "1", "2") for y in ("", "1", "3") for z in ("", "2")]
]


@st.composite
def pods(draw: st.DrawFn) -> Json:
    """Pods with no affinity, with parts of one, and with required terms, some of them empty."""
    made = pod()
    preferred = [{"weight": 1, "preference": {"matchExpressions": [rings("one")]}}]
    required = {REQUIRED: {"nodeSelectorTerms": draw(st.lists(TERM, min_size=1, max_size=3))}}
    affinity = draw(
        st.sampled_from(
            [
                None,
                {},
                {"nodeAffinity": None},
                {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}},
                {"podAffinity": {}, "nodeAffinity": required},
                {"nodeAffinity": required},
            ]
        )
    )
    if affinity is not None or draw(st.booleans()):
        made["spec"]["affinity"] = affinity
    return made


def required_terms(obj: Json) -> list[Json] | None:
    affinity = (obj["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    return affinity[REQUIRED]["nodeSelectorTerms"] if REQUIRED in affinity else None


def takes(obj: Json, where: Node) -> bool:
    rows = required_terms(obj)
    return rows is None or node_selected({"nodeSelectorTerms": rows}, where)


def patched(obj: Json, patch: list[Json]) -> Json:
    before = deepcopy(obj)
    after: Json = jsonpatch.apply_patch(obj, deepcopy(patch))
    assert obj == before
    return after


@given(pods(), TERMS)
def test_a_patched_pod_goes_where_it_went_as_far_as_the_terms_let_it(obj: Json, wanted: list[list[Json]]) -> None:
    after = patched(obj, affinity_patch(obj, wanted))
    canary = {"nodeSelectorTerms": [{"matchExpressions": term} for term in wanted]}
    for where in NODES:
        assert takes(after, where) == (takes(obj, where) and node_selected(canary, where))


@given(pods(), TERMS)
def test_patching_twice_is_patching_once(obj: Json, wanted: list[list[Json]]) -> None:
    after = patched(obj, affinity_patch(obj, wanted))
    assert affinity_patch(after, wanted) == []


@given(pods(), TERMS)
def test_what_the_user_wrote_stays(obj: Json, wanted: list[list[Json]]) -> None:
    after = patched(obj, affinity_patch(obj, wanted))
    old, new = required_terms(obj), required_terms(after)
    assert new is not None
    for index, term in enumerate(old or ()):
        own = term.get("matchExpressions") or []
        if not own and not term.get("matchFields"):
            assert new[index] == term
        assert (new[index].get("matchExpressions") or [])[: len(own)] == own
        assert new[index].get("matchFields") == term.get("matchFields")
    # Without the required terms the pod is what it was.
    for each in (obj, after):
        affinity = each["spec"].get("affinity") or {}
        affinity = {**affinity, "nodeAffinity": dict(affinity.get("nodeAffinity") or {})}
        affinity["nodeAffinity"].pop(REQUIRED, None)
        each["spec"]["affinity"] = affinity
    assert after == obj


@given(pods(), st.lists(st.sampled_from(["h1", "h2", "h3"]), min_size=1, unique=True))
def test_hostnames_take_one_expression_in_every_term_and_no_new_term(obj: Json, names: list[str]) -> None:
    after = patched(obj, hostnames_patch(obj, names))
    one = {"key": "kubernetes.io/hostname", "operator": "In", "values": names}
    old, new = required_terms(obj), required_terms(after)
    assert new is not None
    if old is None:
        assert new == [{"matchExpressions": [one]}]
    else:
        assert len(new) == len(old)
        for was, now in zip(old, new, strict=True):
            said = was.get("matchExpressions") or []
            empty = not said and not was.get("matchFields")
            assert now == was if empty else now["matchExpressions"] == [*said, one]
    assert hostnames_patch(after, names) == []


def test_no_hostname_is_no_node_and_not_every_node() -> None:
    with pytest.raises(ValueError, match="has no hostname"):
        hostnames_patch(pod(), [])


def test_several_alternatives_make_copies_of_a_term() -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    rows = [
        {},
        {"matchExpressions": [{"key": "a", "operator": "Exists"}], "matchFields": [field]},
        {"matchFields": [field]},
    ]
    obj = pod(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": rows}}})
    after = patched(obj, affinity_patch(obj, [[rings("one")], [rings("two")]]))
    exists = {"key": "a", "operator": "Exists"}
    assert required_terms(after) == [
        {},
        {"matchExpressions": [exists, rings("one")], "matchFields": [field]},
        {"matchFields": [field], "matchExpressions": [rings("one")]},
        {"matchExpressions": [exists, rings("two")], "matchFields": [field]},
        {"matchFields": [field], "matchExpressions": [rings("two")]},
    ]


MIRROR = {"annotations": {"kubernetes.io/config.mirror": "x"}}
ALWAYS = [[{"key": "example.org/canary", "operator": "In", "values": ["yes"]}]]


@pytest.mark.parametrize(
    "obj", [pod(where="n1"), pod(metadata=MIRROR), {}, {"spec": 7}, {"metadata": [], "spec": None}]
)
def test_pods_that_nobody_schedules_are_left_alone(obj: Json) -> None:
    assert affinity_patch(obj, ALWAYS) == gate_patch(obj, GATE) == hostnames_patch(obj, ["h"]) == []


@pytest.mark.parametrize(
    "affinity",
    [
        "x",
        {"nodeAffinity": []},
        {"nodeAffinity": {REQUIRED: "x"}},
        {"nodeAffinity": {REQUIRED: {}}},
        {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}},
        {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": ["x", None, {"matchExpressions": "x"}]}}},
    ],
)
def test_what_the_api_server_refuses_is_not_made_good(affinity: Any) -> None:
    assert affinity_patch(pod(affinity=affinity), ALWAYS) == []


def test_no_terms_and_terms_without_requirements_change_nothing() -> None:
    assert affinity_patch(pod(), []) == []
    assert affinity_patch(pod(), [*ALWAYS, []]) == []


def test_the_terms_of_a_pod_are_what_its_patch_takes() -> None:
    (term,) = terms(WHOLE, rollout(stage="Canary"))
    after = patched(pod(), affinity_patch(pod(), [term]))
    assert [takes(after, read_node(node(labels=labels))) for labels in (CANARY, {})] == [True, False]


OTHER = {"name": "other.example/gate"}


@pytest.mark.parametrize("gates", [None, [], [OTHER]])
def test_a_gate_comes_once_and_goes_again(gates: list[Json] | None) -> None:
    obj = pod(schedulingGates=gates) if gates is not None else pod()
    held = patched(obj, gate_patch(obj, GATE))
    assert [gate["name"] for gate in held["spec"]["schedulingGates"]] == [*(g["name"] for g in gates or ()), GATE]
    assert gate_patch(held, GATE) == []
    freed = patched(held, ungate_patch(held, GATE))
    assert freed["spec"]["schedulingGates"] == (gates or [])
    assert ungate_patch(freed, GATE) == []


def test_another_gate_in_the_place_of_ours_is_not_taken_away() -> None:
    held = pod(schedulingGates=[OTHER, {"name": GATE}])
    moved = pod(schedulingGates=[{"name": GATE}, OTHER])
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        patched(moved, ungate_patch(held, GATE))


def test_null_gates_are_none() -> None:
    obj = pod(schedulingGates=None)
    assert patched(obj, gate_patch(obj, GATE))["spec"]["schedulingGates"] == [{"name": GATE}]
