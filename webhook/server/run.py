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
import time
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from functools import partial

import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.types import ASGIApp

from certs.context import ServingContext
from certs.error import CertificateError
from certs.files import ensure, keep, write
from certs.secret import complete
from webhook.server.app import build, watching
from webhook.server.connection import Connection
from webhook.server.gauges import EVERY
from webhook.server.service import Service
from webhook.server.settings import Settings
from webhook.telemetry.log import Log

# Go keeps idle connections for 90 seconds; who closes first loses the request that is just being sent.
KEEP_ALIVE = 120
# An edit of a file is in after two looks.
LOOK_EVERY = 0.5
# Certificates are due weeks before they end, seconds.
RENEW_EVERY = 3600.0
# After SIGTERM, seconds: the endpoints of the Service move away, what is being answered is finished, bytes are sent.
SETTLE, DRAIN, FLUSH = 1.0, 10.0, 0.5

# Full collections stop every thread for as long as what lives takes to visit. What is loaded once is put aside, and
# the rest is visited rarely: reviews leave no cycles behind.
_COLLECT_AFTER = (200_000, 50, 1000)
# How long background work may keep the interpreter from the event loop, seconds.
SWITCH_AFTER = 0.0005


class CannotListenError(Exception):
    """The address to listen on cannot be had."""


def _now() -> datetime:
    return datetime.now(UTC)


def run(
    service: Service,
    settings: Settings,
    begin: Callable[[], object] = tuple,
    now: Callable[[], datetime] = _now,
    end: Callable[[], object] = tuple,
) -> None:
    """Serve ``service`` until SIGTERM or SIGINT. ``begin`` is called once there are certificates and
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
