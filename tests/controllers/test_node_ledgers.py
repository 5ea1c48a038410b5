"""The ledgers of nodes: what is published of what is seen, what is asked before something goes."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from tests.controllers.memory import Memory
from tests.ledger.builders import allocated, container, device, entry, node, old, pod, result, slice_of
from webhook.cluster.api import Unreachable
from webhook.cluster.kinds import KINDS
from webhook.cluster.ledgers import PATH
from webhook.cluster.live import LiveCluster
from webhook.controllers import node_ledgers
from webhook.controllers.node_ledgers import NodeLedgers
from webhook.kube.node_ledger import (
    ANY,
    PLACE,
    BookedCharge,
    NodeLedger,
    Reservation,
    node_ledger_object,
    read_node_ledger,
)
from webhook.kube.packed import packed_status
from webhook.kube.release import Release
from webhook.ledger.moments import Moment
from webhook.telemetry.log import Log

Json = dict[str, Any]
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
KIND = {kind.name: kind for kind in KINDS}
SLICE = slice_of(device("d0", old("3"), zone=0), device("d1", old("3"), zone=1))
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims"
N1 = f"{PATH}/n1"


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


def at(version: int, obj: Json) -> Json:
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}


def claim(version: int = 20, name: str = "a", pods: tuple[str, ...] = ("p1",)) -> Json:
    return at(version, allocated(name, result("d1"), pods=pods))


def free(version: int = 30, name: str = "a") -> Json:
    made = claim(version, name)
    made["status"] = {}
    return made


def coming(**more: Any) -> Json:
    return pod("p1", container(cpu="2", claims=("a",)), claims=("a",), **more)


class World:
    """An API server in memory, a view that a test makes see things, and the controller."""

    def __init__(self) -> None:
        self.api = Memory()
        self.said = io.StringIO()
        self.log = Log(self.said)
        self.view = LiveCluster(self.api, lambda: NOW, self.log.write)  # type: ignore[arg-type]  # the same methods
        self.view.snapshot = self.view.snapshot.put({"kind": "none"})
        self.view.snapshot = replace(self.view.snapshot, release=Release(36))
        self.moments: list[Moment] = []
        self.differing: set[str] = set()
        self.controller = self.led()
        self.view.on_change.append(self.controller._heard)

    def led(self) -> NodeLedgers:
        """A controller of its own, as that of a new leader."""
        made = NodeLedgers(self.api, self.view, self.log, lambda: NOW)  # type: ignore[arg-type]  # the same methods
        made.on_moments = self.moments.extend
        made.on_differing = self.differing.add
        return made

    def told(self) -> list[tuple[str, str, str]]:
        """Kind, claim and reason of the moments since it was asked last."""
        told: list[tuple[str, str, str]] = [(each.kind, each.name, each.reason) for each in self.moments]
        self.moments.clear()
        return told

    def see(self, *objs: Json) -> None:
        """Have the view see ``objs``, and ledgers as they are stored."""
        ledgers = [obj for place, obj in self.api.objects.items() if place.startswith(PATH)]
        for obj in (*objs, *ledgers):
            kind = KIND[obj.get("kind", "NodeLedger")]
            self.view.put(kind, {**obj, "apiVersion": kind.api_version, "kind": kind.name})

    def gone(self, kind: str, name: str, namespace: str = "") -> None:
        self.view.drop(KIND[kind], (namespace, name))

    async def publish(self) -> NodeLedger:
        """The ledger once the controller has looked at it and the view has seen what it wrote."""
        assert await self.controller._publish("n1")
        self.see()
        return self.stored()

    def stored(self) -> NodeLedger:
        return read_node_ledger(self.api.objects[N1])

    def store(self, ledger: NodeLedger) -> None:
        """Write as a replica does."""
        obj = node_ledger_object(ledger)
        self.api.put(N1, {**obj, "status": {**obj["status"], **packed_status(obj["status"])}})
        self.see()


def reserved(row: BookedCharge, **more: Any) -> Reservation:
    fields: dict[str, Any] = {"pod_uid": "uid-p1", "pod_namespace": "ns", "pod_name": "p1", "claim_version": "20"}
    fields |= {"pod_request": {"cpu": 2}, "siblings": {}, "charges": (row,), "taken": "t", "holder": "h"} | more
    return Reservation(row.claim_uid, row.allocation, row.namespace, row.name, **fields)


async def booked(world: World) -> BookedCharge:
    """The charge of the claim, seen and released again, and a node that has a ledger."""
    world.see(node(cpu="10"), SLICE, claim())
    (row,) = (await world.publish()).charges
    world.see(free())
    assert (await world.publish()).charges == ()
    return row


def test_a_node_whose_devices_cost_it_something_has_a_ledger_with_its_sums() -> None:
    async def test() -> None:
        world = World()
        world.see(node(cpu="10"), node("n2"), SLICE, claim(), coming())
        ledger = await world.publish()
        assert [(row.name, row.device, row.amount) for row in ledger.charges] == [("a", "d1", 3)]
        assert ledger.node_uid == "u1"
        status = world.api.objects[N1]["status"]
        assert status["resources"]["cpu"] == {
            "allocatable": "10",
            "pods": "2",
            "claims": "3",
            "overhead": "0",
            "reserved": "0",
            "free": "5",
        }
        assert [row["zone"] for row in status["zones"]] == [1]
        # A node without such devices has none.
        assert await world.controller._publish("n2")
        assert list(world.api.objects) == [N1]

    run(test())


def test_what_has_not_changed_is_not_written() -> None:
    async def test() -> None:
        world = World()
        world.see(node(cpu="10"), SLICE, claim())
        version = (await world.publish()).resource_version
        world.see(node(cpu="10"), claim())
        assert (await world.publish()).resource_version == version
        # Sums alone are written after a while.
        world.see(coming())
        assert (await world.publish()).resource_version == version
        assert world.controller._later == {"n1"}
        world.controller._sums["n1"] = (0, -100.0)
        assert (await world.publish()).resource_version != version

    run(test())


def test_what_was_reserved_becomes_a_charge_once_it_is_seen() -> None:
    async def test() -> None:
        world = World()
        row = replace(await booked(world), claim_version="31")
        world.see(coming(node_name="", phase="Pending"))
        world.store(replace(world.stored(), reservations=(reserved(row, claim_version="31"),)))
        assert (await world.publish()).reservations[0].charges == (row,)
        world.see(claim(31))
        ledger = await world.publish()
        assert ledger.charges == (row,)
        assert [(each.charges, each.seen) for each in ledger.reservations] == [((), True)]

    run(test())


def test_a_pod_stays_held_while_replicas_may_not_have_seen_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = World()
        row = await booked(world)
        world.store(replace(world.stored(), reservations=(reserved(row, claim_version="31"),)))
        world.see(claim(31), coming())
        ledger = await world.publish()
        assert [(each.charges, dict(each.pod_request), each.seen) for each in ledger.reservations] == [
            ((), {"cpu": 2}, True)
        ]
        # It is counted once all the same.
        cpu = world.api.objects[N1]["status"]["resources"]["cpu"]
        assert (cpu["pods"], cpu["claims"], cpu["reserved"]) == ("2", "3", "0")
        assert await world.publish() == ledger
        monkeypatch.setattr(node_ledgers, "_LIFE", 0.0)
        assert (await world.publish()).reservations == ()

    run(test())


def test_a_pod_that_has_ended_is_not_held() -> None:
    async def test() -> None:
        world = World()
        row = await booked(world)
        world.store(replace(world.stored(), reservations=(reserved(row, claim_version="31"),)))
        world.see(claim(31), coming())
        assert (await world.publish()).reservations
        world.gone("Pod", "p1", "ns")
        world.see(claim(32, pods=()))
        assert (await world.publish()).reservations == ()

    run(test())


@pytest.mark.parametrize("stored", [None, free(20), claim(40, pods=("p9",))], ids=["gone", "free", "for others"])
def test_what_will_not_come_is_given_up_after_a_time_and_a_live_look(
    monkeypatch: pytest.MonkeyPatch, stored: Json | None
) -> None:
    async def test() -> None:
        world = World()
        row = await booked(world)
        held = reserved(row, claim_version="31")
        world.store(replace(world.stored(), reservations=(held,)))
        if stored is not None:
            world.api.put(f"{CLAIMS}/a", stored)
        # The clock alone is no reason,
        assert (await world.publish()).reservations == (held,)
        monkeypatch.setattr(node_ledgers, "_LIFE", 0.0)
        # nor is a server that does not answer,
        world.api.fail = 1
        with pytest.raises(Unreachable):
            await world.controller._publish("n1")
        assert world.stored().reservations == (held,)
        assert (await world.publish()).reservations == ()

    run(test())


def test_what_a_live_look_shows_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = World()
        row = await booked(world)
        held = reserved(row, claim_version="31")
        world.store(replace(world.stored(), reservations=(held,)))
        world.api.put(f"{CLAIMS}/a", claim(31))
        monkeypatch.setattr(node_ledgers, "_LIFE", 0.0)
        assert (await world.publish()).reservations == (held,)

    run(test())


def test_an_allocation_that_came_and_went_between_two_looks_is_over() -> None:
    async def test() -> None:
        world = World()
        row = await booked(world)
        world.store(replace(world.stored(), reservations=(reserved(row, claim_version="31"),)))
        world.see(claim(31), free(32))
        assert (await world.publish()).reservations == ()
        # That an earlier one with the same time has ended says nothing about the next.
        held = reserved(row, claim_version="33")
        world.store(replace(world.stored(), reservations=(held,)))
        assert (await world.publish()).reservations == (held,)

    run(test())


def test_a_place_is_over_once_its_claim_has_devices_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node of the place hears of it, though nothing has happened there; and one that nobody takes ends in time."""

    async def test() -> None:
        world = World()
        row = await booked(world)
        place = replace(row, allocation=PLACE, device=ANY, zone=None, claim_version="")
        held = reserved(place, claim_version="")
        world.see(coming(node_name="", phase="Pending"), node("n2", uid="u2", cpu="10"))
        world.store(replace(world.stored(), reservations=(held,)))
        assert (await world.publish()).reservations == (held,)
        world.controller._changed.clear()
        other = slice_of(device("d9", old("3"), zone=0), name="s2", pool="n2", nodeName="n2")
        world.see(other, at(31, allocated("a", {**result("d9"), "pool": "n2"}, pods=("p1",), node_name="n2")))
        assert world.controller._changed == {"n1", "n2"}
        assert (await world.publish()).reservations == ()
        world.see(free(32))
        world.store(replace(world.stored(), reservations=(held,)))
        world.api.put(f"{CLAIMS}/a", free(32))
        monkeypatch.setattr(node_ledgers, "_LIFE", 0.0)
        assert (await world.publish()).reservations == ()

    run(test())


def test_a_claim_that_is_gone_is_released_when_the_api_server_says_so() -> None:
    async def test() -> None:
        world = World()
        world.see(node(cpu="10"), SLICE, claim())
        charges = (await world.publish()).charges
        world.api.put(f"{CLAIMS}/a", claim())
        world.gone("ResourceClaim", "a", "ns")
        # A view that has not seen the claim yet, as that of a new leader.
        assert (await world.publish()).charges == charges
        del world.api.objects[f"{CLAIMS}/a"]
        assert (await world.publish()).charges == ()

    run(test())


def test_nothing_is_written_over_what_was_not_seen() -> None:
    async def test() -> None:
        world = World()
        world.see(node(cpu="10"), SLICE, claim())
        row = (await world.publish()).charges[0]
        held = reserved(replace(row, claim_uid="uid-b", name="b"), pod_uid="")
        # A replica's reservation that the view has not brought yet.
        ledger = replace(world.stored(), reservations=(held,))
        obj = node_ledger_object(ledger)
        world.api.put(N1, {**obj, "status": {**obj["status"], **packed_status(obj["status"])}})
        world.view.put(KIND["ResourceClaim"], free())
        assert not await world.controller._publish("n1")
        assert world.stored().reservations == (held,)
        world.see()
        ledger = await world.publish()
        assert (ledger.charges, ledger.reservations) == ((), (held,))

    run(test())


def test_a_node_that_is_gone_takes_its_empty_ledger_along() -> None:
    async def test() -> None:
        world = World()
        world.see(node(cpu="10"), SLICE, claim())
        await world.publish()
        world.gone("Node", "n1")
        assert (await world.publish()).charges
        world.see(free())
        assert await world.controller._publish("n1")
        assert world.api.objects == {}

    run(test())


def test_a_node_made_again_has_its_ledger_written_once_more() -> None:
    async def test() -> None:
        world = World()
        world.see(node(cpu="10"), SLICE, claim())
        await world.publish()
        world.gone("Node", "n1")
        await world.publish()
        world.see(node(uid="u2", cpu="10"))
        ledger = await world.publish()
        assert (ledger.node_uid, len(ledger.charges)) == ("u2", 1)
        assert await world.publish() == ledger

    run(test())


def test_a_ledger_that_cannot_be_read_is_left_alone_and_told() -> None:
    async def test() -> None:
        world = World()
        world.api.put(N1, {"kind": "NodeLedger", "status": {"charges": ["x"]}})
        world.see(node(cpu="10"), SLICE, claim())
        assert await world.controller._publish("n1")
        assert world.api.objects[N1]["status"] == {"charges": ["x"]}
        ((_, fine, told),) = world.controller.checks()
        assert fine
        assert told.startswith("ok, but the ledger of node n1 cannot be read: status.charges[0]: has a text")
        assert told.endswith("; delete it")
        del world.api.objects[N1]
        world.gone("NodeLedger", "n1")
        await world.publish()
        assert world.controller.checks() == [("node ledgers", True, "ok")]

    run(test())


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not true():
            await asyncio.sleep(0.01)


def test_it_follows_the_view_and_waits_while_writes_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_ledgers, "GATHER", 0.01)

    async def test() -> None:
        world = World()
        world.see(node(cpu="10"), SLICE)
        world.api.cut = True
        running = asyncio.create_task(world.controller.run())
        await until(lambda: "connection refused" in world.controller.checks()[0][2])
        world.api.cut = False
        await until(lambda: N1 in world.api.objects)
        world.see(claim())
        await until(lambda: world.stored().charges)
        await until(lambda: world.controller.checks()[0][2] == "ok")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        # Who leads no more remembers nothing.
        assert (world.controller._sums, world.controller._book._pages) == ({}, {})
        version = world.stored().resource_version
        world.see(free())
        assert world.stored().resource_version == version
        world.log.close()
        lines = [json.loads(line) for line in world.said.getvalue().splitlines()]
        assert [line["event"] for line in lines] == ["node ledgers not written"]

    run(test())


def test_a_node_at_which_we_fail_is_told_and_the_others_have_their_ledgers(monkeypatch: pytest.MonkeyPatch) -> None:
    book = node_ledgers.advance

    def advance(held: Any, snapshot: Any, name: str, **more: Any) -> Any:
        if name == "n0":
            raise KeyError("odd")
        return book(held, snapshot, name, **more)

    async def test() -> None:
        monkeypatch.setattr(node_ledgers, "advance", advance)
        world = World()
        other = slice_of(device("d0", old("3")), name="s0", pool="n0", nodeName="n0")
        world.see(node("n0"), node(), other, SLICE, claim())
        assert await world.controller._round() == "n0: KeyError: 'odd'"
        assert [*world.api.objects] == [N1]
        monkeypatch.undo()
        assert await world.controller._round() == ""
        assert [*world.api.objects] == [N1, f"{PATH}/n0"]

    run(test())


def test_a_new_leader_writes_nothing_that_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_ledgers, "GATHER", 0.0)
    monkeypatch.setattr(node_ledgers, "_PAGE", 2)

    async def test() -> None:
        first = World()
        names = [f"n{number}" for number in range(5)]
        slices = [slice_of(device("d0", old("3")), name=f"s-{name}", pool=name, nodeName=name) for name in names]
        first.see(*(node(name, uid=name, cpu="10") for name in names), *slices)
        for name in names:
            assert await first.controller._publish(name)
        versions = {place: obj["metadata"]["resourceVersion"] for place, obj in first.api.objects.items()}
        assert len(versions) == 5
        second = World()
        second.api = first.api
        second.controller = second.led()
        for place, obj in first.api.objects.items():
            second.view.put(KIND["NodeLedger"], {**obj, "apiVersion": "allocguard.dev/v1alpha1"})
            assert place in versions
        second.see(*(node(name, uid=name, cpu="10") for name in names), *slices)
        running = asyncio.create_task(second.controller.run())
        await until(lambda: second.controller._sums and not second.controller._changed)
        await asyncio.sleep(0.05)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert {place: obj["metadata"]["resourceVersion"] for place, obj in first.api.objects.items()} == versions

    run(test())


def test_the_life_of_a_claim_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reserved and charged, in use, released; whoever leads next tells nothing of it again."""

    async def test() -> None:
        world = World()
        row = replace(await booked(world), claim_version="31")
        assert world.told() == [("charged", "a", "not-reserved"), ("released", "a", "deallocated")]
        world.see(coming(node_name="", phase="Pending"))
        world.store(replace(world.stored(), reservations=(reserved(row, claim_version="31"),)))
        await world.publish()
        assert world.told() == []
        world.see(claim(31))
        await world.publish()
        settled, charged = world.moments
        assert (settled.kind, settled.pods) == ("settled", ("ns/p1",))
        assert (charged.kind, charged.reason, charged.node, charged.pods) == ("charged", "", "n1", ("ns/p1",))
        assert charged.amounts == {"cpu": "3"}
        assert charged.charges == (row,)
        world.moments.clear()
        # That a pod has its node now is no reason to write at once.
        world.see(coming())
        await world.publish()
        assert world.told() == []
        assert world.controller._later == {"n1"}
        world.controller._sums["n1"] = (0, -100.0)
        await world.publish()
        [bound] = world.moments
        assert (bound.kind, bound.pods, bound.text) == ("bound", ("ns/p1",), "in use on node n1 by ns/p1: 3 cpu")
        world.controller = world.led()
        world.moments.clear()
        monkeypatch.setattr(node_ledgers, "_LIFE", 0.0)
        assert (await world.publish()).reservations == ()
        assert world.told() == []
        world.see(free(40))
        await world.publish()
        assert world.told() == [("released", "a", "deallocated")]
        await world.publish()
        assert world.told() == []

    run(test())


def test_what_was_reserved_and_never_came_has_lapsed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = World()
        row = await booked(world)
        world.moments.clear()
        world.store(replace(world.stored(), reservations=(reserved(row, claim_version="31"),)))
        await world.publish()
        monkeypatch.setattr(node_ledgers, "_LIFE", 0.0)
        await world.publish()
        [lapsed] = world.moments
        assert (lapsed.kind, lapsed.reason) == ("lapsed", "deallocated")
        assert lapsed.text == "reserved on node n1 and never booked: 3 cpu; the claim has no allocation any more"

    run(test())


def test_a_write_whose_answer_is_lost_is_told_once_it_is_seen() -> None:
    async def test() -> None:
        world = World()
        world.see(node(cpu="10"), SLICE)
        await world.publish()
        patch = world.api.patch

        async def lost(*given: Any, **more: Any) -> Json:
            await patch(*given, **more)
            raise Unreachable("connection lost")

        world.api.patch = lost  # type: ignore[method-assign]
        world.see(claim())
        with pytest.raises(Unreachable):
            await world.controller._publish("n1")
        assert world.told() == []
        world.api.patch = patch  # type: ignore[method-assign]
        # The view does not show it yet: what is written again conflicts.
        assert not await world.controller._publish("n1")
        assert world.told() == []
        world.see()
        await world.publish()
        assert world.told() == [("charged", "a", "not-reserved")]
        await world.publish()
        assert world.told() == []

    run(test())


def test_a_write_that_somebody_else_was_faster_than_is_not_told() -> None:
    async def test() -> None:
        world = World()
        world.see(node(cpu="10"), SLICE)
        await world.publish()
        world.api.put(N1, {**world.api.objects[N1]})
        world.view.put(KIND["ResourceClaim"], {**claim(), "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"})
        assert not await world.controller._publish("n1")
        assert world.told() == []
        world.see()
        await world.publish()
        assert world.told() == [("charged", "a", "not-reserved")]

    run(test())


def test_a_node_without_such_devices_and_a_claim_that_costs_nothing_are_not_told() -> None:
    async def test() -> None:
        world = World()
        costless = slice_of(device("d0"), name="s2", pool="n2", nodeName="n2")
        world.see(node(cpu="10"), SLICE, node("n2", uid="u2"), costless)
        world.see(allocated("b", {**result("d0"), "pool": "n2"}, pods=("p1",), node_name="n2"))
        await world.publish()
        assert await world.controller._publish("n2")
        assert world.told() == []

    run(test())


def test_the_ledger_of_a_node_that_is_gone_tells_what_it_released() -> None:
    async def test() -> None:
        world = World()
        world.see(node(cpu="10"), SLICE, claim())
        await world.publish()
        world.moments.clear()
        world.gone("Node", "n1")
        world.gone("ResourceClaim", "a", "ns")
        assert await world.controller._publish("n1")
        assert world.told() == [("released", "a", "claim-gone")]

    run(test())


def test_whose_claims_and_pods_disagree_with_the_book_is_told_by_every_leader() -> None:
    async def test() -> None:
        world = World()
        booked = coming(entries=[entry("a", cpu="3")])
        world.see(node(cpu="10"), SLICE, claim(), booked)
        await world.publish()
        assert world.differing == set()
        world.see(at(40, coming(entries=[entry("a", cpu="1")])))
        await world.publish()
        assert world.differing == {"uid-p1", "uid-a"}
        # Who leads next looks at every node, and has nothing to write.
        world.controller = world.led()
        world.differing.clear()
        await world.publish()
        assert world.differing == {"uid-p1", "uid-a"}
        world.see(at(41, booked))
        world.differing.clear()
        await world.publish()
        assert world.differing == set()

    run(test())


def test_claims_that_a_node_which_is_gone_left_behind_are_told_too() -> None:
    async def test() -> None:
        world = World()
        world.see(node(cpu="10"), SLICE, claim())
        await world.publish()
        assert world.differing == set()
        world.gone("Node", "n1")
        assert await world.controller._publish("n1")
        assert [row.name for row in world.stored().charges] == ["a"]
        assert world.differing == {"uid-a"}

    run(test())


def test_of_two_that_think_they_lead_one_tells() -> None:
    async def test() -> None:
        world = World()
        world.see(node(cpu="10"), SLICE)
        await world.publish()
        leaders = world.controller, world.led()
        world.see(claim())
        assert [await leader._publish("n1") for leader in leaders] == [True, False]
        world.see()
        assert [await leader._publish("n1") for leader in leaders] == [True, True]
        assert world.told() == [("charged", "a", "not-reserved")]

    run(test())
