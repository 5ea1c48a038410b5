"""The API server's clock, by which certificates are found expired or not yet valid."""

from __future__ import annotations

from datetime import datetime

from webhook.cluster.api import Api, ApiError, Unreachable
from webhook.facts.times import instant
from webhook.kube.raw import mapping, text

_PATH = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


async def server_time(api: Api) -> datetime | None:
    """What the API server takes for now, in whole seconds; None where it does not say, or is not reached.

    A SelfSubjectReview is free to everybody, changes nothing, and is stamped with its time.
    """
    try:
        made = await api.create(_PATH, {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
    except (ApiError, Unreachable):
        return None
    return instant(text(mapping(made.get("metadata")).get("creationTimestamp")))
