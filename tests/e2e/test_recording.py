"""The recording of a guard on a real cluster: with its journal, every decision comes out again as it was, those of a
race too, in which the guard is ahead of its own view; and nothing secret is in it.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from tests.e2e.client import ApiError, Json
from tests.e2e.cluster import Cluster
from tests.e2e.driver import Driver
from tests.e2e.guarding import guarded
from tests.e2e.scenes import CLASS, cpu_claim, shared_cpus
from tests.e2e.waiting import eventually
from webhook.cli.program import program
from webhook.store.recording import recordings

SECRET = "hunter2-hunter2"
STRICT = """
apiVersion: allocguard.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: strict}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [resource.k8s.io], apiVersions: [v1], operations: [UPDATE], resources: [resourceclaims/status]}
  action: Deny
  validations: [{name: none, expression: "false", message: "no"}]
"""


def ran(*arguments: object) -> tuple[int, Json]:
    """Exit code and result of `policy replay`."""
    result = CliRunner(catch_exceptions=False).invoke(program, ["policy", "replay", *map(str, arguments), "-o", "json"])
    assert result.exit_code < 2, result.stderr
    return result.exit_code, json.loads(result.stdout)


def lines(folder: Path) -> list[Json]:
    """What is written of the recording, but for a line that is just being written."""
    return [json.loads(line) for path in recordings(folder) for line in path.read_text().split("\n")[:-1]]


def secretive(cluster: Cluster, driver: Driver, name: str) -> None:
    """A pod that waits for its claim, with a secret wherever one may be."""
    spec = cluster.claim_spec(CLASS, capacity={driver.key("cpus"): "1"})
    spec["devices"]["config"] = [{"opaque": {"driver": driver.name, "parameters": {"password": SECRET}}}]
    cluster.create("ResourceClaim", {"metadata": {"name": name, "annotations": {"a.example/b": SECRET}}, "spec": spec})
    container: Json = {
        "name": "main",
        "image": f"registry.invalid/{SECRET}:1",
        "command": [SECRET],
        "env": [{"name": "PASSWORD", "value": SECRET}],
        "resources": {"claims": [{"name": "c"}]},
    }
    pod: Json = {"containers": [container], "resourceClaims": [{"name": "c", "resourceClaimName": name}]}
    cluster.pod(name, spec=pod, annotations={"example.org/token": SECRET})


def test_decisions_come_out_again_by_recording_and_journal(cluster: Cluster, tmp_path: Path) -> None:
    recording, journal = tmp_path / "recording", tmp_path / "journal"
    driver = shared_cpus(cluster, cpus="64", cpu="8")
    guard = guarded(cluster, f"--journal={journal}", f"--record={recording}", "--record-ratio=1")
    names = [f"c{number}" for number in range(10)]
    for name in names:
        cpu_claim(cluster, name, 2)
    secretive(cluster, driver, "secretive")
    cluster.scheduled("secretive")

    def race(name: str) -> Any:
        try:
            cluster.allocate(name, driver, "group-0", cpus="2")
        except ApiError as error:
            return error.code
        return "allowed"

    # Each is judged while others are under way: some by what only the guard knows of its own writes.
    with ThreadPoolExecutor(len(names)) as pool:
        came = list(pool.map(race, names))
    assert set(came) == {"allowed", 403}
    allowed = [name for name, what in zip(names, came, strict=True) if what == "allowed"]
    # What is given back may be taken again.
    cluster.delete("ResourceClaim", allowed[0])
    late = next(name for name in names if name not in allowed)
    eventually(lambda: race(late) == "allowed")

    def told() -> list[Json]:
        """The allocations of the test's claims that were told."""
        return [
            each
            for each in lines(recording)
            if each["request"].get("namespace") == cluster.ns and each["request"].get("subResource") == "status"
        ]

    eventually(lambda: {each["request"]["name"] for each in told()} >= {*names, "secretive"})
    assert guard.stop() == 0
    outcomes = {each["request"]["name"]: each["allocguard"]["outcome"] for each in told()}
    assert "denied" in {each["allocguard"]["outcome"] for each in told()}
    assert outcomes[late] != "denied"
    code, value = ran(recording, "--journal", journal)
    assert (value["different"], code) == ([], 0)
    assert value["same"] + sum(value["skipped"].values()) == value["total"] == len(lines(recording))
    assert value["same"] >= len(told())
    assert SECRET not in "".join(path.read_text() for path in recordings(recording))

    (tmp_path / "strict.yaml").write_text(STRICT)
    code, value = ran(recording, "--journal", journal, "--policies", tmp_path / "strict.yaml")
    assert code == 1
    now = {each["claim"]: each["now"]["outcome"] for each in value["different"]}
    assert {now[f"{cluster.ns}/{name}"] for name in names} == {"denied"}
