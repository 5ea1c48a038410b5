"""Control planes for the tests of this folder: one for each release that tests share, and fresh ones."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.e2e import build, processes
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import ControlPlane
from tests.e2e.jaeger import Jaeger

RELEASES = build.releases()

_tests = itertools.count(1)
_offsets: dict[Path, int] = {}


@pytest.fixture(scope="session", params=RELEASES)
def control_plane(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The control plane of one release that all tests of a worker share, with the gate on in every component."""
    plane = ControlPlane(tmp_path_factory.mktemp(f"v{request.param}"), request.param)
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()


@pytest.fixture
def cluster(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Cluster]:
    """This test's own part of the shared control plane."""
    part = Cluster(control_plane, f"t{next(_tests)}", tmp_path)
    try:
        yield part
    finally:
        part.close()


@pytest.fixture
def fresh_plane(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Makes a control plane of this test's own: ``fresh_plane(release, gates=…)``. Names are as the test gives them."""
    made: list[Cluster] = []

    def make(release: str, **options: Any) -> Cluster:
        plane = ControlPlane(tmp_path / f"plane-{len(made)}", release, **options)
        plane.start()
        made.append(Cluster(plane, "", tmp_path / f"cluster-{len(made)}"))
        return made[-1]

    try:
        yield make
    finally:
        for cluster in made:
            cluster.abandon()
        for process in reversed(processes.running()):
            if process.log.is_relative_to(tmp_path):
                process.kill()


@pytest.fixture(scope="session")
def jaeger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jaeger]:
    """A Jaeger that all tests of a worker share; what each looks for it finds by its trace id."""
    jaeger = Jaeger(tmp_path_factory.mktemp("jaeger"))
    try:
        jaeger.start()
        yield jaeger
    finally:
        jaeger.stop()


@pytest.fixture(params=RELEASES)
def fresh_cluster(request: pytest.FixtureRequest, fresh_plane: Callable[..., Cluster]) -> Callable[..., Cluster]:
    """Makes control planes of this test's own, of each release in turn, for faults, restarts, gates and flags:
    ``fresh_cluster(gates=…)``.
    """
    return partial(fresh_plane, request.param)


class ByRelease(LoadScopeScheduling):
    """Gives files of tests to workers, of one release to each worker for as long as there are some, since a control
    plane of another has to be started first.
    """

    def _split_scope(self, nodeid: str) -> str:
        file, _, parameters = nodeid.partition("[")
        release = next((each for each in re.findall(r"[^\[\]-]+", parameters) if each in RELEASES), "")
        return f"{release} {file.partition('::')[0]}"

    def _assign_work_unit(self, node: WorkerController) -> None:
        own = RELEASES[int(node.gateway.id.removeprefix("gw")) % len(RELEASES)]
        scope = next((each for each in self.workqueue if each.partition(" ")[0] == own), None)
        if scope is not None:
            self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByRelease:
    """How tests are given to workers, with ``-n``."""
    return ByRelease(config, log)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Remember how long the logs are, so that a failure shows what was written since."""
    _offsets.clear()
    _offsets.update({process.log: process.log.stat().st_size for process in processes.running()})


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Show, with a test that failed, what the processes wrote meanwhile."""
    report = yield
    if report.failed:
        for process in processes.running():
            written = process.tail(15, _offsets.get(process.log, 0))
            if written:
                cut = "\n".join(line[:500] for line in written.splitlines())
                report.sections.append((f"log of {process.name}", cut))
    return report
