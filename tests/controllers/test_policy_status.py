from __future__ import annotations

import asyncio
import io
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from webhook.cluster.api import ApiError, Unreachable
from webhook.controllers.policy_status import PolicyStatus, conditions
from webhook.store.policies import PolicyStore, Verdict
from webhook.telemetry.log import Log

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
GOOD = Verdict("u1", 3, True, "Serving", "serves")
BAD = Verdict("u1", 4, False, "DoesNotCompile", "spec: has no action, needs one\nleft out")
FOREIGN = {"type": "Reviewed", "status": "True", "reason": "ByHand", "message": "", "lastTransitionTime": "x"}


def stored(generation: int, *present: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "one", "uid": "u1", "generation": generation, "resourceVersion": "7", **metadata},
        "status": {"conditions": list(present)},
    }


def ready(obj: dict[str, Any], verdict: Verdict, now: datetime = NOW) -> dict[str, Any]:
    found = conditions(obj, verdict, now)
    assert found is not None
    return next(each for each in found if each["type"] == "Ready")


def test_a_condition_says_what_became_of_the_object_and_of_which_generation() -> None:
    assert ready(stored(3), GOOD) == {
        "type": "Ready",
        "status": "True",
        "reason": "Serving",
        "message": "serves",
        "observedGeneration": 3,
        "lastTransitionTime": "2026-11-30T12:00:00Z",
    }


def test_nothing_is_to_be_written_where_it_is_said_already() -> None:
    assert conditions(stored(3, ready(stored(3), GOOD)), GOOD, LATER) is None


def test_the_time_of_the_transition_moves_with_the_status_only() -> None:
    before = ready(stored(3), GOOD)
    edited = ready(stored(4, before), Verdict("u1", 4, True, "Serving", "serves, audited only"), LATER)
    assert (edited["lastTransitionTime"], edited["observedGeneration"]) == ("2026-11-30T12:00:00Z", 4)
    assert ready(stored(4, before), BAD, LATER)["lastTransitionTime"] == "2026-11-30T13:00:00Z"


def test_conditions_of_others_stay() -> None:
    found = conditions(stored(3, FOREIGN), GOOD, NOW)
    assert found is not None
    assert FOREIGN in found


@pytest.mark.parametrize("obj", [{}, stored(4), stored(3, uid="u2"), {"metadata": {"uid": "u1"}}, {"metadata": 7}])
def test_nothing_is_said_of_another_state_of_the_object(obj: dict[str, Any]) -> None:
    assert conditions(obj, GOOD, NOW) is None


@pytest.mark.parametrize("status", [None, 7, [], {"conditions": 7}, {"conditions": [7, {"type": 7}]}])
def test_a_status_of_wrong_types_counts_as_none(status: object) -> None:
    assert ready({**stored(3), "status": status}, GOOD)["status"] == "True"


class Server:
    """AdmissionPolicy objects with the rules of the API server for writes of their status, and a view of them."""

    def __init__(self, folder: Path) -> None:
        document = {
            "apiVersion": "allocguard.dev/v1alpha1",
            "kind": "AdmissionPolicy",
            "metadata": {"name": "filed"},
            "spec": {
                "matchConstraints": {
                    "resourceRules": [
                        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                    ]
                },
                "validations": [{"name": "rule", "expression": "true"}],
                "action": "Deny",
            },
        }
        (folder / "filed.yaml").write_text(yaml.safe_dump(document))
        self.store = PolicyStore([str(folder)])
        self.spec = document["spec"]
        self.stored: dict[str, Any] = {}
        self.policies: dict[str, Any] = {}
        self.writes: list[str] = []
        self.error: Exception | None = None
        self.version = 0
        self.log = io.StringIO()

    def put(self, name: str, expression: str = "true") -> None:
        self.version += 1
        generation = self.stored.get(name, {"metadata": {"generation": 0}})["metadata"]["generation"] + 1
        metadata = {"name": name, "uid": f"u-{name}", "generation": generation, "resourceVersion": str(self.version)}
        spec = {**self.spec, "validations": [{"name": "rule", "expression": expression}]}
        self.stored[name] = {**self.stored.get(name, {}), "metadata": metadata, "spec": spec}

    def seen(self) -> None:
        """The view and the store learn what is stored."""
        self.policies = dict(self.stored)
        self.store.set_objects(self.policies)

    async def patch(self, path: str, body: Any, kind: str) -> Any:
        if self.error is not None:
            raise self.error
        name = path.split("/")[-2]
        assert path == f"/apis/allocguard.dev/v1alpha1/admissionpolicies/{name}/status"
        assert kind == "merge"
        obj = self.stored[name]
        if body["metadata"] != {"resourceVersion": obj["metadata"]["resourceVersion"]}:
            raise ApiError(409, "Conflict", "the object has been modified")
        self.version += 1
        self.writes.append(name)
        metadata = {**obj["metadata"], "resourceVersion": str(self.version)}
        self.stored[name] = {**obj, "metadata": metadata, "status": body["status"]}
        return self.stored[name]

    def ready(self, name: str) -> tuple[str, int]:
        (condition,) = self.stored[name]["status"]["conditions"]
        return condition["status"], condition["observedGeneration"]

    def controller(self) -> PolicyStatus:
        return PolicyStatus(self, self, self.store, Log(self.log), lambda: NOW)


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


def test_each_edit_is_answered_by_one_write_and_that_by_none(server: Server) -> None:
    controller = server.controller()
    server.put("one")
    server.put("two", "nope")
    server.seen()
    for _ in range(3):
        assert asyncio.run(controller.write()) == ""
    assert server.writes == ["one", "two"]
    server.seen()
    assert asyncio.run(controller.write()) == ""
    assert server.writes == ["one", "two"]
    assert (server.ready("one"), server.ready("two")) == (("True", 1), ("False", 1))
    server.put("two", "1 == 1")
    server.seen()
    asyncio.run(controller.write())
    server.seen()
    asyncio.run(controller.write())
    assert server.ready("two") == ("True", 2)
    # The set is another one now, and of the other object nothing else is to be said.
    assert server.writes[2:] == ["two"]


def test_an_object_edited_meanwhile_is_left_until_the_view_shows_it(server: Server) -> None:
    controller = server.controller()
    server.put("one")
    server.seen()
    server.put("one", "nope")
    for _ in range(3):
        assert asyncio.run(controller.write()) == ""
    assert server.writes == []
    server.seen()
    asyncio.run(controller.write())
    assert server.ready("one") == ("False", 2)


@pytest.mark.parametrize("error", [Unreachable("timed out"), ApiError(403, "Forbidden", "no"), ApiError(404, "", "")])
def test_what_cannot_be_written_is_told_once_and_written_later(
    server: Server, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.controllers.policy_status.EVERY", 0.001)
    controller = server.controller()
    server.put("one")
    server.seen()
    server.error = error

    async def scenario() -> None:
        running = asyncio.create_task(controller.run())
        while not controller.problem:
            await asyncio.sleep(0.001)
        assert str(error) in controller.checks()[0][2]
        server.error = None
        while not server.writes:
            await asyncio.sleep(0.001)
        while controller.problem:
            await asyncio.sleep(0.001)
        running.cancel()

    asyncio.run(scenario())
    controller._log.close()
    assert server.log.getvalue().count("policy status not written") == 1
    assert controller.checks() == [("policy status", True, "ok")]


def test_an_object_whose_status_is_not_taken_keeps_no_other_from_its_own(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that was stored before its schema was what it is: it is not tried at each look, the others are."""
    refusal, tries, patch = ApiError(422, "Invalid", "spec: invalid data"), [], server.patch

    async def refusing(path: str, body: Any, kind: str) -> Any:
        if path.split("/")[-2] == "bad":
            tries.append(body)
            raise refusal
        return await patch(path, body, kind)

    monkeypatch.setattr(server, "patch", refusing)
    monkeypatch.setattr("webhook.controllers.policy_status.EVERY", 0.001)
    monkeypatch.setattr("webhook.controllers.policy_status.LONGEST", 3600.0)
    controller = server.controller()
    server.put("bad")
    server.seen()

    async def scenario() -> None:
        running = asyncio.create_task(controller.run())
        for number in range(20):
            server.put(f"p{number}")
            server.seen()
            while f"p{number}" not in server.writes:
                await asyncio.sleep(0.001)
        assert len(tries) == 1
        assert controller.checks()[0][2] == "ok, but bad: 422 Invalid: spec: invalid data"
        server.put("bad", "1 == 1")
        server.seen()
        while len(tries) == 1:
            await asyncio.sleep(0.001)
        del server.stored["bad"]
        server.seen()
        while controller.problem:
            await asyncio.sleep(0.001)
        running.cancel()

    asyncio.run(asyncio.wait_for(scenario(), 30))
