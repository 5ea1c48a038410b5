"""What no real API server does on demand; the rest is in tests/e2e/test_registration.py."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from tests.controllers.playing import until
from webhook.cluster.api import ApiError, Unreachable
from webhook.controllers import registration
from webhook.controllers.registration import Registration
from webhook.kube.snapshot import Snapshot
from webhook.registration.configurations import Address
from webhook.store.policies import PolicyStore, shipped
from webhook.telemetry.log import Log

Json = dict[str, Any]


class Api:
    """The two collections, in memory. ``errors`` are raised by the next writes, one each; ``writes`` are all tries."""

    def __init__(self) -> None:
        self.stored: dict[str, Json] = {}
        self.errors: list[Exception | None] = []
        self.writes: list[str] = []
        self._events: dict[str, asyncio.Queue[Json]] = {}
        self._version = 0

    async def raw(self, path: str, **params: object) -> bytes:
        assert params["fieldSelector"] == "metadata.name=allocguard"
        items = [self.stored[path]] if path in self.stored else []
        return json.dumps({"metadata": {"resourceVersion": str(self._version)}, "items": items}).encode()

    async def lines(self, path: str, timeout: float, **params: object) -> AsyncGenerator[bytes, None]:
        self._events[path] = asyncio.Queue()
        yield b""
        while True:
            yield json.dumps(await self._events[path].get()).encode()

    async def create(self, path: str, obj: Json) -> Json:
        self._write(f"create {path.rpartition('/')[2]}")
        return self._keep(path, obj, "ADDED")

    async def update(self, path: str, obj: Json) -> Json:
        self._write(f"update {path.split('/')[-2]}")
        assert obj["metadata"]["resourceVersion"]
        return self._keep(path.rpartition("/")[0], obj, "MODIFIED")

    def edit(self, path: str, **fields: object) -> None:
        self._keep(path, {**self.stored[path], **fields}, "MODIFIED")

    def _write(self, what: str) -> None:
        self.writes.append(what)
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error

    def _keep(self, path: str, obj: Json, event: str) -> Json:
        self._version += 1
        metadata = {**obj["metadata"], "resourceVersion": str(self._version)}
        self.stored[path] = {**obj, "metadata": metadata}
        if path in self._events:
            self._events[path].put_nowait({"type": event, "object": self.stored[path]})
        return self.stored[path]


class Cluster:
    snapshot = Snapshot()
    synced = True


class Kept:
    """A controller on that API."""

    def __init__(self) -> None:
        self.api, self.cluster, self.told = Api(), Cluster(), io.StringIO()
        self.bundle, self.policies = b"PEM", PolicyStore([shipped()])
        self.log = Log(self.told)
        address = Address(url="https://127.0.0.1:8443")
        self.controller = Registration(
            self.api,  # type: ignore[arg-type]
            self.cluster,
            self.policies,
            address,
            lambda: self.bundle,
            False,
            "guard",
            self.log,
        )

    def play(self, scene: Callable[[], Awaitable[None]]) -> list[Json]:
        """Run it while ``scene`` goes on; the lines of the log."""

        async def run() -> None:
            task = asyncio.create_task(self.controller.run())
            try:
                await scene()
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

        asyncio.run(run())
        self.log.close()
        return [json.loads(line) for line in self.told.getvalue().splitlines()]

    def detail(self) -> str:
        ((name, fine, detail),) = self.controller.checks()
        assert (name, fine) == ("registration", True)
        return detail


VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
BOTH = ["create validatingwebhookconfigurations", "create mutatingwebhookconfigurations"]


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    monkeypatch.setattr(registration, "EVERY", 0.01)
    return Kept()


def test_nothing_is_made_before_this_server_can_answer(kept: Kept) -> None:
    kept.cluster.synced, kept.bundle = False, b""

    async def scene() -> None:
        await asyncio.sleep(0.1)
        assert "nothing is registered before" in kept.detail()
        kept.cluster.synced = True
        await asyncio.sleep(0.1)
        assert kept.api.writes == []
        kept.bundle = b"PEM"
        await until(lambda: len(kept.api.stored) == 2)
        assert kept.detail() == "ok"

    kept.play(scene)
    assert kept.api.writes == BOTH


def test_a_certificate_that_changes_is_followed(kept: Kept) -> None:
    async def scene() -> None:
        await until(lambda: len(kept.api.stored) == 2)
        kept.bundle = b"PEM2"
        await until(lambda: len(kept.api.writes) == 4)

    told = kept.play(scene)
    assert [line["event"] for line in told] == ["registered"] * 4


def test_who_was_faster_is_no_trouble(kept: Kept) -> None:
    kept.api.errors = [ApiError(409, "AlreadyExists", "it is there"), ApiError(409, "Conflict", "it changed")]

    async def scene() -> None:
        await until(lambda: len(kept.api.stored) == 2)

    assert {line["event"] for line in kept.play(scene)} == {"registered"}


@pytest.mark.parametrize(
    "error", [ApiError(403, "Forbidden", "may not"), Unreachable("timed out"), ApiError(500, "", "")]
)
def test_trouble_is_told_once_and_waited_out(kept: Kept, error: Exception) -> None:
    kept.api.errors = [error] * 3

    async def scene() -> None:
        await until(lambda: len(kept.api.writes) == 2)
        assert kept.detail() == f"ok, but ValidatingWebhookConfiguration cannot be written: {error}"
        await until(lambda: len(kept.api.stored) == 2)
        assert kept.detail() == "ok"

    told = kept.play(scene)
    assert [line["event"] for line in told] == ["registration", "registered", "registered"]


def test_what_is_told_while_an_answer_is_on_its_way_is_newer(kept: Kept) -> None:
    """Written, deleted by somebody, and only then the answer to the writing."""
    update = kept.api.update
    deleted = False

    async def late(path: str, obj: Json) -> Json:
        nonlocal deleted
        answer = await update(path, obj)
        if not deleted:
            deleted = True
            collection = path.rpartition("/")[0]
            gone = kept.api.stored.pop(collection)
            kept.api._events[collection].put_nowait({"type": "DELETED", "object": gone})
            await until(lambda: not kept.controller.keys(kept.controller._kinds["ValidatingWebhookConfiguration"]))
        return answer

    kept.api.update = late  # type: ignore[method-assign]

    async def scene() -> None:
        await until(lambda: len(kept.api.stored) == 2)
        kept.bundle = b"OTHER"
        await until(lambda: deleted)
        await until(lambda: len(kept.api.stored) == 2)

    kept.play(scene)


def test_conditions_that_are_refused_are_left_out_until_the_policies_change(kept: Kept) -> None:
    kept.api.errors = [ApiError(422, "Invalid", "matchConditions[0]: no such function")]

    async def scene() -> None:
        await until(lambda: len(kept.api.stored) == 2)
        assert "no such function" in kept.detail()

    kept.play(scene)
    entries = {entry["name"]: entry for entry in kept.api.stored[VALIDATING]["webhooks"]}
    assert "matchConditions" not in entries["new-pods.allocguard.dev"]
    assert "matchConditions" in entries["mapped-slices.allocguard.dev"]


def test_what_is_refused_in_any_form_is_told(kept: Kept) -> None:
    kept.api.errors = [ApiError(422, "Invalid", "no")] * 4

    async def scene() -> None:
        await until(lambda: len(kept.api.stored) == 2)

    told = [line.get("message", "") for line in kept.play(scene)]
    assert told[0] == "ValidatingWebhookConfiguration cannot be written: 422 Invalid: no"
    assert not any("match conditions" in each for each in told), "they were not what was refused"


def test_an_edit_is_put_right_and_one_who_repeats_it_is_not_raced(kept: Kept) -> None:
    async def scene() -> None:
        await until(lambda: len(kept.api.stored) == 2)
        for number in range(6):
            kept.api.edit(VALIDATING, webhooks=[])
            await until(lambda number=number: len(kept.api.writes) == 3 + number)
        assert "again and again" in kept.detail()
        kept.api.edit(VALIDATING, webhooks=[])
        await asyncio.sleep(0.2)
        assert len(kept.api.writes) == 8

    told = [line["event"] for line in kept.play(scene)]
    assert told.count("registration put right") == 6
    assert kept.detail() == "ok, kept by the leader"


def test_it_can_be_run_again(kept: Kept) -> None:
    async def scene() -> None:
        await until(lambda: len(kept.api.stored) == 2)

    kept.play(scene)
    kept.api.stored.clear()
    kept.log = Log(kept.told)
    kept.play(scene)
    assert kept.api.writes == BOTH * 2
