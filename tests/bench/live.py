"""Figures of the live view, printed as tables: ``python -m tests.bench.live size|real|burst|latency``.

``size`` starts the server on a made-up API server with 5,000 nodes, 20,000 slices of 8 devices and 50,000 pods, and
``real`` on a real one that is filled with the same first; ``burst`` judges reviews while 10,000 events come in;
``latency`` writes to a real API server (see ``tests/e2e``).
"""

from __future__ import annotations

import asyncio
import gc
import io
import itertools
import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.bench import fleet
from tests.bench.__main__ import row
from tests.cluster.fake_server import FakeServer
from tests.e2e import build
from tests.e2e.control_plane import ControlPlane
from webhook.cluster.access import connect
from webhook.cluster.api import Api
from webhook.cluster.background import Background
from webhook.cluster.kinds import KINDS, Kind
from webhook.cluster.live import LiveCluster
from webhook.server.run import SWITCH_AFTER
from webhook.server.service import Reply, Service
from webhook.store.policies import PolicyStore, shipped
from webhook.telemetry.log import Log

Json = dict[str, Any]
NODES, PODS = 5_000, 50_000
PATHS = {kind.name: kind.path for kind in KINDS}


def managed(*managers: str) -> list[Json]:
    """Managed fields as the API server keeps them: more than half of many an object."""
    fields = {f"f:field-{number}": {".": {}, "f:value": {}} for number in range(12)}
    return [
        {"manager": m, "operation": "Update", "apiVersion": "v1", "time": fleet.CREATED, "fieldsV1": {"f:spec": fields}}
        for m in managers
    ]


def nodes() -> Iterator[Json]:
    for number in range(NODES):
        node = fleet.node(number)
        images = [
            {"names": [f"registry.example.org/team/image-{each}@sha256:{each:064d}"], "sizeBytes": each}
            for each in range(30)
        ]
        node["metadata"]["managedFields"] = managed("kubelet", "kube-controller-manager")
        node["status"]["images"] = images
        yield node


def slices() -> Iterator[Json]:
    """Four of eight devices for each node; a quarter of all devices, the GPUs, have an UUID of their own."""
    for number in range(NODES):
        cpu, memory, gpu, nic = fleet.slices(number)
        for each in (cpu, memory):
            devices = each["spec"]["devices"]
            each["spec"]["devices"] = [
                {**devices[index % 2], **({"name": f"d{index}"} if index > 1 else {})} for index in range(8)
            ]
        for each in (cpu, memory, gpu, nic):
            each["metadata"]["managedFields"] = managed("driver")
            yield each


def pods() -> Iterator[Json]:
    """Ten for each node, one in ten with a claim."""
    for number in range(PODS):
        pod = fleet.pod(number, f"claim-{number}")
        if number % 10:
            del pod["spec"]["resourceClaims"]
            for container in pod["spec"]["containers"]:
                del container["resources"]["claims"]
        pod["spec"]["nodeName"] = fleet.name(number % NODES)
        pod["metadata"]["managedFields"] = managed("kube-controller-manager", "kubelet")
        pod["metadata"]["ownerReferences"] = [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": f"rs-{number // 20}",
                "uid": f"{number // 20:08d}-0000-4000-8000-000000000000",
                "controller": True,
            }
        ]
        pod["status"] = {
            "phase": "Running",
            "startTime": fleet.CREATED,
            "podIP": f"10.{number % 250}.{number // 250 % 250}.7",
            "conditions": [{"type": kind, "status": "True"} for kind in ("Ready", "PodScheduled", "Initialized")],
            "containerStatuses": [
                {
                    "name": container["name"],
                    "ready": True,
                    "image": container["image"],
                    "containerID": f"containerd://{number:064d}",
                    "resources": {"requests": container["resources"]["requests"]},
                    "allocatedResources": container["resources"]["requests"],
                }
                for container in pod["spec"]["containers"]
            ],
        }
        yield pod


def claims() -> Iterator[Json]:
    for number in range(0, PODS, 10):
        yield fleet.claim(number, number % NODES)


def fleet_of(kind: str) -> Iterator[Json]:
    made = {"Node": nodes, "ResourceSlice": slices, "Pod": pods, "ResourceClaim": claims}
    match kind:
        case "DeviceClass":
            yield from fleet.classes()
        case "Namespace":
            yield {"metadata": {"name": "bench"}}
        case _:
            yield from made.get(kind, tuple)()


def _api_server(pipe: Any, nodes: int, pods: int) -> None:
    global NODES, PODS
    NODES, PODS = nodes, pods
    server = FakeServer(PATHS.values())
    for kind, path in PATHS.items():
        server.fill(path, fleet_of(kind))
    pipe.send(server.url)
    while (events := pipe.recv()) is not None:
        path = PATHS["Pod"]
        lines = []
        for pod in itertools.islice(itertools.cycle(fleet_of("Pod")), events):
            pod["metadata"]["resourceVersion"] = "900000"
            lines.append(json.dumps({"type": "MODIFIED", "object": pod}))
        pipe.send("ready")
        pipe.recv()
        for number in range(0, len(lines), 100):
            server.say(path, ("\n".join(lines[number : number + 100]) + "\n").encode())


@contextmanager
def api_server(nodes: int, pods: int) -> Iterator[tuple[str, Any]]:
    """The URL of a made-up API server in a process of its own, and the pipe by which it is told to send events."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_api_server, args=(theirs, nodes, pods), daemon=True)
    process.start()
    try:
        yield ours.recv(), ours
    finally:
        process.kill()


def kubeconfig(folder: Path, url: str) -> Path:
    cluster = {"name": "x", "cluster": {"server": url}}
    context = {"name": "x", "context": {"cluster": "x", "user": "x"}}
    users = [{"name": "x", "user": {}}]
    path = folder / "kubeconfig"
    path.write_text(json.dumps({"clusters": [cluster], "users": users, "contexts": [context], "current-context": "x"}))
    return path


def size() -> None:
    with api_server(NODES, PODS) as (url, _), tempfile.TemporaryDirectory() as folder:
        measure(kubeconfig(Path(folder), url), Path(folder, "certs"))


def real() -> None:
    """As ``size``, with a real API server; what only a kubelet writes into a pod's status is not there."""
    with tempfile.TemporaryDirectory() as folder:
        plane = ControlPlane(Path(folder), build.releases()[0])
        try:
            plane.start()
            # Pods without their owners, and claims of pods that do not run, would be cleaned up.
            for name in ("kube-scheduler", "kube-controller-manager"):
                plane.processes[name].kill()
            access = plane.kubeconfig("admin", "system:masters")
            begun = time.monotonic()
            asyncio.run(_fill(str(access)))
            row("written to the API server in", f"{time.monotonic() - begun:.0f} s")
            measure(access, Path(folder, "certs"))
        finally:
            plane.stop()


async def _fill(kubeconfig: str, at_once: int = 48) -> None:
    api = await connect(kubeconfig)
    places = asyncio.Semaphore(at_once)

    async def put(path: str, obj: Json) -> None:
        try:
            await api.create(path, obj)
            if "status" in obj and not path.endswith("/pods"):
                await api.patch(f"{path}/{obj['metadata']['name']}/status", {"status": obj["status"]}, "merge")
        finally:
            places.release()

    spaces: set[str] = set()
    for kind in ("Node", "ResourceSlice", "ResourceClaim", "Pod"):
        async with asyncio.TaskGroup() as group:
            for obj in fleet_of(kind):
                space = obj["metadata"].pop("namespace", "bench" if kind in ("Pod", "ResourceClaim") else "")
                if space and space not in spaces:
                    spaces.add(space)
                    await api.create(PATHS["Namespace"], {"metadata": {"name": space}})
                    account = {"metadata": {"name": "default"}}
                    await api.create(f"/api/v1/namespaces/{space}/serviceaccounts", account)
                for name in ("managedFields", "uid", "resourceVersion", "ownerReferences"):
                    obj["metadata"].pop(name, None)
                head, _, plural = PATHS[kind].rpartition("/")
                await places.acquire()
                group.create_task(put(f"{head}/namespaces/{space}/{plural}" if space else PATHS[kind], obj))
    await api.close()


class Watching(LiveCluster):
    """Writes down when it saw which generation of which slice."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.seen_at: dict[tuple[str, int], float] = {}

    def put(self, kind: Kind, obj: Json) -> None:
        super().put(kind, obj)
        if kind.name == "ResourceSlice":
            item = self.snapshot.slices[obj["metadata"]["name"]]
            self.seen_at[item.name, item.generation] = time.perf_counter()


@contextmanager
def viewing(kubeconfig: Path) -> Iterator[tuple[Watching, Api, Background]]:
    background = Background()
    api = background.submit(connect(str(kubeconfig))).result()
    cluster = Watching(api, lambda: datetime.now(UTC), lambda level, event, **fields: None)
    background.submit(cluster.run())
    while not cluster.synced:
        time.sleep(0.01)
    try:
        yield cluster, api, background
    finally:
        background.stop(api.close())


def latency(seconds: float = 30, rate: int = 100) -> None:
    """From the moment a slice of eight devices is sent to the API server to its being in the snapshot."""
    for release in build.releases():
        with tempfile.TemporaryDirectory() as folder:
            plane = ControlPlane(Path(folder), release)
            try:
                plane.start()
                access = plane.kubeconfig("admin", "system:masters")
                views = viewing(access), viewing(access)
                with views[0] as (cluster, _, _), views[1] as (_, api, writer):
                    sent = writer.submit(_writes(api, int(seconds * rate), rate)).result()
                    time.sleep(2)
                    took = sorted(cluster.seen_at[key] - begun for key, begun in sent.items() if key in cluster.seen_at)
            finally:
                plane.stop()
        p50, p99 = took[len(took) // 2] * 1000, took[len(took) * 99 // 100] * 1000
        row(
            f"{release}: {len(took)} of {len(sent)} writes at {rate}/s, to the snapshot",
            f"p50 {p50:.1f} p99 {p99:.1f} ms",
        )


async def _writes(api: Api, count: int, rate: int) -> dict[tuple[str, int], float]:
    path = PATHS["ResourceSlice"]
    names = [fleet.slices(number)[3] for number in range(50)]
    for item in names:
        item["metadata"] = {"name": item["metadata"]["name"]}
        await api.create(path, item)
    sent: dict[tuple[str, int], float] = {}
    loop = asyncio.get_running_loop()
    begun = loop.time()

    async def write(number: int) -> None:
        name, generation = names[number % len(names)]["metadata"]["name"], 2 + number // len(names)
        sent[name, generation] = time.perf_counter()
        await api.patch(f"{path}/{name}", {"spec": {"pool": {"generation": generation}}}, "merge")

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            await asyncio.sleep(max(0.0, begun + number / rate - loop.time()))
            group.create_task(write(number))
    return sent


def burst(events: int = 10_000) -> None:
    """Decisions of one thread, one after the other, while events come in, against those while none do."""
    with api_server(500, 5_000) as (url, pipe), tempfile.TemporaryDirectory() as folder:
        sys.setswitchinterval(SWITCH_AFTER)
        with viewing(kubeconfig(Path(folder), url)) as (cluster, _, _):
            service = Service(PolicyStore([shipped()]), cluster, Log(io.StringIO()), lambda: datetime.now(UTC))
            body = json.dumps(fleet.allocation_review(2, 2)).encode()
            gc.freeze()
            quiet = _decisions(service, body, lambda: False, 3000)
            pipe.send(events)
            pipe.recv()
            pipe.send("go")
            begun, snapshot = time.perf_counter(), cluster.snapshot
            changed = [begun]

            def over() -> bool:
                nonlocal snapshot
                now = time.perf_counter()
                if cluster.snapshot.pods is not snapshot.pods:
                    snapshot, changed[0] = cluster.snapshot, now
                return now - changed[0] > 0.5 and now - begun > 2

            busy = _decisions(service, body, over, 1_000_000)
            row(f"{events} events taken in", f"{changed[0] - begun:.2f} s")
    for what, took in (("while nothing happens", quiet), ("during the burst", busy)):
        p50, p99 = took[len(took) // 2] * 1000, took[len(took) * 99 // 100] * 1000
        row(f"decision, {what}", f"p50 {p50:.2f} p99 {p99:.2f} max {took[-1] * 1000:.1f} ms")


def _decisions(service: Service, body: bytes, over: Callable[[], bool], most: int) -> list[float]:
    took: list[float] = []
    while len(took) < most and not over():
        begun = time.perf_counter()
        reply = service.answer("validate", body, math.inf)
        took.append(time.perf_counter() - begun)
        assert isinstance(reply, Reply)
        reply.tell(0.0)
        # As a server that waits for the next request: the other thread has its turn.
        time.sleep(0.001)
    return sorted(took)


def measure(kubeconfig: Path, certs: Path) -> None:
    command = [sys.executable, "-m", "webhook.cli", "serve", "--host=127.0.0.1", "--port=0", "--metrics-port=0"]
    begun = time.monotonic()
    process = subprocess.Popen([*command, f"--certs={certs}", f"--kubeconfig={kubeconfig}"], stderr=subprocess.PIPE)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            event = json.loads(line)
            if event["event"] == "cluster synced":
                break
        ready = time.monotonic() - begun
        row(f"{event['nodes']} nodes, {event['slices']} slices, {event['pods']} pods: ready", f"{ready:.1f} s", "20 s")
        ticks = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        row("of it, processor time of the server", f"{sum(map(int, ticks)) / os.sysconf('SC_CLK_TCK'):.1f} s")
        time.sleep(2)
        row("memory of the server (RSS)", f"{memory(process.pid, 'VmRSS'):.0f} MB", "500 MB")
        row("at most", f"{memory(process.pid, 'VmHWM'):.0f} MB")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def memory(pid: int, what: str) -> float:
    """Megabytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) / 1024
    raise LookupError(what)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    {"size": size, "real": real, "burst": burst, "latency": latency}[sys.argv[1]]()
