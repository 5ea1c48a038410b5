from __future__ import annotations

import pytest

from webhook.kube import trace
from webhook.kube.trace import trace_id, traced_uid

UID = "0f5bb1f4-94d1-4c36-8f0e-0a3c5e2d9b77"


@pytest.mark.parametrize("uid", [UID, UID.upper(), UID.replace("-", "")])
def test_a_uid_is_its_trace(uid: str) -> None:
    assert trace_id(uid) == "0f5bb1f494d14c368f0e0a3c5e2d9b77"


@pytest.mark.parametrize("uid", ["", "u-1", "0" * 32, f"{UID}0", "x" * 32, "\uff11" * 32])
def test_what_is_no_uuid_has_a_trace_of_its_own_all_the_same(uid: str) -> None:
    found = trace_id(uid)
    assert len(found) == 32
    assert int(found, 16) > 0
    assert found == trace_id(uid) != trace_id(uid + "-other")


@pytest.mark.parametrize("given", [UID, "shop/cores", "", UID.upper(), "0f5bb1f4"])
def test_a_trace_leads_back_to_the_uid_and_what_is_none_to_itself(given: str) -> None:
    assert traced_uid(trace_id(UID)) == UID
    assert traced_uid(given) == given


def test_what_others_make_as_long_as_they_like_has_a_trace_and_is_not_remembered() -> None:
    """Who owns a claim, and whom it is reserved for, says whoever writes it."""
    known = trace._kept.cache_info().currsize
    long = [f"{number}{'x' * 100_000}" for number in range(10)]
    assert len({trace_id(uid) for uid in long}) == 10
    assert trace_id(long[0]) == trace_id(long[0])
    assert trace._kept.cache_info().currsize == known
