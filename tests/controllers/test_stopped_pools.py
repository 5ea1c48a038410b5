"""Which pools are looked at again when, and from when on one that is out of order counts."""

from __future__ import annotations

import asyncio
import io
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from tests.facts.builders import DRIVER, claim, grp, node, pod_ref, result, rollout, slice_of
from webhook.cluster.kinds import KINDS
from webhook.cluster.live import LiveCluster
from webhook.controllers import stopped_pools
from webhook.controllers.stopped_pools import SETTLED, StoppedPools
from webhook.facts.stopped_pool import stopped_pool
from webhook.telemetry.log import Log

Json = dict[str, Any]
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
KIND = {kind.name: kind for kind in KINDS}
HALF = slice_of(grp(), count=2)
POOL = (DRIVER, "n1")


class Watch:
    """A view that a test makes see things, what is found of its pools, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at, self.woken, self.now = 100.0, 0, NOW
        self.view = LiveCluster(None, lambda: NOW, Log(io.StringIO()).write)  # type: ignore[arg-type]  # never asked
        self.pools = StoppedPools(self.view, lambda: self.now, self._wake)
        self.view.on_change.append(self.pools.hear)
        self.asked: list[tuple[str, str]] = []

        def asked(snapshot: Any, driver: str, pool: str, now: datetime) -> Any:
            self.asked.append((driver, pool))
            return stopped_pool(snapshot, driver, pool, now)

        monkeypatch.setattr(stopped_pools, "stopped_pool", asked)
        monkeypatch.setattr(stopped_pools, "time", SimpleNamespace(monotonic=lambda: self.at))

    def _wake(self) -> None:
        self.woken += 1

    def see(self, *objs: Json) -> None:
        for obj in objs:
            self.view.put(KIND[obj["kind"]], obj)

    def look(self) -> list[tuple[str, str]]:
        """Look; the pools that were judged."""
        self.asked.clear()
        asyncio.run(self.pools.look())
        return sorted(self.asked)

    def rules(self, *already: tuple[str, str]) -> dict[str, str]:
        """The rule by pool of those that count."""
        return {key[1]: reason.rule for key, reason in self.pools.standing(lambda key: key in already).items()}


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    made = Watch(monkeypatch)
    made.see(node("n1"), node("n2", uid="u2"), slice_of(grp()), slice_of(grp(), name="s2", where="n2"))
    made.look()
    return made


def test_a_pool_counts_once_it_has_been_out_of_order_for_a_second(watch: Watch) -> None:
    """The moment that every driver takes to publish anew makes no rule."""
    watch.see(HALF)
    watch.look()
    assert watch.rules() == {}
    assert watch.pools.idle() == SETTLED
    watch.at += SETTLED / 2
    assert watch.rules() == {}
    assert watch.rules(POOL) == {"n1": "pool-incomplete"}, "one that is tainted stays so"
    watch.at += SETTLED / 2
    assert watch.rules() == {"n1": "pool-incomplete"}
    watch.see(slice_of(grp()))
    watch.look()
    assert watch.rules(POOL) == {}


def test_the_second_begins_anew_after_a_moment_of_order(watch: Watch) -> None:
    for _ in range(5):
        watch.see(HALF)
        watch.look()
        watch.at += SETTLED * 0.9
        watch.see(slice_of(grp()))
        watch.look()
        watch.at += 0.01
        watch.see(HALF)
        watch.look()
        assert watch.rules() == {}


def test_another_reason_is_no_moment_of_order(watch: Watch) -> None:
    watch.see(HALF)
    watch.look()
    watch.at += SETTLED
    watch.see(slice_of(grp(), grp()))
    watch.look()
    assert watch.rules() == {"n1": "pool-invalid"}


def test_what_an_operator_decides_counts_at_once(watch: Watch) -> None:
    watch.see(rollout(hold={"reason": "r"}, resumeAt={"mappingDigests": ["sha256:0"]}))
    watch.look()
    assert watch.rules() == {"n1": "driver-held", "n2": "driver-held"}


@pytest.mark.parametrize(
    ("obj", "pools"),
    [
        (slice_of(grp("more")), ["n1"]),
        (slice_of(grp(), name="s3", where="n3"), ["n3"]),
        (claim(results=[result()], reserved=[pod_ref()]), ["n1"]),
        (claim(), []),
        (node("n2", uid="another"), ["n2"]),
        (rollout(), ["n1", "n2"]),
        (rollout("else.example"), []),
    ],
)
def test_only_what_a_change_concerns_is_looked_at_again(watch: Watch, obj: Json, pools: list[str]) -> None:
    assert watch.look() == []
    before = watch.woken
    watch.see(obj)
    assert (watch.woken > before) == bool(pools or obj["kind"] == "DriverRollout")
    assert watch.look() == [(DRIVER, pool) for pool in pools]
    assert watch.look() == []


def test_a_pool_that_goes_is_looked_at_again(watch: Watch) -> None:
    watch.view.drop(KIND["ResourceSlice"], ("", "s2"))
    assert watch.look() == [(DRIVER, "n2")]
    watch.see(claim(results=[result()], reserved=[pod_ref()]))
    watch.look()
    watch.view.drop(KIND["ResourceClaim"], ("ns", "c1"))
    assert watch.look() == [POOL]


def test_everything_is_looked_at_now_and_then(watch: Watch) -> None:
    watch.at += stopped_pools.SWEEP
    assert watch.look() == [POOL, (DRIVER, "n2")]


def test_what_time_alone_changes_is_looked_at_more_often(watch: Watch) -> None:
    """A promised heartbeat that does not come, a hold that ends."""
    until = (NOW + timedelta(minutes=1)).isoformat().replace("+00:00", "Z")
    watch.see(
        rollout(hold={"reason": "r", "until": until, "badMappings": sorted(watch.view.snapshot.slices["s1"].digests)})
    )
    watch.look()
    assert watch.rules() == {"n1": "driver-held", "n2": "driver-held"}
    assert watch.look() == []
    watch.now += timedelta(minutes=1)
    assert len(watch.look()) == 2
    assert watch.rules(POOL) == {}
    assert watch.look() == []
    watch.see(rollout(freshness={"heartbeat": "30s"}))
    watch.look()
    watch.at += stopped_pools.LOOK
    assert len(watch.look()) == 2


def test_of_a_view_that_is_behind_nothing_is_concluded(watch: Watch) -> None:
    watch.see(HALF)
    watch.look()
    watch.at += SETTLED
    seen = watch.view.snapshot.seen
    watch.view.snapshot = replace(watch.view.snapshot, seen=seen.set("ResourceSlice", NOW - timedelta(hours=1)))
    watch.see(node("n1", labels={}), slice_of(grp()))
    watch.look()
    assert watch.pools.unknown == {POOL}
    assert watch.rules() == {"n1": "pool-incomplete"}, "what was found stays"
    watch.view.snapshot = replace(watch.view.snapshot, seen=seen)
    assert watch.look() == [POOL], "it is looked at again without an event"
    assert (watch.pools.unknown, watch.rules()) == (set(), {})
