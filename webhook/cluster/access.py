"""Credentials for the API server: kubeconfig or the ones of a pod, read by the ``kubernetes`` client."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from webhook.cluster.api import CONNECT, Api, Unreachable

_LOGGER = "kubernetes.aio.config"
_HOME = "~/.kube/config"


class CannotConnect(Exception):  # noqa: N818 - the text says why
    """There are no credentials to begin with: a kubeconfig that is not there or cannot be read, no such context."""


class NoCluster(CannotConnect):
    """Nobody said which cluster, and there is none that goes without saying."""


async def connect(kubeconfig: str | None = None, context: str | None = None) -> Api:
    """The API server that ``kubeconfig`` and ``context`` name; without them as kubectl has it: ``$KUBECONFIG``,
    ``~/.kube/config``, else the ServiceAccount of the pod. Raises CannotConnect; asks no server.
    """
    access = Access(_source(kubeconfig, context))
    try:
        await access.load()
    except Unreachable as error:
        raise CannotConnect(str(error)) from error
    return Api(access)


def _source(kubeconfig: str | None, context: str | None) -> Callable[[Any], Awaitable[None]]:
    """What fills a Configuration. Raises CannotConnect when there is nothing to read."""
    named = kubeconfig or os.environ.get("KUBECONFIG", "")
    paths = [path for path in named.split(os.pathsep) if path] or [_HOME]
    there = [path for path in paths if Path(path).expanduser().exists()]

    async def from_file(configuration: Any) -> None:
        from kubernetes.aio.config import load_kube_config

        await load_kube_config(os.pathsep.join(there), context, configuration, persist_config=False)  # type: ignore[no-untyped-call]  # as the client has it

    async def from_pod(configuration: Any) -> None:
        from kubernetes.aio.config import load_incluster_config

        load_incluster_config(configuration)  # type: ignore[no-untyped-call]  # as the client has it

    if there:
        return from_file
    if kubeconfig:
        raise CannotConnect(f"{kubeconfig}: is not there; name a kubeconfig")
    if os.environ.get("KUBERNETES_SERVICE_HOST") and context is None:
        return from_pod
    if os.environ.get("KUBECONFIG"):
        raise CannotConnect(f"{' and '.join(paths)}: not there; set KUBECONFIG to a kubeconfig")
    raise NoCluster(f"no cluster to ask: there is no {_HOME}, and this is no pod; give --kubeconfig or --cluster PATH")


class Access:
    """A Configuration of the ``kubernetes`` client and the connections made by it.

    ``generation`` counts the loads: who was refused by one asks for a newer one. The token of a pod is read again every
    minute by the client's own hook; a token file, an exec plugin's token and client certificates are at the next 401.
    """

    def __init__(self, source: Callable[[Any], Awaitable[None]]) -> None:
        self._source = source
        self._lock = asyncio.Lock()
        self._configuration: Any = None
        self._rest: Any = None
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
                rest = RESTClientObject(configuration)
            except Exception as error:
                raise Unreachable(f"credentials cannot be read: {_told(error)}") from error
        if said:
            # The client goes on without credentials when a plugin fails, as somebody who is nobody.
            raise Unreachable(f"credentials cannot be read: {said[-1]}")
        before, self._configuration, self._rest = self._rest, configuration, rest
        self._doubtful = False
        self.generation += 1
        if before is not None:
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
        """The aiohttp response to one request; ``seconds`` are for the whole of it and between two reads."""
        import aiohttp

        if self._doubtful:
            await self.reload(self.generation)
        headers = {"Accept": "application/json", "User-Agent": "allocguard", "Content-Type": kind or "application/json"}
        for setting in (await self._configuration.auth_settings()).values():
            headers[setting["key"]] = setting["value"].strip()
        whole, between = seconds
        timeout = aiohttp.ClientTimeout(whole, sock_connect=CONNECT, sock_read=between)
        url = f"{self._configuration.host.rstrip('/')}{tail}"
        return (await self._rest.request(method, url, headers, body, _request_timeout=timeout)).response

    async def close(self) -> None:
        """End all connections."""
        if self._rest is not None:
            await self._rest.close()


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
    return " ".join((str(error) or type(error).__name__).split())[:300]
