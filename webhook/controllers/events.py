"""Events: what the guard did or does not do about an object, for whoever looks at that object."""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256
from typing import Literal

from webhook.cluster.api import Api
from webhook.facts.times import stamp
from webhook.kube.finding import one_line
from webhook.kube.raw import Json

# The namespace of events about objects that have none, and how long a message is shown.
CLUSTER, _LONGEST = "default", 1024


def event(
    involved: Json,
    reason: str,
    message: str,
    now: datetime,
    kind: Literal["Normal", "Warning"] = "Normal",
    once: bool = False,
) -> Json:
    """The v1 Event about the object ``involved`` (``apiVersion``, ``kind``, ``namespace`` where it has one, ``name``,
    ``uid``). ``once``: its name is that of object and reason, so that a second one is refused as being there already.
    """
    namespace = involved.get("namespace") or CLUSTER
    prefix = f"{involved['name'][:200].rstrip('-.')}."
    metadata = {"namespace": namespace, "generateName": prefix}
    if once:
        mark = sha256(f"{involved['uid']}/{reason}".encode()).hexdigest()[:16]
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
    await api.create(f"/api/v1/namespaces/{made['metadata']['namespace']}/events", made)
