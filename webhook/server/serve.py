"""Puts a server together: policies, the cluster in files or live with its controllers, and who is told of decisions."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from datetime import UTC, datetime
from functools import partial

from webhook.cluster.access import connect
from webhook.cluster.api import Api
from webhook.cluster.audit_log import AuditLog
from webhook.cluster.background import Background
from webhook.cluster.files import Cluster
from webhook.cluster.ledgers import Ledgers
from webhook.cluster.live import LiveCluster
from webhook.controllers.clock import ServerClock
from webhook.controllers.event_queue import EventQueue
from webhook.controllers.evidence_events import EvidenceEvents
from webhook.controllers.runner import Controllers
from webhook.controllers.write_alerts import WriteAlerts, claim_writers
from webhook.server.audit import AuditSink
from webhook.server.recorded import Recorded
from webhook.server.reserving import Reserving
from webhook.server.run import DRAIN, LOOK_EVERY, run
from webhook.server.service import Check, Service
from webhook.server.settings import Settings
from webhook.store.journal import Journal
from webhook.store.policies import PolicyStore, shipped
from webhook.store.recording import Recording
from webhook.telemetry.log import Log
from webhook.telemetry.moment_lines import MomentLines
from webhook.telemetry.review_spans import ReviewSpans
from webhook.telemetry.tracing import Tracing

# How long a new pod waits for claims that were made with it, seconds: more than a watch takes on a busy day, and no
# more than somebody accepts who makes the claims later.
PATIENCE = 1.0

Part = Coroutine[None, None, None]


def _now() -> datetime:
    return datetime.now(UTC)


def serve(settings: Settings, log: Log | None = None) -> None:
    """Serve until SIGTERM or SIGINT. Raises PolicyErrors, CertificateError, OSError (a path of the cluster that is not
    there, a journal that cannot be), CannotConnect (no credentials), JournalInUseError, CannotTraceError or
    CannotListenError where it cannot begin.
    """
    log = log or Log()
    if threading.current_thread() is threading.main_thread():
        # The first process of a container ignores a SIGTERM that nobody handles.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    journal: Journal | None = None
    recording: Recording | None = None
    clock = ServerClock(log, _now)
    now = settings.clock or clock.now
    tracing = Tracing(settings.otlp_endpoint, log, settings.otlp_protocol, settings.trace_ratio)
    try:
        policies = PolicyStore(settings.policies or [shipped()], settings.audit, settings.namespace)
        if settings.journal is not None:
            # The events of a clock that stands still would have no order.
            journal = Journal(settings.journal, clock.now, log.write, settings.limits)
        if settings.record is not None:
            recording = Recording(
                settings.record, Recorded(settings.record_ratio), lambda: policies.enforced, log.write
            )
        if settings.cluster:
            cluster = Cluster(settings.cluster, settings.minor, settings.gates, journal)
            service = Service(policies, cluster, log, now, checks=lambda: _kept_checks(journal, recording))
            # Nobody would let the pods go.
            service.may_hold = lambda: False
            _record(service, journal, recording)
            _trace(service, tracing)
            _serve_files(settings, service)
        else:
            _serve_live(settings, policies, log, journal, recording, clock, tracing)
    finally:
        if lost := tracing.close():
            log.write("warning", "spans lost", count=lost)
        if recording is not None:
            recording.close()
        if journal is not None:
            journal.close()
        log.close()


def _kept_checks(*kept: Journal | Recording | None) -> list[Check]:
    return [each.check() for each in kept if each is not None]


def _record(service: Service, journal: Journal | None, recording: Recording | None) -> None:
    """Count what the journal and the recording cannot write, and have decisions recorded."""
    if journal is not None:
        journal.counted(service.metrics.journal_failure)
    if recording is not None:
        recording.counted(service.metrics.recording_failure)
        service.on_record.append(recording.record)


def _trace(service: Service, tracing: Tracing) -> None:
    """Have decisions traced, what is counted show traces that are kept, and count the spans that nobody took."""
    tracing.on_dropped = service.metrics.spans_dropped
    if tracing.sends:
        # Before it is counted: from a decision on that is kept, the claim is.
        service.on_record.insert(0, ReviewSpans(tracing).tell)
        service.metrics.traced = tracing.sampling.wanted


def _events(service: Service, controllers: Controllers, api: Api) -> EventQueue:
    """What writes the events about claims and their pods, of decisions and of what the leader sees of claims."""
    queue = EventQueue(api, service.log, service.metrics.events_dropped)
    events = EvidenceEvents(queue.offer)
    service.on_record.append(events.record)
    controllers.life.on_moments.append(events.moments)
    checks = service.checks
    service.checks = lambda: [*checks(), *queue.checks()]
    return queue


def _serve_files(settings: Settings, service: Service) -> None:
    """Serve with a cluster in files; audit events are looked at beside, and told without events about claims."""
    background = Background()
    alerts = WriteAlerts(lambda: service.cluster.snapshot, lambda: claim_writers(service.policies), service.log, _now)
    parts = _audited(settings, service, alerts)
    try:
        run(service, settings, lambda: [background.submit(part()) for part in parts.values()])
    finally:
        background.stop()


def _audited(settings: Settings, service: Service, alerts: WriteAlerts) -> dict[str, Callable[[], Part]]:
    """What looks at audit events, by name; ``service`` takes them too from now on, and counts what becomes of them."""
    alerts.on_failure, alerts.on_events = service.metrics.write_failure, service.metrics.audit_events
    service.audit = AuditSink(alerts.offer, settings.audit_token, service.log)
    checks = service.checks

    async def look() -> None:
        # Claims and roles that are not seen yet could not be told from those that are not there.
        while not service.cluster.synced:
            await asyncio.sleep(LOOK_EVERY)
        await alerts.run()

    parts: dict[str, Callable[[], Part]] = {"write alerts": look}
    if settings.audit_log is not None:
        tail = AuditLog(settings.audit_log, alerts.offer, service.log.write)
        parts["audit log"] = tail.run
        service.checks = lambda: [*checks(), *tail.checks(), *alerts.checks()]
    elif settings.audit_token is not None:
        service.checks = lambda: [*checks(), *alerts.checks()]
    return parts


def _serve_live(
    settings: Settings,
    policies: PolicyStore,
    log: Log,
    journal: Journal | None,
    recording: Recording | None,
    clock: ServerClock,
    tracing: Tracing,
) -> None:
    """Serve with a view of the live cluster, and the controllers that were asked for, in a thread of their own."""
    background = Background()
    now = settings.clock or clock.now
    ended: list[Check] = []

    def watched(name: str, future: Future[None]) -> None:
        if not future.cancelled():
            error = future.exception()
            ended.append((name, False, f"failed: has ended: {type(error).__name__}: {error}"))
            log.write("error", f"{name} has ended", error=repr(error))

    try:
        api = background.submit(connect(settings.kubeconfig, settings.context)).result()
        cluster = LiveCluster(api, now, log.write, settings.minor, settings.gates, recorder=journal)
        controllers = Controllers(settings, api, cluster, policies, log, clock, now)

        async def view() -> None:
            # What is seen has the time at which it was seen, by the clock that tells how old it is.
            await clock.look(api)
            await cluster.run()

        parts: dict[str, Callable[[], Part]] = {"view": view, "controllers": controllers.run}

        def ages() -> dict[str, float]:
            known = cluster.ages(now())
            return {kind: age for kind, age in known.items() if age is not None}

        service = Service(
            policies,
            cluster,
            log,
            now,
            ages,
            lambda: [*controllers.checks(), *_kept_checks(journal, recording), *ended],
        )
        _record(service, journal, recording)
        _trace(service, tracing)
        cluster.on_policies = service.take_policies
        cluster.on_stale = service.metrics.stale
        cluster.on_change.append(service.allocations.hear)
        controllers.gates.on_release = service.metrics.released
        service.may_hold = controllers.may_hold
        service.patience = PATIENCE
        service.gate_evidence = controllers.rollouts.gate_evidence
        controllers.rollouts.carried = service.slice_reviews.carried
        controllers.rollouts.tracing = tracing
        controllers.life.refused = lambda: service.allocations.refused
        controllers.life.on_moments.append(MomentLines(log, tracing).tell)
        if tracing.sends:
            controllers.ledgers.on_differing = tracing.sampling.keep
        parts["events"] = _events(service, controllers, api).run
        controllers.roles.on_findings = service.metrics.role_findings
        controllers.scan.on_scan = service.metrics.audit_scan
        controllers.observed.carried = service.slice_reviews.carried
        controllers.observed.dropped = service.slice_reviews.dropped
        controllers.observed.refusals = service.allocations.refusals
        service.reserving = Reserving(Ledgers(api), background.submit, cluster, service.metrics, socket.gethostname())

        alerts = WriteAlerts(lambda: cluster.snapshot, lambda: claim_writers(policies), log, clock.now, api)
        parts |= _audited(settings, service, alerts)

        begun: dict[str, Future[None]] = {}

        def begin() -> None:
            for name, part in parts.items():
                begun[name] = background.submit(part())
                begun[name].add_done_callback(partial(watched, name))

        # Who is told to stop puts nothing back that is just being uninstalled, and lets another replica lead.
        run(service, settings, begin, clock.now, lambda: begun["controllers"].cancel())
        background.stop(api.close(), DRAIN)
    finally:
        background.stop()
