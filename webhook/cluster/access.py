"""Credentials for the API server: kubeconfig or the ones of a pod, read by the ``kubernetes`` client."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from webhook.cluster.api import CONNECT, Api, Unreachable

_LOGGER = "kubernetes.aio.config"
_HOME = "~/.kube/config"
# What the client says of a context that is not in the kubeconfig.
_NO_CONTEXT = re.compile(r"Expected object with name (\S+) in \S+/contexts list")


class CannotConnect(Exception):  # noqa: N818 - the text says why
    """There are no credentials to begin with: a kubeconfig that is not there or cannot be read, no such context."""


class NoCluster(CannotConnect):
    """Nobody said which cluster, and there is none that goes without saying."""


async def connect(kubeconfig: str | None = None, context: str | None = None) -> Api:
    """The API server that ``kubeconfig`` and ``context`` name; without them as kubectl has it: ``$KUBECONFIG``,
    ``~/.kube/config``, else the ServiceAccount of the pod. Raises CannotConnect; asks no server.
    """
    access = Access(*_source(kubeconfig, context))
    try:
        await access.load()
    except Unreachable as error:
        raise CannotConnect(str(error)) from error
    return Api(access)


def _source(kubeconfig: str | None, context: str | None) -> tuple[str, Callable[[Any], Awaitable[None]]]:
    """Where credentials are, and what fills a Configuration with them. Raises CannotConnect when they are nowhere."""
    named = kubeconfig or os.environ.get("KUBECONFIG", "")
    paths = [path for path in named.split(os.pathsep) if path] or [_HOME]
    # Not Path.exists, which raises where nobody has a home, or where it is not ours to look into.
    there = [path for path in paths if os.path.exists(os.path.expanduser(path))]

    async def from_file(configuration: Any) -> None:
        from kubernetes.aio.config import load_kube_config

        await load_kube_config(os.pathsep.join(there), context, configuration, persist_config=False)  # type: ignore[no-untyped-call]  # as the client has it

    async def from_pod(configuration: Any) -> None:
        from kubernetes.aio.config import load_incluster_config

        load_incluster_config(configuration)  # type: ignore[no-untyped-call]  # as the client has it

    if there:
        return ", ".join(there), from_file
    if kubeconfig:
        raise CannotConnect(f"{kubeconfig}: is not there; name a kubeconfig")
    if os.environ.get("KUBERNETES_SERVICE_HOST") and context is None:
        return "the ServiceAccount of the pod", from_pod
    if os.environ.get("KUBECONFIG"):
        raise CannotConnect(f"{' and '.join(paths)}: not there; set KUBECONFIG to a kubeconfig")
    raise NoCluster(f"no cluster to ask: there is no {_HOME}, and this is no pod; give --kubeconfig or --cluster PATH")


class Access:
    """A Configuration of the ``kubernetes`` client and the connections made by it.

    ``generation`` counts the loads: who was refused by one asks for a newer one. The token of a pod is read again every
    minute by the client's own hook; a token file, an exec plugin's token and client certificates are at the next 401.
    """

    def __init__(self, name: str, source: Callable[[Any], Awaitable[None]]) -> None:
        self._name = name
        self._source = source
        self._lock = asyncio.Lock()
        self._configuration: Any = None
        self._rest: Any = None
        self._transport: tuple[object, ...] = ()
        self._doubtful = False
        self.generation = 0

    async def load(self) -> None:
        """Read the credentials anew. Raises Unreachable, and leaves those that were there."""
        from kubernetes.aio.client import Configuration
        from kubernetes.aio.client.rest import RESTClientObject

        configuration = Configuration()
        # As client-go: authorities of clusters lack the key identifiers that Python 3.13 insists on.
        configuration.disable_strict_ssl_verification = True
        with _overheard() as said:
            try:
                await self._source(configuration)
                transport = _transport(configuration)
                same = transport == self._transport
                rest = self._rest if same else RESTClientObject(configuration)
            except Exception as error:
                raise self._unread(error) from error
        if said:
            # The client goes on without credentials when a plugin fails, as somebody who is nobody.
            raise Unreachable(f"{self._name}: credentials cannot be read: {said[-1]}")
        before, self._configuration, self._rest, self._transport = self._rest, configuration, rest, transport
        self._doubtful = False
        self.generation += 1
        if before is not None and not same:
            await before.close()

    async def reload(self, used: int) -> None:
        """Read the credentials anew, unless somebody did since the generation ``used``."""
        async with self._lock:
            if used == self.generation:
                await self.load()

    def doubt(self) -> None:
        """Note that TLS failed by these credentials: they are read anew before the next request."""
        self._doubtful = True

    async def request(
        self, method: str, tail: str, body: object, kind: str, seconds: tuple[float | None, float]
    ) -> Any:
        """The aiohttp response to one request; ``seconds`` are for the whole of it and between two reads. Raises
        Unreachable for credentials that cannot be read again, and whatever the connection does.
        """
        import aiohttp

        if self._doubtful:
            await self.reload(self.generation)
        headers = {"Accept": "application/json", "User-Agent": "allocguard", "Content-Type": kind or "application/json"}
        try:
            settings = await self._configuration.auth_settings()
        except Exception as error:
            raise self._unread(error) from error
        for setting in settings.values():
            headers[setting["key"]] = setting["value"].strip()
        whole, between = seconds
        timeout = aiohttp.ClientTimeout(whole, sock_connect=CONNECT, sock_read=between)
        url = f"{self._configuration.host.rstrip('/')}{tail}"
        return (await self._rest.request(method, url, headers, body, _request_timeout=timeout)).response

    async def close(self) -> None:
        """End all connections."""
        if self._rest is not None:
            await self._rest.close()

    def _unread(self, error: Exception) -> Unreachable:
        return Unreachable(f"{self._name}: credentials cannot be read: {_told(error)}")


def _transport(configuration: Any) -> tuple[object, ...]:
    """What connections depend on, files by content: with the same, those that are open go on with another token."""
    files = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
    return (
        configuration.host,
        configuration.verify_ssl,
        configuration.tls_server_name,
        configuration.proxy,
        *(Path(file).read_bytes() if file else b"" for file in files),
    )


@contextlib.contextmanager
def _overheard() -> Iterator[list[str]]:
    """What the client logs as errors while it reads credentials: a plugin that fails is told in no other way."""
    said: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(" ".join(record.getMessage().split())[:300])

    logger, listener = logging.getLogger(_LOGGER), Listener(logging.ERROR)
    propagates, logger.propagate = logger.propagate, False
    logger.addHandler(listener)
    try:
        yield said
    finally:
        logger.removeHandler(listener)
        logger.propagate = propagates


def _told(error: BaseException) -> str:
    if isinstance(error, (AttributeError, KeyError, TypeError)):
        return "has not the shape of a kubeconfig, or a context without a cluster or user"
    if missing := _NO_CONTEXT.search(str(error)):
        return f"there is no context {missing[1]}; `kubectl config get-contexts` lists those that there are"
    return " ".join((str(error) or type(error).__name__).split())[:300]
