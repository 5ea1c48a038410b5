"""docs/writers.md: its commands, in order, in one shell; and its roles, by which each kind of driver writes all that it
has to, with real tokens and the guard in front, and nothing else.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from tests.e2e.client import ApiError, Client, Json
from tests.e2e.cluster import Cluster
from tests.e2e.guarding import guarded, kubelet
from tests.e2e.kinds import path
from tests.e2e.pages import follow, shown, steps, text
from tests.e2e.waiting import eventually
from webhook.cli.program import program

PAGE = text("writers.md")
FILES = dict(re.findall(r"^<!-- (\S+\.yaml) -->\n```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
GPU, FABRIC = "gpu.acme.example", "fabric.acme.example"
FINALIZER = "resource.kubernetes.io/delete-protection"


def test_the_page(fresh_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    if shutil.which("kubectl") is None or shutil.which("curl") is None:
        pytest.skip("the page is for people with kubectl and curl")
    cluster = fresh_cluster()
    cluster.node("n1")
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    with kubelet(cluster, "allocguard-system"):
        follow(PAGE, cluster, tmp_path)


def test_every_command_and_every_file_is_read() -> None:
    assert shown(PAGE) == len(steps(PAGE, "1.36")) == len(steps(PAGE, "1.37")) > 30
    assert list(FILES) == ["node-plugin.yaml", "fabric-controller.yaml", "allocator.yaml", "writers.yaml"]
    assert PAGE.count("```yaml") == len(FILES)


class Vendor:
    """The page's roles, accounts and rollouts on two nodes of ``cluster``, and clients with a token of each account."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.here, self.there = cluster.node("n1"), cluster.node("n2")
        self.space = cluster.namespace(self.own("acme-dra"))
        self.gpu, self.fabric = self.own(GPU), self.own(FABRIC)
        for content in FILES.values():
            for obj in yaml.safe_load_all(self.own(content)):
                cluster.as_admin.create(path(obj["kind"], namespace=obj["metadata"].get("namespace", "")), obj)
        pod = {"nodeName": self.here, "serviceAccountName": "gpu-plugin", "containers": [{"name": "p", "image": "i"}]}
        bound = cluster.create("Pod", {"metadata": {"name": "gpu-plugin"}, "spec": pod}, self.space)
        self.plugin = self._client("gpu-plugin", {"apiVersion": "v1", "kind": "Pod", **bound})
        self.controller = self._client("fabric-controller")
        self.allocator = self._client("batch-allocator")
        for name, driver in (("gpu", self.gpu), ("fabric", self.fabric)):
            cluster.device_class(name, driver)

    def own(self, content: str) -> str:
        """``content`` of the page with names that no other test has."""
        return re.sub(r"\bacme\b", f"acme-{self.cluster.tag}", content)

    def _client(self, account: str, bound_to: Json | None = None) -> Client:
        return self.cluster.token_client(self.cluster.token(account, bound_to, self.space))

    def slice(self, driver: str, devices: int = 1, **where: object) -> Json:
        """A slice of the driver for ``where``."""
        return {
            "metadata": {"name": f"{driver}-s"},
            "spec": {
                "driver": driver,
                "pool": {"name": "pool", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": f"d{number}"} for number in range(devices)],
                **where,
            },
        }

    def claim(self, name: str, device_class: str) -> str:
        """A claim for a device of the class; gives its path."""
        self.cluster.claim(name, device_class)
        return self.cluster.path("ResourceClaim", name)

    def allocation(self, driver: str, node: str = "", device: str = "d0") -> Json:
        """What an allocator writes: a device of the driver, on one node or everywhere."""
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        chosen = {"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}} if node else {}
        result = {"request": "devices", "driver": driver, "pool": "pool", "device": device}
        return {"devices": {"results": [result]}, **chosen}

    def entry(self, driver: str, device: str = "d0", **more: object) -> Json:
        """What a driver tells of a device."""
        return {"driver": driver, "pool": "pool", "device": device, **more}


def report(client: Client, claim: str, entry: Json) -> None:
    """Every way to write a device status, and to take it back."""
    status = f"{claim}/status"
    client.patch(status, {"status": {"devices": [entry]}})
    client.patch(status, [{"op": "add", "path": "/status/devices/0/data", "value": {"a": 1}}], kind="json")
    there = client.get(claim)
    there["status"]["devices"][0]["networkData"] = {"interfaceName": "eth0"}
    client.update(status, there)
    applied = {**entry, "conditions": []}
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "status": {"devices": [applied]}}
    client.apply(status, body, manager="driver")
    client.patch(status, [{"op": "remove", "path": "/status/devices/0"}], kind="json")
    assert not client.get(claim)["status"].get("devices")


def publish(client: Client, made: Json, changed: Json) -> None:
    """Every way to write a slice, and to read it."""
    where = path("ResourceSlice", made["metadata"]["name"])
    client.create(path("ResourceSlice"), made)
    client.update(where, {**client.get(where), "spec": changed["spec"]})
    client.patch(where, {"metadata": {"labels": {"vendor": "acme"}}})
    client.patch(where, {"spec": {"devices": made["spec"]["devices"]}})
    assert where.rpartition("/")[2] in {each["metadata"]["name"] for each in client.items(path("ResourceSlice"))}
    assert next(client.watch(path("ResourceSlice"), 1))["type"] == "ADDED"


def refused(write: Callable[[], object]) -> ApiError:
    """The refusal of ``write``."""
    with pytest.raises(ApiError) as caught:
        write()
    return caught.value


@pytest.fixture
def vendor(cluster: Cluster) -> Vendor:
    """The page's parts, with the guard in front, which knows of them."""
    guarded(cluster)
    made = Vendor(cluster)
    foreign = made.slice(made.fabric, nodeName=made.here)

    def knows_writers() -> bool:
        """Both drivers': one says whose the slice is, the other what the plugin is."""
        try:
            made.plugin.create(path("ResourceSlice"), foreign, dryRun="All")
        except ApiError as error:
            return "slice-writers/slice-of-other-driver: " in error.message
        return False

    eventually(knows_writers)
    return made


def allocate(vendor: Vendor, claim: str, allocation: Json, pod: Json) -> None:
    """All that an allocator does for one claim."""
    client, status = vendor.allocator, f"{claim}/status"
    assert client.items(claim.rpartition("/")[0])
    assert client.items(path("DeviceClass"))
    assert client.items(path("ResourceSlice"))
    client.patch(claim, {"metadata": {"finalizers": [FINALIZER]}})
    consumer = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    # The guard hears of the slice a moment later.
    eventually(lambda: client.patch(status, {"status": {"allocation": allocation}}))
    there = client.get(claim)
    client.update(status, {**there, "status": {**there["status"], "reservedFor": [consumer]}})


def test_each_writes_all_that_it_has_to(vendor: Vendor) -> None:
    plugin, controller, allocator = vendor.plugin, vendor.controller, vendor.allocator
    own, anywhere = {"nodeName": vendor.here}, {"allNodes": True}
    publish(plugin, vendor.slice(vendor.gpu, **own), vendor.slice(vendor.gpu, 2, **own))
    publish(controller, vendor.slice(vendor.fabric, **anywhere), vendor.slice(vendor.fabric, 2, **anywhere))
    assert plugin.get(path("Node", vendor.here))
    gpu, fabric = vendor.claim("c-gpu", "gpu"), vendor.claim("c-fabric", "fabric")
    pod = vendor.cluster.pod("p", claims=["c-gpu", "c-fabric"], gates=["e2e.example.org/wait"])
    allocate(vendor, gpu, vendor.allocation(vendor.gpu, vendor.here), pod)
    allocate(vendor, fabric, vendor.allocation(vendor.fabric), pod)
    report(plugin, gpu, vendor.entry(vendor.gpu))
    assert controller.items(fabric.rpartition("/")[0])
    report(controller, fabric, vendor.entry(vendor.fabric))
    for claim in (gpu, fabric):
        allocator.patch(f"{claim}/status", {"status": {"allocation": None, "reservedFor": None}})
        allocator.patch(claim, {"metadata": {"finalizers": None}})
    for client, driver in ((plugin, vendor.gpu), (controller, vendor.fabric)):
        client.delete(path("ResourceSlice", f"{driver}-s"))


@pytest.mark.parametrize("account", ["gpu-plugin", "fabric-controller", "batch-allocator"])
def test_nothing_is_wrong_with_any_role(vendor: Vendor, account: str) -> None:
    """As the live cluster has them, the guard's registration included."""
    kubeconfig = str(vendor.cluster.plane.kubeconfig("dana", "system:masters"))
    asked = ["--for-serviceaccount", f"{vendor.space}/{account}", "--kubeconfig", kubeconfig, "-o", "json"]
    result = CliRunner(catch_exceptions=False).invoke(program, ["rbac", "lint", *asked])
    assert (result.exit_code, result.stderr) == (0, "")
    told = json.loads(result.stdout)
    assert told["findings"] == []
    assert told["grants"]


def test_each_writes_nothing_else(vendor: Vendor) -> None:
    plugin, controller, allocator = vendor.plugin, vendor.controller, vendor.allocator
    own, anywhere = {"nodeName": vendor.here}, {"allNodes": True}
    plugin.create(path("ResourceSlice"), vendor.slice(vendor.gpu, **own))
    controller.create(path("ResourceSlice"), vendor.slice(vendor.fabric, **anywhere))
    claims = {
        name: vendor.claim(name, name.partition("-")[0]) for name in ("gpu-here", "gpu-there", "fabric-any", "gpu-none")
    }
    pod = vendor.cluster.pod("p", claims=list(claims), gates=["e2e.example.org/wait"])
    allocate(vendor, claims["gpu-here"], vendor.allocation(vendor.gpu, vendor.here), pod)
    allocate(vendor, claims["gpu-there"], vendor.allocation(vendor.gpu, vendor.there), pod)
    allocate(vendor, claims["fabric-any"], vendor.allocation(vendor.fabric), pod)

    def slices(client: Client, driver: str, **where: object) -> Callable[[], object]:
        return lambda: client.create(path("ResourceSlice"), vendor.slice(driver, **where), dryRun="All")

    def status(client: Client, claim: str, **changes: object) -> Callable[[], object]:
        return lambda: client.patch(f"{claims[claim]}/status", {"status": changes}, dryRun="All")

    def told(client: Client, claim: str, driver: str) -> Callable[[], object]:
        return status(client, claim, devices=[vendor.entry(driver)])

    gpu, fabric = vendor.gpu, vendor.fabric
    free = status(plugin, "gpu-here", allocation=None)
    expected: list[tuple[Callable[[], object], int, str]] = [
        (slices(plugin, gpu, nodeName=vendor.there), 403, "slice-writers/slice-of-other-node: "),
        (slices(plugin, gpu, allNodes=True), 403, "slice-writers/slice-of-several-nodes: "),
        (slices(plugin, fabric, nodeName=vendor.here), 403, "slice-writers/slice-of-other-driver: "),
        (told(plugin, "gpu-there", gpu), 422, "changing status.devices requires"),
        (told(plugin, "fabric-any", fabric), 422, "changing status.devices requires"),
        (free, 422, "changing status.allocation or status.reservedFor requires"),
        (slices(controller, fabric, nodeName=vendor.here), 403, "slice-writers/slice-not-its-profile: "),
        (slices(controller, gpu, allNodes=True), 403, "slice-writers/slice-of-other-driver: "),
        (told(controller, "gpu-here", gpu), 422, "changing status.devices requires"),
        (status(controller, "fabric-any", reservedFor=None), 422, "changing status.allocation or status.reservedFor"),
        (slices(allocator, gpu, nodeName=vendor.here), 403, "cannot create resource"),
        (told(allocator, "gpu-here", gpu), 422, "changing status.devices requires"),
    ]
    for write, code, message in expected:
        error = refused(write)
        assert error.code == code, error
        assert message in error.message
