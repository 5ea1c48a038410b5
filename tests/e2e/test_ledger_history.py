"""The journal of a guard on a real cluster: it folds to the accounts, zones and pod statuses that there are, after each
of the drills: allocations in two zones and in one, a release that fails and is tried again, a node restart in between.
"""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from tests.e2e.client import Json
from tests.e2e.cluster import Cluster
from tests.e2e.driver import each, per
from tests.e2e.guarding import guarded
from tests.e2e.kinds import path
from tests.e2e.recorder import refuse
from tests.e2e.scenes import CLASS, CPU_DRIVER, cpu_claim, cpu_class, shared_cpus
from tests.e2e.waiting import eventually
from webhook.cli.program import program

COSTS = {"cpu": per("cpus"), "memory": each("1Gi")}


def ran(cluster: Cluster, *arguments: object, live: bool = True) -> tuple[int, str]:
    """Exit code and output of our command, on the live cluster."""
    options = ["--kubeconfig", str(cluster.plane.kubeconfig("admin", "system:masters"))] if live else []
    result = CliRunner(catch_exceptions=False).invoke(program, [*map(str, arguments), *options])
    return result.exit_code, result.stdout


def history(cluster: Cluster, journal: Path, export: Path) -> Json | None:
    """The export of the journal and the live cluster, once replaying it gives the same; None while it does not."""
    code, text = ran(cluster, "ledger", "export", "--journal", journal)
    assert code == 0, text
    export.write_text(text)
    code, text = ran(cluster, "ledger", "replay", export, "-o", "json", live=False)
    value: Json = json.loads(text)
    assert value["equal"] == (code == 0)
    return json.loads(export.read_text()) if value["equal"] else None


def node_of(export: Json, name: str) -> Json:
    found: Json = next(row for row in export["statement"]["nodes"] if row["node"] == name)
    return found


def zones(node: Json) -> list[str]:
    return [zone["resources"]["cpu"]["claims"] for zone in node["zones"]]


def used(cluster: Cluster, number: int, cpus: int) -> str:
    """A claim and a pod that uses it, bound; the device that the claim got."""
    cpu_claim(cluster, f"c{number}", cpus)
    cluster.pod(f"p{number}", claims=[f"c{number}"], cpu="1")
    cluster.scheduled(f"p{number}")
    result: Json = cluster.allocated(f"c{number}")["status"]["allocation"]["devices"]["results"][0]
    return str(result["device"])


def entries(cluster: Cluster, export: Json) -> dict[str, str]:
    """The cpu that pod statuses book in ``export``, by pod of the test's namespace."""
    rows = (row for row in export["statement"]["pods"] if row["namespace"] == cluster.ns)
    return {row["name"]: row["entries"][0]["amounts"]["cpu"] for row in rows}


def test_a_history_folds_to_what_there_is_also_across_a_restart(cluster: Cluster, tmp_path: Path) -> None:
    """Allocations in two zones, a release while the guard is away, a mapping that changes under a claim: the journal
    gives the live accounts at every step, what was charged keeps the mapping it was charged by, and a secret is not in
    it.
    """
    journal, export = tmp_path / "journal", tmp_path / "export.json"
    driver = shared_cpus(cluster, devices=2)
    node = driver.node
    guard = guarded(cluster, f"--journal={journal}")
    for number in (1, 2):
        cpu_claim(cluster, f"c{number}", 5)
        cluster.pod(f"p{number}", claims=[f"c{number}"], cpu="1", annotations={"example.org/token": "hunter2"})
        cluster.scheduled(f"p{number}")
    told = eventually(lambda: history(cluster, journal, export))
    assert zones(node_of(told, node)) == ["5", "5"]
    assert {row["name"] for row in told["statement"]["pods"] if row["namespace"] == cluster.ns} == {"p1", "p2"}

    guard.stop()
    cluster.delete("Pod", "p1")
    eventually(lambda: "allocation" not in cluster.get("ResourceClaim", "c1").get("status", {}))
    guard.start()
    told = eventually(lambda: history(cluster, journal, export))
    assert sorted(zones(node_of(told, node))) == ["0", "5"]
    assert not told["gaps"]
    gone = [row for row in told["events"] if row["type"] == "gone" and row["namespace"] == cluster.ns]
    assert [row["name"] for row in gone] == ["p1"]

    dearer = {"cpu": per("cpus", "2"), "memory": each("1Gi")}
    driver.publish([driver.device(f"group-{n}", {"cpus": "8"}, dearer, zone=n) for n in range(2)])
    told = eventually(lambda: history(cluster, journal, export))
    assert sorted(zones(node_of(told, node))) == ["0", "5"]
    assert '"2"' in json.dumps([row for row in told["events"] if row["kind"] == "ResourceSlice"])
    assert "hunter2" not in export.read_text()

    code, text = ran(cluster, "ledger", "diff", export)
    assert (code, text.partition(":")[0]) == (0, "equal")
    code, text = ran(cluster, "ledger", "explain", f"claim/{cluster.ns}/c2")
    assert code == 0
    assert f"bound on {node}" in text
    assert "sha256:" in text


def test_drill_across_zones_and_in_the_same_zone(cluster: Cluster, tmp_path: Path) -> None:
    """Two claims that fit no zone together are in two, a small one shares one of them: each zone has its own."""
    journal, export = tmp_path / "journal", tmp_path / "export.json"
    driver = shared_cpus(cluster, devices=2)
    guarded(cluster, f"--journal={journal}")
    devices = [used(cluster, number, cpus) for number, cpus in enumerate((5, 5, 2))]
    assert devices[0] != devices[1]
    told = eventually(lambda: history(cluster, journal, export))
    node = node_of(told, driver.node)
    wanted = {"group-0": 0, "group-1": 0}
    for device, cpus in zip(devices, (5, 5, 2), strict=True):
        wanted[device] += cpus
    assert zones(node) == [str(wanted["group-0"]), str(wanted["group-1"])]
    assert node["resources"]["cpu"]["claims"] == "12"
    assert entries(cluster, told) == {"p0": "5", "p1": "5", "p2": "2"}


def test_drill_one_claim_across_two_zones(cluster: Cluster, tmp_path: Path) -> None:
    """Of one allocation each zone is charged with its own device, and both go with it."""
    journal, export = tmp_path / "journal", tmp_path / "export.json"
    driver = shared_cpus(cluster, devices=2)
    guarded(cluster, f"--journal={journal}")
    # Two that fit no zone together: one request, a device in each zone.
    cluster.claim("c1", CLASS, count=2, capacity={driver.key("cpus"): "5"})
    cluster.pod("p1", claims=["c1"], cpu="1")
    cluster.scheduled("p1")
    told = eventually(lambda: history(cluster, journal, export))
    node = node_of(told, driver.node)
    assert zones(node) == ["5", "5"]
    assert node["resources"]["cpu"]["claims"] == "10"
    assert {row["claim"]["name"] for row in node["charges"]} == {"c1"}
    assert entries(cluster, told) == {"p1": "10"}
    cluster.delete("Pod", "p1")
    eventually(lambda: "allocation" not in cluster.get("ResourceClaim", "c1").get("status", {}))
    told = eventually(lambda: history(cluster, journal, export))
    assert zones(node_of(told, driver.node)) == ["0", "0"]


def test_drill_a_release_that_fails_and_is_tried_again(cluster: Cluster, tmp_path: Path) -> None:
    """While the claim controller cannot take the allocation away, the charge stays; once it can, it goes, once."""
    journal, export = tmp_path / "journal", tmp_path / "export.json"
    driver = shared_cpus(cluster)
    guarded(cluster, f"--journal={journal}")
    used(cluster, 1, 5)
    failing = cluster.recorder(
        resources=("resource.k8s.io/resourceclaims/status",), answer=lambda _: refuse(500, "InternalError", "not now")
    )
    cluster.delete("Pod", "p1")
    eventually(lambda: len([each for each in failing.seen if each.what == "resourceclaims/status UPDATE"]) >= 2)
    told = eventually(lambda: history(cluster, journal, export))
    cpu = node_of(told, driver.node)["resources"]["cpu"]
    assert (cpu["claims"], cpu["pods"]) == ("5", "0")
    failing.answer = None
    eventually(lambda: "allocation" not in cluster.get("ResourceClaim", "c1").get("status", {}), within=60)
    told = eventually(lambda: history(cluster, journal, export))
    assert node_of(told, driver.node)["resources"]["cpu"]["claims"] == "0"
    assert entries(cluster, told) == {}
    # The same claim once more is another allocation, charged once.
    cluster.pod("p2", claims=["c1"], cpu="1")
    cluster.scheduled("p2")
    told = eventually(lambda: history(cluster, journal, export))
    assert zones(node_of(told, driver.node)) == ["5"]
    assert entries(cluster, told) == {"p2": "5"}


def test_drill_a_node_restarts_in_the_middle(cluster: Cluster, tmp_path: Path) -> None:
    """The slices vanish, the node comes back with another boot ID, the driver publishes anew from generation 1: what is
    bound stays charged all the time, and what comes then is charged beside it.
    """
    journal, export = tmp_path / "journal", tmp_path / "export.json"
    driver = shared_cpus(cluster, devices=2)
    guarded(cluster, f"--journal={journal}")
    used(cluster, 1, 5)
    told = eventually(lambda: history(cluster, journal, export))
    before = sorted(zones(node_of(told, driver.node)))

    driver.withdraw()
    kubelet = path("Node", driver.node, sub="status")
    cluster.as_admin.patch(kubelet, {"status": {"nodeInfo": {"bootID": "second-boot"}}})
    told = eventually(lambda: gone_and_equal(cluster, journal, export))
    assert node_of(told, driver.node)["resources"]["cpu"]["claims"] == "5"
    assert entries(cluster, told) == {"p1": "5"}

    driver.publish([driver.device(f"group-{n}", {"cpus": "8"}, COSTS, zone=n) for n in range(2)])
    used(cluster, 2, 5)
    told = eventually(lambda: history(cluster, journal, export))
    assert (before, zones(node_of(told, driver.node))) == (["0", "5"], ["5", "5"])
    assert entries(cluster, told) == {"p1": "5", "p2": "5"}


def test_a_device_that_is_given_on_after_a_forced_deletion_is_told(cluster: Cluster, tmp_path: Path) -> None:
    """The first pod is deleted without grace and the second has its device at once; the second ends before it goes."""
    journal, export = tmp_path / "journal", tmp_path / "export.json"
    cluster.node("n1")
    driver = cluster.driver(CPU_DRIVER, "n1")
    driver.publish([driver.device("gpu", costs={"cpu": each("2")})])
    cpu_class(cluster)
    guarded(cluster, f"--journal={journal}")
    for number in range(3):
        cluster.claim(f"c{number}", CLASS)
        cluster.pod(f"p{number}", claims=[f"c{number}"])
        if number == 0:
            cluster.scheduled("p0")
        else:
            before = f"p{number - 1}"
            if number == 2:
                cluster.as_admin.patch(cluster.path("Pod", before, "status"), {"status": {"phase": "Succeeded"}})
            cluster.delete("Pod", before)
            cluster.scheduled(f"p{number}")

    told = eventually(lambda: history(cluster, journal, export))
    assert entries(cluster, told) == {"p2": "2"}
    _, text = ran(cluster, "ledger", "replay", export, "-o", "json", live=False)
    mine = [row for row in json.loads(text)["incidents"] if row["namespace"] == cluster.ns]
    assert [(row["rule"], row["name"]) for row in mine] == [("device-given-early", "c1")]
    assert f"which claim {cluster.ns}/c0 had until " in mine[0]["message"]
    assert f"its pod {cluster.ns}/p0 was deleted without grace" in mine[0]["message"]


def gone_and_equal(cluster: Cluster, journal: Path, export: Path) -> Json | None:
    """As :func:`history`, once it tells that the slices of the test's driver are gone."""
    told = history(cluster, journal, export)
    name = cluster.name("cpu.example.org")
    slices = [row for row in told["events"] if row["kind"] == "ResourceSlice" and name in row["name"]] if told else []
    return told if slices and slices[-1]["type"] == "gone" else None
