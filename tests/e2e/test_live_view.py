"""The live view of a real API server: what it sees, and that it sees it like files of the same objects."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.cluster.viewing import View
from tests.e2e.client import ApiError, Json
from tests.e2e.cluster import Cluster
from tests.e2e.driver import each, per
from tests.e2e.guarding import definitions, guarded, malformed
from tests.e2e.kinds import path
from tests.e2e.waiting import eventually
from webhook.cli.deploying import files
from webhook.cli.program import program
from webhook.cluster import reflector
from webhook.cluster.files import Cluster as Files
from webhook.cluster.kinds import KINDS
from webhook.facts.pools import pool_state
from webhook.kube.resource import Slice
from webhook.kube.rollout import GROUP
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book
from webhook.ledger.views import show
from webhook.registration.manifests import Target, manifests


@pytest.fixture
def view(cluster: Cluster) -> Iterator[View]:
    definitions(cluster)
    made = View(str(cluster.plane.kubeconfig("admin", "system:masters")))
    made.now = datetime.now(UTC)
    made.start()
    eventually(lambda: made.cluster.synced)
    yield made
    made.close()


def a_fleet(cluster: Cluster) -> str:
    """A node with a driver that maps one of two devices, a claim that is bound and one that waits; the driver."""
    node = cluster.node("n1")
    driver = cluster.driver("cpu.example.org", node)
    mapped = driver.device("numa0", {"cpus": "8"}, {"cpu": per("cpus"), "memory": each("1Gi")}, zone=0)
    driver.publish([mapped, driver.device("plain")])
    cluster.device_class("cpus", cel=f"device.driver == '{driver.name}' && device.allowMultipleAllocations")
    cluster.claim("c1", "cpus", capacity={driver.key("cpus"): "3"})
    cluster.pod("p1", claims=["c1"])
    cluster.claim("c2", "cpus", capacity={driver.key("cpus"): "64"})
    cluster.pod("p2", claims=["c2"])
    cluster.scheduled("p1")
    return driver.name


def rollout(driver: str, stage: str) -> Json:
    metadata = {"name": driver}
    return {"apiVersion": f"{GROUP}/v1alpha1", "kind": "DriverRollout", "metadata": metadata, "spec": {"stage": stage}}


def listed(cluster: Cluster) -> list[Json]:
    """All objects of the watched kinds, as ``kubectl get -o json`` has them."""
    found = []
    for kind in KINDS:
        if kind.name == "NodeResourceTopology":
            continue
        query = {"fieldSelector": kind.fields} if kind.fields else {}
        given = cluster.as_admin.items(kind.path, **query)
        found += [{"apiVersion": kind.api_version, "kind": kind.name, **obj} for obj in given]
    return found


def unshaped(index: Mapping[Any, Any]) -> dict[Any, Any]:
    """The index without the shapes of slices, which tell equal ones only among those that were read alike, and without
    the order in which objects came.
    """

    def bare(value: Any) -> Any:
        if isinstance(value, tuple):
            found = tuple(map(bare, value))
            return tuple(sorted(found, key=named)) if all(hasattr(each, "name") for each in found) else found
        return replace(value, shape=b"") if isinstance(value, Slice) else value

    def named(value: Any) -> tuple[str, str]:
        return getattr(value, "namespace", ""), value.name

    return {key: bare(value) for key, value in index.items()}


def same(cluster: Cluster, view: View, file: Path) -> bool:
    """Whether the view is what ``file`` says after a list of everything was written into it."""
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": listed(cluster)}))
    written = Files([str(file)], cluster.minor).snapshot
    seen = view.cluster.snapshot
    for name in Snapshot.__struct_fields__:
        if name not in ("seen", "release", "node_shapes"):
            assert unshaped(getattr(seen, name)) == unshaped(getattr(written, name)), name
    assert show(Book(), seen, view.now, None) == show(Book(), written, view.now, None)
    return True


def test_the_snapshot_is_that_of_files_of_the_same_objects(cluster: Cluster, view: View, tmp_path: Path) -> None:
    """Whatever is followed event by event is at last what one would read at once, with the fields of either release."""
    driver = a_fleet(cluster)
    cluster.create("DriverRollout", rollout(driver, "General"))
    assert eventually(lambda: same(cluster, view, tmp_path / "objects.json"))
    assert view.cluster.snapshot.release.minor == cluster.minor
    [item] = view.cluster.snapshot.node_slices[cluster.name("n1")]
    assert [(device.name, device.shape) for device in item.devices] == [("numa0", cluster.release), ("plain", "")]
    [pod] = [pod for pod in view.cluster.snapshot.node_pods[cluster.name("n1")] if pod.namespace == cluster.ns]
    assert pod.entries[0].total() == {"cpu": 3, "memory": 1 << 30}


def test_a_burst_of_writes(cluster: Cluster, view: View, tmp_path: Path) -> None:
    """Pools that are published, published anew and withdrawn, and pods that come and end, all at once: what the guard
    is asked meanwhile it answers rightly, and at last the view is what a list says.
    """
    node = cluster.node("n1")
    driver = cluster.driver("cpu.example.org", node)
    driver.publish([driver.device("d0", {"cpus": "8"}, {"cpu": per("cpus")})])
    guarded(cluster)
    clients = [cluster.client(f"writer-{number}", "system:masters") for number in range(4)]

    def pool(number: int) -> None:
        client, item = clients[number % 4], driver.slice([driver.device("d0", None, {"cpu": each("1")})], f"p{number}")
        where = path("ResourceSlice", item["metadata"]["name"])
        made = client.create(path("ResourceSlice"), item)
        made["spec"]["pool"]["generation"] += 1
        client.update(where, made)
        if number % 3 == 0:
            client.delete(where)

    def pod(number: int) -> None:
        client, name = clients[number % 4], f"p{number}"
        container = {"name": "main", "image": "registry.invalid/pause:1", "resources": {"requests": {"cpu": "10m"}}}
        spec = {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 0}
        client.create(path("Pod", namespace=cluster.ns), {"metadata": {"name": name}, "spec": spec})
        if number % 3 == 0:
            client.patch(path("Pod", name, cluster.ns, "status"), {"status": {"phase": "Succeeded"}})

    with ThreadPoolExecutor(4) as writers:
        running = [writers.submit(work, number) for number in range(150) for work in (pool, pod)]
        asked = 0
        while not all(each.done() for each in running):
            with pytest.raises(ApiError) as refused:
                driver.publish([malformed(driver)], "bad")
            assert "slice-mappings/product-overflow" in refused.value.message
            asked += 1
        for each_run in running:
            each_run.result()
    assert asked > 10
    assert eventually(lambda: same(cluster, view, tmp_path / "objects.json"))
    assert len([key for key in view.cluster.snapshot.pods if key[0] == cluster.ns]) == 100
    assert len(view.cluster.snapshot.driver_slices[driver.name]) == 101


def test_rights_that_are_taken_away_and_given_back(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what ``deploy/`` gives and nothing that a cluster gives to everybody. What is lacking is told kind by kind,
    what was seen goes on serving, and nobody has to start it again.
    """
    # Rights are looked at when a watch begins.
    monkeypatch.setattr(reflector, "WATCH", (3, 4))
    definitions(cluster)
    [role] = [
        obj
        for obj in manifests(files(), Target())
        if (obj["kind"], obj["metadata"]["name"]) == ("ClusterRole", "allocguard")
    ]
    cluster.service_account("reader", role["rules"])
    where = path("ClusterRole", f"reader-{cluster.ns}")
    everybody = [path("ClusterRoleBinding", f"system:{name}") for name in ("discovery", "public-info-viewer")]
    before = {each: cluster.as_admin.get(each)["subjects"] for each in everybody}
    users = [{"kind": "User", "name": f"system:kube-{name}"} for name in ("controller-manager", "scheduler")]
    components = [*users, {"kind": "Group", "name": "system:serviceaccounts:kube-system"}]
    made = View(str(cluster.plane.kubeconfig("reader", token=cluster.token("reader"))))
    there = [kind.name for kind in KINDS if kind.name != "NodeResourceTopology"]

    def told(name: str) -> str:
        return made.check(f"view of {name}")[1]

    try:
        for each in everybody:
            cluster.as_admin.patch(each, {"subjects": components})
        cluster.as_admin.patch(where, {"rules": []})
        made.start()
        eventually(lambda: all(told(name).startswith("failed: the API server refuses: 403") for name in there))
        assert not made.cluster.synced
        cluster.as_admin.patch(where, {"rules": role["rules"]})
        eventually(lambda: made.cluster.synced)
        assert told("NodeResourceTopology") == "ok, but the API server has no group topology.node.k8s.io"
        nodes = made.nodes()
        cluster.as_admin.patch(where, {"rules": []})
        eventually(lambda: all("ok, but the API server refuses: 403" in told(name) for name in there))
        assert made.cluster.synced
        assert made.nodes() == nodes
        cluster.as_admin.patch(where, {"rules": role["rules"]})
        node = cluster.node("late")
        eventually(lambda: node in made.nodes())
        eventually(lambda: not any("403" in told(name) for name in there))
    finally:
        made.close()
        for each, subjects in before.items():
            cluster.as_admin.patch(each, {"subjects": subjects})


def test_rollouts_that_go_on_in_another_version_hold_on(cluster: Cluster, view: View) -> None:
    """What was seen counts on while the API server serves it as something newer only, and is followed again later."""
    driver = cluster.name("held.example.org")
    cluster.create("DriverRollout", rollout(driver, "Off"))
    eventually(lambda: driver in view.cluster.snapshot.rollouts)
    definition = path("CustomResourceDefinition", "driverrollouts.allocguard.dev")
    [version] = cluster.as_admin.get(definition)["spec"]["versions"]
    newer = [{**version, "served": False}, {**version, "name": "v2", "storage": False}]
    cluster.as_admin.patch(definition, {"spec": {"versions": newer}})
    try:
        needs = "the API server has driverrollouts of allocguard.dev in v2, needs v1alpha1; what was seen counts on"
        eventually(lambda: needs in view.check("view of DriverRollout")[1], within=60)
        assert driver in view.cluster.snapshot.rollouts
    finally:
        cluster.as_admin.patch(definition, {"spec": {"versions": [version]}})
    eventually(lambda: view.check("view of DriverRollout")[1].startswith("ok, seen"))
    cluster.delete("DriverRollout", driver)
    eventually(lambda: driver not in view.cluster.snapshot.rollouts)


def test_more_objects_than_a_page_holds(cluster: Cluster) -> None:
    """Lists come in pages, and nothing is lost between them."""
    names = {f"{cluster.ns}-{number:03d}" for number in range(260)}
    for name in names:
        spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "none"}}]}}
        cluster.create("ResourceClaim", {"metadata": {"name": name}, "spec": spec})
    seen = View(str(cluster.plane.kubeconfig("admin", "system:masters")))
    try:
        seen.background.submit(seen.cluster.read()).result()
        assert {name for space, name in seen.cluster.snapshot.claims if space == cluster.ns} == names
    finally:
        seen.close()


def test_a_pod_that_ends_is_seen_no_more(cluster: Cluster, view: View) -> None:
    cluster.pod("p1")
    key = (cluster.ns, "p1")
    eventually(lambda: key in view.cluster.snapshot.pods)
    cluster.as_admin.patch(cluster.path("Pod", "p1", "status"), {"status": {"phase": "Succeeded"}})
    eventually(lambda: key not in view.cluster.snapshot.pods)


@pytest.mark.parametrize("hours", [-6, 6])
def test_a_clock_that_is_wrong_makes_no_view_stale(cluster: Cluster, hours: int) -> None:
    """How old a view is, our own clock tells alone: an API server hours behind or ahead of it does not matter."""
    node = cluster.node("n1")
    driver = cluster.driver("cpu.example.org", node)
    driver.publish([driver.device("d0", {"cpus": "8"}, {"cpu": per("cpus")})])
    seen = View(str(cluster.plane.kubeconfig("admin", "system:masters")))
    try:
        seen.now = datetime.now(UTC) + timedelta(hours=hours)
        seen.start()
        eventually(lambda: seen.cluster.synced)
        state = pool_state(seen.cluster.snapshot, driver.name, node, node, seen.now + timedelta(seconds=60))
        assert (state.phase, state.reasons) == ("Fresh", ())
        late = pool_state(seen.cluster.snapshot, driver.name, node, node, seen.now + timedelta(seconds=120))
        assert [reason.rule for reason in late.reasons] == ["view-stale"]
    finally:
        seen.close()


def test_commands_read_the_cluster(cluster: Cluster, tmp_path: Path) -> None:
    """``ledger show`` and ``check`` against the live cluster, which also tells the gates of its API server."""
    a_fleet(cluster)
    kubeconfig = str(cluster.plane.kubeconfig("admin", "system:masters"))

    def run(*arguments: str) -> tuple[int, str]:
        result = CliRunner(catch_exceptions=False).invoke(program, [*arguments, f"--kubeconfig={kubeconfig}"])
        return result.exit_code, result.stdout

    code, out = run("ledger", "show", "--node", cluster.name("n1"), "-o", "json")
    [node] = json.loads(out)["nodes"]
    assert (code, node["resources"]["cpu"]["claims"]) == (0, "3")
    slice_file = tmp_path / "slice.json"
    slices = [obj for obj in listed(cluster) if obj["kind"] == "ResourceSlice"]
    [item] = [obj for obj in slices if cluster.tag in obj["metadata"]["name"]]
    slice_file.write_text(json.dumps(item))
    code, out = run("check", str(slice_file), "-o", "json")
    assert (code, json.loads(out)["summary"]["errors"]) == (0, 0)
