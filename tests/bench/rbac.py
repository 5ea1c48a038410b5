"""Figures of the lint of roles, printed as a table: ``python -m tests.bench.rbac [ROLES [BINDINGS]]``.

A cluster of 5,000 roles and 10,000 bindings, of which a hundred are those of drivers: how long it takes to read it, to
look at all of it as the sweep does, and to judge one write, in time of the processor; and the memory that the roles and
bindings take.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from tests.bench.__main__ import row
from webhook.facts.rbac_lint import account_problems, binding_problems, role_problems
from webhook.facts.rbac_survey import whole_survey
from webhook.facts.reporting import reporting_drivers
from webhook.kube.snapshot import Snapshot
from webhook.registration.configurations import Address, configurations
from webhook.registration.slice_guards import remembered, slice_guards
from webhook.store.policies import read, shipped

Json = dict[str, Any]

ROLES, BINDINGS, DRIVERS, ROUNDS = 5_000, 10_000, 100, 5
RBAC, DRA = "rbac.authorization.k8s.io", "resource.k8s.io"
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def main(arguments: list[str]) -> int:
    """Print the figures."""
    roles = int(arguments[0]) if arguments else ROLES
    bindings = int(arguments[1]) if len(arguments) > 1 else BINDINGS
    taken = held(roles, bindings)
    objects = list(cluster(roles, bindings))
    begun = time.process_time()
    snapshot = Snapshot()
    for obj in objects:
        snapshot = snapshot.put(obj)
    took = time.process_time() - begun
    counted = f"{len(snapshot.roles):,} roles, {len(snapshot.bindings):,} bindings"
    row(f"{counted}: read in", f"{took:.2f} s")
    row("  memory that this takes", f"{taken / 1e6:.0f} MB")
    revision = read([shipped()])
    asked, _ = configurations(revision, Address(url="https://guard.example"), b"")
    guarded = remembered(slice_guards([asked], revision), snapshot, NOW)
    times = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        found = [each for each in whole_survey(snapshot, guarded, reporting_drivers(snapshot)) if each.findings]
        times.append(time.process_time() - begun)
    row("  all of them looked at, the first time", f"{times[0] * 1000:.0f} ms")
    row("  and again", f"{statistics.median(times[1:]) * 1000:.0f} ms")
    row("  objects with findings", f"{len(found):,}")
    role = snapshot.roles["", "driver-0"]
    row("  one write of a driver's role", f"{each_takes(lambda: role_problems(role, snapshot)) * 1e6:.0f} µs")
    plain = snapshot.roles["", "app-100"]
    row("  one write of a role without devices", f"{each_takes(lambda: role_problems(plain, snapshot)) * 1e6:.0f} µs")
    bound = snapshot.bindings["", "driver-0"]
    row("  one write of its binding", f"{each_takes(lambda: binding_problems(bound, snapshot)) * 1e6:.0f} µs")
    account = each_takes(lambda: account_problems("drivers", "driver-0", snapshot))
    row("  one account over all roles and bindings", f"{account * 1e6:.0f} µs")
    return 0


def each_takes(run: Any) -> float:
    """Seconds of the processor, the mean of many."""
    begun = time.process_time()
    for _ in range(500):
        run()
    return (time.process_time() - begun) / 500


def held(roles: int, bindings: int) -> int:
    """Bytes that a snapshot of the cluster holds."""
    tracemalloc.start()
    snapshot = Snapshot()
    for obj in cluster(roles, bindings):
        snapshot = snapshot.put(obj)
    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return taken


def cluster(roles: int, bindings: int) -> Iterator[Json]:
    """As clusters have them: many roles of a few charts, each bound in several namespaces, and some of drivers."""
    for number in range(DRIVERS):
        name, driver = f"driver-{number}", f"gpu-{number}.example.com"
        # One in ten is too wide.
        verb = "arbitrary-node:patch" if number % 10 == 0 else "associated-node:patch"
        yield {
            "apiVersion": "allocguard.dev/v1alpha1",
            "kind": "DriverRollout",
            "metadata": {"name": driver},
            "spec": {"writers": [{"namespace": "drivers", "serviceAccount": name, "profile": "NodeLocal"}]},
        }
        yield role(
            name,
            rule("resourceslices", "get", "list", "watch", "create", "update", "delete"),
            rule("resourceclaims", "get"),
            rule("resourceclaims/status", "patch"),
            {**rule("resourceclaims/driver", verb), "resourceNames": [driver]},
        )
        yield binding(name, name, "drivers", name)
    for number in range(roles - DRIVERS):
        kinds = ("pods", "configmaps", "secrets", "services", "deployments")
        resources = [kinds[(number + step) % 5] for step in range(3)]
        rules = [
            {"apiGroups": ["", "apps"], "resources": [each], "verbs": ["get", "list", "patch"]} for each in resources
        ]
        rules.append({"apiGroups": [f"app{number % 50}.example.com"], "resources": ["*"], "verbs": ["*"]})
        yield role(f"app-{number}", *rules)
    for number in range(bindings - DRIVERS):
        space = f"team-{number % 500}"
        yield binding(f"app-{number}", f"app-{number % (roles - DRIVERS)}", space, f"app-{number % 20}", space)


def role(name: str, *rules: Json) -> Json:
    """A ClusterRole."""
    return {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": list(rules)}


def rule(resources: str, *verbs: str) -> Json:
    """A rule about devices."""
    return {"apiGroups": [DRA], "resources": [resources], "verbs": list(verbs)}


def binding(name: str, of: str, namespace: str, account: str, within: str = "") -> Json:
    """A binding of a ClusterRole, everywhere or within a namespace."""
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding" if within else "ClusterRoleBinding",
        "metadata": {"name": name, **({"namespace": within} if within else {})},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": of},
        "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": account}],
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
