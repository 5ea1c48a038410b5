"""Events: what the guard did or does not do about an object, for whoever looks at that object."""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256
from http import HTTPStatus

from webhook.cluster.api import Api, ApiError, Unreachable
from webhook.controllers.trouble import Trouble
from webhook.facts.pool_survey import Reason
from webhook.facts.times import stamp
from webhook.kube.core import Pod
from webhook.kube.finding import one_line
from webhook.kube.object_event import CLAIMS_HELD, RULE, SINCE, SOURCE, Type
from webhook.kube.raw import Json, integer, mapping, text

# The namespace of events about objects that have none, and how long a message is shown.
CLUSTER, _LONGEST = "default", 1024
# What a count can be.
_MOST_TIMES = 2**31 - 1
# How often an event is counted again that others count at the same time.
_TRIES = 5
_NEEDLESS = frozenset({HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY})


def about_claim(namespace: str, name: str, uid: str) -> Json:
    """The claim, as an event names the object that it is about."""
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    return {**kind, "namespace": namespace, "name": name, "uid": uid}


def about_pod(namespace: str, name: str, uid: str) -> Json:
    """The pod, as an event names the object that it is about."""
    return {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": uid}


def event(
    involved: Json,
    reason: str,
    message: str,
    now: datetime,
    kind: Type = "Normal",
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
        "source": {"component": SOURCE},
        "firstTimestamp": stamp(now),
        "lastTimestamp": stamp(now),
        "count": 1,
    }


async def tell(api: Api, made: Json) -> None:
    """Write an :func:`event`. Raises ApiError and Unreachable."""
    await api.create(_path(made), made)


async def tell_again(api: Api, made: Json) -> None:
    """Write an :func:`event` that has a name, or add its count to that of the one that is there, which says from then
    on what this one says. As :func:`tell`.
    """
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
            await api.patch(place, _counted(stored, made), "merge")
            return
        except ApiError as error:
            # Counted by somebody else meanwhile, or gone.
            if not left or error.status not in (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND):
                raise


async def tell_waiting(api: Api, pod: Pod, reason: Reason, now: datetime) -> str:
    """Write the :func:`event` that tells ``pod`` why its claims wait, once for each rule, whoever tells it; the
    problem, empty where there is none.
    """
    about = about_pod(pod.namespace, pod.name, pod.uid)
    made = event(about, CLAIMS_HELD, reason.text, now, "Warning", reason.rule)
    made["metadata"]["annotations"] = {RULE: reason.rule}
    try:
        await tell(api, made)
    except Unreachable as error:
        return str(error)
    except ApiError as error:
        if not needless(error):
            return Trouble(f"events of {pod.key}", error)
    return ""


def needless(error: ApiError) -> bool:
    """Whether an event was told already, or its object is gone: a namespace that is being removed takes no events."""
    return error.status in _NEEDLESS or "being terminated" in error.message


def _counted(stored: Json, made: Json) -> Json:
    """The change of the event that is ``stored`` by which it counts ``made`` too."""
    metadata: Json = {"resourceVersion": mapping(stored.get("metadata")).get("resourceVersion")}
    if notes := {key: value for key, value in made["metadata"].get("annotations", {}).items() if key != SINCE}:
        metadata["annotations"] = notes
    return {
        "metadata": metadata,
        "count": min(integer(stored.get("count")) + made["count"], _MOST_TIMES),
        # Another replica may have seen it later, and told it before.
        "lastTimestamp": max(text(stored.get("lastTimestamp")), made["lastTimestamp"]),
        "message": made["message"],
    }


def _path(made: Json) -> str:
    return f"/api/v1/namespaces/{made['metadata']['namespace']}/events"
