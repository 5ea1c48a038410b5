"""A load generator: keep-alive connections over TLS, a bounded time, every answer checked."""

from __future__ import annotations

import asyncio
import ssl
import time
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Load:
    """What a run gave: answers, the seconds it took, and each answer's time in seconds, sorted."""

    answers: int
    seconds: float
    times: list[float]

    @property
    def rate(self) -> float:
        return self.answers / self.seconds

    def percentile(self, share: float) -> float:
        return self.times[min(len(self.times) - 1, int(len(self.times) * share))]


async def run(port: int, authority: Path, path: str, bodies: list[bytes], connections: int, seconds: float) -> Load:
    """Post the ``bodies``, one after the other and over again, to ``path`` over ``connections`` for ``seconds``.

    Raises RuntimeError for an answer but 200.
    """
    context = ssl.create_default_context(cafile=str(authority))
    head = f"POST {path}?timeout=10s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    requests = cycle([f"{head}content-length: {len(body)}\r\n\r\n".encode() + body for body in bodies])
    times: list[float] = []
    begin = time.perf_counter()

    async def connection() -> None:
        reader, writer = await asyncio.open_connection("localhost", port, ssl=context)
        while (sent := time.perf_counter()) - begin < seconds:
            writer.write(next(requests))
            answer = await reader.readuntil(b"\r\n\r\n")
            if not answer.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(answer.decode(errors="replace").splitlines()[0])
            await reader.readexactly(int(answer.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]))
            times.append(time.perf_counter() - sent)
        writer.close()

    await asyncio.gather(*(connection() for _ in range(connections)))
    return Load(len(times), time.perf_counter() - begin, sorted(times))
