"""Runs the server: sockets, certificates, signals, and the look at the files twice a second."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.types import ASGIApp

from certs.context import ServingContext
from certs.error import CertificateError
from certs.files import ensure, keep, write
from certs.secret import complete
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
from webhook.server.app import build, watching
from webhook.server.audit import AuditSink
from webhook.server.connection import Connection
from webhook.server.gauges import EVERY
from webhook.server.recorded import Recorded
from webhook.server.reserving import Reserving
from webhook.server.service import Check, Service
from webhook.store.journal import Journal, Limits
from webhook.store.policies import PolicyStore, shipped
from webhook.store.recording import Recording
from webhook.telemetry.log import Log
from webhook.telemetry.moment_lines import MomentLines
from webhook.telemetry.review_spans import ReviewSpans
from webhook.telemetry.tracing import Protocols, Tracing

# Go keeps idle connections for 90 seconds; who closes first loses the request that is just being sent.
KEEP_ALIVE = 120
# An edit of a file is in after two looks.
LOOK_EVERY = 0.5
# Certificates are due weeks before they end, seconds.
RENEW_EVERY = 3600.0
# After SIGTERM, seconds: the endpoints of the Service move away, what is being answered is finished, bytes are sent.
SETTLE, DRAIN, FLUSH = 1.0, 10.0, 0.5

# How long a new pod waits for claims that were made with it, seconds: more than a watch takes on a busy day, and no
# more than somebody accepts who makes the claims later.
PATIENCE = 1.0

# Full collections stop every thread for as long as what lives takes to visit. What is loaded once is put aside, and
# the rest is visited rarely: reviews leave no cycles behind.
_COLLECT_AFTER = (200_000, 50, 1000)
# How long background work may keep the interpreter from the event loop, seconds.
SWITCH_AFTER = 0.0005

Part = Coroutine[None, None, None]


class CannotListenError(Exception):
    """The address to listen on cannot be had."""


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Settings:
    """What ``allocguard serve`` is told. ``hosts`` go into a certificate that has to be made; ``minor`` None chooses
    the Kubernetes release by the objects; ports 0 take free ones.

    Without ``cluster`` it is live, by ``kubeconfig`` and ``context`` as kubectl would have it. It registers itself
    where it has a ``service`` (``NAMESPACE/NAME[:PORT]``) or ``url`` to register; ``secret`` (``NAMESPACE/NAME``) is
    where certificates are shared, ``namespace`` its own, ``audit`` refuses nothing. ``journal`` is the folder where
    what is seen of the cluster is kept, within ``limits``; ``record`` is where decisions are recorded, and of those
    that nobody will ask about the part ``record_ratio``; ``otlp_endpoint`` is where spans go, by ``otlp_protocol``, and
    ``trace_ratio`` the part of claims and pods whose spans do. ``audit_token`` is the file with the token that senders
    of audit events show, ``audit_log`` one of such events to follow.
    """

    certs: Path
    cluster: Sequence[str] = ()
    policies: Sequence[str] = ()
    host: str = "0.0.0.0"
    port: int = 8443
    metrics_port: int | None = 9443
    hosts: Sequence[str] = ("localhost", "127.0.0.1", "::1")
    minor: int | None = None
    gates: Mapping[str, bool] = field(default_factory=dict)
    clock: Callable[[], datetime] | None = None
    kubeconfig: str | None = None
    context: str | None = None
    secret: str | None = None
    service: str | None = None
    url: str | None = None
    audit: bool = False
    namespace: str = "allocguard-system"
    journal: Path | None = None
    limits: Limits = field(default_factory=Limits)
    record: Path | None = None
    record_ratio: float = 0.02
    otlp_endpoint: str | None = None
    otlp_protocol: Protocols = "http/protobuf"
    trace_ratio: float = 0.1
    audit_token: Path | None = None
    audit_log: Path | None = None


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
        policies = PolicyStore(settings.policies or [shipped()], settings.audit)
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
        controllers.gates.on_release = service.metrics.released
        service.may_hold = controllers.may_hold
        service.patience = PATIENCE
        service.gate_evidence = controllers.rollouts.gate_evidence
        controllers.rollouts.carried = service.slice_reviews.carried
        controllers.rollouts.tracing = tracing
        controllers.life.refused = lambda: service.allocations.refused
        controllers.life.on_moments.append(MomentLines(log, tracing).tell)
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


def run(
    service: Service,
    settings: Settings,
    begin: Callable[[], object] = tuple,
    now: Callable[[], datetime] = _now,
    end: Callable[[], object] = tuple,
) -> None:
    """Serve ``service`` until SIGTERM or SIGINT; as :func:`serve`. ``begin`` is called once there are certificates and
    sockets, ``end`` once a signal has come, before what is being answered is finished; ``now`` is the clock by which
    clients judge certificates.
    """
    named = [settings.host] if settings.host not in ("", "0.0.0.0", "::") else []
    hosts = list(dict.fromkeys([*settings.hosts, *named]))

    def renew() -> None:
        try:
            keep(settings.certs, hosts, now())
        except CertificateError as error:  # a folder that only others may write
            service.log.write("warning", "certificates not renewed", message=str(error))

    try:
        ensure(settings.certs, hosts, _now())
        renew()
        context = ServingContext(settings.certs, _now())
    except CertificateError:
        if settings.secret is None:
            raise
        # Only until what the Secret holds takes its place.
        write(settings.certs, complete({}, settings.certs, hosts, _now()))
        context = ServingContext(settings.certs, _now())
    _raise_limit()
    main = _listen(settings.host, settings.port)
    beside = None if settings.metrics_port is None else _listen(settings.host, settings.metrics_port)
    service.tell_cluster()
    begin()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
    sys.setswitchinterval(SWITCH_AFTER)
    # What a Secret holds is renewed there.
    uvloop.run(_run(service, context, main, beside, now, tuple if settings.secret else renew, end))


def _raise_limit() -> None:
    """Take as many file descriptors as this process may have, as Go's runtime does: the usual 1024 are soon spent."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        # The error's own text repeats the address.
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        raise CannotListenError(f"{_address(host, port)}: {reason.lower()}") from error


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class _Server(uvicorn.Server):
    """Leaves the signals to :func:`_run`, which has something to do before connections are closed, and does not wait
    for clients that keep a connection and look at it only when they need it next, as Go and others do.
    """

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, finish what is being answered, close every connection."""
        for server in self.servers:
            server.close()
        connections, tasks = self.server_state.connections, self.server_state.tasks
        for connection in list(connections):
            connection.shutdown()
        await self._while(lambda: bool(tasks), DRAIN)
        await self._while(lambda: bool(connections), FLUSH)
        for connection in list(connections):
            connection.transport.abort()

    async def _while(self, true: Callable[[], bool], seconds: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while true() and not self.force_exit and loop.time() < deadline:
            await asyncio.sleep(0.02)


def _server(app: ASGIApp, context: ssl.SSLContext) -> _Server:
    return _Server(
        uvicorn.Config(
            app,
            http=Connection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE,
            ssl_context_factory=lambda _config, _default: context,
        )
    )


async def _run(
    service: Service,
    context: ServingContext,
    main: socket.socket,
    beside: socket.socket | None,
    now: Callable[[], datetime],
    renew: Callable[[], object],
    end: Callable[[], object],
) -> None:
    log = service.log
    _forward_logs(log)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, told: log.write("error", "event loop", message=str(told.get("message"))))
    stop, at_once = asyncio.Event(), asyncio.Event()

    servers = [(_server(build(service), context), main)]
    if beside is not None:
        servers.append((_server(Starlette(routes=watching(service)), context), beside))

    def signalled() -> None:
        if stop.is_set():
            at_once.set()
            for server, _ in servers:
                server.force_exit = True
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled)
    # Who sends it to a server wants files read again, which happens anyway; from a terminal it says that it is gone.
    followed = "files, policies and certificates are followed without a signal"
    hung_up = signalled if sys.stderr.isatty() else partial(log.write, "info", followed)
    loop.add_signal_handler(signal.SIGHUP, hung_up)
    serving = [asyncio.create_task(server.serve(sockets=[listener])) for server, listener in servers]
    for name, (_, listener) in zip(("", "metrics "), servers, strict=False):
        host, port = listener.getsockname()[:2]
        url = f"https://{_address(host, port)}"
        log.write("info", f"{name}listening on {url}", url=url)
    service.metrics.certificates(context.ends)
    looking = asyncio.create_task(_look(service, context, now, renew))
    keeping = asyncio.create_task(_keep(service))
    await stop.wait()
    service.stopping = service.gauges.ended = True
    log.write("info", "stopping")
    end()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(at_once.wait(), SETTLE)
    for server, _ in servers:
        server.should_exit = True
    await asyncio.gather(*serving)
    looking.cancel()
    keeping.cancel()
    log.write("info", "stopped")


async def _keep(service: Service) -> None:
    """Keep the gauges up. What goes wrong is said once."""
    told = ""
    while True:
        pause = EVERY
        if service.cluster.synced:
            try:
                pause = await asyncio.to_thread(service.gauges.keep)
                problem = service.gauges.problem
            except Exception as error:  # noqa: BLE001 - a scrape tells it too, reviews go on
                problem = f"{type(error).__name__}: {error}"
            if problem and problem != told:
                service.log.write("error", "gauges not computed", message=problem)
            told = problem
        await asyncio.sleep(pause)


async def _look(
    service: Service, context: ServingContext, now: Callable[[], datetime], renew: Callable[[], object]
) -> None:
    """Take in edits of policies, cluster files and certificates. What goes wrong is said once, not twice a second."""
    told = ""
    renewed = time.monotonic()
    synced = service.cluster.synced
    while True:
        await asyncio.sleep(LOOK_EVERY)
        if service.cluster.synced and not synced:
            synced = True
            gc.freeze()
        try:
            if await asyncio.to_thread(service.refresh):
                gc.freeze()
            told = ""
        except Exception as error:  # noqa: BLE001 - what serves goes on serving, whatever an edit brings
            problem = f"{type(error).__name__}: {error}"
            if problem != told:
                service.log.write("error", "files not taken in", message=problem)
            told = problem
        if time.monotonic() > renewed + RENEW_EVERY:
            renewed = time.monotonic()
            await asyncio.to_thread(renew)
        try:
            if await asyncio.to_thread(context.refresh, now()):
                service.certificate_problem = ""
                service.metrics.certificates(context.ends)
                service.log.write("info", "certificates replaced")
        except CertificateError as error:  # told at the look that sees the change, not at those after it
            service.certificate_problem = str(error)
            service.log.write("error", "certificates not taken in", message=str(error))


class _ToLog(logging.Handler):
    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Queue one record as a line of our own log."""
        error = record.exc_info[1] if record.exc_info else None
        self._log.write("warning", "server", message=record.getMessage().strip(), error=repr(error) if error else "")


def _forward_logs(log: Log) -> None:
    for name in ("uvicorn.error", "asyncio", "kubernetes", "aiohttp"):
        logger = logging.getLogger(name)
        logger.handlers = [_ToLog(log)]
        logger.propagate = False
