"""The rules that are written, put right and taken away; what a real API server and scheduler make of them is in
tests/e2e/test_taints.py.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tests.controllers.playing import until
from tests.facts.builders import DRIVER, grp, node, rollout, slice_of
from webhook.cluster.api import ApiError, Unreachable
from webhook.cluster.kinds import KINDS
from webhook.cluster.live import LiveCluster
from webhook.controllers import stopped_pools, taints
from webhook.controllers.taints import Taints
from webhook.facts.pool_survey import Reason
from webhook.facts.taints import TaintWanted
from webhook.kube.release import Release
from webhook.kube.taint_rule import rule_name, taint_rule
from webhook.telemetry.log import Log

Json = dict[str, Any]
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
KIND = {kind.name: kind for kind in KINDS}
HOLD = {"reason": "wrong mapping"}
HALF, WHOLE = slice_of(grp(), count=2), slice_of(grp())
DRIVERS, POOL = rule_name(DRIVER), rule_name(DRIVER, "n1")
GROUP = "/apis/resource.k8s.io"


class Api:
    """The rules of an API server that has them in ``versions``, in memory. ``errors`` are raised by the next writes,
    one each; ``writes`` are those that were made; ``silent`` watches tell nothing.
    """

    def __init__(self, *versions: str) -> None:
        self.versions = set(versions)
        self.stored: dict[str, Json] = {}
        self.errors: list[Exception] = []
        self.writes: list[str] = []
        self.silent = False
        self.down: Exception | None = None
        self._watches: list[asyncio.Queue[Json | None]] = []
        self._version = 0

    async def get(self, path: str) -> Json:
        if self.down is not None:
            raise self.down
        version = path.rpartition("/")[2]
        if path == GROUP:
            return {"versions": [{"version": each} for each in ("v1", *sorted(self.versions))]}
        if version not in {"v1", *self.versions}:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        return {
            "resources": [{"name": "devicetaintrules"}] if version in self.versions else [{"name": "deviceclasses"}]
        }

    async def raw(self, path: str, **params: object) -> bytes:
        self._look(path)
        rules = list(self.stored.values())
        return json.dumps({"metadata": {"resourceVersion": str(self._version)}, "items": rules}).encode()

    async def lines(self, path: str, timeout: float, **params: object) -> AsyncGenerator[bytes, None]:
        self._look(path)
        queue: asyncio.Queue[Json | None] = asyncio.Queue()
        self._watches.append(queue)
        yield b""
        while (event := await queue.get()) is not None:
            yield json.dumps(event).encode()

    async def create(self, path: str, obj: Json) -> Json:
        name = obj["metadata"]["name"]
        self._write(f"create {name}")
        if name in self.stored:
            raise ApiError(409, "AlreadyExists", f"{name} already exists")
        made = deepcopy(obj)
        made["metadata"]["uid"] = f"uid-{self._version}"
        made["spec"]["taint"]["timeAdded"] = "2026-11-30T12:00:00Z"
        return self.keep(made, "ADDED")

    async def update(self, path: str, obj: Json) -> Json:
        name = path.rpartition("/")[2]
        self._write(f"update {name}")
        if obj["metadata"]["resourceVersion"] != self.stored[name]["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "the object has been modified")
        return self.keep(deepcopy(obj))

    async def delete(self, path: str, body: Json) -> Json:
        name = path.rpartition("/")[2]
        self._write(f"delete {name}")
        if name not in self.stored:
            raise ApiError(404, "NotFound", f"{name} not found")
        assert body["preconditions"]["uid"] == self.stored[name]["metadata"]["uid"]
        return self.drop(name)

    def keep(self, obj: Json, event: str = "MODIFIED") -> Json:
        """Store ``obj``, and tell of it."""
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)
        self.stored[obj["metadata"]["name"]] = obj
        self._tell(event, obj)
        return deepcopy(obj)

    def drop(self, name: str) -> Json:
        self._version += 1
        gone = self.stored.pop(name)
        gone["metadata"]["resourceVersion"] = str(self._version)
        self._tell("DELETED", gone)
        return gone

    def move(self, *versions: str) -> None:
        """Have the rules in other ``versions`` from now on."""
        self.versions = set(versions)
        for queue in self._watches:
            queue.put_nowait(None)

    def rules(self) -> dict[str, str]:
        """The rules that are stored: what they select and the key of the taint, by name."""
        return {name: rule["spec"]["taint"]["key"].partition("/")[2] for name, rule in self.stored.items()}

    def _tell(self, event: str, obj: Json) -> None:
        for queue in () if self.silent else self._watches:
            queue.put_nowait({"type": event, "object": deepcopy(obj)})

    def _look(self, path: str) -> None:
        if self.down is not None:
            raise self.down
        if path.split("/")[3] not in self.versions:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")

    def _write(self, what: str) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.writes.append(what)


class World:
    """The controller, on that API and on a view that a test makes see things."""

    def __init__(self, *versions: str) -> None:
        self.api, self.told = Api(*versions), io.StringIO()
        self.now = NOW
        self.log = Log(self.told)
        self.view = LiveCluster(None, lambda: NOW, self.log.write)  # type: ignore[arg-type]  # never asked
        self.controller = Taints(self.api, self.view, self.log, lambda: self.now)  # type: ignore[arg-type]  # the same methods
        self.see(node("n1"), node("n2", uid="u2"), WHOLE, slice_of(grp(), name="s2", where="n2"))

    def see(self, *objs: Json) -> None:
        for obj in objs:
            self.view.put(KIND[obj["kind"]], obj)

    def gone(self, kind: str, name: str) -> None:
        self.view.drop(KIND[kind], ("", name))

    def play(self, scene: Callable[[], Awaitable[None]]) -> list[Json]:
        """Run it while ``scene`` goes on; the lines of the log."""

        async def run() -> None:
            task = asyncio.create_task(self.controller.run())
            try:
                await scene()
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                assert self.view.on_change == []

        asyncio.run(run())
        self.log.close()
        return [json.loads(line) for line in self.told.getvalue().splitlines()]

    def detail(self) -> str:
        ((name, fine, detail),) = self.controller.checks()
        assert (name, fine) == ("device taints", True)
        return detail

    async def quiet(self) -> None:
        """Some rounds, in which there is nothing to do."""
        before = len(self.api.writes)
        await asyncio.sleep(0.3)
        assert len(self.api.writes) == before


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    for name, seconds in (("GATHER", 0.005), ("SEARCH", 0.05), ("AGAIN", 0.05), ("LONGEST", 0.05)):
        monkeypatch.setattr(taints, name, seconds)
    monkeypatch.setattr(stopped_pools, "SETTLED", 0.1)
    return World("v1")


def stored(*place: str, rule: str = "driver-held", reason: str = "", version: str = "v1") -> Json:
    """A rule as an API server has it."""
    driver, pool, device = (*place, "", "")[:3]
    made = taint_rule(version, driver, pool, device, rule, reason)
    made["metadata"]["uid"] = f"uid-{made['metadata']['name']}"
    return made


def test_a_hold_taints_the_driver_and_its_end_takes_the_taint_away(world: World) -> None:
    async def scene() -> None:
        await until(lambda: world.detail() == "ok, 0 rules")
        world.see(rollout(hold=HOLD))
        await until(lambda: world.api.rules() == {DRIVERS: "driver-held"})
        assert "wrong mapping" in world.api.stored[DRIVERS]["metadata"]["annotations"]["allocguard.dev/reason"]
        await until(lambda: world.detail() == "ok, 1 rule")
        await world.quiet()
        world.see(rollout())
        await until(lambda: not world.api.stored)
        await world.quiet()

    lines = world.play(scene)
    assert [(line["event"], line["driver"]) for line in lines] == [
        ("device taint made", DRIVER),
        ("device taint removed", DRIVER),
    ]
    assert world.detail() == "ok, made by the leader"


def test_a_hold_that_ends_by_itself_takes_the_taint_away(world: World) -> None:
    async def scene() -> None:
        end = (NOW + timedelta(minutes=1)).isoformat().replace("+00:00", "Z")
        world.see(rollout(hold={**HOLD, "until": end}))
        await until(lambda: world.api.rules() == {DRIVERS: "driver-held"})
        world.now += timedelta(minutes=1)
        await until(lambda: not world.api.stored)

    world.play(scene)


def test_a_pool_is_tainted_after_a_while_and_let_go_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopped_pools, "SETTLED", 0.5)

    async def scene() -> None:
        world.see(HALF)
        await asyncio.sleep(0.05)
        world.see(WHOLE)
        await world.quiet()
        world.see(HALF)
        await until(lambda: world.api.rules() == {POOL: "pool-incomplete"})
        begun = asyncio.get_running_loop().time()
        world.see(WHOLE)
        await until(lambda: not world.api.stored)
        assert asyncio.get_running_loop().time() - begun < 0.8, "by the event, before the next look without one"

    world.play(scene)
    assert world.api.writes == [f"create {POOL}", f"delete {POOL}"]


def test_the_reason_is_kept_up_in_the_same_rule(world: World) -> None:
    async def scene() -> None:
        world.see(HALF)
        await until(lambda: world.api.rules() == {POOL: "pool-incomplete"})
        world.see(slice_of(grp(), grp()))
        await until(lambda: world.api.rules() == {POOL: "pool-invalid"})

    world.play(scene)
    assert world.api.writes == [f"create {POOL}", f"update {POOL}"]


def test_all_pools_are_one_rule_which_is_there_before_the_others_go(world: World) -> None:
    async def scene() -> None:
        world.see(HALF)
        await until(lambda: POOL in world.api.stored)
        world.see(slice_of(grp(), name="s2", where="n2", count=2))
        await until(lambda: list(world.api.stored) == [DRIVERS])
        world.see(WHOLE)
        await until(lambda: list(world.api.stored) == [rule_name(DRIVER, "n2")])

    world.play(scene)
    second = rule_name(DRIVER, "n2")
    assert world.api.writes == [
        f"create {POOL}",
        f"create {DRIVERS}",
        f"delete {POOL}",
        f"delete {DRIVERS}",
        f"create {second}",
    ]


def test_rules_of_others_are_not_touched(world: World) -> None:
    theirs = stored("else.example")
    theirs["metadata"]["name"] = "by-hand"
    world.api.keep(theirs)
    before = deepcopy(world.api.stored)

    async def scene() -> None:
        await until(lambda: world.detail() == "ok, 0 rules")
        await world.quiet()

    world.play(scene)
    assert world.api.stored == before


@pytest.mark.parametrize(
    "place", ["spec.taint.effect", "spec.deviceSelector.driver", "metadata.labels", "metadata.annotations"]
)
def test_an_edit_of_ours_is_put_back(world: World, place: str) -> None:
    world.see(rollout(hold=HOLD))

    async def scene() -> None:
        await until(lambda: DRIVERS in world.api.stored)
        before = deepcopy(world.api.stored[DRIVERS])
        edited = deepcopy(before)
        *parents, last = place.split(".")
        inner = edited
        for each in parents:
            inner = inner[each]
        inner[last] = {} if parents == ["metadata"] else "NoExecute"
        edited["metadata"]["labels"] |= {"team": "theirs"}
        world.api.keep(edited)
        await until(lambda: f"update {DRIVERS}" in world.api.writes)
        after = world.api.stored[DRIVERS]
        assert after["spec"] == before["spec"]
        assert after["metadata"]["labels"] == before["metadata"]["labels"] | {"team": "theirs"}
        assert after["metadata"]["annotations"] == before["metadata"]["annotations"]
        await world.quiet()

    lines = world.play(scene)
    assert [line["event"] for line in lines] == ["device taint made", "device taint put right"]


def test_one_that_was_deleted_is_made_again(world: World) -> None:
    world.see(rollout(hold=HOLD))

    async def scene() -> None:
        await until(lambda: DRIVERS in world.api.stored)
        world.api.drop(DRIVERS)
        await until(lambda: DRIVERS in world.api.stored)

    world.play(scene)


def test_who_edits_again_and_again_is_answered_at_a_bounded_rate(world: World) -> None:
    """Ten times at once, then once a second."""
    world.see(rollout(hold=HOLD))
    seconds: list[float] = []

    async def scene() -> None:
        clock = asyncio.get_running_loop().time
        await until(lambda: DRIVERS in world.api.stored)
        begun, number = clock(), 0
        while clock() < begun + 2 or len(world.api.writes) < 11:
            edited = deepcopy(world.api.stored[DRIVERS])
            edited["spec"]["taint"]["value"] = f"v{number}"
            world.api.keep(edited)
            number += 1
            await asyncio.sleep(0.01)
        seconds.append(clock() - begun)

    world.play(scene)
    assert 11 <= len(world.api.writes) <= 1 + 10 + seconds[0]


def test_a_text_that_changes_all_the_time_is_written_now_and_then(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taints, "AGAIN", 0.3)
    seconds: list[float] = []

    async def scene() -> None:
        clock = asyncio.get_running_loop().time
        world.see(HALF)
        await until(lambda: POOL in world.api.stored)
        begun = clock()
        for count in range(3, 103):
            world.see(slice_of(grp(), count=count))
            await asyncio.sleep(0.01)
        await until(lambda: "1 of 102 slices" in str(world.api.stored[POOL]["metadata"]["annotations"]))
        seconds.append(clock() - begun)

    world.play(scene)
    assert 2 <= len(world.api.writes) <= 2 + seconds[0] / 0.3


def test_the_next_leader_goes_on_with_what_is_there(world: World) -> None:
    """Rules stay when a leader ends; those that are still needed are left as they are, those that are not go."""
    world.see(HALF)

    async def first() -> None:
        await until(lambda: POOL in world.api.stored)

    world.play(first)
    assert POOL in world.api.stored
    following = World("v1")
    following.api.stored = world.api.stored
    following.api.keep(stored("gone.example"))
    following.see(HALF)

    async def second() -> None:
        await until(lambda: list(following.api.stored) == [POOL])
        await following.quiet()

    following.play(second)
    assert following.api.writes == [f"delete {rule_name('gone.example')}"]


def test_nothing_is_taken_away_by_a_view_that_is_behind(world: World) -> None:
    world.api.keep(stored(DRIVER, "n1", rule="pool-incomplete"))
    snapshot = world.view.snapshot
    world.view.snapshot = replace(snapshot, seen=snapshot.seen.set("ResourceSlice", NOW - timedelta(hours=1)))

    async def scene() -> None:
        await until(lambda: world.detail() == "ok, 1 rule")
        await world.quiet()
        world.view.snapshot = snapshot
        await until(lambda: not world.api.stored)

    world.play(scene)


def test_the_version_is_the_one_that_is_served(world: World) -> None:
    world.api.versions = {"v1beta2"}
    world.see(rollout(hold=HOLD))

    async def scene() -> None:
        await until(lambda: DRIVERS in world.api.stored)
        assert world.api.stored[DRIVERS]["apiVersion"] == "resource.k8s.io/v1beta2"
        world.api.move("v1")
        await until(lambda: world.api.rules() == {DRIVERS: "driver-held"})
        world.api.drop(DRIVERS)
        await until(lambda: world.api.stored.get(DRIVERS, {}).get("apiVersion") == "resource.k8s.io/v1")

    world.play(scene)


def test_without_the_api_nothing_is_written_and_that_is_told(world: World) -> None:
    world.api.versions = set()
    world.see(rollout(hold=HOLD))

    async def scene() -> None:
        told = "ok, the API server has no devicetaintrules: what is held is refused and gated only"
        await until(lambda: world.detail() == told)
        assert not world.controller.possible
        await world.quiet()
        world.api.versions = {"v1"}
        await until(lambda: DRIVERS in world.api.stored)
        assert world.controller.possible

    world.play(scene)
    assert world.api.writes == [f"create {DRIVERS}"]


def test_where_the_gate_is_off_nothing_is_made_and_what_is_there_goes(world: World) -> None:
    world.api.keep(stored(DRIVER))
    world.view.snapshot = replace(world.view.snapshot, release=Release(36, {"DRADeviceTaintRules": False}))
    world.see(rollout(hold=HOLD))

    async def scene() -> None:
        await until(lambda: not world.api.stored)
        assert world.detail() == "ok, DRADeviceTaintRules is off: what is held is refused and gated only"
        assert not world.controller.possible
        await world.quiet()
        world.view.snapshot = replace(world.view.snapshot, release=Release(36, {"DRADeviceTaintRules": True}))
        await until(lambda: DRIVERS in world.api.stored)

    world.play(scene)


def test_a_right_that_is_missing_is_told_once_and_tried_again(world: World) -> None:
    world.see(rollout(hold=HOLD))
    world.api.errors = [ApiError(403, "Forbidden", "cannot create devicetaintrules")] * 2

    async def scene() -> None:
        await until(lambda: "cannot create devicetaintrules" in world.detail())
        assert not world.controller.possible
        await until(lambda: DRIVERS in world.api.stored)
        await until(lambda: world.detail() == "ok, 1 rule")

    lines = world.play(scene)
    assert [line["event"] for line in lines] == ["device taints not written", "device taint made"]


def test_rules_that_may_not_be_listed_are_not_written(world: World) -> None:
    """What is there is not known."""
    world.see(rollout(hold=HOLD))
    refused = ApiError(403, "Forbidden", "cannot list devicetaintrules")

    async def scene() -> None:
        version = world.controller._version

        async def then() -> str:
            found = await version()
            world.api.down = refused
            return found

        world.controller._version = then  # type: ignore[method-assign]
        await until(lambda: "devicetaintrules cannot be listed: 403 Forbidden" in world.detail())
        await world.quiet()
        world.api.down = None
        await until(lambda: DRIVERS in world.api.stored)

    lines = world.play(scene)
    assert [line["event"] for line in lines] == ["device taints not written", "device taint made"]


def test_an_api_server_that_is_away_is_waited_for(world: World) -> None:
    world.api.down = Unreachable("connection refused")
    world.see(rollout(hold=HOLD))

    async def scene() -> None:
        await until(lambda: "does not tell whether it has devicetaintrules: connection refused" in world.detail())
        world.api.down = None
        world.api.errors = [Unreachable("connection refused")]
        await until(lambda: DRIVERS in world.api.stored)

    world.play(scene)


def test_a_write_that_somebody_else_was_faster_with_is_no_trouble(world: World) -> None:
    """Two leaders for a moment; the watch shows what the other one did."""
    world.see(rollout(hold=HOLD))
    world.api.silent = True

    async def scene() -> None:
        await until(lambda: world.detail() == "ok, 1 rule")
        world.api.drop(DRIVERS)
        world.see(rollout())
        await until(lambda: f"delete {DRIVERS}" in world.api.writes)
        assert "cannot" not in world.detail()

    lines = world.play(scene)
    assert [line["event"] for line in lines if line["level"] != "info"] == []


def test_devices_of_full_zones_are_tainted_while_they_are_wanted(world: World) -> None:
    full = TaintWanted(DRIVER, "n1", "grp", Reason("zone-overcommit", "cpu 8 of 8 of zone 0 charged", "4 free"))

    async def scene() -> None:
        await until(lambda: world.detail() == "ok, 0 rules")
        assert not world.controller.stands(full)
        world.controller.want([full])
        await until(lambda: world.controller.stands(full))
        assert world.api.stored[full.name]["spec"]["deviceSelector"] == {
            "driver": DRIVER,
            "pool": "n1",
            "device": "grp",
        }
        await world.quiet()
        world.see(HALF)
        await until(lambda: list(world.api.stored) == [POOL])
        assert world.controller.stands(full), "by the wider rule"
        world.see(WHOLE)
        await until(lambda: list(world.api.stored) == [full.name])
        world.controller.want([])
        await until(lambda: not world.api.stored)

    world.play(scene)


def test_very_many_rules_come_in_rounds(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taints, "_PACE", 1.0)
    bad = rollout(hold={**HOLD, "badMappings": sorted(world.view.snapshot.slices["s1"].digests)})
    other = grp(nodeAllocatableResourceMappings={"cpu": {"capacityKey": "cpus", "allocationMultiplier": "2"}})
    for number in range(3, 123):
        world.see(node(f"n{number}", uid=f"u{number}"), slice_of(grp(), name=f"s{number}", where=f"n{number}"))
    world.see(slice_of(other, name="s2", where="n2"), bad)

    async def scene() -> None:
        await until(lambda: len(world.api.stored) >= 50)
        assert len(world.api.stored) == 50
        await until(lambda: len(world.api.stored) == 121)
        await world.quiet()
        world.see(rollout())
        await until(lambda: len(world.api.stored) <= 71)
        assert len(world.api.stored) == 71
        await until(lambda: not world.api.stored)

    world.play(scene)
    assert len(world.api.writes) == 242
