"""Figures of the live view, printed as tables: ``python -m tests.bench.live size|latency``.

``size`` starts the server on a made-up API server with 5,000 nodes, 20,000 slices of 8 devices and 50,000 pods;
``size --real`` and ``latency`` on a real one (see ``tests/e2e``).
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench import fleet
from tests.bench.__main__ import row
from tests.cluster.fake_server import FakeServer
from webhook.cluster.kinds import KINDS

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
            each["spec"]["devices"] = [{**devices[index % 2], "name": f"d{index}"} for index in range(8)]
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


def _api_server(pipe: Any) -> None:
    server = FakeServer(PATHS.values())
    for kind, path in PATHS.items():
        server.fill(path, fleet_of(kind))
    pipe.send(server.url)
    pipe.recv()


def size() -> None:
    ours, theirs = multiprocessing.Pipe()
    api = multiprocessing.Process(target=_api_server, args=(theirs,), daemon=True)
    api.start()
    url = ours.recv()
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder, "kubeconfig")
        cluster = {"name": "x", "cluster": {"server": url}}
        context = {"name": "x", "context": {"cluster": "x", "user": "x"}}
        content = {
            "clusters": [cluster],
            "users": [{"name": "x", "user": {}}],
            "contexts": [context],
            "current-context": "x",
        }
        kubeconfig.write_text(json.dumps(content))
        measure(kubeconfig, Path(folder, "certs"))
    api.kill()


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
    {"size": size}[sys.argv[1]]()
