"""Looks at everything that is stored: what would be refused today, what does not agree with the ledger, leftovers and
stale reservations. At the start and every ten minutes; runs where the leader is.

Whole objects are fetched, page by page, and none is kept: the view that decisions are made by has only what facts read
of an object, and policies may judge any field. All of it is done a little at a time, so that decisions and the API
server hardly notice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Protocol

from webhook.admission.scan import Scan, Stored
from webhook.cluster.api import Api, ApiError, Unreachable
from webhook.cluster.stored import JUDGED, pages, seen
from webhook.controllers.audit_reports import Found, Reports
from webhook.controllers.trouble import Once, Trouble
from webhook.facts.times import duration
from webhook.kube.finding import SEVERITY_ORDER
from webhook.kube.policy_report import Row, gravest
from webhook.kube.raw import Json
from webhook.kube.rbac import BINDINGS, ROLES
from webhook.kube.snapshot import Snapshot
from webhook.ledger.views import POLICY as LEDGER
from webhook.store.policies import PolicyStore
from webhook.telemetry.log import Level, Log

# Seconds from the end of one scan to the next, after one that could not be ended, and before the first.
EVERY, AGAIN, FIRST = 600.0, 60.0, 2.0
# Seconds of work at one time, and for how many times as long there is none after it.
WORK, SHARE = 0.02, 4.0
# Findings that are logged one by one at one scan.
TOLD = 100
# What is wrong with these is logged, and counted, by who sweeps them.
_SWEPT = frozenset({*ROLES, *BINDINGS})

Counts = Mapping[tuple[str, str, str], int]


class Cluster(Protocol):
    """What is read of the live view."""

    @property
    def snapshot(self) -> Snapshot:
        """The objects."""


class AuditScan:
    """The controller. :attr:`on_scan` is called after each scan with the number of findings by policy, rule and
    severity and the moment at which it ended, and with no finding when another replica takes over.
    """

    def __init__(
        self, api: Api, cluster: Cluster, policies: PolicyStore, log: Log, clock: Callable[[], datetime]
    ) -> None:
        self._api = api
        self._cluster = cluster
        self._policies = policies
        self._log = log
        self._clock = clock
        self._reports = Reports(api)
        self._unscanned = Once(log, "stored objects not scanned")
        self._unwritten = Once(log, "reports of the audit scan not written")
        self._known: dict[tuple[str, ...], Row] = {}
        self._last: tuple[datetime, Counts] | None = None
        self._problem = ""
        self.on_scan: Callable[[Counts, datetime], object] = lambda counts, at: None

    async def run(self) -> None:
        """Scan again and again, until cancelled."""
        self._known = {}
        await asyncio.sleep(FIRST)
        try:
            while True:
                done = await self.look()
                await asyncio.sleep(EVERY if done else AGAIN)
        finally:
            if self._last is not None:
                self.on_scan({}, self._last[0])

    def checks(self) -> list[tuple[str, bool, str]]:
        """For ``/readyz``: what is stored keeps nobody from serving."""
        told = [f"but {self._problem}"] if self._problem else []
        if self._last is None:
            told.append("no scan has ended yet")
        else:
            at, counts = self._last
            by = {name: sum(count for key, count in counts.items() if key[2] == name) for name in SEVERITY_ORDER}
            told += [f"{count} {name}s" for name, count in by.items() if count]
            told.append(f"scanned {duration((self._clock() - at).total_seconds())} ago")
        return [("audit scan", True, ", ".join(["ok", *told]))]

    async def look(self) -> bool:
        """Scan everything once and tell what is new and what is over; False when that could not be ended."""
        try:
            found = await self._scanned()
        except (ApiError, Unreachable) as error:
            about = "what is stored"
            self._problem = Trouble(about, error) if isinstance(error, ApiError) else f"{about}: {error}"
            self._unscanned.tell(self._problem)
            return False
        self._unscanned.over()
        now = self._clock()
        self._tell(found)
        self._last = now, found.counts
        self.on_scan(found.counts, now)
        self._problem = await self._reports.write(found, now)
        if self._problem:
            self._unwritten.tell(self._problem)
        else:
            self._unwritten.over()
        return True

    async def _scanned(self) -> Found:
        # What would be refused, also where nothing is more than audited.
        scan, found = Scan(self._policies.enforced), Found()
        await _slowly(scan.look(self._cluster.snapshot, self._clock()))
        for kind in JUDGED:
            async for page in pages(self._api, kind):
                await _slowly(self._judged(scan, page, found))
        for stored in scan.rest(self._cluster.snapshot):
            _add(found, stored)
        return found

    def _judged(self, scan: Scan, page: list[Json], found: Found) -> Iterator[None]:
        for obj in page:
            snapshot = self._cluster.snapshot
            # One that the view has in another version was written just now, and judged then: with a view of another
            # moment it would seem to be in its own way.
            if seen(obj, snapshot) and (stored := scan.judge(obj, snapshot, self._clock())) is not None:
                _add(found, stored)
            yield

    def _tell(self, found: Found) -> None:
        rows = [row for namespace in found.namespaces for row in found.rows(namespace) if row.kind not in _SWEPT]
        now = {row.key: row for row in gravest(rows)}
        new = [row for key, row in now.items() if key not in self._known]
        for row in new[:TOLD]:
            level: Level = "info" if row.severity == "info" else "warning"
            told = {"message": row.message, "severity": row.severity, "fix": row.fix}
            self._log.write(level, "audit finding", **_fields(row), **told)
        if len(new) > TOLD:
            self._log.write("warning", "more audit findings", count=len(new) - TOLD)
        over = [row for key, row in self._known.items() if key not in now]
        for row in over[:TOLD]:
            self._log.write("info", "audit finding over", **_fields(row))
        self._known = now


async def _slowly(steps: Iterator[None]) -> None:
    """Take all ``steps``, in a thread and with pauses: what the loop follows meanwhile must not wait, and decisions are
    to have most of the time.
    """
    took: float | None = 0.0
    while took is not None:
        await asyncio.sleep(SHARE * took)
        took = await asyncio.to_thread(_some, steps)


def _some(steps: Iterator[None]) -> float | None:
    """Work for a while; the seconds that it took, None at the end of ``steps``."""
    begun = time.monotonic()
    for _ in steps:
        if (took := time.monotonic() - begun) > WORK:
            return took
    return None


def _add(found: Found, stored: Stored) -> None:
    for policy, finding in stored.problems:
        found.add(
            Row(
                policy,
                finding.rule,
                finding.severity,
                finding.path,
                finding.message,
                finding.fix,
                stored.api_version,
                stored.kind,
                stored.namespace,
                stored.name,
                stored.uid,
                "Ledger" if policy == LEDGER else "Admission",
            )
        )


def _fields(row: Row) -> dict[str, str]:
    names = ("kind", "namespace", "name", "policy", "rule", "path")
    return {name: getattr(row, name) for name in names}
