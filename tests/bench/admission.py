"""What the registered webhook adds to a real claim-status write, as a table: ``python -m tests.bench.admission [N]``.

One control plane, four namespaces: in one nothing looks at the write, in one a ValidatingAdmissionPolicy of comparable
rules does, in two our server with the shipped policies and the entries it registers: where devices cost nothing it only
decides, where they do it reserves, too, by a write of its own. Writes take turns, so that whatever else the machine
does falls on all of them alike. Needs the binaries of ``tests.e2e.build``.
"""

from __future__ import annotations

import http.client
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.e2e import build
from tests.e2e.client import ApiError
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import CONTROLLERS, SCHEDULER, ControlPlane
from tests.e2e.driver import Driver, each, per
from tests.e2e.guard import Guard, register
from tests.e2e.guarding import definitions
from tests.e2e.kinds import path
from tests.e2e.waiting import eventually
from webhook.registration.configurations import Address, configurations
from webhook.store.policies import read, shipped

WRITES, CLAIMS = 1000, 20
NODE, DRIVER, DEVICE = "n1", "cpu.example.org", "numa0"
FREE_DRIVER = "plain.example.org"
PLAIN, POLICY, DECIDED, OURS = "plain", "policy", "decided", "ours"
LABELS = {
    PLAIN: "no admission beyond the server's own",
    POLICY: "a ValidatingAdmissionPolicy of six rules",
    DECIDED: "allocguard, shipped policies, on the live view",
    OURS: "  and what is allowed is reserved",
}
RESULTS = "object.status.?allocation.?devices.?results.orValue([])"
RULES = [
    f"{RESULTS}.all(r, r.driver in ['{DRIVER}', 'gpu.example.org'])",
    f"{RESULTS}.all(r, r.pool != '' && r.device != '' && r.request != '')",
    f"{RESULTS}.all(r, {RESULTS}.exists_one(other, other.pool == r.pool && other.device == r.device))",
    f"{RESULTS}.all(r, r.?consumedCapacity.orValue({{}}).all(key, quantity(r.consumedCapacity[key]).isGreaterThan("
    "quantity('0'))))",
    "object.status.?reservedFor.orValue([]).size() <= 1",
    "object.status.?allocation.?nodeSelector.?nodeSelectorTerms.orValue([]).all(term, "
    "term.?matchFields.orValue([]).all(field, field.key == 'metadata.name' && size(field.values) == 1))",
]


def row(what: str, *figures: str) -> None:
    print(f"{what:<52}" + "".join(f"{figure:>14}" for figure in figures), flush=True)  # noqa: T201


class Writer:
    """A connection of the scheduler's to the API server, that only times."""

    def __init__(self, cluster: Cluster) -> None:
        plane = cluster.plane
        trust = plane.authority.trust(plane.authority.client("system:kube-scheduler"))
        host, _, port = cluster.url.removeprefix("https://").partition(":")
        self._connection = http.client.HTTPSConnection(host, int(port), context=trust)

    def patch(self, where: str, body: bytes) -> float:
        """Seconds that the patch took."""
        begun = time.perf_counter()
        self._connection.request("PATCH", where, body, {"content-type": "application/merge-patch+json"})
        answer = self._connection.getresponse()
        text = answer.read()
        took = time.perf_counter() - begun
        if answer.status != 200:
            raise RuntimeError(text.decode())
        return took


def prepare(cluster: Cluster) -> dict[str, Driver]:
    """The node, its drivers and, in each namespace, claims and the pods that want them; gives the driver of each."""
    cluster.node(NODE, cpu="1000", memory="4Ti", pods="5000")
    driver = cluster.driver(DRIVER, NODE)
    devices = [
        driver.device(f"numa{zone}", {"cpus": "512"}, {"cpu": per("cpus"), "memory": each("1Gi")}, zone=zone)
        for zone in range(8)
    ]
    driver.publish(devices)
    cluster.device_class("cpus", DRIVER)
    free = cluster.driver(FREE_DRIVER, NODE)
    free.publish([free.device(f"numa{zone}", {"cpus": "512"}, zone=zone) for zone in range(8)])
    cluster.device_class("free", FREE_DRIVER)
    drivers = {namespace: free if namespace == DECIDED else driver for namespace in LABELS}
    for namespace, used in drivers.items():
        cluster.as_admin.create(path("Namespace"), {"metadata": {"name": namespace}})
        accounts = path("ServiceAccount", namespace=namespace)
        eventually(lambda accounts=accounts: cluster.as_admin.find(f"{accounts}/default"))
        spec = cluster.claim_spec("free" if used is free else "cpus", capacity={used.key("cpus"): "2"})
        for number in range(CLAIMS):
            name = f"c{number}"
            cluster.as_admin.create(
                path("ResourceClaim", namespace=namespace), {"metadata": {"name": name}, "spec": spec}
            )
            references = [{"name": "cpus", "resourceClaimName": name}]
            container = {
                "name": "main",
                "image": "registry.invalid/pause:1",
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "claims": [{"name": "cpus"}]},
            }
            # The scheduler that allocates is this script.
            spec_of_pod = {"containers": [container], "resourceClaims": references, "schedulerName": "bench"}
            pod = {"metadata": {"name": name}, "spec": spec_of_pod}
            cluster.as_admin.create(path("Pod", namespace=namespace), pod)
    return drivers


def policy(cluster: Cluster) -> None:
    """The policy that the API server judges by itself, in its own namespace."""
    group = "/apis/admissionregistration.k8s.io/v1"
    rule = {
        "apiGroups": ["resource.k8s.io"],
        "apiVersions": ["v1"],
        "operations": ["UPDATE"],
        "resources": ["resourceclaims/status"],
    }
    condition = {"name": "allocates", "expression": "has(object.status) && has(object.status.allocation)"}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [condition],
        "validations": [{"expression": expression} for expression in RULES],
    }
    cluster.as_admin.create(f"{group}/validatingadmissionpolicies", {"metadata": {"name": "comparable"}, "spec": spec})
    selector = {"matchLabels": {"kubernetes.io/metadata.name": POLICY}}
    binding = {
        "policyName": "comparable",
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": selector},
    }
    cluster.as_admin.create(
        f"{group}/validatingadmissionpolicybindings", {"metadata": {"name": "comparable"}, "spec": binding}
    )


def guard(cluster: Cluster, folder: Path) -> Guard:
    """Our server on the live view, its own entries registered for its namespaces."""
    folder.mkdir()
    definitions(cluster)
    access = cluster.plane.kubeconfig("admin", "system:masters")
    server = Guard("guard", folder, cluster.as_admin, [f"--kubeconfig={access}", f"--namespace={cluster.ns}"])
    server.start()
    validating, _ = configurations(
        read([shipped()]),
        Address(url=server.url),
        server.authority,
        frozenset({DRIVER, FREE_DRIVER}),
        namespace="elsewhere",
    )
    only = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [DECIDED, OURS]}
    entries = validating["webhooks"]
    for entry in entries:
        entry["namespaceSelector"]["matchExpressions"].append(only)
    register(cluster.as_admin, "validate", "allocguard", entries)
    return server


def allocation(cluster: Cluster, driver: Driver, namespace: str, number: int) -> bytes:
    """The scheduler's write of a claim: allocated, and reserved for its pod."""
    name = f"c{number}"
    uid = cluster.get("Pod", name, namespace)["metadata"]["uid"]
    share = cluster.get("ResourceClaim", name, namespace)["metadata"]["uid"]
    result = {
        "request": "devices",
        "driver": driver.name,
        "pool": NODE,
        "device": f"numa{number % 8}",
        "consumedCapacity": {driver.key("cpus"): "2"},
        "shareID": share,
    }
    field = {"key": "metadata.name", "operator": "In", "values": [NODE]}
    status: dict[str, Any] = {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        },
        "reservedFor": [{"resource": "pods", "name": name, "uid": uid}],
    }
    return json.dumps({"status": status}).encode()


def refused(cluster: Cluster, driver: Driver, namespace: str, changes: dict[str, str]) -> str:
    """What is said to an allocation that breaks a rule: a bench of checks that do not look would prove nothing."""
    body = json.loads(allocation(cluster, driver, namespace, 0))
    body["status"]["allocation"]["devices"]["results"][0] |= changes
    where = path("ResourceClaim", "c0", namespace, "status")
    try:
        cluster.as_scheduler.patch(where, body, dryRun="All")
    except ApiError as error:
        return error.message
    return ""


def measure(cluster: Cluster, drivers: dict[str, Driver], writes: int) -> dict[str, list[float]]:
    """Milliseconds of each write, by namespace."""
    writer = Writer(cluster)
    free = json.dumps({"status": {"allocation": None, "reservedFor": None}}).encode()
    bodies = {
        (namespace, number): allocation(cluster, drivers[namespace], namespace, number)
        for namespace in LABELS
        for number in range(CLAIMS)
    }
    took: dict[str, list[float]] = {namespace: [] for namespace in LABELS}
    for turn in range(-50, writes):
        number = turn % CLAIMS
        for namespace in LABELS:
            where = path("ResourceClaim", f"c{number}", namespace, "status")
            seconds = writer.patch(where, bodies[namespace, number])
            if turn >= 0:
                took[namespace].append(seconds * 1000)
            writer.patch(where, free)
    return took


def spent(server: Guard) -> tuple[float, float]:
    """Reviews of claim statuses so far, and the seconds from the first byte read to the answer made."""
    name, resource = "allocguard_admission_duration_seconds", "resourceclaims/status"
    return server.metric(f"{name}_count", resource=resource), server.metric(f"{name}_sum", resource=resource)


def run(release: str, writes: int, folder: Path) -> None:
    plane = ControlPlane(folder / "plane", release)
    cluster = None
    server = None
    try:
        plane.start()
        cluster = Cluster(plane, "", folder / "cluster")
        drivers = prepare(cluster)
        # Nobody else is to touch the claims, or to take the time.
        plane.processes[SCHEDULER].stop()
        plane.processes[CONTROLLERS].stop()
        policy(cluster)
        server = guard(cluster, folder / "guard")
        eventually(lambda: "comparable" in refused(cluster, drivers[POLICY], POLICY, {"driver": "other.example.org"}))
        for namespace in (DECIDED, OURS):
            used, other = drivers[namespace], {"driver": "nobody.example"}
            eventually(lambda u=used, n=namespace, o=other: "claim-allocation/" in refused(cluster, u, n, o))
        assert not refused(cluster, drivers[PLAIN], PLAIN, {"driver": "nobody.example"})
        before = spent(server)
        took = measure(cluster, drivers, writes)
        held = server.metric("allocguard_reservations_total", outcome="taken")
        count, seconds = (after - earlier for after, earlier in zip(spent(server), before, strict=True))
    finally:
        if server is not None:
            server.kill()
        plane.stop()
    row(f"claim-status write, v{release}, {writes} of each in turn", "p50 ms", "p99 ms", "added p50", "added p99")
    cuts = {name: statistics.quantiles(took[name], n=100) for name in LABELS}
    for name, label in LABELS.items():
        added = [cuts[name][at] - cuts[PLAIN][at] for at in (49, 98)]
        row(label, *(f"{cuts[name][at]:.2f}" for at in (49, 98)), *(f"{each:+.2f}" for each in added if name != PLAIN))
    row("goal for allocguard, without reserving", "", "", "+1.50", "+10.00")
    added = [cuts[OURS][at] - cuts[DECIDED][at] for at in (49, 98)]
    row(f"a reservation adds ({held:.0f} taken)", "", "", *(f"{each:+.2f}" for each in added))
    row(f"of which inside our server, mean of {count:.0f} reviews", f"{seconds / count * 1000:.2f}")


def main(writes: str = str(WRITES)) -> None:
    for release in build.releases():
        with tempfile.TemporaryDirectory() as folder:
            run(release, int(writes), Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
