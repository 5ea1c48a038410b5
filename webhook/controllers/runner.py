"""Runs the controllers beside admission: which of them, where, and again when one fails.

Certificates are followed by every replica; what writes for all of them runs on the holder of the Lease only.
"""

from __future__ import annotations

import asyncio
import random
import socket
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Protocol

from webhook.cluster.api import Api
from webhook.cluster.live import LiveCluster
from webhook.controllers.audit_scan import AuditScan
from webhook.controllers.certificates import Certificates
from webhook.controllers.claim_life import ClaimLife
from webhook.controllers.clock import ServerClock
from webhook.controllers.gates import Gates
from webhook.controllers.holding import Holding
from webhook.controllers.leader import Leader
from webhook.controllers.node_ledgers import NodeLedgers
from webhook.controllers.observed import Observed
from webhook.controllers.places import Places
from webhook.controllers.policy_status import PolicyStatus
from webhook.controllers.rbac_sweep import RbacSweep
from webhook.controllers.registration import Registration
from webhook.controllers.rollout_status import RolloutStatus
from webhook.controllers.taints import Taints
from webhook.controllers.unscheduled import Unscheduled
from webhook.registration.configurations import Address
from webhook.store.policies import PolicyStore
from webhook.telemetry.log import Log

LEASE = "allocguard"
# The fact for which allocations are refused while their driver is stopped.
REFUSED = "claim.rolloutProblems"
# Seconds until a controller that failed is started again: the first time, at most, and how long it has to run for its
# next failure to count as the first again.
_FIRST, _LONGEST, _SOUND = 1.0, 60.0, 120.0

Check = tuple[str, bool, str]


class Settings(Protocol):
    """What the controllers read of the server's settings."""

    @property
    def certs(self) -> Path:
        """The folder that is served from."""

    @property
    def hosts(self) -> Sequence[str]:
        """Names and addresses that a certificate has to be for."""

    @property
    def secret(self) -> str | None:
        """``NAMESPACE/NAME`` of the Secret that holds the certificates; None keeps them in the folder."""

    @property
    def service(self) -> str | None:
        """``NAMESPACE/NAME[:PORT]`` of the Service to register."""

    @property
    def url(self) -> str | None:
        """The URL to register instead of a Service."""

    @property
    def audit(self) -> bool:
        """Whether nothing is refused: every failure policy is Ignore."""

    @property
    def namespace(self) -> str:
        """Our own namespace, where the Lease is."""


class Shared(Protocol):
    """A controller that does for all replicas what one has to do."""

    async def run(self) -> None:
        """Run until cancelled."""

    def checks(self) -> list[Check]:
        """As :meth:`Controllers.checks`."""


class Controllers:
    """The controllers of one replica. ``now`` is the clock by which they judge: that of the API server, ``clock``,
    unless another one was asked for. ``run`` belongs to the event loop of ``api``; ``checks`` to any thread.
    """

    def __init__(
        self,
        settings: Settings,
        api: Api,
        cluster: LiveCluster,
        policies: PolicyStore,
        log: Log,
        clock: ServerClock,
        now: Callable[[], datetime],
    ) -> None:
        self._api = api
        self._cluster = cluster
        self._log = log
        self._clock = clock
        self._troubles: dict[str, str] = {}
        identity = f"{socket.gethostname()}_{uuid.uuid4()}"
        self._leader = Leader(api, settings.namespace, LEASE, identity, log)
        self._certificates = Certificates(api, settings.certs, settings.secret, settings.hosts, log, clock)
        self._holding = Holding(api, lambda: self._leader.leading or bool(self._leader.holder))
        taints = Taints(api, cluster, log, now)
        places = Places(api, cluster, taints, now, socket.gethostname())
        self.gates = Gates(api, cluster, partial(asks, policies, "Hold"), places, log, now)
        self.observed = Observed(api, cluster, log, now)
        self.rollouts = RolloutStatus(api, cluster, log, now)
        self.roles = RbacSweep(api, cluster, policies, log, now)
        self.scan = AuditScan(api, cluster, policies, log, now)
        self.life = ClaimLife(cluster, now)
        self.ledgers = NodeLedgers(api, cluster, log, now)
        self.ledgers.on_moments = self.life.written
        self._shared: dict[str, Shared] = {
            "node ledgers": self.ledgers,
            "claims": self.life,
            "gates": self.gates,
            "device taints": taints,
            "unscheduled pods": Unscheduled(
                api, cluster, lambda: taints.possible or asks(policies, "Deny", REFUSED), log, now
            ),
            "rollout status": self.rollouts,
            "roles": self.roles,
            "audit scan": self.scan,
        }
        # One that only answers is registered by others, who see to its certificates and its policies.
        self._registered = bool(settings.secret or settings.service or settings.url)
        if self._registered:
            self._shared["policy status"] = PolicyStatus(api, cluster, policies, log, now)
        if settings.service or settings.url:
            address = _address(settings.service, settings.url)
            bundle = self._certificates.ca_bundle
            self._shared["registration"] = Registration(
                api, cluster, policies, address, bundle, settings.audit, settings.namespace, log
            )

    async def run(self) -> None:
        """Run until cancelled; then the Lease is given back."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._supervise("clock", partial(self._clock.run, self._api)))
            if self._registered:
                group.create_task(self._supervise("certificates", self._certificates.run))
                await self._certificates.ready.wait()
            group.create_task(self._supervise("holding pods", self._holding.run))
            # Who cannot see the cluster could do nothing with the Lease, and would keep it from those who can.
            while not self._cluster.synced:
                await asyncio.sleep(0.2)
            group.create_task(self._supervise("observed", self.observed.run))
            group.create_task(self._supervise("leader", partial(self._leader.run, self._lead)))

    def may_hold(self) -> bool:
        """Whether pods may be held: whether somebody lets them go again."""
        return self._holding.may_hold()

    def checks(self) -> list[Check]:
        """Name, whether this replica may serve as far as that goes, and what there is to say; for ``/readyz``."""
        found = self._certificates.checks() if self._registered else []
        found += [*self._holding.checks(), *self.observed.checks()]
        if self._leader.leading:
            found.append(("leader", True, "ok, leading"))
            for shared in self._shared.values():
                found += shared.checks()
        else:
            problem = self._leader.problem
            told = f"ok, but {problem}" if problem else f"ok, {self._leader.holder or 'nobody'} leads"
            found.append(("leader", True, told))
        found += [(name, True, f"ok, but started again after: {trouble}") for name, trouble in self._troubles.items()]
        return found

    async def _lead(self) -> None:
        """What runs on one replica at a time; it needs the view of the cluster."""
        async with asyncio.TaskGroup() as group:
            for name, shared in self._shared.items():
                group.create_task(self._supervise(name, shared.run))

    async def _supervise(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run it for ever: again after a pause when it fails, which is told once as long as it fails alike."""
        pause = _FIRST
        while True:
            begun = time.monotonic()
            sound = asyncio.get_running_loop().call_later(_SOUND, self._troubles.pop, name, None)
            try:
                await run()
                trouble = "it ended"
            except Exception as error:  # noqa: BLE001 - the other controllers and admission go on
                trouble = f"{type(error).__name__}: {error}"
            finally:
                sound.cancel()
            if time.monotonic() - begun > _SOUND:
                pause = _FIRST
            if self._troubles.get(name) != trouble:
                self._log.write("error", "controller failed", controller=name, message=trouble)
            self._troubles[name] = trouble
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))
            pause = min(pause * 2, _LONGEST)


def asks(policies: PolicyStore, action: str, fact: str) -> bool:
    """Whether a policy that serves takes ``action`` for what ``fact``, as ``pod.waitingProblems``, says."""
    for compiled in policies.revision.policies:
        programs = [each.program for each in compiled.variables] + [each.program for each in compiled.validations]
        if compiled.policy.action == action and any(fact in program.source for program in programs):
            return True
    return False


def _address(service: str | None, url: str | None) -> Address:
    """Where the API server reaches us: ``url``, or ``service`` as ``NAMESPACE/NAME[:PORT]``."""
    if url:
        return Address(url=url)
    namespace, _, rest = (service or "").partition("/")
    name, _, port = rest.partition(":")
    return Address(namespace=namespace, name=name, port=int(port or 443))
