"""Looks at all roles and bindings, and at what the accounts of drivers may do with them: at the start, when one of them
changes, and every ten minutes. Runs where the leader is.

The review of a write sees roles and bindings one by one, and not those that were written while no guard answered.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Protocol

from webhook.cluster.access_reviews import AccessReviews
from webhook.cluster.api import Api, ApiError, Unreachable
from webhook.cluster.live import Changed
from webhook.cluster.reflector import Key
from webhook.cluster.slice_guards import read_slice_guards
from webhook.controllers.rbac_probes import too_much
from webhook.controllers.trouble import Once, Trouble
from webhook.facts.rbac_lint import account_problems
from webhook.facts.rbac_profile import account_holder
from webhook.facts.rbac_survey import Surveyed, whole_survey
from webhook.facts.reporting import reporting_drivers
from webhook.kube.finding import Finding
from webhook.kube.rbac import ACCOUNT, BINDINGS, ROLES
from webhook.kube.snapshot import Snapshot
from webhook.registration.slice_guards import SliceGuards, remembered
from webhook.store.policies import PolicyStore
from webhook.telemetry.log import Level, Log

# Seconds between two looks without any change, and after one at which something was not answered; in which changes are
# gathered; and for how many times as long as a look takes there is none.
EVERY, AGAIN, GATHER, SHARE = 600.0, 60.0, 2.0, 20.0
# Findings that are logged one by one at one look.
TOLD = 100
_KINDS = frozenset({*ROLES, *BINDINGS})

# Kind, namespace and name of the object; rule, path and message.
Told = tuple[str, str, str, str, str, str]
Counts = Mapping[tuple[str, str], int]


class Cluster(Protocol):
    """What is read of the live view."""

    on_change: list[Changed]

    @property
    def snapshot(self) -> Snapshot:
        """The objects."""


class RbacSweep:
    """The controller. :attr:`on_findings` is called after each look with the number of findings by rule and severity,
    and with nothing when another replica takes over.
    """

    def __init__(
        self, api: Api, cluster: Cluster, policies: PolicyStore, log: Log, clock: Callable[[], datetime]
    ) -> None:
        self._api = api
        self._cluster = cluster
        self._policies = policies
        self._log = log
        self._clock = clock
        self._reviews = AccessReviews(api)
        self._unasked = Once(log, "accounts of drivers not asked about")
        self._wake = asyncio.Event()
        self._known: dict[Told, Finding] = {}
        self._counts: Counter[str] = Counter()
        self._problem = ""
        self.on_findings: Callable[[Counts], object] = len

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        self._wake = asyncio.Event()
        self._known = {}
        self._cluster.on_change.append(self._heard)
        try:
            while True:
                self._wake.clear()
                begun = time.monotonic()
                await self.look()
                took = time.monotonic() - begun
                try:
                    async with asyncio.timeout(AGAIN if self._problem else EVERY):
                        await self._wake.wait()
                except TimeoutError:
                    continue
                await asyncio.sleep(max(GATHER, SHARE * took))
        finally:
            self._cluster.on_change.remove(self._heard)
            self.on_findings({})

    def checks(self) -> list[tuple[str, bool, str]]:
        """For ``/readyz``: a role that is too wide keeps nobody from serving."""
        found = ", ".join(
            f"{self._counts[name]} {name}s" for name in ("error", "warning", "info") if self._counts[name]
        )
        told = f"ok, but {self._problem}" if self._problem else "ok"
        return [("roles", True, "; ".join(filter(None, (told, found))))]

    def _heard(self, kind: str, key: Key, before: Snapshot, after: Snapshot) -> None:
        if kind in _KINDS:
            self._reviews.forget()
            self._wake.set()
        elif before.rollout_specs is not after.rollout_specs:
            self._wake.set()

    async def look(self) -> None:
        """Look at everything once, and tell what is new and what is over."""
        snapshot = self._cluster.snapshot
        self._problem = ""
        # In a thread: what the loop follows meanwhile must not wait.
        found = await asyncio.to_thread(_survey, snapshot, await self._guards(), self._clock())
        await self._ask(found, snapshot)
        self._tell(found)

    async def _ask(self, found: dict[Told, Finding], snapshot: Snapshot) -> None:
        """Add what the API server allows the accounts of drivers beyond what their roles and bindings show."""
        for account in sorted(snapshot.writers):
            holder = account_holder(account, snapshot)
            if holder is None:
                continue
            try:
                allowed = await too_much(self._reviews, holder)
            except (ApiError, Unreachable) as error:
                # Whoever may not ask about one may ask about none; a server that is away answers the next look.
                about = "SubjectAccessReview"
                self._problem = Trouble(about, error) if isinstance(error, ApiError) else f"{about}: {error}"
                self._unasked.tell(self._problem)
                return
            if not allowed:
                continue
            shown = {each.rule for each in await asyncio.to_thread(account_problems, *account, snapshot)}
            _add(found, Surveyed(ACCOUNT, *account, tuple(each for each in allowed if each.rule not in shown)))
        self._unasked.over()

    async def _guards(self) -> SliceGuards | None:
        """What keeps accounts to their own slices; None where that cannot be seen."""
        try:
            guards = await read_slice_guards(self._api, self._policies.revision)
        except (ApiError, Unreachable) as error:
            if not isinstance(error, ApiError) or error.status != HTTPStatus.FORBIDDEN:
                self._problem = f"slice guards: {error}"
            return None
        # Without a registration in the API, the API servers may have one in files.
        return guards if guards.asked else None

    def _tell(self, found: dict[Told, Finding]) -> None:
        new = [key for key in found if key not in self._known]
        for key in new[:TOLD]:
            finding = found[key]
            level: Level = "info" if finding.severity == "info" else "warning"
            self._log.write(level, "role finding", **_fields(key), severity=finding.severity, fix=finding.fix)
        if len(new) > TOLD:
            self._log.write("warning", "more role findings", count=len(new) - TOLD)
        over = [key for key in self._known if key not in found]
        for key in over[:TOLD]:
            self._log.write("info", "role finding over", **_fields(key))
        self._known = found
        self._counts = Counter(each.severity for each in found.values())
        self.on_findings(Counter((each.rule, each.severity) for each in found.values()))


def _survey(snapshot: Snapshot, guards: SliceGuards | None, now: datetime) -> dict[Told, Finding]:
    found: dict[Told, Finding] = {}
    for each in whole_survey(snapshot, remembered(guards, snapshot, now), reporting_drivers(snapshot)):
        _add(found, each)
    return found


def _add(found: dict[Told, Finding], each: Surveyed) -> None:
    for finding in each.findings:
        found[each.kind, each.namespace, each.name, finding.rule, finding.path, finding.message] = finding


def _fields(key: Told) -> dict[str, str]:
    return dict(zip(("kind", "namespace", "name", "rule", "path", "message"), key, strict=True))
