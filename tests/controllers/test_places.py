"""Pods whose zones somebody has to choose: where they are let go to, what is held for them, and what they wait for."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from tests.controllers import test_gates
from tests.controllers.memory import Memory
from tests.controllers.test_gates import KIND, NOW, Untainted
from tests.ledger.builders import allocated, container, device, node, old, pod, result, slice_of
from tests.ledger.test_reserve import CLASS
from webhook.cluster.api import ApiError
from webhook.cluster.ledgers import PATH
from webhook.cluster.live import LiveCluster
from webhook.controllers import fitting, gates
from webhook.controllers.gates import Gates
from webhook.controllers.places import Places
from webhook.facts.taints import TaintWanted
from webhook.kube.core import GATE
from webhook.kube.node_ledger import PLACE, NodeLedger, node_ledger_object, read_node_ledger
from webhook.kube.packed import packed_status
from webhook.ledger.booking import advance
from webhook.telemetry.log import Log

Json = dict[str, Any]

PODS = "/api/v1/namespaces/ns/pods"


class Server(test_gates.Server):
    """With ledgers, too."""

    async def create(self, path: str, obj: Json, **params: object) -> Json:
        if path != PATH:
            return await super().create(path, obj, **params)
        if (refusal := self.refuses("ledgers")) is not None:
            raise refusal
        return await Memory.create(self, path, obj, **params)

    async def patch(self, path: str, body: Any, kind: str, **params: object) -> Json:
        if not path.startswith(PATH):
            return await super().patch(path, body, kind, **params)
        if (refusal := self.refuses("ledgers")) is not None:
            raise refusal
        stored = await Memory.patch(self, path, body, kind, **params)
        self.seen({**stored, "kind": "NodeLedger"})
        return stored


class Tainted(Untainted):
    """Where there are taints: those that are wanted stand once a test says so."""

    possible = True

    def __init__(self) -> None:
        self.wanted: tuple[TaintWanted, ...] = ()
        self.standing: set[str] = set()

    def want(self, full: Sequence[TaintWanted]) -> None:
        self.wanted = tuple(full)

    def stands(self, wanted: TaintWanted) -> bool:
        return wanted.name in self.standing

    def stand(self) -> list[str]:
        """Have them stand; the devices, with their pools."""
        self.standing = {each.name for each in self.wanted}
        return [f"{each.pool}/{each.device}" for each in self.wanted]


def machine(name: str, **zones: str) -> list[Json]:
    """A node of two zones, of 8 cpu each unless ``zones`` says otherwise, with three devices of 4 cpu in each."""
    rows = [
        {"name": f"node-{zone}", "type": "Node", "resources": [{"name": "cpu", "allocatable": amount}]}
        for zone, amount in enumerate(({"zone0": "8", "zone1": "8"} | zones).values())
    ]
    kind = {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology"}
    devices = [device(f"d{n}", old("4"), zone=n // 3) for n in range(6)]
    return [
        node(name, uid=f"u-{name}", cpu="64"),
        {**kind, "metadata": {"name": name}, "zones": rows},
        slice_of(*devices, name=f"s-{name}", pool=name, nodeName=name),
    ]


def waiting(name: str, created: str = "2026-11-20T09:00:00Z", **spec: Any) -> list[Json]:
    """A gated pod with a claim of its own."""
    free = allocated(name)
    free["status"] = {}
    free["metadata"]["resourceVersion"] = "20"
    user = pod(name, container(cpu="1", claims=("c",)), node_name="", phase="Pending")
    user["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimName": name}]
    user["metadata"]["creationTimestamp"] = created
    user["spec"] |= {"schedulingGates": [{"name": GATE}], **spec}
    return [free, user]


def given(name: str, where: str = "n1", *devices: str) -> Json:
    """The claim of the pod as it has its devices."""
    rows = [{**result(each), "pool": where} for each in devices or ("d0",)]
    made = allocated(name, *rows, pods=(name,), node_name=where, at="2026-11-20T09:31:00Z")
    made["metadata"]["resourceVersion"] = "30"
    return made


class World:
    """A cluster, the view of it, and the controllers."""

    def __init__(self, *objs: Json, taints: Untainted | None = None) -> None:
        self.api, self.log = Server(), Log(io.StringIO())
        self.view = LiveCluster(self.api, lambda: NOW, self.log.write)  # type: ignore[arg-type]  # the same methods
        self.facts = {gates.WAITING, gates.ZONES}
        self.see(CLASS, *objs)
        self.taints = taints or Untainted()
        self.gates = self.begun()
        self.api.seen = self.see

    def begun(self) -> Gates:
        """Controllers that know nothing of those before them."""
        chosen = Places(self.api, self.view, self.taints, lambda: NOW, "me")  # type: ignore[arg-type]  # the same methods
        return Gates(self.api, self.view, self.facts.__contains__, chosen, self.log, lambda: NOW)  # type: ignore[arg-type]

    def see(self, *objs: Json) -> None:
        for obj in objs:
            kind = KIND[obj["kind"]]
            if obj["kind"] == "Pod" and "resourceVersion" not in obj["metadata"]:
                obj = self.api.put(f"{PODS}/{obj['metadata']['name']}", obj)
            self.view.put(kind, {**obj, "apiVersion": kind.api_version})

    async def look(self) -> list[str]:
        """The pods that were let go."""
        before = len(self.api.patched)
        assert await self.gates.look() == ""
        return self.api.patched[before:]

    def hosts(self, name: str) -> list[list[str]]:
        """The nodes that the terms of a pod name."""
        spec = self.api.objects[f"{PODS}/{name}"]["spec"]
        required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        rows = [term["matchExpressions"][-1] for term in required["nodeSelectorTerms"]]
        assert {(row["key"], row["operator"]) for row in rows} == {("kubernetes.io/hostname", "In")}
        return [row["values"] for row in rows]

    def ledger(self, name: str = "n1") -> NodeLedger:
        return read_node_ledger(self.api.objects[f"{PATH}/{name}"])

    def held(self, name: str = "n1") -> list[tuple[str, int | None]]:
        """The claims that have places on the node, with the zone."""
        if f"{PATH}/{name}" not in self.api.objects:
            return []
        rows = self.ledger(name).reservations
        return [(each.name, each.charges[0].zone) for each in rows if each.allocation == PLACE]

    def settle(self, name: str = "n1") -> None:
        """What the leader makes of the ledger."""
        self.store(advance(self.ledger(name), self.view.snapshot, name))

    def store(self, ledger: NodeLedger) -> None:
        """Write as others do."""
        obj = node_ledger_object(ledger)
        obj["status"] |= packed_status(obj["status"])
        stored = self.api.put(f"{PATH}/{ledger.node}", obj)
        self.see({**stored, "kind": "NodeLedger"})

    @property
    def told(self) -> dict[str, str]:
        """What events tell pods."""
        return {name: event["message"] for name, event in self.api.events.items()}


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await test()

    asyncio.run(limited())


def test_a_pod_is_let_go_to_all_nodes_where_it_fits_and_has_a_place_on_the_best() -> None:
    async def test() -> None:
        world = World(*machine("n1"), *machine("n2"), *machine("n3", zone1="3"), *waiting("p1"))
        world.see({**node("n2", uid="u-n2", cpu="65")})
        assert await world.look() == ["p1"]
        assert world.hosts("p1") == [["n2", "n1"]]
        assert (world.held("n2"), world.held("n1")) == ([("p1", None)], [])
        [place] = world.ledger("n2").reservations
        assert (place.claim_uid, place.pod_uid, place.holder) == ("uid-p1", "uid-p1", "me")
        assert place.pod_request == {"cpu": 1}
        # Nobody was told anything: it did not wait.
        assert world.told == {}
        assert await world.look() == []

    run(test)


def test_a_pod_waits_while_no_zone_has_room_and_is_told_so_once_that_lasts() -> None:
    async def test() -> None:
        world = World(*machine("n1", zone0="3", zone1="2"), *waiting("p1"))
        assert await world.look() == []
        assert world.told == {}
        assert await world.look() == []
        said = "zone-overcommit: has cpu at least 4 on zone 0 of node n1, needs at most 3, which is what is free there"
        assert world.told["p1"].startswith(said)
        assert world.gates.checks() == [("gates", True, "ok; 1 wait: zone-overcommit")]
        world.see(machine("n1")[1])
        assert await world.look() == ["p1"]
        assert world.hosts("p1") == [["n1"]]

    run(test)


def test_where_taints_are_not_heeded_a_node_with_one_full_zone_is_not_offered() -> None:
    async def test() -> None:
        world = World(*machine("n1", zone0="3"), *waiting("p1"))
        for _ in range(2):
            assert await world.look() == []
        assert world.told["p1"].startswith("zone-overcommit: has cpu up to 4 on zone 0 of node n1, needs at most 3")
        assert world.held() == []

    run(test)


def test_devices_of_a_full_zone_are_tainted_until_the_pod_has_its_own() -> None:
    async def test() -> None:
        taints = Tainted()
        world = World(*machine("n1", zone0="3"), *waiting("p1"), taints=taints)
        assert await world.look() == []
        assert taints.stand() == ["n1/d0", "n1/d1", "n1/d2"]
        assert await world.look() == ["p1"]
        assert (world.hosts("p1"), world.held()) == ([["n1"]], [("p1", 1)])
        # Let go, and not allocated yet: it may be the next moment, or after a restart.
        for controllers in (world.gates, world.begun()):
            world.gates = controllers
            await world.look()
            assert taints.stand() == ["n1/d0", "n1/d1", "n1/d2"]
        world.see(given("p1", "n1", "d3"))
        world.settle()
        await world.look()
        assert (taints.wanted, world.held()) == ((), [])

    run(test)


def test_a_node_that_was_offered_is_tainted_when_its_zone_fills_up_meanwhile() -> None:
    """The scheduler may choose it, whatever place is held elsewhere."""

    async def test() -> None:
        taints = Tainted()
        world = World(*machine("n1"), *machine("n2"), *waiting("p1"), taints=taints)
        assert await world.look() == ["p1"]
        assert world.held("n1") == [("p1", None)]
        await world.look()
        assert taints.wanted == ()
        world.see(given("other", "n2", "d0", "d1"))
        await world.look()
        assert taints.stand() == ["n2/d2"]

    run(test)


def test_only_as_many_are_let_go_as_fit_wherever_each_of_them_lands() -> None:
    async def test() -> None:
        pods = [obj for n in range(4) for obj in waiting(f"p{n}", f"2026-11-20T09:00:0{n}Z")]
        world = World(*machine("n1"), *pods)
        # Two may both come to lie in either zone, and fill it.
        assert await world.look() == ["p0", "p1"]
        assert await world.look() == []
        world.see(given("p0", "n1", "d0"), given("p1", "n1", "d1"))
        world.settle()
        for _ in range(3):
            assert await world.look() == []
        assert set(world.told) == {"p2", "p3"}
        world.see({**given("p0", "n1"), "status": {}}, {**given("p1", "n1"), "status": {}})
        assert await world.look() == ["p2", "p3"]

    run(test)


def test_who_was_let_go_to_several_nodes_counts_on_all_of_them_until_it_has_its_devices() -> None:
    """The scheduler may send both to one node, whatever places they have. It is looked at as soon as one has chosen."""

    async def test() -> None:
        objs = [obj for name in ("n1", "n2") for obj in machine(name, zone0="4", zone1="4")]
        world = World(*objs, *waiting("p1"), *waiting("p2", "2026-11-20T09:00:01Z"))
        assert await world.look() == ["p1"]
        assert (world.hosts("p1"), world.held("n1")) == ([["n1", "n2"]], [("p1", None)])
        assert await world.look() == []
        before = world.view.snapshot
        world.see(given("p1", "n2"))
        world.gates._wake.clear()
        world.gates._heard("ResourceClaim", ("ns", "p1"), before, world.view.snapshot)
        assert world.gates._wake.is_set()
        assert await world.look() == ["p2"]
        assert world.hosts("p2") == [["n1"]]
        world.gates._wake.clear()
        world.gates._heard("ResourceClaim", ("ns", "p1"), before, world.view.snapshot)
        assert not world.gates._wake.is_set()

    run(test)


def test_each_of_a_crowd_is_offered_its_share_of_the_nodes() -> None:
    async def test() -> None:
        nodes = [obj for n in range(24) for obj in machine(f"n{n:02}", zone0="4", zone1="4")]
        alone = World(*nodes, *waiting("p1"))
        await alone.look()
        assert len(alone.hosts("p1")[0]) == 24
        crowd = World(*nodes, *(obj for n in range(10) for obj in waiting(f"p{n}")))
        gone = await crowd.look()
        assert [len(crowd.hosts(name)[0]) for name in gone] == [8, 8, 8]
        assert len({host for name in gone for host in crowd.hosts(name)[0]}) == 24

    run(test)


def test_where_a_pod_may_go_is_its_users_to_say() -> None:
    async def test() -> None:
        term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n2", "n3"]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term, {}]}}
        mine = waiting("p1", affinity={"nodeAffinity": required})
        nowhere = waiting("p2", nodeSelector={"rack": "a"})
        world = World(*machine("n1"), *machine("n2"), *machine("n3", zone0="1"), *mine, *nowhere)
        assert await world.look() == ["p1"]
        stored = world.api.objects[f"{PODS}/p1"]["spec"]["affinity"]["nodeAffinity"]
        [kept, empty] = stored["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        assert kept["matchExpressions"][0] == term["matchExpressions"][0]
        assert (kept["matchExpressions"][1]["values"], empty) == (["n2"], {})
        assert world.held("n2") == [("p1", None)]
        await world.look()
        assert world.told["p2"].startswith("zone-to-choose: has no node that it may have")

    run(test)


def test_only_nodes_that_the_pod_may_have_are_tainted() -> None:
    async def test() -> None:
        taints = Tainted()
        objs = [*machine("n1", zone0="3"), *machine("n2", zone1="3")]
        world = World(*objs, *waiting("p1", nodeSelector={"kubernetes.io/hostname": "n2"}), taints=taints)
        assert await world.look() == []
        assert taints.stand() == ["n2/d3", "n2/d4", "n2/d5"]
        assert await world.look() == ["p1"]

    run(test)


def test_a_ledger_that_others_write_is_read_again() -> None:
    async def test() -> None:
        world = World(*machine("n1"), *waiting("p1"))
        world.store(NodeLedger("n1", "u-n1"))
        view = world.view.snapshot
        world.store(replace(world.ledger(), boot_id="other"))
        # The view does not show yet what others have written.
        world.view.snapshot = replace(world.view.snapshot, ledgers=view.ledgers)
        assert await world.look() == ["p1"]
        assert world.held() == [("p1", None)]
        assert world.ledger().boot_id == "other"

    run(test)


def test_where_no_ledger_can_be_written_the_pod_goes_without_a_place() -> None:
    """A gate is never left behind; the refusal of the allocation tells what is wrong."""

    async def test() -> None:
        world = World(*machine("n1"), *waiting("p1"))
        world.api.refuses = lambda name: ApiError(403, "Forbidden", "no") if name == "ledgers" else None
        assert await world.look() == ["p1"]
        assert (world.hosts("p1"), world.held()) == ([["n1"]], [])

    run(test)


def test_a_server_that_is_busy_is_asked_again() -> None:
    async def test() -> None:
        world = World(*machine("n1"), *waiting("p1"))
        world.api.refuses = lambda name: ApiError(503, "Unavailable", "busy") if name == "ledgers" else None
        assert "busy" in await world.gates.look()
        world.api.refuses = lambda name: None
        assert await world.look() == ["p1"]

    run(test)


def test_a_claim_that_is_not_made_yet_is_waited_for() -> None:
    async def test() -> None:
        free, user = waiting("p1")
        user["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimTemplateName": "t"}]
        template = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "spec": {"spec": free["spec"]}}
        world = World(*machine("n1"), {**template, "metadata": {"name": "t", "namespace": "ns"}}, user)
        for _ in range(3):
            assert await world.look() == []
        assert world.gates.checks() == [("gates", True, "ok; 1 wait: claim-not-made")]
        assert world.told == {}
        user["status"] = {"resourceClaimStatuses": [{"name": "c", "resourceClaimName": "p1"}]}
        world.see(free, user)
        assert await world.look() == ["p1"]

    run(test)


def test_a_pod_that_was_changed_since_it_was_read_is_read_again() -> None:
    async def test() -> None:
        world = World(*machine("n1"), *machine("n2"), *waiting("p1"))
        user = waiting("p1", nodeSelector={"kubernetes.io/hostname": "n2"})[1]
        get = world.api.get

        async def changed_after(path: str, **params: object) -> Json:
            found = await get(path, **params)
            if path == f"{PODS}/p1":
                world.api.get = get  # type: ignore[method-assign]
                world.api.put(path, user)
            return found

        world.api.get = changed_after  # type: ignore[method-assign]
        assert await world.look() == []
        assert world.held("n1") == [("p1", None)]
        world.see(world.api.objects[f"{PODS}/p1"] | {"kind": "Pod"})
        assert await world.look() == ["p1"]
        assert world.hosts("p1") == [["n2"]]

    run(test)


def test_who_leads_next_keeps_the_place_that_was_held() -> None:
    """Though another node would be better by now."""

    async def test() -> None:
        world = World(*machine("n1"), *waiting("p1"))
        world.api.refuses = lambda name: ApiError(503, "Unavailable", "busy") if name == "p1" else None
        assert "busy" in await world.gates.look()
        assert world.held("n1") == [("p1", None)]
        world.api.refuses = lambda name: None
        world.see(*machine("n2"), node("n2", uid="u-n2", cpu="99"))
        world.gates = world.begun()
        assert await world.look() == ["p1"]
        assert (world.hosts("p1"), world.held("n1"), world.held("n2")) == ([["n1", "n2"]], [("p1", None)], [])

    run(test)


def test_without_a_policy_that_has_zones_chosen_the_gate_goes_and_nothing_else() -> None:
    async def test() -> None:
        taints = Tainted()
        world = World(*machine("n1", zone0="3"), *waiting("p1"), taints=taints)
        await world.look()
        assert taints.wanted != ()
        world.facts.discard(gates.ZONES)
        assert await world.look() == ["p1"]
        assert "affinity" not in world.api.objects[f"{PODS}/p1"]["spec"]
        assert (taints.wanted, world.held()) == ((), [])

    run(test)


def test_equal_pods_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Very many pods wait for very many nodes that have no room; one node that has changed is looked at again."""
    looked: list[str] = []
    real = fitting.place_on

    def counted(*arguments: Any) -> object:
        looked.append(arguments[3].node)
        return real(*arguments)

    monkeypatch.setattr(fitting, "place_on", counted)

    async def test() -> None:
        nodes = [obj for n in range(20) for obj in machine(f"n{n}", zone0="3", zone1="3")]
        pods = [obj for n in range(300) for obj in waiting(f"p{n}")]
        world = World(*nodes, *pods)
        await world.gates.look()
        assert len(looked) == 20
        await world.gates.look()
        assert len(looked) == 20
        world.see(machine("n7", zone0="4", zone1="4")[1])
        assert len(await world.look()) == 1
        # Once more with the place of the first one, and for that one itself, whose devices are not to be tainted.
        assert looked[20:] == ["n7", "n7", "n7"]

    run(test)
