"""What a scrape of the metrics costs, and what it costs decisions meanwhile: ``python -m tests.bench.scrape [NODES]``.

The cluster stands still, or some of its nodes change between two scrapes: a pod of each goes and comes. Decisions are
made in the main thread, as those of a server, while one thread scrapes and another keeps the gauges up; their tail is
that of pods' reviews.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
from dataclasses import dataclass, field

from tests.bench import fleet
from tests.bench.ledger import NOW, row
from webhook.kube.raw import Json
from webhook.kube.release import Release
from webhook.kube.snapshot import Snapshot, build
from webhook.ledger.booking import advance
from webhook.server.run import SWITCH_AFTER
from webhook.server.service import Check, Reply, Service
from webhook.store.policies import PolicyStore, shipped
from webhook.telemetry.log import Log

NODES, CHANGES, ROUNDS, SECONDS = 5_000, 100, 10, 10.0
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
            node = (self.turn // 2 * 2 * count + number) % nodes
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


def tail(service: Service, seconds: float) -> tuple[float, float, int]:
    """Median and 99th percentile of the seconds of decisions about pods, and how many there were."""
    bodies = [json.dumps(fleet.pod_review(number), separators=(",", ":")).encode() for number in range(0, 200, 2)]
    times: list[float] = []
    end = time.perf_counter() + seconds
    while (begun := time.perf_counter()) < end:
        reply = service.answer("validate", bodies[len(times) % len(bodies)], begun + 10)
        assert isinstance(reply, Reply)
        times.append(time.perf_counter() - begun)
        reply.tell(times[-1])
    times.sort()
    return times[len(times) // 2], times[len(times) * 99 // 100], len(times)


def median(times: list[float]) -> float:
    return sorted(times)[len(times) // 2]


def main(nodes: int = NODES) -> None:
    sys.setswitchinterval(SWITCH_AFTER)
    world = World(cluster(nodes))
    service = service_of(world)
    gc.collect()
    gc.freeze()
    stop = threading.Event()

    def keeps() -> None:
        while not stop.wait(service.gauges.keep()):
            pass

    first, size = scrape(service)
    keeper = threading.Thread(target=keeps)
    row(f"scrape of {nodes:,} nodes, {size / 1e6:.1f} MB: the first", f"{first * 1000:,.0f} ms")
    middle, late, count = tail(service, SECONDS)
    row(
        "  decisions in the meantime: nobody scrapes",
        f"p50 {middle * 1e6:,.0f}, p99 {late * 1e6:,.0f} us",
        f"{count:,}",
    )
    service.gauges.keep()
    keeper.start()
    still = median([scrape(service)[0] for _ in range(ROUNDS)])
    row("  a scrape when nothing has changed", f"{still * 1000:,.0f} ms", GOAL)
    times: list[float] = []
    for _ in range(ROUNDS):
        world.change(nodes, CHANGES)
        times.append(scrape(service)[0])
    row(f"  a scrape when pods of {CHANGES} nodes have changed", f"{median(times) * 1000:,.0f} ms", GOAL)

    def scrapes() -> None:
        while not stop.wait(1.0):
            world.change(nodes, CHANGES)
            scrape(service)

    scraper = threading.Thread(target=scrapes)
    scraper.start()
    middle, late, count = tail(service, SECONDS)
    stop.set()
    scraper.join()
    keeper.join()
    row("  decisions while one does every second", f"p50 {middle * 1e6:,.0f}, p99 {late * 1e6:,.0f} us", f"{count:,}")


if __name__ == "__main__":
    main(*(int(each) for each in sys.argv[1:]))
