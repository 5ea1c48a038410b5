"""Figures of holds on real control planes, printed as a table: ``python -m tests.bench.rollout [PODS]``.

With the guard as it is deployed: how soon a pod is bound once its pool is whole, what a pod writes that waits without a
gate, and how fast ``PODS`` (10,000) waiting ones are let go when a hold ends, and with how many writes. Writes are
those that the API server's audit log has.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.bench.__main__ import row
from tests.e2e import build
from tests.e2e.client import Json
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import API_SERVER, ControlPlane
from tests.e2e.driver import Driver, per
from tests.e2e.guard import Guard
from tests.e2e.guarding import deployed
from tests.e2e.scenes import CLASS, CPU_DRIVER, cpu_claim, cpu_class
from tests.e2e.test_gates_held import gated, hold, holding, resume
from tests.e2e.test_scenarios import guarding
from tests.e2e.waiting import eventually
from webhook.kube.core import GATE

PODS, ROUNDS, A_NODE, AT_ONCE = 10_000, 20, 100, 8
# Pods that wait without a gate, and for how many seconds.
UNGATED, WAITED = 20, 60.0
FOREIGN = "example.org/not-yet"
REBUILT = "rebuilt.example.org"
GUARD, SCHEDULER = "system:serviceaccount:guard:allocguard", "system:kube-scheduler"
AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "users": [GUARD, SCHEDULER], "verbs": ["create", "update", "patch", "delete"]},
        {"level": "None"},
    ],
}
# As schedulers have it where nobody says otherwise.
BACKOFF = {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 10}

Writes = Counter[tuple[str, str, str]]


class Audit:
    """What the API server's audit log has of ``namespace``, read on from where it was read last."""

    def __init__(self, log: Path, namespace: str) -> None:
        self._log, self._namespace, self._read = log, namespace, 0
        self.counts: Writes = Counter()

    def look(self) -> Writes:
        """How many writes there were, by user, verb and resource."""
        with self._log.open("rb") as file:
            file.seek(self._read)
            lines = file.read()
        whole = lines[: lines.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            event = json.loads(line)
            about = event["objectRef"]
            if about.get("namespace") != self._namespace:
                continue
            resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
            self.counts[event["user"]["username"], event["verb"], resource] += 1
        return self.counts.copy()


def main(arguments: list[str]) -> int:
    """Print the figures of every release."""
    pods = int(arguments[0]) if arguments else PODS
    for release in build.releases():
        with tempfile.TemporaryDirectory() as folder:
            measure(release, Path(folder), pods)
    return 0


def measure(release: str, folder: Path, pods: int) -> None:
    """The figures of one release."""
    policy, log = folder / "audit.json", folder / "audit.log"
    policy.write_text(json.dumps(AUDIT))
    log.touch()
    flags = {API_SERVER: [f"--audit-policy-file={policy}", f"--audit-log-path={log}"]}
    plane = ControlPlane(folder / "plane", release, flags=flags, scheduler=BACKOFF)
    try:
        plane.start()
        cluster = Cluster(plane, "", folder / "cluster")
        try:
            audit = Audit(log, cluster.ns)
            drivers = fleet(cluster, pods)
            guard = deployed(cluster)
            guarding(cluster, guard, drivers[0])
            rebuilt(cluster, guard)
            ungated(cluster, guard, drivers[0], audit)
            released(cluster, guard, drivers[0], audit, pods)
        finally:
            cluster.abandon()
    finally:
        plane.stop()


def fleet(cluster: Cluster, pods: int) -> list[Driver]:
    """Nodes with room for so many pods, and their driver on each."""
    cpu_class(cluster)
    made = []
    for number in range(math.ceil(pods / A_NODE)):
        name = cluster.node(f"n{number}", cpu="64", pods="500")
        driver = Driver(cluster, CPU_DRIVER, name, cluster.as_admin, "")
        driver.publish([driver.device("cores", {"cpus": str(A_NODE)}, {"cpu": per("cpus", "100m")})])
        made.append(driver)
    return made


def rebuilt(cluster: Cluster, guard: Guard) -> None:
    """From a pool being whole again to its first pod being bound, where the pod has the gate meanwhile."""
    node = cluster.node("rebuilt", cpu="64")
    driver = Driver(cluster, REBUILT, node, cluster.as_admin, "")
    cluster.device_class("rebuilt", REBUILT)
    first, second = (driver.device(f"cores-{number}", {"cpus": "8"}, {"cpu": per("cpus")}) for number in range(2))
    took = []
    for number in range(ROUNDS):
        name, generation = f"rebuilt-{number}", number + 1
        driver.publish([first], generation=generation, count=2)
        eventually(lambda: guard.metric("allocguard_pool_phase", driver=REBUILT, phase="Rebuilding") == 1)
        cluster.claim(name, "rebuilt", capacity={driver.key("cpus"): "1"})
        eventually(partial(has_gate, cluster, name))
        driver.publish([second], generation=generation, count=2, index=1)
        begun = time.perf_counter()
        while not cluster.get("Pod", name)["spec"].get("nodeName"):
            time.sleep(0.005)
        took.append(time.perf_counter() - begun)
        cluster.delete("Pod", name)
        cluster.delete("ResourceClaim", name)
    p50, most = statistics.median(took), max(took)
    row(f"{cluster.release}: pool whole to first pod bound", f"p50 {p50:.2f} max {most:.2f} s", "p50 2 s")


def has_gate(cluster: Cluster, name: str) -> bool:
    """Whether the pod that uses the claim ``name`` waits with the gate; one that does not is made again."""
    cluster.pod(name, claims=[name])
    if GATE in gated(cluster, name):
        return True
    cluster.delete("Pod", name)
    return False


def ungated(cluster: Cluster, guard: Guard, driver: Driver, audit: Audit) -> None:
    """What the scheduler writes of claims that wait without a gate: under a taint nothing, else what is refused."""
    names = [f"ungated-{number}" for number in range(UNGATED)]
    for name in names:
        cpu_claim(cluster, name, 1)
        cluster.pod(name, claims=[name], gates=[FOREIGN])
    hold(cluster, guard, driver)
    cpu_claim(cluster, "probe", 1)
    holding(cluster, "probe")
    # A taint takes the guard a moment.
    time.sleep(3)
    before = audit.look()
    for name in names:
        cluster.as_admin.patch(cluster.path("Pod", name), {"spec": {"schedulingGates": None}})
    time.sleep(WAITED)
    writes = audit.look() - before
    claims = sum(count for (user, _, what), count in writes.items() if (user, what) == (SCHEDULER, STATUS))
    for name in names:
        cluster.delete("Pod", name)
        cluster.delete("ResourceClaim", name)
    rate = claims / UNGATED / WAITED * 60
    row(f"{cluster.release}: writes of a pod that waits without a gate", f"{rate:.1f} a minute")


STATUS = "resourceclaims/status"


def released(cluster: Cluster, guard: Guard, driver: Driver, audit: Audit, pods: int) -> None:
    """A driver is held, ``pods`` are made and wait, and the hold ends."""
    cluster.claim_template("one", CLASS, capacity={driver.key("cpus"): "1"})
    # Who asks for a template that nobody has seen yet waits for nothing.
    time.sleep(2)
    before, released_before = audit.look(), guard.metric("allocguard_pods_released_total")
    begun = time.perf_counter()
    each(partial(waiting, cluster), range(pods))
    made = time.perf_counter() - begun
    row(f"{cluster.release}: {pods} pods made in a hold", f"{pods / made:.0f} a second")
    eventually(lambda: guard.metric("allocguard_pods_gated") == pods, within=60)
    eventually(lambda: told(audit.look() - before) == pods, within=60 + pods / 20, every=1)
    in_hold = audit.look() - before
    resume(cluster, driver)
    begun = time.perf_counter()
    first = 0.0
    while (gone := guard.metric("allocguard_pods_released_total") - released_before) < pods:
        first = first or (time.perf_counter() - begun if gone else 0.0)
        time.sleep(0.1)
    took = time.perf_counter() - begun
    row(f"{cluster.release}: {pods} waiting pods let go after the hold", f"{pods / took:.1f} a second", "50 a second")
    row(f"{cluster.release}: of these the first after", f"{first:.2f} s")
    eventually(lambda: (audit.look() - before)[SCHEDULER, "create", "pods/binding"] >= pods, within=60 + pods, every=1)
    row(f"{cluster.release}: all of them bound after", f"{time.perf_counter() - begun:.0f} s")
    writes = audit.look() - before
    ours = sum(writes[GUARD, verb, what] for verb, what in (("create", "events"), ("patch", "pods")))
    row(f"{cluster.release}: writes of the guard to hold a pod and let it go", f"{ours / pods:.2f}", "at most 2")
    theirs = sum(count for (user, _, what), count in in_hold.items() if user == SCHEDULER and what == STATUS)
    row(f"{cluster.release}: writes of the scheduler to their claims in the hold", f"{theirs / pods:.2f} a pod", "0")


def told(writes: Writes) -> int:
    """How many events the guard has written."""
    return writes[GUARD, "create", "events"]


def waiting(cluster: Cluster, number: int) -> Json:
    """One pod that waits, with a claim of its own that a controller makes."""
    return cluster.pod(f"waits-{number}", templates=["one"])


def each(make: partial[Json], numbers: Iterable[int]) -> None:
    """Make them, some at a time."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in pool.map(make, numbers):
            pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
