from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from webhook.admission.action import apply
from webhook.admission.decide import decide
from webhook.cluster.api import ApiError, Unreachable
from webhook.controllers.gate_probe import EVERY, REFUSED, GateProbe, probe
from webhook.kube.admission import raw_request, read_request
from webhook.kube.release import Release
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book
from webhook.store.policies import PolicyStore, shipped

Json = dict[str, Any]


class Server:
    """Answers creates of slices, with the devices' costs or without them, or with an error."""

    def __init__(self, keeps: bool = True, error: Exception | None = None) -> None:
        self.keeps, self.error = keeps, error
        self.asked: list[Json] = []

    async def create(self, path: str, obj: Json, **params: object) -> Json:
        assert (path, params) == ("/apis/resource.k8s.io/v1/resourceslices", {"dryRun": "All"})
        self.asked.append(obj)
        if self.error is not None:
            raise self.error
        if self.keeps:
            return obj
        return {**obj, "spec": {**obj["spec"], "devices": [{"name": "probe"}]}}


def looked(server: Server, *times: float, minor: int = 36) -> bool | None:
    made = GateProbe(server)  # type: ignore[arg-type]

    async def all_of_them() -> None:
        for at in times or (0.0,):
            await made.look(minor, at)

    asyncio.run(all_of_them())
    return made.kept


@pytest.mark.parametrize("minor", [36, 37])
def test_what_comes_back_is_what_counts(minor: int) -> None:
    assert looked(Server(), minor=minor) is True
    assert looked(Server(keeps=False), minor=minor) is False


@pytest.mark.parametrize("error", [Unreachable("timed out"), ApiError(403, "Forbidden", "no"), ApiError(422, "", "")])
def test_a_try_that_fails_tells_nothing(error: Exception) -> None:
    assert looked(Server(error=error)) is None


def test_a_refusal_for_what_a_node_does_not_declare_shows_that_the_gate_is_on() -> None:
    refused = ApiError(403, "Forbidden", "node n1 does not support DRANodeAllocatableResources")
    assert looked(Server(error=refused), minor=37) is True


def test_it_is_not_tried_all_the_time_and_without_the_right_hardly_ever() -> None:
    server = Server()
    looked(server, 0, 1, EVERY - 1, EVERY, EVERY + 1)
    assert len(server.asked) == 2
    refusing = Server(error=ApiError(403, "Forbidden", "cannot create resource"))
    looked(refusing, 0, EVERY, REFUSED - 1, REFUSED)
    assert len(refusing.asked) == 2


@pytest.mark.parametrize("minor", [36, 37])
def test_the_slice_is_one_that_the_guard_itself_lets_pass(minor: int) -> None:
    user = "system:serviceaccount:allocguard-system:allocguard"
    request = read_request(raw_request("CREATE", probe(minor), user=user))
    revision = PolicyStore([shipped()]).revision
    now = datetime(2026, 11, 30, 12, tzinfo=UTC)
    for endpoint in ("mutate", "validate"):
        verdict = decide(request, endpoint, revision, Snapshot(Release(minor)), Book(), now)
        answer = apply(verdict)
        assert (answer.allowed, list(answer.warnings)) == (True, [])
        assert not verdict.errors
