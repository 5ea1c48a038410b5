"""What happens to the guard's view of a real API server when something fails: it is told, and it heals alone."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import httpx

from tests.e2e import identity
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import API_SERVER
from tests.e2e.driver import per
from tests.e2e.guard import Guard
from tests.e2e.guarding import definitions
from tests.e2e.waiting import eventually

MakeCluster = Callable[..., Cluster]


def told(guard: Guard) -> str:
    """What /readyz says."""
    return guard.get("/readyz?verbose").text


def knows(guard: Guard, driver: str) -> bool:
    """Whether the guard has seen a mapped pool of the driver."""
    return guard.metric("allocguard_pool_phase", driver=driver, phase="Fresh") > 0


def publish(cluster: Cluster, name: str, node: str) -> str:
    driver = cluster.driver(name, cluster.node(node))
    driver.publish([driver.device("d0", {"cpus": "8"}, {"cpu": per("cpus")})])
    return driver.name


class Store:
    """The etcd of a control plane, over its JSON gateway."""

    def __init__(self, cluster: Cluster) -> None:
        command = cluster.plane.processes["etcd"].command
        self._url = next(part.partition("=")[2] for part in command if part.startswith("--listen-client-urls="))

    def ask(self, path: str, **body: object) -> dict[str, object]:
        """The answer to one call; ``key`` and ``value`` are text."""
        texts = {name: b64encode(str(body[name]).encode()).decode() for name in ("key", "value") if name in body}
        answer = httpx.post(f"{self._url}/v3/{path}", json={**body, **texts}, timeout=10, trust_env=False)
        found: dict[str, object] = answer.raise_for_status().json()
        return found

    def compact(self) -> None:
        """Forget all history."""
        header = self.ask("kv/put", key="e2e", value="x")["header"]
        assert isinstance(header, dict)
        self.ask("kv/compaction", revision=header["revision"], physical=True)


def test_the_api_server_restarts_with_its_history_gone(fresh_cluster: MakeCluster) -> None:
    """While it is away the snapshot serves; afterwards what was missed is listed, and objects that are gone are."""
    cluster = fresh_cluster()
    driver = publish(cluster, "cpu.example.org", "n1")
    gone = publish(cluster, "gone.example.org", "n2")
    guard = cluster.guard()
    eventually(lambda: knows(guard, driver) and knows(guard, gone))
    cluster.plane.processes[API_SERVER].kill()
    eventually(lambda: "ok, but the API server does not answer" in told(guard))
    assert guard.get("/readyz").status_code == 200
    assert knows(guard, driver)
    store = Store(cluster)
    store.ask("kv/deleterange", key=f"/registry/resourceslices/{gone}-n2-0")
    store.compact()
    cluster.plane.processes[API_SERVER].start()
    cluster.plane.ready()
    eventually(lambda: not knows(guard, gone), within=60)
    new = publish(cluster, "new.example.org", "n3")
    eventually(lambda: knows(guard, new), within=60)
    assert knows(guard, driver)
    eventually(lambda: "does not answer" not in told(guard))
    assert len(guard.lines(event="API server lost")) < 4
    assert not guard.lines(event="internal error")


def test_kinds_of_ours_that_come_later(fresh_cluster: MakeCluster) -> None:
    """Without the definitions the guard serves, and says so; once they are there it follows them."""
    cluster = fresh_cluster()
    driver = publish(cluster, "cpu.example.org", "n1")
    guard = cluster.guard()
    assert "view of DriverRollout ok, but the API server has no group allocguard.dev" in told(guard)
    assert len(guard.lines(event="kind not served", kind="DriverRollout")) == 1
    definitions(cluster)
    kind = {"apiVersion": "allocguard.dev/v1alpha1", "kind": "DriverRollout"}
    cluster.create("DriverRollout", {**kind, "metadata": {"name": driver}, "spec": {"stage": "Off"}})
    eventually(lambda: guard.metric("allocguard_rollout_stage", driver=driver, stage="Off") == 1, within=60)


def test_credentials_that_end_and_an_authority_that_is_wrong(fresh_cluster: MakeCluster, tmp_path: Path) -> None:
    """A token of an account that was deleted, a kubeconfig with the wrong authority: told, and read anew."""
    cluster = fresh_cluster()
    driver = publish(cluster, "cpu.example.org", "n1")
    kinds = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    cluster.service_account("first", [kinds])
    kubeconfig = cluster.plane.kubeconfig("first", token=cluster.token("first"))
    good = kubeconfig.read_text()
    wrong = json.loads(good)
    other = identity.Authority(tmp_path / "other").certificate.read_bytes()
    wrong["clusters"][0]["cluster"]["certificate-authority-data"] = b64encode(other).decode()
    kubeconfig.write_text(json.dumps(wrong))
    folder = tmp_path / "guard"
    folder.mkdir()
    guard = Guard("live", folder, cluster.as_admin, [f"--kubeconfig={kubeconfig}"])
    try:
        guard.start(ready=False)
        eventually(lambda: guard.lines(event="API server lost"))
        assert "certificate" in guard.lines(event="API server lost")[0]["message"].lower()
        eventually(lambda: guard.get("/readyz").status_code == 503)
        answer = httpx.post(f"{guard.url}/validate", json={}, verify=False, trust_env=False)
        assert (answer.status_code, answer.json()["message"]) == (
            503,
            "the guard has not seen the whole cluster yet; try again",
        )
        kubeconfig.write_text(good)
        guard.wait()
        eventually(lambda: knows(guard, driver))
        cluster.delete("ServiceAccount", "first")
        cluster.service_account("second", [kinds])
        fresh = cluster.token("second")
        cluster.plane.processes[API_SERVER].restart()
        cluster.plane.ready()
        eventually(lambda: "401 Unauthorized" in told(guard), within=60)
        assert guard.get("/readyz").status_code == 200
        cluster.plane.kubeconfig("first", token=fresh)
        new = publish(cluster, "new.example.org", "n2")
        eventually(lambda: knows(guard, new), within=60)
        eventually(lambda: "401" not in told(guard), within=60)
    finally:
        guard.kill()
