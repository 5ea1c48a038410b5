from __future__ import annotations

import asyncio
import io
import json
from datetime import UTC, datetime
from typing import Any

from tests.controllers.memory import Memory
from tests.facts.builders import claim, grp, node, pod, pod_ref, result, slice_of, world
from webhook.cluster.api import ApiError
from webhook.controllers.freeing import LEFT, Freeing
from webhook.kube.snapshot import Snapshot
from webhook.telemetry.log import Log

Json = dict[str, Any]

NOW = datetime(2026, 11, 20, 9, 30, tzinfo=UTC)
PATH = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c1"
STUCK = claim(results=[result()])
STUCK["status"]["devices"] = [{"driver": "d.example", "pool": "n1", "device": "grp"}]


class Server(Memory):
    """With the JSON patch of claims, and events that are given names."""

    refuses: ApiError | None = None

    async def patch(self, path: str, body: Any, kind: str, **params: object) -> Json:
        await self._answer()
        assert kind == "json"
        if self.refuses is not None:
            raise self.refuses
        stored = self.objects[path.removesuffix("/status")]
        for operation in body:
            *parents, last = operation["path"].strip("/").split("/")
            place = stored
            for each in parents:
                place = place[each]
            if operation["op"] == "test" and place[last] != operation["value"]:
                raise ApiError(422, "Invalid", "the server rejected our request due to an error in our request")
            if operation["op"] == "remove":
                del place[last]
        return self.put(path.removesuffix("/status"), stored)

    async def create(self, path: str, obj: Json, **params: object) -> Json:
        name = f"{obj['metadata']['generateName']}{len(self.objects)}"
        return await super().create(path, {**obj, "metadata": {**obj["metadata"], "name": name}})

    def events(self) -> list[tuple[str, str]]:
        told = [obj for path, obj in self.objects.items() if "/events/" in path]
        return [(each["involvedObject"]["kind"], each["involvedObject"]["name"]) for each in told]


class World:
    synced = True

    def __init__(self, *objs: Json) -> None:
        self.snapshot: Snapshot = world(node(), slice_of(grp()), *objs)


class Run:
    """A controller that has seen ``seen`` of what is ``stored``."""

    def __init__(self, stored: Json = STUCK, *seen: Json) -> None:
        self.server, self.text = Server(), io.StringIO()
        self.server.put(PATH, stored)
        self.world = World(*(seen or (STUCK, pod())))
        self.log = Log(self.text)
        self.freeing = Freeing(self.server, self.world, self.log, lambda: NOW)  # type: ignore[arg-type]  # the same methods

    def look(self, *times: float) -> str:
        problem = ""
        for at in times:
            problem = asyncio.run(self.freeing.look(at))
        return problem

    def freed(self) -> bool:
        return "allocation" not in self.server.objects[PATH]["status"]

    def lines(self) -> list[Json]:
        self.log.close()
        return [json.loads(line) for line in self.text.getvalue().splitlines()]


def test_what_has_been_left_for_half_a_minute_is_freed_and_told() -> None:
    run = Run()
    assert run.look(100, 100 + LEFT - 1) == ""
    assert not run.freed()
    assert run.look(100 + LEFT) == ""
    assert run.freed()
    assert "devices" not in run.server.objects[PATH]["status"]
    assert run.server.events() == [("ResourceClaim", "c1"), ("Pod", "p1")]
    assert [(line["event"], line["name"], line["pod"]) for line in run.lines()] == [("claim freed", "c1", "p1")]


def test_the_time_begins_anew_when_it_was_reserved_meanwhile() -> None:
    run = Run()
    stuck = run.world.snapshot
    run.look(100)
    run.world.snapshot = World(claim(results=[result()], reserved=[pod_ref()]), pod()).snapshot
    run.look(110)
    run.world.snapshot = stuck
    run.look(120, 120 + LEFT - 1)
    assert not run.freed()
    run.look(120 + LEFT)
    assert run.freed()


def test_another_allocation_is_another_wait() -> None:
    run = Run()
    run.look(100)
    run.world.snapshot = World(claim(results=[result()], stamp="2026-11-20T09:20:00Z"), pod()).snapshot
    run.look(100 + LEFT)
    assert not run.freed()


def test_a_claim_that_is_no_more_what_was_seen_stays() -> None:
    for stored in (
        claim(results=[result()], reserved=[pod_ref()]),
        claim(results=[result()], stamp="2026-11-20T09:20:00Z"),
        claim(results=[result()], metadata={"uid": "another"}),
        claim() | {"status": {}},
    ):
        run = Run(stored)
        assert run.look(100, 100 + LEFT) == ""
        assert run.server.objects[PATH]["status"] == stored["status"]
        assert run.server.events() == []


def test_a_write_that_was_overtaken_is_no_trouble_and_is_tried_again() -> None:
    run = Run()
    run.server.refuses = ApiError(422, "Invalid", "the server rejected our request")
    assert run.look(100, 100 + LEFT) == ""
    assert not run.freed()
    run.server.refuses = None
    assert run.look(101 + LEFT) == ""
    assert run.freed()


def test_a_right_that_is_missing_is_told() -> None:
    run = Run()
    run.server.refuses = ApiError(422, "Invalid", 'changing status.allocation requires "resourceclaims/binding"')
    assert "resourceclaims/binding" in run.look(100, 100 + LEFT)
    run.server.refuses = ApiError(403, "Forbidden", "cannot patch resourceclaims/status")
    assert "403 Forbidden" in run.look(101 + LEFT)
    run.server.cut = True
    assert "connection refused" in run.look(102 + LEFT)
