"""Reservations of one server: over which version they are written, and what becomes of answers that wait for them."""

from __future__ import annotations

import asyncio
import io
import json
import math
import time
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.bench import fleet
from tests.controllers.memory import Memory
from tests.ledger.builders import DRIVER, allocated, container, device, node, old, pod, result, slice_of
from webhook.cluster.background import Background
from webhook.cluster.kinds import KINDS
from webhook.cluster.ledgers import PATH, Ledgers
from webhook.cluster.live import LiveCluster
from webhook.kube.node_ledger import NodeLedger, node_ledger_object, read_node_ledger
from webhook.kube.packed import packed_status
from webhook.kube.release import Release
from webhook.kube.trace import trace_id
from webhook.server.reserving import Reserving
from webhook.server.service import Reply, Service
from webhook.store.policies import PolicyStore, shipped
from webhook.telemetry.log import Log

Json = dict[str, Any]
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
KIND = {kind.name: kind for kind in KINDS}
N1 = f"{PATH}/n1"
CLASS = {"kind": "DeviceClass", "metadata": {"name": DRIVER}, "spec": {}}
SLICE = slice_of(*(device(f"d{number}", old("6")) for number in range(3)))


def free(name: str) -> Json:
    made = allocated(name)
    made["metadata"]["resourceVersion"] = "20"
    made["status"] = {}
    return made


def review(name: str, device_name: str, dry: bool = False) -> bytes:
    """A scheduler allocates the claim and reserves it for the pod of its name."""
    write = allocated(name, result(device_name), pods=(f"pod-{name}",))
    write["metadata"]["resourceVersion"] = "20"
    made = fleet.review("UPDATE", write, free(name), "status", "system:kube-scheduler")
    made["request"]["dryRun"] = dry
    return json.dumps(made).encode()


class Server:
    """One server with a view of its own, on an API server in memory that it may share."""

    def __init__(self, background: Background, api: Memory, policies: str | Path, audit: bool = False) -> None:
        self.api = api
        self.said = io.StringIO()
        self.log = Log(self.said)
        view = LiveCluster(api, lambda: NOW, self.log.write)  # type: ignore[arg-type]  # the same methods
        view.snapshot = replace(view.snapshot, release=Release(36))
        view.synced = True
        self.view = view
        pods = (pod(f"pod-{name}", container(cpu="1"), claims=(name,), node_name="") for name in "abc")
        self.see(node(cpu="10"), CLASS, SLICE, *map(free, "abc"), *pods)
        self.service = Service(PolicyStore([str(policies)], audit), view, self.log, lambda: NOW)
        metrics = self.service.metrics
        self.service.reserving = Reserving(Ledgers(api), background.submit, view, metrics, "replica")  # type: ignore[arg-type]  # the same methods

    def see(self, *objs: Json) -> None:
        """Have the view see ``objs``; and ledgers as they are stored."""
        ledgers = [{**obj, "kind": "NodeLedger"} for place, obj in self.api.objects.items() if place == N1]
        for obj in (*objs, *ledgers):
            kind = KIND[obj["kind"]]
            self.view.put(kind, {**obj, "apiVersion": kind.api_version, "kind": kind.name})

    async def ask(self, text: bytes, seconds: float = math.inf) -> Json:
        reply = self.service.answer("validate", text, time.perf_counter() + seconds)
        if not isinstance(reply, Reply):
            reply = await reply
        response: Json = json.loads(reply.body)["response"]
        reply.tell(0.0)
        return response

    def count(self, name: str) -> float:
        lines = b"".join(self.service.metrics.pieces()).decode().splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"allocguard_{name} "))


@pytest.fixture
def background() -> Iterator[Background]:
    made = Background()
    yield made
    made.stop()


@pytest.fixture
def make(background: Background) -> Callable[..., Server]:
    def made(api: Memory | None = None, policies: str | Path = "", audit: bool = False) -> Server:
        return Server(background, api or Memory(), policies or shipped(), audit)

    return made


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


def stored(api: Memory) -> NodeLedger:
    return read_node_ledger(api.objects[N1])


def said(response: Json) -> str:
    message: str = response["status"]["message"]
    return message


def test_what_is_allowed_is_held_before_it_is_told(make: Callable[..., Server]) -> None:
    async def test() -> None:
        server = make()
        assert (await server.ask(review("a", "d0")))["allowed"]
        (held,) = stored(server.api).reservations
        assert (held.name, held.pod_name, dict(held.pod_request)) == ("a", "pod-a", {"cpu": 1})
        assert (held.holder, held.claim_version) == ("replica", "21")
        assert server.count('reservations_total{outcome="taken"}') == 1
        text = b"".join(server.service.metrics.pieces(exemplars=True)).decode()
        traced = [line for line in text.splitlines() if "reservation" in line and "trace_id=" in line]
        assert len(traced) == 2
        assert all(f'trace_id="{trace_id(held.claim_uid)}"' in line for line in traced)

    run(test())


def test_what_we_wrote_counts_before_the_watch_brings_it(make: Callable[..., Server]) -> None:
    async def test() -> None:
        server = make()
        assert (await server.ask(review("a", "d0")))["allowed"]
        assert "10 allocatable - 7 reserved - 6 this claim - 1 this pod = -4" in said(
            await server.ask(review("b", "d1"))
        )
        assert server.count("reservation_conflicts_total") == 0
        # A second review of the first write finds its own.
        assert (await server.ask(review("a", "d0")))["allowed"]
        assert server.count('reservations_total{outcome="taken"}') == 1

    run(test())


def test_of_two_at_once_one_waits_for_the_other(make: Callable[..., Server]) -> None:
    async def test() -> None:
        server = make()
        answers = await asyncio.gather(*(server.ask(review(name, f"d{at}")) for at, name in enumerate("abc")))
        assert [each["allowed"] for each in answers] == [True, False, False]
        assert server.count("reservation_conflicts_total") == 0

    run(test())


def test_another_replica_that_was_faster_is_seen_and_the_decision_made_again(make: Callable[..., Server]) -> None:
    async def test() -> None:
        first = make()
        second = make(first.api.connection())
        for server in (first, second):
            server.api.objects.pop(N1, None)
        assert (await first.ask(review("a", "d0")))["allowed"]
        assert "7 reserved" in said(await second.ask(review("b", "d1")))
        assert second.count("reservation_conflicts_total") == 1
        assert [each.name for each in stored(first.api).reservations] == ["a"]

    run(test())


def test_a_race_that_leaves_room_is_won_by_both(make: Callable[..., Server]) -> None:
    async def test() -> None:
        first = make()
        second = make(first.api.connection())
        for server in (first, second):
            server.see(node(cpu="14"))
        assert (await first.ask(review("a", "d0")))["allowed"]
        assert (await second.ask(review("b", "d1")))["allowed"]
        assert [each.name for each in stored(first.api).reservations] == ["a", "b"]

    run(test())


def test_a_dry_run_and_a_refusal_hold_nothing(make: Callable[..., Server]) -> None:
    async def test() -> None:
        server = make()
        assert (await server.ask(review("a", "d0", dry=True)))["allowed"]
        assert not (await server.ask(review("a", "nowhere")))["allowed"]
        assert server.api.objects == {}

    run(test())


def test_a_server_that_does_not_answer_is_no_reason_to_allow(make: Callable[..., Server]) -> None:
    async def test() -> None:
        server = make()
        server.api.cut = True
        response = await server.ask(review("a", "d0"))
        assert (response["status"]["code"], response["status"]["reason"]) == (403, "Forbidden")
        assert said(response) == (
            "claim-allocation/not-reserved: status.allocation: has no reservation on node n1: the API server does not "
            "answer: connection refused, needs one before it is allowed, so that nobody else is given the same; "
            "try again"
        )
        assert server.count('reservations_total{outcome="failed"}') == 1
        server.api.cut = False
        assert (await server.ask(review("a", "d0")))["allowed"]

    run(test())


@pytest.mark.parametrize(("age", "allowed"), [(90, True), (91, False)])
def test_on_a_view_that_is_older_than_reservations_last_nothing_is_allowed(
    make: Callable[..., Server], age: int, allowed: bool
) -> None:
    async def test() -> None:
        server = make()
        # For the driver's sake it might be older.
        window = {"stage": "General", "freshness": {"window": "300s"}}
        server.see({"kind": "DriverRollout", "metadata": {"name": DRIVER}, "spec": window})
        snapshot = server.view.snapshot
        seen = snapshot.seen.set("Pod", NOW - timedelta(seconds=age)).set("Node", NOW)
        server.view.snapshot = replace(snapshot, seen=seen)
        response = await server.ask(review("a", "d0"))
        assert response["allowed"] is allowed
        if not allowed:
            assert "node n1: what is known of Pod is more than 90 seconds old, needs" in said(response)
            assert server.api.objects == {}

    run(test())


def test_the_time_of_the_request_is_all_there_is(make: Callable[..., Server]) -> None:
    async def test() -> None:
        server = make()
        server.api.slow = 30.0
        answers = await asyncio.gather(*(server.ask(review(name, f"d{at}"), 0.3) for at, name in enumerate("ab")))
        for each in answers:
            assert "no reservation on node n1: the time of the request was spent" in said(each)
        server.api.slow = 0.0
        assert (await server.ask(review("a", "d0")))["allowed"]

    run(test())


def test_the_time_may_be_up_after_somebody_else_was_faster(
    make: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is told then is the refusal, and it is counted as any other."""

    async def test() -> None:
        first = make()
        second = make(first.api.connection())
        for server in (first, second):
            server.see(node(cpu="14"))
        assert (await first.ask(review("a", "d0")))["allowed"]
        patch = second.api.patch

        async def late(*given: Any) -> Json:
            second.api.slow = 30.0
            return await patch(*given)

        monkeypatch.setattr(second.api, "patch", late)
        assert "the time of the request was spent" in said(await second.ask(review("b", "d1"), 0.5))
        assert second.count("reservation_conflicts_total") == 1
        assert second.count('findings_total{action="Deny",policy="claim-allocation",rule="not-reserved"}') == 1

    run(test())


def test_without_the_kind_or_the_right_nothing_is_allowed(
    make: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    from webhook.cluster.api import ApiError

    async def test() -> None:
        server = make()
        errors = [ApiError(404, "NotFound", "no such resource"), ApiError(403, "Forbidden", "user a cannot create")]

        async def refuse(*_: object) -> Json:
            raise errors.pop(0)

        monkeypatch.setattr(server.api, "create", refuse)
        assert "has no NodeLedgers; install the definitions of this release" in said(
            await server.ask(review("a", "d0"))
        )
        assert "refuses it: 403 Forbidden: user a cannot create" in said(await server.ask(review("a", "d0")))

    run(test())


def test_on_a_ledger_that_cannot_be_read_nothing_is_held(make: Callable[..., Server]) -> None:
    async def test() -> None:
        server = make()
        server.api.put(N1, {"status": {"charges": ["x"]}})
        assert "its NodeLedger cannot be read: status.charges[0]: has a text" in said(
            await server.ask(review("a", "d0"))
        )
        assert server.api.objects[N1]["status"] == {"charges": ["x"]}

    run(test())


def test_a_ledger_that_somebody_deleted_is_made_again(make: Callable[..., Server]) -> None:
    async def test() -> None:
        server = make()
        assert (await server.ask(review("a", "d0")))["allowed"]
        server.see(node(cpu="20"))
        del server.api.objects[N1]
        assert (await server.ask(review("b", "d1")))["allowed"]
        assert [each.name for each in stored(server.api).reservations] == ["b"]

    run(test())


def test_what_is_charged_in_the_ledger_goes_before_our_own_view(make: Callable[..., Server]) -> None:
    """The view of this server has not seen yet that another claim was allocated and booked."""

    async def test() -> None:
        server = make()
        assert (await server.ask(review("a", "d0")))["allowed"]
        ledger = stored(server.api)
        booked = replace(ledger, charges=ledger.reservations[0].charges, reservations=())
        obj = node_ledger_object(booked)
        server.api.put(N1, {**obj, "status": packed_status(obj["status"])})
        server.see()
        assert "10 allocatable - 6 claims - 6 this claim - 1 this pod = -3" in said(await server.ask(review("b", "d1")))

    run(test())


def test_who_only_warns_or_audits_refuses_nobody(make: Callable[..., Server], tmp_path: Path) -> None:
    async def test() -> None:
        text = Path(shipped(), "claim-allocation.yaml").read_text()
        (tmp_path / "claim-allocation.yaml").write_text(text.replace("action: Deny", "action: Warn"))
        warning = make(policies=tmp_path)
        warning.api.cut = True
        response = await warning.ask(review("a", "d0"))
        assert response["allowed"]
        assert response["warnings"][0].startswith("claim-allocation/not-reserved: has no reservation on node n1")
        auditing = make(audit=True)
        auditing.api.cut = True
        response = await auditing.ask(review("a", "d0"))
        assert (response["allowed"], response.get("warnings")) == (True, None)
        assert "claim-allocation/not-reserved" in response["auditAnnotations"]["findings"].split(",")
        auditing.api.cut = False
        assert (await auditing.ask(review("a", "d0")))["allowed"]
        assert stored(auditing.api).reservations

    run(test())


def test_a_set_that_judges_no_allocation_holds_none(make: Callable[..., Server], tmp_path: Path) -> None:
    async def test() -> None:
        text = Path(shipped(), "slice-sets.yaml").read_text()
        (tmp_path / "slice-sets.yaml").write_text(text)
        server = make(policies=tmp_path)
        assert (await server.ask(review("a", "d0")))["allowed"]
        assert server.api.objects == {}

    run(test())
