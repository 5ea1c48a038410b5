"""What evidence costs: ``python -m tests.bench.evidence``. The real server with traces, a recording and a log of what
it decides, against the same server that keeps none of it; and what is lost when it ends.

The receiver of spans is a process of its own. UIDs are random as in a cluster, and claims are allocated five seconds
after they were made: what is kept of them is what `serve` keeps by default, and refusals always are.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path

from tests.bench import fleet, load
from tests.bench.__main__ import row
from tests.telemetry.receiver import decode
from webhook.facts.times import instant
from webhook.server import serve as serving
from webhook.server.serve import serve
from webhook.server.service import Service
from webhook.server.settings import Settings
from webhook.telemetry.spans import REVIEW

NODES, BODIES, ROUNDS, SECONDS, CONNECTIONS = 100, range(0, 100, 2), 9, 1.0, 8
# Everything, nothing, and what each of the three adds to nothing.
KINDS = ("on", "off", "log", "traces", "recording")
GOAL = "goal 0.85 or more"
_MADE_UP = re.compile(r"[0-9a-f]{8}-0000-4000-8000-[0-9]{12}")
_STARTED = 30.0


class Silent(Service):
    """A server that keeps nothing of what it decides but what it is told to, and no log."""

    def __init__(self, *given: object, **more: object) -> None:
        super().__init__(*given, **more)  # type: ignore[arg-type]
        self.on_record = []


@cache
def _random(made_up: str) -> str:
    return str(uuid.UUID(int=random.Random(made_up).getrandbits(128), version=4))


def lifelike(value: object) -> str:
    """JSON of ``value`` with UIDs as an API server makes them, each the same wherever it stands."""
    return _MADE_UP.sub(lambda found: _random(found[0]), json.dumps(value, separators=(",", ":")))


def guard(folder: str, kind: str, core: str, receiver: str, ratio: str) -> None:
    """Serve until a signal comes."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(core)})
    made = instant(fleet.CREATED)
    assert made is not None
    here = Path(folder)
    settings = Settings(here / "certs", [str(here / "cluster")], (), "127.0.0.1", 0, None)
    more: dict[str, object] = {"clock": lambda: made + timedelta(seconds=5)}
    if kind in ("on", "recording"):
        more |= {"record": here / f"record-{kind}"}
    if kind in ("on", "traces"):
        more |= {"otlp_endpoint": f"http://127.0.0.1:{receiver}", "trace_ratio": float(ratio)}
    if kind not in ("on", "log"):
        serving.Service = Silent  # type: ignore[misc]
    serve(Settings(**{**{name: getattr(settings, name) for name in settings.__slots__}, **more}))  # type: ignore[arg-type]


async def _receive(folder: Path) -> None:
    """Take whatever comes as a collector does, and write it down to be read at the end."""
    bodies: list[bytes] = []

    async def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            bodies.append(await reader.readexactly(size))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await taken(reader, writer)
        except asyncio.IncompleteReadError:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201
    await stop.wait()
    spans = [span for body in bodies for span in decode(body)]
    counts = {"spans": len(spans), "reviews": sum(span.name == REVIEW for span in spans), "requests": len(bodies)}
    (folder / "received.json").write_text(json.dumps(counts))


@contextmanager
def receiving(folder: Path) -> Iterator[str]:
    """The port of a receiver; ``received.json`` has what came once it has ended."""
    command = [sys.executable, "-m", "tests.bench.evidence", "receive", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.stdout.close()
        process.wait(60)


class Serving:
    """A server, and its log."""

    def __init__(self, folder: Path, kind: str, core: int, receiver: str, ratio: float) -> None:
        self.log = folder / f"{kind}-{time.monotonic_ns()}.log"
        command = [sys.executable, "-m", "tests.bench.evidence", "guard", str(folder), kind, str(core), receiver]
        with self.log.open("w") as err:
            self.process = subprocess.Popen([*command, str(ratio)], stderr=err)
        end = time.monotonic() + _STARTED
        while not (told := self.lines("listening on")):
            if time.monotonic() > end or self.process.poll() is not None:
                raise RuntimeError(f"the server did not start: {self.log.read_text()[-2000:]}")
            time.sleep(0.05)
        self.port = int(told[0]["url"].rpartition(":")[2])

    def lines(self, event: str) -> list[dict[str, str]]:
        """What it logged of an event."""
        told = [json.loads(line) for line in self.log.read_text().splitlines() if line.endswith("}")]
        return [each for each in told if each["event"].startswith(event)]

    def cpu(self) -> float:
        """Seconds that it has computed, NaN where the machine does not tell."""
        file = Path(f"/proc/{self.process.pid}/stat")
        if not file.exists():
            return math.nan
        user, system = file.read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it, and wait."""
        self.process.send_signal(number)
        self.process.wait(30)


def asked(folder: Path, port: int, bodies: list[bytes], connections: int, seconds: float) -> load.Load:
    """What ``connections`` get answered."""
    return asyncio.run(load.run(port, folder / "certs" / "ca.crt", "/validate", bodies, connections, seconds))


def throughput(folder: Path, core: int, bodies: dict[str, list[bytes]]) -> None:
    """With everything on against everything off, in turns."""
    rates: dict[tuple[str, str], list[float]] = {}
    costs: dict[tuple[str, str], list[float]] = {}
    tails: dict[tuple[str, str], list[float]] = {}
    with receiving(folder) as receiver:
        ratio = Settings(folder).trace_ratio
        servers = {kind: Serving(folder, kind, core, receiver, ratio) for kind in KINDS}
        for number in range(ROUNDS + 1):
            for what, texts in bodies.items():
                for kind in KINDS if number % 2 else reversed(KINDS):
                    before = servers[kind].cpu()
                    done = asked(folder, servers[kind].port, texts, CONNECTIONS, SECONDS)
                    if number:  # the first round warms up
                        rates.setdefault((what, kind), []).append(done.rate)
                        costs.setdefault((what, kind), []).append((servers[kind].cpu() - before) / done.answers)
                        tails.setdefault((what, kind), []).append(done.percentile(0.99))
        for each in servers.values():
            each.end()
        lost = sum(int(line["count"]) for kind in servers for line in servers[kind].lines("spans lost"))
    for what in bodies:
        on, off = (statistics.median(rates[(what, kind)]) for kind in ("on", "off"))
        row(f"{what}: reviews a second, evidence on and off", f"{on:,.0f} of {off:,.0f}")
        pairs = zip(rates[(what, "on")], rates[(what, "off")], strict=True)
        row("  share", f"{statistics.median(some / none for some, none in pairs):.2f}", GOAL)
        # What else the machine does meanwhile is hardly in it.
        least = {kind: statistics.median(costs[(what, kind)]) * 1e6 for kind in KINDS}
        row("  computing for a review, evidence on and off", "{on:.0f}, {off:.0f} us".format(**least))
        row("  share of that", f"{least['off'] / least['on']:.2f}", GOAL)
        more = [f"{kind} {least[kind] - least['off']:.0f}" for kind in KINDS[2:]]
        row("  of which", f"{', '.join(more)} us")
        late = [statistics.median(tails[(what, kind)]) * 1000 for kind in ("on", "off")]
        row(f"  {CONNECTIONS} connections: p99, on and off", "{:.1f}, {:.1f} ms".format(*late))
    received = json.loads((folder / "received.json").read_text())
    row("spans received, lost at the end", f"{received['spans']:,}, {lost}")
    size = sum(file.stat().st_size for file in (folder / "record-on").rglob("*") if file.is_file())
    row("recorded meanwhile", f"{size / 1e6:.1f} MB")


def restart(folder: Path, core: int, bodies: list[bytes], number: signal.Signals) -> None:
    """How many reviews have no span, of all that were answered before a signal, every one of them traced."""
    with receiving(folder) as receiver:
        server = Serving(folder, "on", core, receiver, 1)
        answered = asked(folder, server.port, bodies, 1, SECONDS).answers
        server.end(number)
    received = json.loads((folder / "received.json").read_text())
    row(f"{number.name} after {answered:,} reviews: reviews without a span", f"{answered - received['reviews']:,}")


def main() -> None:
    if sys.argv[1:2] == ["guard"]:
        guard(*sys.argv[2:])
        return
    if sys.argv[1:2] == ["receive"]:
        asyncio.run(_receive(Path(sys.argv[2])))
        return
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    if len(cores) > 1:
        os.sched_setaffinity(0, set(cores[1:]))
    with tempfile.TemporaryDirectory(prefix="allocguard-bench-") as name:
        folder = Path(name)
        (folder / "cluster").mkdir()
        items = {"apiVersion": "v1", "kind": "List", "items": list(fleet.cluster(NODES))}
        (folder / "cluster" / "fleet.json").write_text(lifelike(items))
        bodies = {
            "pod": [lifelike(fleet.pod_review(number)).encode() for number in BODIES],
            "claim allocation": [lifelike(fleet.allocation_review(number, number + 1)).encode() for number in BODIES],
        }
        throughput(folder, cores[0], bodies)
        for number in (signal.SIGTERM, signal.SIGKILL):
            restart(folder, cores[0], bodies["claim allocation"], number)


if __name__ == "__main__":
    main()
