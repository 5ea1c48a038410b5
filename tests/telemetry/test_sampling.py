from __future__ import annotations

import random
import uuid
from collections import OrderedDict

import pytest

from webhook.kube.trace import trace_id
from webhook.telemetry import sampling
from webhook.telemetry.sampling import Sampling, wanted

DRAWN = random.Random(8)
UIDS = [str(uuid.UUID(int=DRAWN.getrandbits(128), version=4)) for _ in range(100_000)]


@pytest.mark.parametrize("ratio", [0.5, 0.1, 0.01])
def test_of_random_uuids_the_part_is_kept_that_was_asked_for(ratio: float) -> None:
    kept = sum(wanted(uid, ratio) for uid in UIDS)
    deviation = (len(UIDS) * ratio * (1 - ratio)) ** 0.5
    assert abs(kept - len(UIDS) * ratio) < 4 * deviation


def test_the_upper_bits_of_the_lower_half_would_be_biased() -> None:
    """Why it is not OpenTelemetry's older sampler: its 64 bits begin with the two of the variant."""
    low = [int(trace_id(uid)[16:], 16) for uid in UIDS[:1000]]
    assert sum(each < (1 << 64) // 10 for each in low) == 0


def test_who_is_kept_is_kept_at_every_larger_part() -> None:
    few, more = ({uid for uid in UIDS if wanted(uid, ratio)} for ratio in (0.01, 0.1))
    assert few < more


def test_none_and_all() -> None:
    assert not any(wanted(uid, 0) for uid in UIDS)
    assert all(wanted(uid, 1) for uid in UIDS)


@pytest.mark.parametrize(
    ("low", "ratio", "kept"),
    [
        # The threshold of OpenTelemetry for a half: what is at it or above it is kept.
        ("80000000000000", 0.5, True),
        ("7fffffffffffff", 0.5, False),
        ("e6666666666666", 0.1, True),
        ("e6666666666665", 0.1, False),
        ("ffffffffffffff", 2**-56, True),
        ("fffffffffffffe", 2**-56, False),
        ("00000000000000", 1, True),
        ("ffffffffffffff", 0, False),
    ],
)
def test_the_lower_56_bits_decide_and_nothing_else(low: str, ratio: float, kept: bool) -> None:
    for high in ("0f5bb1f4-94d1-4c36-8f", "ffffffff-ffff-ffff-ff", "00000000-0000-1000-00"):
        uid = f"{high}{low[:2]}-{low[2:]}"
        assert len(uid) == 36
        assert wanted(uid, ratio) is kept
        assert wanted(uid.upper(), ratio) is kept


def test_what_is_no_uuid_is_drawn_too() -> None:
    kept = sum(wanted(f"u-{number}", 0.1) for number in range(10_000))
    assert 880 < kept < 1120


def test_replicas_agree_and_trouble_is_remembered_by_who_saw_it() -> None:
    one, other = Sampling(0.1), Sampling(0.1)
    assert [one.wanted(uid) for uid in UIDS[:1000]] == [other.wanted(uid) for uid in UIDS[:1000]]
    lost = next(uid for uid in UIDS if not one.wanted(uid))
    one.keep(lost)
    assert one.wanted(lost)
    assert one.wanted(trace_id(lost))
    assert not other.wanted(lost)


def test_memory_of_trouble_is_bounded_and_the_latest_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_MOST_KEPT", 10)
    kept = Sampling(0)
    for uid in UIDS[:9]:
        kept.keep(uid)
    kept.keep(UIDS[0])
    for uid in UIDS[100:105]:
        kept.keep(uid)
    assert kept.wanted(UIDS[0])
    assert not kept.wanted(UIDS[1])
    assert all(kept.wanted(uid) for uid in UIDS[100:105])
    assert sum(kept.wanted(uid) for uid in UIDS) == 10


def test_an_attempt_of_which_nothing_comes_is_kept_for_what_is_told_of_it_at_once_and_costs_no_memory() -> None:
    kept = Sampling(0)
    kept.keep(UIDS[0])
    for uid in UIDS[1:100]:
        kept.pass_by(uid)
        assert kept.wanted(uid)
        assert kept.wanted(trace_id(uid))
    assert sum(kept.wanted(uid) for uid in UIDS[:100]) == 2
    kept.pass_by("")
    assert [uid for uid in UIDS[:100] if kept.wanted(uid)] == [UIDS[0]]


def test_what_has_no_uid_is_not_remembered() -> None:
    kept = Sampling(0)
    kept.keep("")
    assert not kept.wanted("")


def test_what_is_kept_again_is_kept_all_the_while() -> None:
    """Another thread asks just then."""
    kept, asked = Sampling(0), []
    kept.keep(UIDS[0])

    class Watched(OrderedDict[str, None]):
        def __setitem__(self, key: str, value: None) -> None:
            asked.append(kept.wanted(UIDS[0]))
            super().__setitem__(key, value)

        def move_to_end(self, key: str, last: bool = True) -> None:
            asked.append(kept.wanted(UIDS[0]))
            super().move_to_end(key, last)

    kept._kept = Watched(kept._kept)
    asked.clear()
    kept.keep(UIDS[0])
    assert asked == [True, True]
