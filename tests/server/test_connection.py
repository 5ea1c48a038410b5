"""Connections that never become a request are closed, others are left alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from webhook.server import connection
from webhook.server.connection import MAX_HEAD, WHOLE, Connection

REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"

Client = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def connected(client: Client, app: ASGIApp = PlainTextResponse("ok")) -> None:  # noqa: B008 - it keeps nothing
    """Run ``client`` on a connection to a server of ``app``."""

    async def run() -> None:
        config = uvicorn.Config(app, http=Connection, lifespan="off", log_config=None)
        state = ServerState()
        make = lambda: Connection(config=config, server_state=state, app_state={})  # noqa: E731
        async with await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            async with asyncio.timeout(20):
                await client(reader, writer)
            writer.close()

    asyncio.run(run())


async def closed(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("sent", [b"", b"GET / HT", REQUEST[:-2] + b"x: y\r\n"])
def test_a_head_that_does_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(connection, "HEAD_TIMEOUT", 0.05)
    monkeypatch.setattr(connection, "FIRST_TIMEOUT", 0.05)

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        assert await closed(reader)

    connected(client)


def test_a_head_without_end_is_cut_off() -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(REQUEST[:-2] + b"x: ")
        for _ in range(MAX_HEAD // 1024 + 1):
            writer.write(b"y" * 1024)
        assert await closed(reader)

    connected(client)


def test_a_connection_that_sent_its_head_in_time_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_TIMEOUT", 0.2)
    monkeypatch.setattr(connection, "FIRST_TIMEOUT", 0.2)

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            writer.write(REQUEST)
            answer = await reader.readuntil(b"ok")
            assert answer.startswith(b"HTTP/1.1 200")
            await asyncio.sleep(0.4)

    connected(client)


def test_what_still_comes_after_an_answer_keeps_no_connection_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "FIRST_TIMEOUT", 0.1)

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(REQUEST)
        await reader.readuntil(b"ok")
        writer.write(b"\r\n")
        assert await closed(reader)

    connected(client)


@pytest.mark.parametrize("whole", [True, False])
def test_a_request_that_is_there_with_its_body_is_known(whole: bool) -> None:
    begun = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        told = WHOLE in scope.get("extensions", ())
        begun.set()
        body = (await receive())["body"]
        await PlainTextResponse(f"{told} {body.decode()}")(scope, receive, send)

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\nconnection: close\r\n\r\n"
        writer.write(head + b"body" if whole else head)
        await begun.wait()
        if not whole:
            writer.write(b"body")
        assert (await reader.read()).endswith(f"{whole} body".encode())

    connected(client, app)
