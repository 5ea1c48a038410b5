"""One decision, as the writer, the log, the recording and ``explain`` tell it: the same words and the same sums."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.e2e.client import ApiError, Json
from tests.e2e.cluster import Cluster
from tests.e2e.guard import Guard
from tests.e2e.guarding import deployed
from tests.e2e.kinds import path
from tests.e2e.scenes import cpu_claim, shared_cpus
from tests.e2e.test_reservations import seen, sums
from tests.e2e.waiting import eventually
from webhook.cli.program import program

SUM = "cpu: 16 allocatable - 14 pods - 3 this claim - 1 this pod = -2"


def told(guard: Guard, uid: str, event: str) -> Json:
    """The last line about the claim's allocation of this kind."""
    return eventually(lambda: guard.lines(event=event, claimUID=uid, subResource="status")[-1:])[0]


def recorded(folder: Path, review: str) -> Json:
    """The line of the recording about the review."""

    def look() -> Json | None:
        texts = [text for file in folder.rglob("*") if file.is_file() for text in file.read_text().split("\n") if text]
        lines: list[Json] = [json.loads(text) for text in texts]
        return next((line for line in lines if line.get("request", {}).get("uid") == review), None)

    found = eventually(look)
    assert found is not None
    return found


def test_a_refusal_is_told_alike_everywhere(cluster: Cluster, tmp_path: Path) -> None:
    guard = deployed(cluster, f"--record={tmp_path / 'record'}")
    driver = shared_cpus(cluster, cpu="16")
    uid = cpu_claim(cluster, "c1", 3)["metadata"]["uid"]
    cluster.pod("other", cpu="14", node="n1")
    cluster.pod("p1", claims=["c1"], cpu="1", spec={"schedulerName": "e2e"})
    eventually(lambda: seen(guard, driver) and sums(cluster, "n1").get("free") == "2")
    with pytest.raises(ApiError) as refused:
        cluster.allocate("c1", driver, "group-0", pod="p1", cpus="3")

    line = told(guard, uid, "denied")
    assert line["message"] in refused.value.message
    assert (line["reason"], line["node"], line["trace"]) == ("node-overcommit", driver.node, uid.replace("-", ""))
    assert (line["claim"], line["pods"]) == (f"{cluster.ns}/c1", [f"{cluster.ns}/p1"])
    assert line["sums"][0] == SUM
    assert line["fix"] == ["release a claim or move a pod there, or allocate elsewhere"]

    review = recorded(tmp_path / "record", line["uid"])
    (tmp_path / "review.json").write_text(json.dumps(review))
    kubeconfig = str(cluster.plane.kubeconfig("dana", "system:masters"))
    command = ["explain", str(tmp_path / "review.json"), "--kubeconfig", kubeconfig]
    tree = json.loads(CliRunner(catch_exceptions=False).invoke(program, [*command, "-o", "json"]).stdout)
    assert tree["verdict"]["message"] == line["message"]
    assert (tree["verdict"]["auditAnnotations"]["sums"].split("; "), tree["fix"]) == (line["sums"], line["fix"])
    cpu = tree["sums"][0]
    assert f"cpu: {cpu['equation']}" == SUM
    terms = {term["term"]: term["of"] for term in cpu["terms"]}
    assert terms["pods"] == [{"amount": "14", "pod": f"{cluster.ns}/other"}]
    (own,) = terms["this claim"]
    stored = cluster.as_admin.get(path("ResourceSlice", own["mapping"]["slice"]))["metadata"]
    assert (own["mapping"]["sliceUID"], own["mapping"]["resourceVersion"]) == (stored["uid"], stored["resourceVersion"])
    changes = {(each["kind"], each["amount"]) for each in tree["remedy"]["smallestChange"]}
    assert changes == {("node-grow", "2"), ("shrink", "2")}

    cluster.delete("Pod", "other")
    eventually(lambda: sums(cluster, "n1").get("free") == "16")

    def allocated() -> bool:
        cluster.allocate("c1", driver, "group-0", pod="p1", cpus="3")
        return True

    eventually(allocated)
    line = told(guard, uid, "allowed")
    assert line["sums"][0] == "cpu: 16 allocatable - 3 this claim - 1 this pod = 12"
    assert (line["reservation"]["node"], line["reservation"]["taken"]) == (driver.node, True)
    assert (line["message"], line["reason"]) == ("", "")
