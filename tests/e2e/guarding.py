"""Our server as an operator has it: kinds installed, on the live cluster, registered by itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.client import Json
from tests.e2e.cluster import Cluster
from tests.e2e.driver import Driver, per
from tests.e2e.guard import Guard
from tests.e2e.kinds import path
from tests.e2e.waiting import eventually
from webhook.cli.deploying import files
from webhook.kube.raw import members
from webhook.registration.manifests import Target, manifests

CRDS = Path(__file__).parents[2] / "deploy" / "crds"


def definitions(cluster: Cluster) -> None:
    """Our kinds, served by the API server."""
    for file in sorted(CRDS.glob("*.yaml")):
        document = yaml.safe_load(file.read_text())
        if document["kind"] == "CustomResourceDefinition":
            cluster.as_admin.apply(path("CustomResourceDefinition", document["metadata"]["name"]), document)
    for kind in ("AdmissionPolicy", "DriverRollout", "NodeLedger"):
        eventually(lambda kind=kind: cluster.as_admin.find(path(kind)))


def guarded(cluster: Cluster, *arguments: str, **options: Any) -> Guard:
    """The guard, in a namespace of its own, ready, and asked by the API server."""
    definitions(cluster)
    guard = cluster.guard(f"--namespace={cluster.namespace('guard')}", *arguments, **options)
    asked(cluster, guard)
    return guard


def deployed(cluster: Cluster, *arguments: str, **options: Any) -> Guard:
    """As :func:`guarded`, by the ServiceAccount of ``deploy/`` and what that may do, certificates in a Secret."""
    own = account(cluster)
    token = cluster.token("allocguard", namespace=own)
    secret = f"--certs-secret={own}/allocguard-certs"
    guard = cluster.guard(f"--namespace={own}", secret, *arguments, user=(f"{own}-guard",), token=token, **options)
    asked(cluster, guard)
    return guard


def account(cluster: Cluster) -> str:
    """A namespace with the ServiceAccount of ``deploy/``, which may do what that may; gives its name."""
    definitions(cluster)
    own = cluster.namespace("guard")
    for obj in manifests(files(), Target(namespace=own)):
        if obj["kind"] in ("ClusterRole", "ClusterRoleBinding"):
            # Other tests may have installed it, too.
            obj["metadata"]["name"] = cluster.name(obj["metadata"]["name"])
        if obj["kind"] == "ClusterRoleBinding":
            obj["roleRef"]["name"] = cluster.name(obj["roleRef"]["name"])
        if obj["kind"] in ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"):
            cluster.as_admin.create(path(obj["kind"], namespace=obj["metadata"].get("namespace", "")), obj)
    return own


@contextmanager
def kubelet(cluster: Cluster, namespace: str, starts: bool = False) -> Iterator[None]:
    """Ends the pods of ``namespace`` that are deleted, as kubelets do: bound ones stay without. With ``starts`` it says
    of those that are bound that they are ready, and runs none.
    """
    over = threading.Event()
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}

    def run() -> None:
        while not over.wait(0.5):
            for pod in members(cluster.as_admin.get(path("Pod", namespace=namespace)).get("items")):
                name = pod["metadata"]["name"]
                if "deletionTimestamp" in pod["metadata"]:
                    cluster.as_admin.gone(path("Pod", name, namespace), gracePeriodSeconds="0")
                elif starts and pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending":
                    cluster.as_admin.patch(path("Pod", name, namespace, "status"), {"status": ready}, kind="strategic")

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def asked(cluster: Cluster, guard: Guard) -> None:
    """Wait until writes of slices arrive at ``guard``."""
    name = cluster.name("probe.example.org")
    pool = {"name": "probe", "generation": 1, "resourceSliceCount": 1}
    spec: Json = {"driver": name, "nodeName": "probe", "pool": pool, "devices": [{"name": "d"}]}

    def arrives() -> bool:
        before = reviews(guard, "resourceslices")
        cluster.as_admin.create(path("ResourceSlice"), {"metadata": {"name": name}, "spec": spec}, dryRun="All")
        return reviews(guard, "resourceslices") > before

    eventually(arrives)


def reviews(guard: Guard, resource: str, **labels: str) -> float:
    """How many reviews of ``resource`` came to ``guard``."""
    return guard.metric("allocguard_admission_reviews_total", resource=resource, **labels)


def malformed(driver: Driver) -> Json:
    """A device that the API server takes and no scheduler can count: eight times 4Ei is beyond 64 bits, hence zero."""
    return driver.device("overflow", {"cpus": "8"}, {"memory": per("cpus", "4Ei")})


def admission_policy(name: str, resources: list[str], operations: list[str], group: str = "", **spec: object) -> Json:
    """An AdmissionPolicy of ``v1`` resources of ``group``; ``spec`` are more of its fields."""
    rule = {"apiGroups": [group], "apiVersions": ["v1"], "operations": operations, "resources": resources}
    return {
        "apiVersion": "allocguard.dev/v1alpha1",
        "kind": "AdmissionPolicy",
        "metadata": {"name": name},
        "spec": {"matchConstraints": {"resourceRules": [rule]}, "action": "Deny", **spec},
    }


def ready(cluster: Cluster, name: str, generation: int | None = None) -> Json:
    """The condition Ready of the AdmissionPolicy ``name``, the test's own or a whole name, once it is about its present
    ``generation``.
    """

    def look() -> Json | None:
        obj = cluster.as_admin.find(path("AdmissionPolicy", name)) or cluster.get("AdmissionPolicy", name)
        wanted = generation or obj["metadata"]["generation"]
        assert obj["metadata"]["generation"] == wanted
        found = [each for each in obj.get("status", {}).get("conditions", []) if each["type"] == "Ready"]
        return found[0] if found and found[0]["observedGeneration"] == wanted else None

    got = eventually(look)
    assert got is not None
    return got
