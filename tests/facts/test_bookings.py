from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.ledger.booked import LATER, book, claim, grp, unallocated
from tests.ledger.builders import node
from webhook.facts.bookings import allocated_as, made_for, released
from webhook.kube.claims import Claim, read_claim

(ROW,) = book(node(), grp(), claim(version=20)).charges


def seen(**more: object) -> Claim:
    return read_claim(claim(**more))


def test_what_is_booked_for_the_allocation_that_is_there() -> None:
    there = seen(version=25)
    assert allocated_as(there, ROW.allocation)
    assert made_for(ROW, there)
    assert not released(ROW, there, "n1")


def test_another_device_or_share_of_the_same_second_is_another_allocation() -> None:
    for other in (replace(ROW, share_id="another"), replace(ROW, device="another")):
        assert allocated_as(seen(version=25), other.allocation)
        assert not made_for(other, seen(version=25))
        assert released(other, seen(version=25), "n1")
        assert not released(other, seen(version=19), "n1"), "a view from before it was booked"


@pytest.mark.parametrize("there", [seen(version=25, at=LATER), read_claim(unallocated(version=25))])
def test_another_allocation_or_none_releases(there: Claim) -> None:
    assert not made_for(ROW, there)
    assert released(ROW, there, "n1")


def test_the_same_second_on_another_node_releases() -> None:
    assert released(ROW, seen(version=25, node_name="n2"), "n1")


def test_a_claim_that_is_not_there_says_nothing() -> None:
    assert not allocated_as(None, ROW.allocation)
    assert not made_for(ROW, None)
    assert not released(ROW, None, "n1")
