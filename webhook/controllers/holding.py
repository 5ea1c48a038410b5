"""Whether pods may be held: only while somebody can let them go on.

Every replica asks for itself, since every replica admits pods; the gates are lifted where the leader is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from webhook.cluster.api import Api, ApiError, Unreachable
from webhook.kube.raw import Json, mapping

_PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_ASKED: Json = {
    "apiVersion": "authorization.k8s.io/v1",
    "kind": "SelfSubjectAccessReview",
    "spec": {"resourceAttributes": {"verb": "patch", "resource": "pods"}},
}
# Seconds between two questions, and after one that was not answered.
EVERY, SOON = 30.0, 2.0


class Holding:
    """What one replica knows of it; ``led`` tells whether anybody leads. ``run`` belongs to the event loop of ``api``,
    the rest to any thread.
    """

    def __init__(self, api: Api, led: Callable[[], bool]) -> None:
        self._api = api
        self._led = led
        self._allowed = False
        self._problem = "not asked yet"

    async def run(self) -> None:
        """Ask again and again, until cancelled."""
        while True:
            await asyncio.sleep(SOON if await self.ask() else EVERY)

    async def ask(self) -> str:
        """Ask whether this account may lift gates, and take in the answer; why there was none, else empty."""
        try:
            answer = await self._api.create(_PATH, _ASKED)
        except (ApiError, Unreachable) as error:
            # What was known holds on: a pod that is held although it need not be goes on with the next leader.
            return str(error)
        self._allowed = mapping(answer.get("status")).get("allowed") is True
        self._problem = "" if self._allowed else "this account may not patch pods"
        return ""

    def may_hold(self) -> bool:
        """Whether a pod that gets our gate will lose it again."""
        return self._allowed and self._led()

    def checks(self) -> list[tuple[str, bool, str]]:
        """For ``/readyz``."""
        problem = self._problem or ("" if self._led() else "nobody leads")
        return [("holding pods", True, f"ok, none is held: {problem}" if problem else "ok")]
