"""One connection of a client: what uvicorn makes of it, with limits on what comes before a request is known."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# Request line and headers: the API server sends a few hundred bytes.
MAX_HEAD = 64 * 1024
# How long they may take, and how long a connection may be open before its first request, seconds.
HEAD_TIMEOUT, FIRST_TIMEOUT = 10.0, 120.0

# The extension of a request that is there with its whole body.
WHOLE = "allocguard.whole"


class Connection(HttpToolsProtocol):
    """Closes a connection that sends no request, or a head of a request that does not end.

    Neither takes one of the places of reviews, so nothing else would ever end it: a few thousand of them would leave
    no file descriptor, or no memory, for the API server.
    """

    _late: asyncio.TimerHandle | None = None
    _head: int | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._late = self.loop.call_later(FIRST_TIMEOUT, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._in_time()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Begin to wait for the end of the head."""
        super().on_message_begin()
        self._in_time()
        self._head = 0
        self._late = self.loop.call_later(HEAD_TIMEOUT, self.transport.abort)

    def on_headers_complete(self) -> None:
        """Stop waiting."""
        self._in_time()
        self._head = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Tell that nothing of the request has to be waited for, where the application has not begun yet."""
        super().on_message_complete()
        self.scope["extensions"] = {WHOLE: {}}

    def data_received(self, data: bytes) -> None:
        """Read on, as far as the head is not too long."""
        super().data_received(data)
        if self._head is not None:
            self._head += len(data)
            if self._head > MAX_HEAD:
                self.transport.abort()
        elif self._late is None and self.timeout_keep_alive_task is None and self.cycle.response_complete:
            # Bytes that belong to no request, as the rest of a body that was refused, end uvicorn's own waiting.
            self._late = self.loop.call_later(FIRST_TIMEOUT, self.transport.abort)

    def _in_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
