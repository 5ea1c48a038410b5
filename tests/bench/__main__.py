"""The figures, printed as a table: ``make bench``. Nothing here passes or fails; the goals stand beside the figures."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench import decisions, fleet, ledger, load, writers
from webhook.cluster.files import Cluster

ROUNDS, SECONDS, CONNECTIONS = 7, 1.0, 8
# Numbers of the bodies: the claims with an even one wait to be allocated.
BODIES = range(0, 100, 2)
NODES = 5_000
# Figures that take minutes, most of them on control planes; each is a command with arguments of its own.
APART = {
    "admission [WRITES]": "what the webhook adds to a claim-status write of a real API server",
    "evidence": "what traces, recording and log of decisions cost, and what is lost when the server ends",
    "live size|real|burst|latency": "the live view: its size, and how soon it knows",
    "rbac [ROLES [BINDINGS]]": "the lint of roles in a large cluster",
    "rollout [PODS]": "what waiting costs, and how fast pods are let go, on real control planes",
    "scrape [NODES]": "what a scrape costs, and what it costs decisions meanwhile",
}


def row(what: str, figure: str, goal: str = "") -> None:
    print(f"{what:<58} {figure:>26}  {goal}", flush=True)  # noqa: T201


@contextmanager
def server(folder: Path, kind: str, core: int) -> Iterator[int]:
    """The port of a server on ``folder``."""
    command = [sys.executable, "-m", "tests.bench.server", str(folder), kind, str(core)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            event = json.loads(line) if line.startswith("{") else {"event": line}
            if event["event"].startswith("listening on"):
                yield int(event["url"].rpartition(":")[2])
                break
        else:
            raise RuntimeError("the server did not start")
    finally:
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
        process.stderr.close()
        process.wait(20)


def over_https(folder: Path, core: int) -> None:
    """Throughput of the guard against the same server that only decodes and allows, and the tail of slices."""
    (folder / "cluster").mkdir()
    with (folder / "cluster" / "fleet.json").open("w") as file:
        json.dump({"apiVersion": "v1", "kind": "List", "items": list(fleet.cluster(100))}, file)
    reviews = {"pod": fleet.pod_review, "128-device slice": fleet.slice_review}
    bodies = {
        what: [json.dumps(made(number), separators=(",", ":")).encode() + b"\n" for number in BODIES]
        for what, made in reviews.items()
    }
    rates: dict[tuple[str, str], list[float]] = {}
    tails: list[float] = []
    with server(folder, "guard", core) as guard, server(folder, "allow", core) as allow:
        ports = {"guard": guard, "allow": allow}
        for number in range(ROUNDS + 1):
            for what, texts in bodies.items():
                for kind, port in ports.items():
                    seconds = SECONDS if number else 0.5
                    done = asyncio.run(
                        load.run(port, folder / "certs" / "ca.crt", "/validate", texts, CONNECTIONS, seconds)
                    )
                    if number:  # the first round warms up
                        rates.setdefault((what, kind), []).append(done.rate)
                        if (what, kind) == ("128-device slice", "guard"):
                            tails.append(done.percentile(0.99))
    for (what, goal), (text, *_) in zip((("pod", 0.6), ("128-device slice", 0.4)), bodies.values(), strict=True):
        judged, allowed = (statistics.median(rates[(what, kind)]) for kind in ("guard", "allow"))
        row(f"{what} review, {len(text) / 1000:.1f} KB: reviews a second", f"{judged:,.0f} of {allowed:,.0f}")
        # One after the other within a round, so that what else the machine does meanwhile touches both alike.
        pairs = zip(rates[(what, "guard")], rates[(what, "allow")], strict=True)
        share = statistics.median(guarded / plain for guarded, plain in pairs)
        row("  share of a handler that only decodes and allows", f"{share:.2f}", f"goal {goal} or more")
    row(f"128-device slice review, {CONNECTIONS} connections: p99", f"{statistics.median(tails) * 1000:.1f} ms")


def loading(folder: Path, core: int) -> None:
    """Time and memory of reading a large cluster, in a process of its own."""
    items = [obj for obj in fleet.cluster(NODES) if obj["kind"] in ("Node", "ResourceSlice")]
    path = folder / "large.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    del items
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench", "--load", str(path)], check=True, capture_output=True, text=True
    )
    told = json.loads(done.stdout)
    row(
        f"--cluster of {told['nodes']:,} nodes, {told['slices']:,} slices, {path.stat().st_size / 1e6:.0f} MB: read in",
        f"{told['seconds']:.1f} s",
    )
    row("  resident memory when read, and at most", f"{told['resident']:.0f} MB, {told['peak']:.0f} MB")


def load_once(path: str) -> None:
    begin = time.perf_counter()
    cluster = Cluster([path])
    seconds = time.perf_counter() - begin
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1]) if Path("/proc/self/statm").exists() else 0
    told = {
        "nodes": len(cluster.snapshot.nodes),
        "slices": len(cluster.snapshot.slices),
        "seconds": seconds,
        "resident": pages * resource.getpagesize() / 1e6,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    }
    print(json.dumps(told))  # noqa: T201


FIGURES: dict[str, tuple[Callable[[Path, int], None], str]] = {
    "https": (over_https, "reviews a second over HTTPS, against a server that only decodes and allows"),
    "loading": (loading, f"time and memory of reading {NODES:,} nodes from a file"),
    "decisions": (lambda folder, core: decisions.main(), "what a decision costs, by the size of the cluster"),
    "writers": (lambda folder, core: writers.main(), "what it costs a decision to ask who writes"),
    "ledger": (lambda folder, core: ledger.main(), "replay and journal, events a second, and the memory of charges"),
}


def main(arguments: list[str]) -> None:
    """Print the figures that are named, or all."""
    names = "\n".join(f"  {name:<10} {about}" for name, (_, about) in FIGURES.items())
    apart = "\n".join(f"  python -m tests.bench.{name}\n{'':<13}{about}" for name, about in APART.items())
    parser = argparse.ArgumentParser(
        "python -m tests.bench",
        description="Measures, and prints the figures as a table beside their goals. Nothing passes or fails.",
        epilog=f"figures:\n{names}\n\ncommands of their own, for minutes or with a control plane:\n{apart}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help="those to print; default: all")
    parser.add_argument("--load", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.load is not None:
        load_once(asked.load)
        return
    if unknown := [name for name in asked.figures if name not in FIGURES]:
        parser.error(f"there is no figure {unknown[0]!r}, needs one of {', '.join(FIGURES)}")
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    if len(cores) > 1:
        os.sched_setaffinity(0, set(cores[1:]))
    with tempfile.TemporaryDirectory(prefix="allocguard-bench-") as name:
        for figure in asked.figures or FIGURES:
            FIGURES[figure][0](Path(name), cores[0])


if __name__ == "__main__":
    main(sys.argv[1:])
