"""API servers of this folder's own, and what a run has compared, told at its end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from tests.e2e import build
from tests.e2e.client import Client
from tests.e2e.control_plane import API_SERVER, CONTROLLERS, GATE, ControlPlane
from tests.e2e.fidelity import compare, size
from tests.e2e.fidelity.objects import ADMIN_NAMESPACE, DECLARING, PLAIN_NAMESPACE, SILENT
from tests.e2e.kinds import path
from tests.e2e.waiting import eventually

# Gates that change what may be written, where they are not as by default. Some that are alpha in 1.37 have rules that
# we do not claim to know (DRADerivedAttributes, DRADeviceCompatibilityGroups, DRAOptionalNodeOperations,
# DRAPartitionableDevicesType); those stay off.
_OFF = {
    "DRAConsumableCapacity": False,
    "DRADeviceBindingConditions": False,
    "DRADeviceTaints": False,
    "DRAPartitionableDevices": False,
}
GATES: dict[str, dict[str, dict[str, bool]]] = {
    "defaults": {"1.36": {}, "1.37": {}},
    "on": {
        "1.36": {"DRAListTypeAttributes": True},
        "1.37": {"DRAListTypeAttributes": True, "DRAFractionalCapacityRange": True},
    },
    "off": {"1.36": _OFF, "1.37": {**_OFF, "DRADeviceTaintRules": False}},
}


@dataclass(frozen=True)
class ApiServer:
    """A running API server without scheduler and controllers; ``name`` is that of its set of gates."""

    release: str
    name: str
    minor: int
    gates: dict[str, bool]
    client: Client


@pytest.fixture(
    scope="module", params=[(release, name) for release in build.releases() for name in GATES], ids="-".join
)
def api_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """One API server for each release and each set of gates, with three nodes and two namespaces."""
    release, name = request.param
    gates = GATES[name][release]
    plane = ControlPlane(tmp_path_factory.mktemp("fidelity"), release, gates)
    with ExitStack() as closing:
        closing.callback(plane.stop)
        plane.processes["etcd"].start()
        plane.processes[API_SERVER].start()
        plane.ready()
        client = plane.client("admin", "system:masters")
        closing.callback(client.close)
        for namespace, labels in (
            (ADMIN_NAMESPACE, {"resource.kubernetes.io/admin-access": "true"}),
            (PLAIN_NAMESPACE, {}),
        ):
            client.create("/api/v1/namespaces", {"metadata": {"name": namespace, "labels": labels}})
        for node in (*DECLARING, SILENT):
            status = {"declaredFeatures": [GATE]} if node != SILENT else {}
            metadata = {"name": node, "labels": {"kubernetes.io/hostname": node}}
            client.create("/api/v1/nodes", {"metadata": metadata, "status": status})
        yield ApiServer(release, name, plane.minor, gates, client)


@dataclass(frozen=True)
class Scheduling:
    """A running control plane with a namespace in which pods can be made."""

    release: str
    minor: int
    client: Client
    namespace: str


@pytest.fixture(scope="session", params=build.releases())
def scheduling(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduling]:
    """One whole control plane for each release, with nothing in it but what the tests make and remove again."""
    gates = {"DRAListTypeAttributes": True}
    # It would look for types in all policies, for minutes, and nobody here reads what it says.
    flags = {CONTROLLERS: ["--controllers=-validatingadmissionpolicy-status-controller"]}
    plane = ControlPlane(tmp_path_factory.mktemp("scheduling"), request.param, gates, flags=flags)
    with ExitStack() as closing:
        closing.callback(plane.stop)
        plane.start()
        client = plane.client("admin", "system:masters")
        closing.callback(client.close)
        labels = {"resource.kubernetes.io/admin-access": "true"}
        client.create(path("Namespace"), {"metadata": {"name": "fidelity", "labels": labels}})
        eventually(lambda: client.find(path("ServiceAccount", "default", "fidelity")))
        yield Scheduling(request.param, plane.minor, client, "fidelity")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Tell what was compared, and which listed differences did not occur."""
    seen: Counter[int] = Counter()
    lines = []
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, value in report.user_properties:
            if name == "fidelity":
                told = json.loads(value)
                seen.update({int(number): count for number, count in told.get("listed", {}).items()})
                lines.append(told["text"])
    if not lines:
        return
    terminalreporter.section(size.repeat("fidelity"))
    for line in lines:
        terminalreporter.line(line)
    if size.FACTOR >= 10:
        for number, entry in enumerate(compare.LISTED):
            if not seen[number]:
                terminalreporter.line(f"listed, and no longer seen: {entry['side']} {entry['path']} {entry['cause']}")
