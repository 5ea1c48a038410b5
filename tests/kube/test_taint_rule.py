"""Rules that taint devices: their names, what they say, and what of a stored one is put right."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from webhook.kube.release import KNOWN_GATES
from webhook.kube.taint_rule import GATE, VERSIONS, ours, put_right, rule_name, taint_rule

WANTED = taint_rule("v1", "d.example", "n1", "", "pool-incomplete", "pool-incomplete: has 1 of 2 slices")
STORED = deepcopy(WANTED)
STORED["metadata"] |= {"uid": "u", "resourceVersion": "7"}
STORED["spec"]["taint"]["timeAdded"] = "2026-11-20T09:00:00Z"


def changed(obj: dict[str, Any], place: str, value: Any) -> dict[str, Any]:
    """A copy of ``obj`` with ``value`` at ``place``, removed where it is None."""
    made = deepcopy(obj)
    *parents, last = place.split(".")
    inner = made
    for each in parents:
        inner = inner[each]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return made


@pytest.mark.parametrize(
    ("place", "selector"),
    [
        (("d.example", "", ""), {"driver": "d.example"}),
        (("d.example", "n1", ""), {"driver": "d.example", "pool": "n1"}),
        (("d.example", "n1", "gpu-0"), {"driver": "d.example", "pool": "n1", "device": "gpu-0"}),
    ],
)
def test_a_rule_selects_what_it_is_named_after(place: tuple[str, str, str], selector: dict[str, str]) -> None:
    made = taint_rule("v1beta2", *place, "driver-held", "why")
    assert made["apiVersion"] == "resource.k8s.io/v1beta2"
    assert made["spec"] == {
        "deviceSelector": selector,
        "taint": {"key": "allocguard.dev/driver-held", "effect": "NoSchedule"},
    }
    assert made["metadata"]["name"] == rule_name(*place)
    assert made["metadata"]["annotations"] == {"allocguard.dev/reason": "why"}
    assert ours(made)


def test_names_differ_where_places_do() -> None:
    places = [("d", "", ""), ("d", "n", ""), ("d", "n", "x"), ("d", "", "n"), ("e", "n", "x")]
    assert len({rule_name(*place) for place in places}) == len(places)


def test_a_reason_is_one_line_and_no_book() -> None:
    made = taint_rule("v1", "d.example", "", "", "driver-held", "first\nsecond\x1b[0m" + "x" * 5000)
    said = made["metadata"]["annotations"]["allocguard.dev/reason"]
    assert said.startswith("first second [0mxxx")
    assert len(said) == 1024


def test_what_is_ours_is_told_by_the_name() -> None:
    assert ours({"metadata": {"name": STORED["metadata"]["name"]}})
    assert not ours(changed(STORED, "metadata.name", "allocguard-of-mine")), "somebody else's with our label"
    assert not ours({})


def test_what_is_right_is_left_as_it_is() -> None:
    assert put_right(STORED, WANTED) == STORED
    theirs = changed(STORED, "metadata.labels.team", "a")
    assert put_right(theirs, WANTED) == theirs


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("spec.taint.effect", "NoExecute"),
        ("spec.taint.key", "else.example/key"),
        ("spec.taint.value", "yes"),
        ("spec.deviceSelector.pool", None),
        ("spec.deviceSelector.device", "gpu-0"),
        ("spec.deviceSelector", None),
        ("metadata.labels", {}),
        ("metadata.annotations", {"allocguard.dev/reason": "nonsense"}),
    ],
)
def test_what_somebody_edited_is_put_right(place: str, value: Any) -> None:
    edited = changed(STORED, place, value)
    assert edited != STORED
    assert put_right(edited, WANTED) == STORED


def test_the_gate_is_one_that_is_known() -> None:
    assert GATE in KNOWN_GATES
    assert VERSIONS[0] == "v1"
