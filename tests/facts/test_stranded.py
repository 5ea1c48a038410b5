from __future__ import annotations

from typing import Any

import pytest

from tests.facts.builders import claim, gpu, grp, node, pod, pod_ref, result, slice_of, world
from webhook.facts.stranded import stranded

Json = dict[str, Any]

LEFT = claim(results=[result()])
WAITS = pod()


def names(*objs: Json, minor: int = 36) -> list[tuple[str, str]]:
    return [(each.name, user.name) for each, user in stranded(world(node(), *objs, minor=minor))]


def test_an_allocation_that_is_left_and_needed() -> None:
    assert names(slice_of(grp()), LEFT, WAITS) == [("c1", "p1")]


def test_it_is_found_once_whoever_waits_for_it() -> None:
    assert names(slice_of(grp()), LEFT, WAITS, pod("p2")) == [("c1", "p1")]


@pytest.mark.parametrize(
    "objs",
    [
        [slice_of(grp()), claim(results=[result()], reserved=[pod_ref()]), WAITS],
        [slice_of(grp()), claim(), WAITS],
        [slice_of(gpu("grp")), LEFT, WAITS],
        [slice_of(grp()), LEFT],
        [slice_of(grp()), LEFT, pod(where="n1")],
        [slice_of(grp()), LEFT, pod(status={"phase": "Failed"})],
        [slice_of(grp()), LEFT, pod(metadata={"deletionTimestamp": "2026-11-20T09:00:00Z"})],
        [slice_of(grp()), LEFT, pod(schedulingGates=[{"name": "wait"}])],
        [slice_of(grp()), claim(results=[result()], metadata={"deletionTimestamp": "2026-11-20T09:00:00Z"}), WAITS],
    ],
    ids=["reserved", "free", "no costs", "no pod", "bound", "ended", "leaving", "gated", "claim leaving"],
)
def test_what_is_none(objs: list[Json]) -> None:
    assert names(*objs) == []


def test_a_release_that_counts_it_has_none() -> None:
    new = {"nodeAllocatableResources": {"cpu": {"mapping": {"capacityKey": "cpus", "capacityMultiplier": "1"}}}}
    assert names(slice_of(grp(**new)), LEFT, WAITS, minor=37) == []
