"""Events: what the guard did or does not do about an object, for whoever looks at that object."""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256
from http import HTTPStatus
from typing import Literal

from webhook.cluster.api import Api, ApiError, Unreachable
from webhook.controllers.trouble import Trouble
from webhook.facts.pool_survey import Reason
from webhook.facts.times import stamp
from webhook.kube.core import Pod
from webhook.kube.finding import one_line
from webhook.kube.raw import Json, integer

# The namespace of events about objects that have none, and how long a message is shown.
CLUSTER, _LONGEST = "default", 1024
# The reason of the event that tells a pod why its claims wait.
CLAIMS_HELD = "ClaimsHeld"
# How often an event is counted again that others count at the same time.
_TRIES = 5
_NEEDLESS = frozenset({HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY})


def event(
    involved: Json,
    reason: str,
    message: str,
    now: datetime,
    kind: Literal["Normal", "Warning"] = "Normal",
    once: object = None,
) -> Json:
    """The v1 Event about the object ``involved`` (``apiVersion``, ``kind``, ``namespace`` where it has one, ``name``,
    ``uid``). With ``once`` its name is that of object, reason and what ``once`` says, so that a second one is refused
    as being there already.
    """
    namespace = involved.get("namespace") or CLUSTER
    prefix = f"{involved['name'][:200].rstrip('-.')}."
    metadata = {"namespace": namespace, "generateName": prefix}
    if once is not None:
        mark = sha256(f"{involved['uid']}/{reason}/{once}".encode()).hexdigest()[:16]
        metadata = {"namespace": namespace, "name": f"{prefix}{mark}"}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": metadata,
        "involvedObject": involved,
        "reason": reason,
        "message": one_line(message)[:_LONGEST],
        "type": kind,
        "source": {"component": "allocguard"},
        "firstTimestamp": stamp(now),
        "lastTimestamp": stamp(now),
        "count": 1,
    }


async def tell(api: Api, made: Json) -> None:
    """Write an :func:`event`. Raises ApiError and Unreachable."""
    await api.create(_path(made), made)


async def tell_again(api: Api, made: Json) -> None:
    """Write an :func:`event` that has a name, or count once more the one that is there. As :func:`tell`."""
    place = f"{_path(made)}/{made['metadata']['name']}"
    for left in reversed(range(_TRIES)):
        try:
            await tell(api, made)
            return
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
        try:
            stored = await api.get(place)
            version = {"resourceVersion": stored["metadata"]["resourceVersion"]}
            count = {"count": integer(stored.get("count")) + 1, "lastTimestamp": made["lastTimestamp"]}
            await api.patch(place, {"metadata": version, **count}, "merge")
            return
        except ApiError as error:
            # Counted by somebody else meanwhile, or gone.
            if not left or error.status not in (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND):
                raise


async def tell_waiting(api: Api, pod: Pod, reason: Reason, now: datetime) -> str:
    """Write the :func:`event` that tells ``pod`` why its claims wait, once for each rule, whoever tells it; the
    problem, empty where there is none.
    """
    about = {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
    try:
        await tell(api, event(about, CLAIMS_HELD, reason.text, now, "Warning", reason.rule))
    except Unreachable as error:
        return str(error)
    except ApiError as error:
        # It was told already, or is gone. A namespace that is being removed takes no events, and its pods need none.
        if error.status not in _NEEDLESS and "being terminated" not in error.message:
            return Trouble(f"events of {pod.key}", error)
    return ""


def _path(made: Json) -> str:
    return f"/api/v1/namespaces/{made['metadata']['namespace']}/events"
