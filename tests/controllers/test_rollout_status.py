from __future__ import annotations

import asyncio
import io
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.controllers.memory import Memory
from tests.controllers.playing import until
from tests.facts.builders import DRIVER, NOW, claim, grp, node, pod, pod_ref, result, rollout, slice_of
from tests.telemetry.receiver import Receiver
from webhook.cluster.api import ApiError, Unreachable
from webhook.controllers import rollout_status
from webhook.controllers.rollout_status import MOST, PATH, RolloutStatus
from webhook.facts.times import stamp
from webhook.kube.release import NODE_ALLOCATABLE, Release
from webhook.kube.snapshot import Snapshot, build
from webhook.kube.trace import trace_id
from webhook.telemetry.log import Log
from webhook.telemetry.tracing import Tracing

Json = dict[str, Any]
EVENTS = "/api/v1/namespaces/default/events"


def bare(value: Any) -> Any:
    """Without what is None, which a real API server does not store."""
    if isinstance(value, dict):
        return {name: bare(each) for name, each in value.items() if each is not None}
    return value


def outside(value: Any, schema: Json, where: str = "status") -> list[str]:
    """The places in ``value`` that a CRD's ``schema`` does not have, which an API server would leave out."""
    if isinstance(value, list):
        return [each for item in value for each in outside(item, schema["items"], where)]
    if not isinstance(value, dict):
        return [] if value is None or value in schema.get("enum", [value]) else [where]
    known = schema["properties"]
    unknown = [f"{where}.{name}" for name in value if name not in known]
    inner = (outside(each, known[name], f"{where}.{name}") for name, each in value.items() if name in known)
    return [*unknown, *(each for found in inner for each in found)]


class Server(Memory):
    """An API server that has DriverRollouts, with a view of them and of ``others``; counts what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.others: list[Json] = [node(), slice_of(grp())]
        self.gates: dict[str, bool] = {NODE_ALLOCATABLE: True}
        self.snapshot = Snapshot()
        self.writes: list[str] = []
        self.error: Exception | None = None
        self.now = NOW
        self.log = io.StringIO()

    def edit(self, name: str = DRIVER, **spec: Any) -> None:
        """What an operator writes, and the view shows."""
        path = f"{PATH}/{name}"
        before = self.objects.get(path, {"metadata": {"generation": 0}})
        made = rollout(name, **spec)
        metadata = {"name": name, "uid": f"u-{name}", "generation": before["metadata"]["generation"] + 1}
        self.put(path, {**before, **made, "metadata": metadata})
        self.seen()

    def seen(self, **gates: bool) -> None:
        """The view learns what is stored."""
        rollouts = [obj for path, obj in self.objects.items() if path.startswith(PATH)]
        self.snapshot = build([*self.others, *rollouts], Release(36, {**self.gates, **gates}))

    async def create(self, path: str, obj: Json, **params: object) -> Json:
        if path.endswith("/resourceslices"):
            raise ApiError(403, "Forbidden", "cannot create resource")
        return await super().create(path, obj, **params)

    async def patch(self, path: str, body: Json, kind: str, **params: object) -> Json:
        if self.error is not None:
            raise self.error
        made = await super().patch(path, body, kind, **params)
        self.writes.append(path.split("/")[-2])
        self.seen()
        return made

    def status(self, name: str = DRIVER) -> Json:
        found: Json = bare(self.objects[f"{PATH}/{name}"]["status"])
        return found

    def condition(self, kind: str) -> str:
        return next(str(each["status"]) for each in self.status()["conditions"] if each["type"] == kind)

    def events(self) -> list[tuple[str, str]]:
        found = [obj for path, obj in self.objects.items() if path.startswith(EVENTS)]
        return [(each["reason"], each["message"]) for each in found]

    def controller(self) -> RolloutStatus:
        return RolloutStatus(self, self, Log(self.log), lambda: self.now)  # type: ignore[arg-type]


@pytest.fixture
def server() -> Server:
    return Server()


def rounds(controller: RolloutStatus, *times: float) -> list[str]:
    async def all_of_them() -> list[str]:
        return [await controller._round(at) for at in times]

    return asyncio.run(all_of_them())


def test_the_status_that_is_written_at_first(server: Server) -> None:
    server.edit(stage="Canary", promotion={"minCoverage": 100})
    assert rounds(server.controller(), 0) == [""]
    found = server.status()
    assert {name: found[name] for name in ("observedGeneration", "stage", "coverage", "pools", "claims")} == {
        "observedGeneration": 1,
        "stage": "Canary",
        "coverage": {"nodes": 1, "fresh": 1, "percent": 100},
        "pools": {"fresh": 1, "rebuilding": 0, "gone": 0, "invalid": 0, "unknown": 0, "held": 0},
        "claims": {"waiting": 0, "bound": 0},
    }
    assert (found["observedSince"], found["quietSince"], found["pending"]) == (stamp(NOW), stamp(NOW), {"count": 0})
    assert (found["differences"], found["duplicates"], found["zoneFailures"], found["heldPools"]) == (0, 0, 0, [])
    assert len(found["digests"]) == 1
    assert (found["promotion"]["stage"], found["promotion"]["passed"]) == ("Canary", True)
    states = {each["type"]: each["status"] for each in found["conditions"]}
    assert states == {"Valid": "True", "Held": "False", "GateEnabled": "True", "Promotable": "True"}
    assert server.events() == []


def test_everything_that_is_written_is_in_the_schema(server: Server) -> None:
    definition = yaml.safe_load((Path(__file__).parents[2] / "deploy" / "crds" / "driverrollouts.yaml").read_text())
    [version] = definition["spec"]["versions"]
    known = version["schema"]["openAPIV3Schema"]["properties"]["status"]
    counted(server, NOW, 1)
    server.edit(stage="Canary", hold={"reason": "r"}, promotion={"drills": ["Rollback"]})
    rounds(server.controller(), 0)
    assert outside(server.status(), known) == []
    assert server.status()["heldPools"]
    assert known["properties"].keys() - server.status().keys() == {"drills"}


def test_nothing_is_written_while_nothing_changes(server: Server) -> None:
    server.edit(stage="Canary")
    controller = server.controller()
    rounds(controller, 0, 1, 20)
    # What only grows older is no news.
    server.now += timedelta(minutes=5)
    rounds(controller, 40, 60)
    rounds(server.controller(), 0)
    assert server.writes == [DRIVER]


def test_an_edit_is_answered_at_once_and_what_moves_by_itself_at_the_next_look(server: Server) -> None:
    server.edit(stage="Canary")
    controller = server.controller()
    rounds(controller, 0, 1)
    server.others.append(slice_of(grp(), name="s2", pool="more", count=2))
    server.seen()
    rounds(controller, 2, 9)
    assert server.status()["pools"]["rebuilding"] == 0
    server.edit(stage="Canary", hold={"reason": "books half"})
    rounds(controller, 9.5)
    assert (server.condition("Held"), server.status()["pools"]["rebuilding"]) == ("True", 1)
    server.others.pop()
    server.seen()
    rounds(controller, 10, 11)
    assert server.status()["pools"]["rebuilding"] == 0


def test_each_step_is_an_event_and_a_span_once(server: Server) -> None:
    bad, good = (f"sha256:{letter * 64}" for letter in "ab")
    hold = {"reason": "books half", "by": "on-call", "since": stamp(NOW + timedelta(minutes=1, seconds=50))}
    steps: list[Json] = [
        {"stage": "Canary"},
        {"stage": "Canary", "hold": hold},
        {"stage": "Canary", "hold": {**hold, "by": "me"}},
        {"stage": "Canary", "hold": {**hold, "badMappings": [bad]}},
        {"stage": "Canary", "hold": {**hold, "badMappings": [bad]}, "resumeAt": {"mappingDigests": [good]}},
        {"stage": "Canary"},
        {"stage": "Canary", "hold": {**hold, "badMappings": [bad]}},
        {"stage": "Canary"},
        {"stage": "Expanding", "promotion": {"override": {"by": "boss", "reason": "demo", "stage": "Canary"}}},
    ]
    with Receiver() as receiver:
        tracing = Tracing(receiver.url)
        server.edit(stage="Off")
        controller = server.controller()
        controller.tracing = tracing
        rounds(controller, 0)
        for number, spec in enumerate(steps):
            server.now += timedelta(minutes=1)
            server.edit(**spec)
            rounds(controller, 1 + number, 1.5 + number)
            # Another leader knows what was told.
            rounds(server.controller(), 0)
        tracing.close()
    reasons = [reason for reason, _ in server.events()]
    assert reasons == ["StageChanged", "Held", "Held", "ResumedAt", "Resumed", "Held", "Resumed", "StageChanged"]
    messages = [message for _, message in server.events()]
    assert messages[0] == "stage Canary after Off"
    assert "books half, by on-call" in messages[1]
    assert messages[3] == "pools that have no other mappings than sha256:bbbbbbbbbbbb take claims again"
    assert messages[7] == "stage Expanding after Canary, by the word of boss: demo"
    spans = receiver.spans
    assert [span.attributes["allocguard.message"] for span in spans] == messages
    names = ["stage", "hold", "hold", "resume", "resume", "hold", "resume", "stage"]
    assert [span.name for span in spans] == [f"rollout.{name}" for name in names]
    assert {span.trace for span in spans} == {trace_id(f"u-{DRIVER}")}
    assert [span.attributes["allocguard.stage"] for span in spans] == ["Canary"] * 7 + ["Expanding"]
    assert spans[1].attributes["allocguard.hold.reason"] == "books half"
    assert [span.attributes.get("allocguard.mapping.digest") for span in spans[1:4]] == [None, [bad], [good]]
    # From when the operator said so; where nothing tells when that was, the moment at which the guard saw it.
    assert [(span.ended - span.begun) / 10**9 for span in spans] == [0, 10, 130, 0, 0, 310, 0, 0]


def test_a_step_whose_status_is_not_written_yet_has_no_span_yet(server: Server) -> None:
    with Receiver() as receiver:
        tracing = Tracing(receiver.url)
        server.edit(stage="Off")
        controller = server.controller()
        controller.tracing = tracing
        rounds(controller, 0)
        server.edit(stage="Canary")
        server.error = Unreachable("lost")
        assert rounds(controller, 1, 2, 3) == ["lost"] * 3
        server.error = None
        rounds(controller, 4, 20)
        tracing.close()
    assert [span.name for span in receiver.spans] == ["rollout.stage"]
    assert [reason for reason, _ in server.events()] == ["StageChanged"]


def test_a_gate_that_goes_off_is_a_warning(server: Server) -> None:
    server.edit(stage="Canary")
    controller = server.controller()
    rounds(controller, 0)
    server.gates = {NODE_ALLOCATABLE: False}
    server.seen()
    rounds(controller, 20, 40)
    assert server.condition("GateEnabled") == "False"
    [(reason, message)] = server.events()
    assert (reason, message) == ("GateOff", "kube-apiserver off by its metrics")


def test_who_ends_between_the_event_and_the_status_tells_nothing_twice(server: Server) -> None:
    server.edit(stage="Canary")
    rounds(server.controller(), 0)
    server.edit(stage="Canary", hold={"reason": "r"})
    server.error = Unreachable("lost")
    assert rounds(server.controller(), 0) == ["lost"]
    server.error = None
    server.now += timedelta(seconds=30)
    rounds(server.controller(), 0)
    assert server.condition("Held") == "True"
    assert [reason for reason, _ in server.events()] == ["Held"]


def counted(server: Server, at: datetime, seconds: int, name: str = "c1") -> None:
    """A claim that was allocated after so many seconds."""
    asked = {"creationTimestamp": stamp(at - timedelta(seconds=seconds))}
    server.others += [
        claim(name, [result(cpus="1", share=name)], [pod_ref(f"p-{name}")], stamp=stamp(at), metadata=asked),
        pod(f"p-{name}", {"c": name}, where="n1", status=entry(name), metadata=asked),
    ]
    server.seen()


def entry(name: str) -> Json:
    row = {"resourceClaimName": name, "containers": ["main"], "resources": {"cpu": "1"}}
    return {"nodeAllocatableResourceClaimStatuses": [row]}


def test_a_new_leader_goes_on_from_what_is_stored(server: Server) -> None:
    server.edit(stage="Canary")
    first = server.controller()
    rounds(first, 0)
    counted(server, NOW + timedelta(minutes=1), 40)
    rounds(first, 20)
    assert server.status()["pending"] == {"count": 1, "p99": "40s"}
    # The claim is gone, and so is the leader that had seen it.
    server.others = server.others[:2]
    server.seen()
    server.now += timedelta(days=2)
    second = server.controller()
    rounds(second, 0)
    found = server.status()
    assert (found["pending"], found["observedSince"], found["quietSince"]) == (
        {"count": 1, "p99": "40s"},
        stamp(NOW),
        stamp(NOW),
    )
    counted(server, server.now, 5, "c2")
    rounds(second, 20)
    assert server.status()["pending"] == {"count": 1, "p99": "5s"}


def test_the_figures_of_another_stage_begin_anew(server: Server) -> None:
    server.edit(stage="Canary")
    controller = server.controller()
    rounds(controller, 0)
    counted(server, NOW + timedelta(minutes=1), 40)
    server.objects[f"{PATH}/{DRIVER}"]["status"] |= {"duplicates": 2, "zoneFailures": 3}
    server.seen()
    rounds(controller, 20)
    assert (server.status()["duplicates"], server.status()["promotion"]["passed"]) == (2, False)
    server.now += timedelta(hours=1)
    server.edit(stage="Expanding")
    rounds(controller, 21)
    found = server.status()
    assert (found["duplicates"], found["zoneFailures"], found["pending"].get("p99")) == (0, 0, None)
    assert found["observedSince"] == found["quietSince"] == stamp(server.now)


def test_a_difference_ends_the_quiet_and_its_end_begins_another(server: Server) -> None:
    server.edit(stage="Canary")
    controller = server.controller()
    rounds(controller, 0)
    counted(server, NOW, 1)
    server.others[-1]["status"] = {}
    server.seen()
    server.now += timedelta(hours=1)
    rounds(controller, 20)
    assert (server.status()["differences"], server.status().get("quietSince")) == (1, None)
    server.others[-1]["status"] = entry("c1")
    server.seen()
    server.now += timedelta(hours=1)
    rounds(controller, 40)
    assert (server.status()["differences"], server.status()["quietSince"]) == (0, stamp(server.now))


def test_drills_stay_as_others_wrote_them_and_are_told_once(server: Server) -> None:
    server.edit(stage="Canary", promotion={"drills": ["Rollback"]})
    drill = {"name": "Rollback", "at": stamp(NOW), "passed": True, "by": "me", "message": ""}
    server.objects[f"{PATH}/{DRIVER}"]["status"] = {"drills": [drill]}
    server.seen()
    controller = server.controller()
    rounds(controller, 0, 20)
    assert server.status()["drills"] == [drill]
    assert server.events() == [("DrillPassed", "drill Rollback by me passed")]
    server.objects[f"{PATH}/{DRIVER}"]["status"]["drills"] = [
        {**drill, "at": stamp(NOW + timedelta(days=1)), "passed": False, "message": "2 charges left"}
    ]
    server.seen()
    rounds(controller, 40, 60)
    assert server.events()[1:] == [("DrillFailed", "drill Rollback by me failed: 2 charges left")]
    server.objects[f"{PATH}/{DRIVER}"]["status"]["drills"] = [drill]
    server.seen()
    rounds(controller, 80)
    gates = {each["name"]: each.get("passed") for each in server.status()["promotion"]["gates"]}
    assert gates["drill-rollback"] is True


def test_a_rollout_that_was_edited_meanwhile_is_left_until_the_view_shows_it(server: Server) -> None:
    server.edit(stage="Canary")
    behind = server.snapshot
    server.edit(stage="Canary", hold={"reason": "r"})
    ahead, server.snapshot = server.snapshot, behind
    controller = server.controller()
    assert rounds(controller, 0, 0.5) == ["", ""]
    assert server.writes == []
    server.snapshot = ahead
    rounds(controller, 1)
    assert server.condition("Held") == "True"
    server.error = ApiError(409, "Conflict", "the object has been modified")
    server.edit(stage="Canary")
    assert rounds(controller, 2) == [""]
    server.error = None
    rounds(controller, 2.5)
    assert server.condition("Held") == "False"


def test_a_server_without_the_kind_or_without_rollouts_is_no_trouble(server: Server) -> None:
    server.seen()
    assert rounds(server.controller(), 0) == [""]
    server.edit(stage="Canary")
    del server.objects[f"{PATH}/{DRIVER}"]
    assert rounds(server.controller(), 0) == [""]
    assert server.writes == []


def test_of_very_many_drivers_the_first_have_a_status(server: Server) -> None:
    for number in range(MOST + 2):
        server.edit(f"d{number:03}.example", stage="Off")
    controller = server.controller()
    assert rounds(controller, 0) == [""]
    assert len(server.writes) == MOST
    assert "last 2 by name have no status" in controller.checks()[0][2]


@pytest.mark.parametrize("error", [Unreachable("timed out"), ApiError(403, "Forbidden", "no")])
def test_what_cannot_be_written_is_told_once_and_written_later(
    server: Server, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollout_status, "LOOK", 0.001)
    server.edit(stage="Canary")
    server.error = error
    controller = server.controller()

    async def scenario() -> None:
        running = asyncio.create_task(controller.run())
        await until(lambda: str(error) in controller.checks()[0][2])
        server.error = None
        await until(lambda: server.writes and controller.checks()[0][2] == "ok")
        running.cancel()

    asyncio.run(scenario())
    controller._log.close()
    assert server.log.getvalue().count("rollout status not written") == 1


def test_a_driver_whose_status_is_not_taken_keeps_no_other_from_its_own(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal, tries, patch = ApiError(422, "Invalid", "spec.freshness: invalid data"), [], server.patch

    async def refusing(path: str, body: Json, kind: str, **params: object) -> Json:
        if path.split("/")[-2] == "bad.example":
            tries.append(body)
            raise refusal
        return await patch(path, body, kind, **params)

    monkeypatch.setattr(server, "patch", refusing)
    controller = server.controller()
    server.edit("bad.example", stage="General")
    assert rounds(controller, 0.0, 1.0) == ["", ""]
    server.edit(stage="Canary")
    assert rounds(controller, 2.0, 3.0) == ["", ""]
    assert (server.writes, len(tries)) == ([DRIVER], 1)
    assert list(controller._invalid.values()) == ["bad.example: 422 Invalid: spec.freshness: invalid data"]
    rounds(controller, 30.0)
    assert len(tries) == 2
    del server.objects[f"{PATH}/bad.example"]
    server.seen()
    rounds(controller, 31.0)
    assert not controller._invalid
