"""Claims that are waited for, as moments."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.facts.builders import claim, device_class, grp, node, pod, pod_ref, result, rollout, slice_of, world
from webhook.facts.times import stamp
from webhook.kube.snapshot import Snapshot
from webhook.ledger.awaited import because, given_up, settled, waits
from webhook.ledger.moments import Moment

Json = dict[str, Any]
NOW = datetime(2026, 11, 20, 9, 1, tzinfo=UTC)
MADE = {"creationTimestamp": "2026-11-20T09:00:00Z"}
CLASS = device_class()


def waiting(*more: Json, name: str = "c1") -> Snapshot:
    made = {"creationTimestamp": "2026-11-20T09:00:05Z"}
    return world(node(), CLASS, claim(name, metadata=MADE), pod("p1", {"c": name}, metadata=made), *more)


def found(
    snapshot: Snapshot, now: datetime = NOW, followed: frozenset[str] = frozenset(), **refused: str
) -> list[Moment]:
    rules = {f"uid-{name}": rule for name, rule in refused.items()}
    return [*waits(snapshot.claims.values(), snapshot, now, rules, followed)]


def test_a_claim_that_waits_tells_since_when_for_whom_and_why() -> None:
    [made] = found(waiting(slice_of(grp()), rollout(hold={"reason": "repair"})))
    assert (made.kind, made.key, made.uid, made.reason) == ("pending", "ns/c1", "uid-c1", "driver-held")
    assert (stamp(made.begun), made.at, made.drivers) == ("2026-11-20T09:00:05Z", NOW, ("d.example",))
    assert (made.pods, made.pod_uids) == (("ns/p1",), ("uid-p1",))
    assert made.text.startswith("awaited by ns/p1 for 55s: driver-held: has ")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ([slice_of(grp())], True),
        ([rollout()], True),
        # Neither costs of its devices nor a rollout: no claim of ours.
        ([slice_of({"name": "nic"})], False),
        ([], False),
    ],
    ids=["costs", "rollout", "costless", "nothing known"],
)
def test_of_whom_is_told(more: list[Json], told: bool) -> None:
    snapshot = waiting(*more)
    assert bool(found(snapshot)) == told
    assert found(snapshot, c1="node-overcommit")[0].reason == (
        "no-device-yet" if not any(each["kind"] == "ResourceSlice" for each in more) else "node-overcommit"
    )
    assert found(snapshot, followed=frozenset({"uid-c1"}))


def test_a_claim_of_several_drivers_waits_for_the_one_that_is_stopped() -> None:
    other = device_class("e", "e.example")
    requests = [{"name": name, "exactly": {"deviceClassName": name}} for name in ("e", "d")]
    objs = [node(), CLASS, other, claim(requests=requests), pod(), slice_of(grp()), rollout(stage="Off")]
    [made] = found(world(*objs, slice_of(grp(), name="s2", driver="e.example")))
    assert (made.reason, made.drivers) == ("stage-off", ("d.example", "e.example"))


def test_times_that_do_not_tell_or_lie_ahead() -> None:
    early = NOW - timedelta(hours=1)
    for snapshot in (waiting(slice_of(grp())), world(node(), CLASS, claim(), pod(), slice_of(grp()))):
        [made] = found(snapshot, early)
        assert (made.begun, made.at) == (early, early)


def test_the_end_of_a_wait() -> None:
    [wait] = found(waiting(slice_of(grp()), rollout(hold={"reason": "repair"})))
    over = given_up(wait, NOW + timedelta(seconds=5))
    assert (over.kind, over.begun, over.reason) == ("settled", wait.begun, "driver-held")
    assert over.text == "is not awaited any more, after 1m; what it waited for last: driver-held"
    assert given_up(wait, NOW - timedelta(days=1)).at == wait.begun

    uses = pod(metadata={"creationTimestamp": "2026-11-20T09:00:10Z"})
    given = claim(results=[result()], reserved=[pod_ref()], stamp="2026-11-20T09:00:40Z", metadata=MADE)
    snapshot = world(node(), CLASS, slice_of(grp()), given, uses)
    over = settled(snapshot.claims["ns", "c1"], [*snapshot.pods.values()], NOW)
    assert (stamp(over.begun), stamp(over.at)) == ("2026-11-20T09:00:10Z", "2026-11-20T09:00:40Z")
    assert (over.node, over.reason, over.text) == ("n1", "unscheduled", "has its devices, after 30s")
    # As it was told while it waited, when another pod had come before.
    known = because(over, wait)
    assert (known.begun, known.at, known.reason) == (wait.begun, over.at, "driver-held")
    assert known.text == "has its devices, after 35s; what it waited for last: driver-held"


@pytest.mark.parametrize(
    ("stamp_of_it", "until"),
    [("0001-01-01T00:00:00Z", "2026-11-20T09:00:00Z"), ("9999-12-31T23:59:59Z", stamp(NOW))],
    ids=["before it was made", "ahead"],
)
def test_who_allocates_may_say_any_time(stamp_of_it: str, until: str) -> None:
    given = claim(results=[result()], reserved=[pod_ref()], stamp=stamp_of_it, metadata=MADE)
    snapshot = world(node(), CLASS, slice_of(grp()), given, pod(metadata=MADE))
    over = settled(snapshot.claims["ns", "c1"], [*snapshot.pods.values()], NOW)
    assert (stamp(over.begun), stamp(over.at)) == ("2026-11-20T09:00:00Z", until)
