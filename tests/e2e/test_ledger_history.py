"""The journal of a guard on a real cluster: it folds to the accounts, zones and pod statuses that there are."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from tests.e2e.client import Json
from tests.e2e.cluster import Cluster
from tests.e2e.driver import each, per
from tests.e2e.guarding import guarded
from tests.e2e.scenes import cpu_claim, shared_cpus
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
