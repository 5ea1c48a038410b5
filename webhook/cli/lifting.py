"""What ``uninstall`` does before the guard goes: nobody is left waiting for it, no device is left tainted by it, and no
report is left that nobody would correct.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

from webhook.cli.console import Unreachable
from webhook.cli.deploying import PATIENCE, patiently
from webhook.cli.report import plural

if TYPE_CHECKING:
    from webhook.cluster.api import Api
    from webhook.kube.raw import Json

# Seconds in which an API server may still ask the guard about a pod, or let it write, after it was told not to.
SETTLE = 1.0
# Pods in one answer to a list, and writes under way at one time.
_PAGE, _AT_ONCE = 250, 16
# Reports in one look; they can be large, and those that are left are there at the next one.
_REPORTS = 20
# How often the same is taken away before somebody is said to put it back.
_AGAIN = 20


async def release_pods(api: Api) -> int:
    """Take our scheduling gate from every pod that has it, and from those that get it meanwhile; how many they were.
    Raises ApiError, and Unreachable when some keep it, or others get it again and again.
    """
    look, away = partial(_gated, api), partial(_ungate, api)
    # Pods that are new each have a name of their own: each look that finds some counts.
    return await _until_none(look, away, "pod", "with the scheduling gate", lambda pod: "")


async def remove_taints(api: Api) -> int:
    """Delete our DeviceTaintRules, where there are any in an API server that has them; how many they were. Raises
    ApiError, and Unreachable when some stay, or come again and again.
    """
    from webhook.kube.taint_rule import API_GROUP, PLURAL, VERSIONS

    for version in VERSIONS:
        path = f"/apis/{API_GROUP}/{version}/{PLURAL}"
        if await _rules(api, path) is not None:
            look, away = partial(_rules, api, path), partial(_delete, api, path)
            return await _until_none(look, away, "DeviceTaintRule", "of the guard")
    return 0


async def remove_reports(api: Api) -> int:
    """Delete our reports of the audit scan, where the API server has such kinds; how many they were. Raises ApiError,
    and Unreachable when some stay, or come again and again.
    """
    from webhook.kube.policy_report import FAMILIES

    gone = 0
    for path in [family.path(clustered) for family in FAMILIES for clustered in (True, False)]:
        if await _reports(api, path) is not None:
            gone += await _until_none(
                partial(_reports, api, path), partial(_unreport, api, path), "report", "of the audit scan"
            )
    return gone


async def _until_none(
    look: Callable[[], Awaitable[list[Json] | None]],
    away: Callable[[Json], Awaitable[bool]],
    what: str,
    which: str,
    same: Callable[[Json], str] = lambda obj: f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}",
) -> int:
    """Have everything that ``look`` finds go ``away`` until two looks have found nothing; how many have gone. What is
    the ``same`` to somebody is put back where it is found too often.
    """
    gone, quiet, end = 0, False, time.monotonic() + PATIENCE
    places = asyncio.Semaphore(_AT_ONCE)
    times: Counter[str] = Counter()

    async def one(obj: Json) -> bool:
        async with places:
            return await away(obj)

    while True:
        found = await look() or []
        if not found and quiet:
            return gone
        done = sum(await asyncio.gather(*map(one, found)))
        if done:
            gone, end = gone + done, time.monotonic() + PATIENCE
            times.update({same(obj) for obj in found})
            if max(times.values()) > _AGAIN:
                name = found[0]["metadata"]["name"]
                raise Unreachable(
                    f"{plural(gone, what)} {which} taken away, and more come again and again, as {name}; stop the "
                    "server that makes them, which runs with rights of its own, and run it again"
                )
        elif found and time.monotonic() > end:
            name = found[0]["metadata"]["name"]
            raise Unreachable(f"waited {PATIENCE:.0f} seconds for {plural(len(found), what)} {which}; look at {name}")
        quiet = not found
        await asyncio.sleep(SETTLE)


async def _gated(api: Api) -> list[Json]:
    from webhook.facts.steering import ungate_patch
    from webhook.kube.core import GATE
    from webhook.kube.raw import mapping, members, text

    found: list[Json] = []
    token: str | None = ""
    while token is not None:
        # A pod with a gate has no node, and is in no other phase.
        query = {"fieldSelector": "status.phase=Pending", "limit": _PAGE, "continue": token or None}
        page = await patiently(partial(api.get, "/api/v1/pods", **query))
        found += [pod for pod in members(page.get("items")) if ungate_patch(pod, GATE)]
        token = text(mapping(page.get("metadata")).get("continue")) or None
    return found


async def _ungate(api: Api, pod: Json) -> bool:
    from webhook.facts.steering import ungate_patch
    from webhook.kube.core import GATE

    metadata = pod["metadata"]
    body = [{"op": "test", "path": "/metadata/uid", "value": metadata["uid"]}, *ungate_patch(pod, GATE)]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
    return await _written(partial(api.patch, path, body, "json"))


async def _rules(api: Api, path: str) -> list[Json] | None:
    """Our rules, None where the API server has none of this version."""
    from webhook.cluster.api import ApiError
    from webhook.kube.raw import members
    from webhook.kube.taint_rule import ours

    try:
        listed = await patiently(partial(api.get, path))
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return None
    return [rule for rule in members(listed.get("items")) if ours(rule)]


async def _reports(api: Api, path: str) -> list[Json] | None:
    """Our reports, None where the API server has no such kind."""
    from webhook.cluster.api import ApiError
    from webhook.kube.policy_report import SELECTOR, ours
    from webhook.kube.raw import members

    try:
        listed = await patiently(partial(api.get, path, labelSelector=SELECTOR, limit=_REPORTS))
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return None
    return [each for each in members(listed.get("items")) if ours(each)]


async def _unreport(api: Api, path: str, report: Json) -> bool:
    base, _, plural_name = path.rpartition("/")
    metadata = report["metadata"]
    middle = f"namespaces/{metadata['namespace']}/" if metadata.get("namespace") else ""
    return await _written(partial(api.delete, f"{base}/{middle}{plural_name}/{metadata['name']}"))


async def _delete(api: Api, path: str, rule: Json) -> bool:
    return await _written(partial(api.delete, f"{path}/{rule['metadata']['name']}"))


async def _written(write: Callable[[], Awaitable[Json]]) -> bool:
    """Whether ``write`` was taken; not, where somebody else has changed the object or it is gone."""
    from webhook.cluster.api import ApiError

    try:
        await patiently(write)
    except ApiError as error:
        if error.status not in (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY):
            raise
        return False
    return True
