"""What the audit scan found as reports in the API: one for each namespace and one for the cluster, in the newest of the
groups that the API server has. Written when they say something else than before, deleted when there is nothing to say.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Mapping
from datetime import datetime
from http import HTTPStatus

from webhook.cluster.api import Api, ApiError, Unreachable
from webhook.cluster.stored import listed
from webhook.controllers.trouble import Trouble
from webhook.kube.finding import Severity
from webhook.kube.policy_report import FAMILIES, MOST, NAME, SELECTOR, Family, Row, changed, gravest, ours, report
from webhook.kube.raw import Json, mapping, text

# Seconds after which a report is written although only words of it have changed, as how long something has lasted;
# between two writes; and reports in one answer to a list, which can be large.
REFRESH, _GAP, _PAGE = 3600.0, 0.1, 10
# A namespace that is gone, or is being removed, needs no report; whoever else has written it meanwhile is the leader.
_NEEDLESS = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT})


class Found:
    """What one scan found, as much of it as reports can tell: counts are exact, rows the gravest of each namespace."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str, str]] = Counter()
        self._rows: dict[str, list[Row]] = {}
        self._severities: dict[str, Counter[Severity]] = {}

    def add(self, row: Row) -> None:
        """Take in one finding."""
        self.counts[row.policy, row.rule, row.severity] += 1
        self._severities.setdefault(row.namespace, Counter())[row.severity] += 1
        rows = self._rows.setdefault(row.namespace, [])
        rows.append(row)
        if len(rows) >= 2 * MOST:
            self._rows[row.namespace] = gravest(rows)[:MOST]

    @property
    def namespaces(self) -> list[str]:
        """Where something was found, the cluster as an empty name."""
        return sorted(self._rows)

    def rows(self, namespace: str) -> list[Row]:
        """The gravest findings of a namespace, in order."""
        return gravest(self._rows.get(namespace, ()))[:MOST]

    def severities(self, namespace: str) -> Mapping[Severity, int]:
        """How many findings of each severity a namespace has."""
        return self._severities.get(namespace, Counter())


class Reports:
    """Writes the reports, as the one who leads."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._written: dict[str, float] = {}

    async def write(self, found: Found, now: datetime) -> str:
        """Make ours in the API those of ``found``; gives the first problem, empty without one, and where the API server
        has no kind of report.
        """
        problems: list[str] = []
        for family in FAMILIES:
            try:
                # Both, so that none is left standing in one of them.
                served = [await self._settle(family, each, found, now, problems) for each in (True, False)]
            except ApiError as error:
                problems.append(Trouble(f"reports of {family.group}", error))
                continue
            except Unreachable as error:
                problems.append(f"reports of {family.group}: {error}")
                break
            if any(served):
                # Those of an earlier group would say everything twice.
                found = Found()
        return next(iter(problems), "")

    async def _settle(self, family: Family, clustered: bool, found: Found, now: datetime, problems: list[str]) -> bool:
        """Make those of one kind; whether the server has it."""
        missing = {name for name in found.namespaces if clustered == (not name)}
        try:
            async for held in _ours(self._api, family, clustered):
                namespace = text(mapping(held.get("metadata")).get("namespace"))
                if namespace in missing:
                    missing.remove(namespace)
                    made = report(family, namespace, found.rows(namespace), found.severities(namespace), now, held)
                    if self._due(family.path(clustered, namespace), made, held):
                        await self._put(family, clustered, made, held, problems)
                else:
                    await self._drop(family, clustered, held, problems)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return False
            raise
        for namespace in sorted(missing):
            made = report(family, namespace, found.rows(namespace), found.severities(namespace), now, {})
            await self._put(family, clustered, made, {}, problems)
        return True

    def _due(self, path: str, made: Json, held: Json) -> bool:
        anything, more = changed(made, held)
        # One that a leader before wrote counts as written when it is seen first.
        last = self._written.setdefault(path, time.monotonic())
        return more or (anything and time.monotonic() - last > REFRESH)

    async def _put(self, family: Family, clustered: bool, made: Json, held: Json, problems: list[str]) -> None:
        metadata = mapping(held.get("metadata"))
        path = family.path(clustered, text(made["metadata"].get("namespace")))
        if metadata:
            made["metadata"]["resourceVersion"] = metadata.get("resourceVersion")
            written = self._api.update(f"{path}/{NAME}", made)
        else:
            written = self._api.create(path, made)
        if await _tried(written, path, problems):
            self._written[path] = time.monotonic()

    async def _drop(self, family: Family, clustered: bool, held: Json, problems: list[str]) -> None:
        metadata = mapping(held.get("metadata"))
        path = family.path(clustered, text(metadata.get("namespace")))
        self._written.pop(path, None)
        await _tried(self._api.delete(f"{path}/{NAME}", _the_same(metadata)), path, problems)


async def _ours(api: Api, family: Family, clustered: bool) -> AsyncIterator[Json]:
    """The reports of one kind that are ours. Raises ApiError, 404 where the server has none of the kind."""
    async for page in listed(api, family.path(clustered), labelSelector=SELECTOR, limit=_PAGE):
        for each in page:
            if ours(each):
                yield each


async def _tried(write: Awaitable[Json], path: str, problems: list[str]) -> bool:
    """Whether ``write`` was done; a problem that is one goes to ``problems``. Raises Unreachable."""
    try:
        await write
    except ApiError as error:
        if error.status not in _NEEDLESS and "being terminated" not in error.message:
            problems.append(Trouble(path, error))
        return False
    await asyncio.sleep(_GAP)
    return True


def _the_same(metadata: Json) -> Json:
    """Options of a deletion of this very object."""
    return {"preconditions": {"uid": metadata.get("uid")}}
