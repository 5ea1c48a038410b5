"""What a scrape of the metrics costs, and what it costs decisions meanwhile: ``python -m tests.bench.scrape [NODES]``.

The cluster stands still, or some of its nodes change between two scrapes: a pod of each goes and comes. Decisions are
made in the main thread, as those of a server, while one thread scrapes and another keeps the gauges up; their tail is
that of pods' reviews.
"""

from __future__ import annotations

import gc
import json
import socket
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench import fleet
from tests.bench.__main__ import server
from tests.bench.ledger import NOW, row
from webhook.kube.raw import Json
from webhook.kube.release import Release
from webhook.kube.snapshot import Snapshot, build
from webhook.ledger.booking import advance
from webhook.server.run import SWITCH_AFTER
from webhook.server.service import Check, Reply, Service
from webhook.store.policies import PolicyStore, shipped
from webhook.telemetry.log import Log

NODES, CHANGES, ROUNDS, SECONDS = 5_000, 100, 7, 3.0
GOAL = "goal 100 ms or less"


@dataclass
class World:
    """A cluster that changes when it is told to."""

    snapshot: Snapshot
    synced: bool = True
    turn: int = field(default=0)

    def snapshot_for(self, obj: Json | None) -> Snapshot:
        return self.snapshot

    def checks(self) -> list[Check]:
        return []

    def change(self, nodes: int, count: int) -> None:
        """Let a pod of each of ``count`` nodes come, or go where it had come."""
        snapshot, self.turn = self.snapshot, self.turn + 1
        for number in range(1, 2 * count, 2):
            node = ((self.turn - 1) // 2 * 2 * count + number) % nodes
            pod = fleet.pod(100_000 + node, f"claim-{node}")
            pod["spec"]["nodeName"] = fleet.name(node)
            snapshot = snapshot.put(pod) if self.turn % 2 else snapshot.remove(pod)
        self.snapshot = snapshot


def cluster(nodes: int) -> Snapshot:
    """The fleet with the ledgers that its charges give."""
    snapshot = build(fleet.cluster(nodes), Release(36))
    for number in range(1, nodes, 2):
        snapshot = snapshot.with_ledger(advance(None, snapshot, fleet.name(number)))
    return snapshot


def service_of(world: World) -> Service:
    return Service(PolicyStore([shipped()]), world, Log(), lambda: NOW)


def scrape(service: Service) -> tuple[float, int]:
    """Seconds and bytes of one scrape."""
    begun = time.perf_counter()
    pieces = service.metrics.pieces()
    return time.perf_counter() - begun, sum(map(len, pieces))


def tail(service: Service, seconds: float) -> float:
    """The 99th percentile of the seconds of decisions about pods."""
    bodies = [json.dumps(fleet.pod_review(number), separators=(",", ":")).encode() for number in range(0, 200, 2)]
    times: list[float] = []
    end = time.perf_counter() + seconds
    while (begun := time.perf_counter()) < end:
        reply = service.answer("validate", bodies[len(times) % len(bodies)], begun + 10)
        assert isinstance(reply, Reply)
        times.append(time.perf_counter() - begun)
        reply.tell(times[-1])
    times.sort()
    return times[len(times) * 99 // 100]


def median(times: list[float]) -> float:
    return sorted(times)[len(times) // 2]


def within(nodes: int) -> None:
    """What it costs in the process: until the pieces are there, and decisions beside."""
    world = World(cluster(nodes))
    service = service_of(world)
    gc.collect()
    gc.freeze()
    first, size = scrape(service)
    row(f"scrape of {nodes:,} nodes, {size / 1e6:.1f} MB: the first", f"{first * 1000:,.0f} ms")
    service.gauges.keep()
    still = median([scrape(service)[0] for _ in range(ROUNDS)])
    row("  when nothing has changed", f"{still * 1000:,.0f} ms", GOAL)
    times: list[float] = []
    for _ in range(ROUNDS):
        world.change(nodes, CHANGES)
        times.append(scrape(service)[0])
    row(f"  when pods of {CHANGES} nodes have changed", f"{median(times) * 1000:,.0f} ms", GOAL)
    tails: dict[bool, list[float]] = {False: [], True: []}
    shares: list[float] = []
    for number in range(2 * ROUNDS):
        busy = number % 2 == 1
        with beside(service, world, nodes, shares) if busy else nullcontext():
            tails[busy].append(tail(service, SECONDS))
    ratio = median([busy / quiet for quiet, busy in zip(tails[False], tails[True], strict=True)])
    alone, meanwhile = (f"{median(tails[busy]) * 1e6:,.0f} us" for busy in (False, True))
    row("p99 of decisions when nobody scrapes", alone)
    row("  while one does every second", f"{meanwhile}, {ratio:.2f} x")
    row("  of a core that keeping them up takes meanwhile", f"{sum(shares) / len(shares):.1%}")


@contextmanager
def beside(service: Service, world: World, nodes: int, shares: list[float]) -> Iterator[None]:
    """Somebody scrapes every second, and the gauges are kept up, as in a server; ``shares`` is told of each look which
    part of the time until the next one it works.
    """
    stop = threading.Event()

    def keeps() -> None:
        rests = 0.0
        while not stop.wait(rests):
            begun, worked = time.perf_counter(), time.thread_time()
            rests = service.gauges.keep()
            shares.append((time.thread_time() - worked) / (time.perf_counter() - begun + rests))

    def scrapes() -> None:
        while not stop.wait(1.0):
            world.change(nodes, CHANGES)
            scrape(service)

    threads = [threading.Thread(target=each) for each in (keeps, scrapes)]
    for each in threads:
        each.start()
    yield
    stop.set()
    for each in threads:
        each.join()


def over_https(nodes: int) -> None:
    """What whoever scrapes waits for, of a server of its own, plain and compressed."""
    with tempfile.TemporaryDirectory(prefix="allocguard-bench-") as name:
        folder = Path(name)
        (folder / "cluster").mkdir()
        with (folder / "cluster" / "fleet.json").open("w") as file:
            json.dump({"apiVersion": "v1", "kind": "List", "items": list(fleet.cluster(nodes))}, file)
        with server(folder, "guard", 0) as port:
            for encoding in ("identity", "gzip"):
                fetched = [fetch(port, folder / "certs" / "ca.crt", encoding) for _ in range(ROUNDS + 1)][1:]
                figure = f"{median([each for each, _ in fetched]) * 1000:,.0f} ms, {fetched[0][1] / 1e6:.1f} MB"
                row(f"scrape of {nodes:,} nodes over HTTPS, {encoding}", figure, GOAL)


def fetch(port: int, authority: Path, encoding: str) -> tuple[float, int]:
    """Seconds and bytes of one scrape a second after the last, once the connection stands, the answer left as it is."""
    time.sleep(1)
    context = ssl.create_default_context(cafile=str(authority))
    head = f"GET /metrics HTTP/1.1\r\nhost: localhost\r\naccept-encoding: {encoding}\r\nconnection: close\r\n\r\n"
    with context.wrap_socket(socket.create_connection(("localhost", port)), server_hostname="localhost") as client:
        begun, size = time.perf_counter(), 0
        client.sendall(head.encode())
        while got := client.recv(1 << 18):
            size += len(got)
        return time.perf_counter() - begun, size


def main(nodes: int = NODES) -> None:
    sys.setswitchinterval(SWITCH_AFTER)
    over_https(nodes)
    within(nodes)


if __name__ == "__main__":
    main(*(int(each) for each in sys.argv[1:]))
