from __future__ import annotations

from typing import Any

from tests.facts.builders import claim, grp, slice_of, world
from webhook.facts.offers import SLICES_SEEN, candidates, choices, driver_offers
from webhook.kube.claims import read_claim

CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "d"},
    "spec": {"selectors": [{"cel": {"expression": 'device.driver == "d.example"'}}]},
}
(REQUEST,) = read_claim(claim()).groups[0].alternatives


def fleet(count: int, **device: Any) -> list[Any]:
    return [slice_of(grp(f"g{i}", **device), name=f"s{i}", where=f"n{i}") for i in range(count)]


def test_devices_with_equal_capacities_are_one_offer() -> None:
    snapshot = world(CLASS, *fleet(20), slice_of(grp("big", size="64"), name="big", where="n99"))
    offers = candidates(REQUEST, snapshot)
    assert offers.complete
    assert sorted((o.capacity["cpus"]["value"], len(o.examples), o.whole) for o in offers.offers) == [
        ("64", 1, True),
        ("8", 8, False),
    ]
    assert len(list(choices(REQUEST, offers, snapshot))) == 9


def test_a_large_fleet_is_not_walked_to_its_end() -> None:
    offers = driver_offers("d.example", world(*fleet(SLICES_SEEN + 1)))
    assert not offers.complete
    assert offers.known


def test_offers_are_remembered_until_a_slice_of_the_driver_changes() -> None:
    snapshot = world(CLASS, *fleet(3))
    first = driver_offers("d.example", snapshot)
    assert driver_offers("d.example", snapshot.put(claim())) is first
    changed = snapshot.put(slice_of(grp("g0", size="2"), name="s0", where="n0"))
    assert len(driver_offers("d.example", changed).offers) == 2
    assert driver_offers("d.example", snapshot) is first


def test_a_class_nobody_knows_offers_nothing() -> None:
    assert not candidates(REQUEST, world(*fleet(3))).known
    assert not driver_offers("other", world(*fleet(3))).known
