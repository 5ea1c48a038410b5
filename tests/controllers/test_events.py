from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.controllers.memory import Memory
from webhook.cluster.api import ApiError, Unreachable
from webhook.controllers.events import event, tell, tell_again
from webhook.kube.names import dns_subdomain

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
POD: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "namespace": "ns", "name": "p1", "uid": "u1"}


def test_what_it_says() -> None:
    made = event(POD, "ClaimsHeld", "line\nbroken" + "x" * 2000, NOW, "Warning")
    assert made["metadata"] == {"namespace": "ns", "generateName": "p1."}
    assert (made["involvedObject"], made["reason"], made["type"], made["count"]) == (POD, "ClaimsHeld", "Warning", 1)
    assert made["message"].startswith("line broken")
    assert len(made["message"]) == 1024
    assert made["firstTimestamp"] == made["lastTimestamp"] == "2026-11-30T12:00:00Z"


def test_an_event_about_an_object_of_the_cluster_is_in_the_default_namespace() -> None:
    rollout = {"apiVersion": "allocguard.dev/v1alpha1", "kind": "DriverRollout", "name": "d.example", "uid": "u"}
    assert event(rollout, "Held", "m", NOW)["metadata"]["namespace"] == "default"


def test_what_is_told_once_has_a_name_of_object_and_reason() -> None:
    names = [
        event({**POD, **more}, reason, "m", NOW, once=True)["metadata"]["name"]
        for more, reason in (({}, "A"), ({}, "B"), ({"uid": "u2"}, "A"), ({"name": f"{'x' * 199}-{'y' * 50}"}, "A"))
    ]
    assert len(set(names)) == 4
    assert all(dns_subdomain(name) is None for name in names)
    assert event(POD, "A", "other", NOW, once=True)["metadata"]["name"] == names[0]
    api = Memory()

    async def twice() -> None:
        await tell(api, event(POD, "A", "m", NOW, once=True))  # type: ignore[arg-type]
        await tell(api, event(POD, "A", "again", NOW, once=True))  # type: ignore[arg-type]

    with pytest.raises(ApiError) as caught:
        asyncio.run(twice())
    assert caught.value.status == 409
    assert list(api.objects) == [f"/api/v1/namespaces/ns/events/{names[0]}"]


def test_what_is_told_again_is_counted_whoever_else_counts() -> None:
    api = Memory()
    place = "/api/v1/namespaces/ns/events"

    async def told(minutes: int, message: str = "m") -> None:
        made = event(POD, "A", message, NOW + timedelta(minutes=minutes), once="b")
        await tell_again(api, made)  # type: ignore[arg-type]

    async def thrice() -> None:
        await told(0)
        await told(1)
        fetch = api.get

        async def overtaken(path: str, **params: object) -> dict[str, Any]:
            found = await fetch(path, **params)
            api.get = fetch  # type: ignore[method-assign]
            await told(2)
            return found

        api.get = overtaken  # type: ignore[method-assign]
        await told(3)

    asyncio.run(thrice())
    [stored] = [obj for path, obj in api.objects.items() if path.startswith(place)]
    assert stored["count"] == 4
    assert (stored["firstTimestamp"], stored["lastTimestamp"]) == ("2026-11-30T12:00:00Z", "2026-11-30T12:03:00Z")


def test_a_count_is_no_larger_than_it_can_be() -> None:
    """Whoever writes events in a namespace may write one under our name first."""
    api, made = Memory(), event(POD, "A", "m", NOW, once=True)
    path = f"/api/v1/namespaces/ns/events/{made['metadata']['name']}"
    asyncio.run(tell(api, {**made, "count": 2**31 - 2}))  # type: ignore[arg-type]
    for _ in range(3):
        asyncio.run(tell_again(api, made))  # type: ignore[arg-type]
    assert api.objects[path]["count"] == 2**31 - 1


def test_what_cannot_be_counted_is_an_error() -> None:
    api = Memory()
    api.fail = 1
    with pytest.raises(Unreachable):
        asyncio.run(tell_again(api, event(POD, "A", "m", NOW, once="b")))  # type: ignore[arg-type]
