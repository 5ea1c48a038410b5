from __future__ import annotations

from typing import Any

import pytest

from tests.facts.builders import as_claim, claim, grp, node, pod_ref, result, slice_of, world
from tests.facts.test_verification import charge, ledger
from webhook.facts.devices import device_problems
from webhook.facts.duplicates import booked_for, duplicate_problems
from webhook.facts.footprint import footprint

Json = dict[str, Any]


def found(write: Json, *charges: Json, device: Json | None = None) -> list[tuple[str, str]]:
    snapshot = world(node(), slice_of(device or grp()), ledger(*charges))
    made = as_claim(write)
    problems = duplicate_problems(made, footprint(made, snapshot), snapshot.ledgers["n1"])
    assert [each for each in device_problems(made, snapshot) if each.rule == "duplicate-charge"] == problems
    return [(each.rule, each.path) for each in problems]


def held(cpus: str = "4", **fields: Any) -> Json:
    return claim(results=[result(cpus=cpus)], reserved=[pod_ref()], **fields)


def test_another_amount_by_the_same_mapping_is_refused() -> None:
    assert found(held("5"), charge()) == [("duplicate-charge", "status.allocation.devices.results[0]")]
    assert found(held("3"), charge()) == [("duplicate-charge", "status.allocation.devices.results[0]")]


@pytest.mark.parametrize(
    ("write", "charges"),
    [
        (held(), [charge()]),
        (held("5"), []),
        (held("5", stamp="2026-11-20T09:00:01Z"), [charge()]),
        (held("5"), [charge(device="other")]),
        (held("5"), [charge() | {"claimUID": "uid-c2"}]),
        (held("5"), [charge() | {"shareID": "another"}]),
        (held("5"), [charge(resource="memory", amount="4Gi")]),
        (claim(), [charge()]),
    ],
)
def test_the_same_amount_and_other_keys_are_none(write: Json, charges: list[Json]) -> None:
    assert found(write, *charges) == []


def test_a_changed_mapping_makes_no_duplicate() -> None:
    doubled = grp(nodeAllocatableResourceMappings={"cpu": {"capacityKey": "cpus", "allocationMultiplier": "2"}})
    assert found(held(), charge(), device=doubled) == []


def test_amounts_are_compared_as_ledgers_keep_them() -> None:
    fine = grp(nodeAllocatableResourceMappings={"cpu": {"capacityKey": "cpus", "allocationMultiplier": "333333333n"}})
    digest = world(node(), slice_of(fine)).slices["s1"].devices[0].digest
    # 1500m of them are 499999999.5 billionths, kept rounded up.
    assert found(held("1500m"), charge(amount="500m", of=digest), device=fine) == []
    assert len(found(held("1500m"), charge(amount="499999999n", of=digest), device=fine)) == 1


def test_what_is_booked_for_an_allocation() -> None:
    snapshot = world(node(), slice_of(grp()), ledger(charge(), charge(resource="memory", amount="1Gi")))
    assert [row.resource for row in booked_for(as_claim(held()), snapshot.ledgers["n1"])] == ["cpu", "memory"]
    assert booked_for(as_claim(held()), None) == []
    assert booked_for(as_claim(claim()), snapshot.ledgers["n1"]) == []
