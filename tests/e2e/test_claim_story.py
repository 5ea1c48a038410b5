"""What happens to a claim, as events about it and its pods, and as ``explain --claim`` tells it: while it waits, is
charged, and when it is gone.
"""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from tests.e2e.client import ApiError, Json
from tests.e2e.cluster import Cluster
from tests.e2e.driver import Driver
from tests.e2e.guarding import deployed
from tests.e2e.kinds import path
from tests.e2e.scenes import cpu_claim, shared_cpus
from tests.e2e.test_scenarios import allocation, guarding
from tests.e2e.waiting import eventually
from webhook.cli.program import program
from webhook.kube.object_event import ObjectEvent, read_object_event


def told(cluster: Cluster, uid: str) -> dict[str, ObjectEvent]:
    """The guard's events about the object with this UID, by reason."""
    select = f"involvedObject.uid={uid},source=allocguard"
    found = cluster.as_admin.items(cluster.path("Event"), fieldSelector=select)
    return {each.reason: each for each in map(read_object_event, found)}


def story(cluster: Cluster, claim: str) -> Json:
    """What ``explain --claim`` says."""
    kubeconfig = str(cluster.plane.kubeconfig("dana", "system:masters"))
    command = ["explain", "--claim", claim, "--kubeconfig", kubeconfig, "-o", "json"]
    ran = CliRunner(catch_exceptions=False).invoke(program, command)
    assert ran.exit_code == 0, ran.stderr
    value: Json = json.loads(ran.stdout)
    return value


def kinds(value: Json) -> list[str]:
    """The moments of ours, in order."""
    return [each["kind"] for each in value["moments"] if each["kind"] != "event"]


def refuse(cluster: Cluster, driver: Driver) -> str:
    """What is said to an allocation of the claim for its pod."""
    with pytest.raises(ApiError) as refused:
        cluster.allocate("c1", driver, "group-0", pod="p1", cpus="3")
    return refused.value.message.partition("denied the request: ")[2]


def test_a_claim_is_told_from_its_refusal_to_its_end(cluster: Cluster) -> None:
    """Another pod has the room, until it goes."""
    guard = deployed(cluster)
    driver = shared_cpus(cluster, cpu="16")
    guarding(cluster, guard, driver)
    uid = cpu_claim(cluster, "c1", 3)["metadata"]["uid"]
    cluster.pod("other", cpu="14", node="n1")
    pod = cluster.pod("p1", claims=["c1"], cpu="1", spec={"schedulerName": "e2e"})["metadata"]["uid"]

    def tried() -> str:
        body = allocation(driver, "group-0", uid, cpus="3")
        try:
            cluster.as_scheduler.patch(cluster.path("ResourceClaim", "c1", "status"), body, dryRun="All")
        except ApiError as error:
            return error.message
        return ""

    # The guard has seen the other pod; what is only tried is no event.
    eventually(lambda: "node-overcommit" in tried())
    message = refuse(cluster, driver)
    assert message.startswith("claim-allocation/node-overcommit: ")
    eventually(lambda: {"AllocationRefused", "ClaimPending"} <= told(cluster, uid).keys() and told(cluster, pod))
    refused, waits = told(cluster, uid)["AllocationRefused"], told(cluster, uid)["ClaimPending"]
    assert (refused.message, refused.rule, refused.node, refused.count) == (message, "node-overcommit", driver.node, 1)
    assert (waits.rule, waits.warning) == ("node-overcommit", True)
    at_pod = told(cluster, pod)["ClaimRefused"]
    assert (at_pod.message, at_pod.related) == (f"claim c1: {message}", uid)

    waiting = story(cluster, f"{cluster.ns}/c1")
    assert (waiting["uid"], waiting["trace"], waiting["state"]) == (uid, uid.replace("-", ""), "unallocated")
    assert kinds(waiting) == ["created", "wanted", "refused", "pending"] or kinds(waiting) == [
        "created",
        "wanted",
        "pending",
        "refused",
    ]
    assert (waiting["waits"]["reason"], waiting["waits"]["refusal"]) == ("node-overcommit", message)
    assert {"kind": "node-grow", "node": driver.node, "claim": "", "resource": "cpu", "amount": "2"} in waiting[
        "smallestChange"
    ]

    # Alike ones are gathered, and none is lost when the guard ends.
    for _ in range(3):
        assert refuse(cluster, driver) == message
    guard.restart()
    eventually(lambda: told(cluster, uid)["AllocationRefused"].count == 4)
    assert told(cluster, pod)["ClaimRefused"].count == 4

    cluster.delete("Pod", "other")

    def allowed() -> bool:
        cluster.allocate("c1", driver, "group-0", pod="p1", cpus="3")
        return True

    eventually(allowed)
    charged = eventually(lambda: told(cluster, uid).get("ClaimCharged"))
    assert charged is not None
    assert (charged.node, charged.warning) == (driver.node, False)
    used = story(cluster, uid)
    assert [each for each in kinds(used) if each in ("refused", "allocated", "charged")] == [
        "refused",
        "allocated",
        "charged",
    ]
    assert (used["waits"], used["smallestChange"]) == (None, [])
    assert {(each["resource"], each["amount"]) for each in used["charges"]} == {("cpu", "3"), ("memory", "1Gi")}
    for each in used["charges"]:
        assert each["mapping"]["digest"][:19] in charged.message

    cluster.delete("Pod", "p1")
    status = {"status": {"allocation": None, "reservedFor": None}}
    cluster.as_scheduler.patch(cluster.path("ResourceClaim", "c1", "status"), status)
    eventually(lambda: told(cluster, uid).get("ClaimReleased"))
    cluster.delete("ResourceClaim", "c1")
    eventually(lambda: cluster.as_admin.find(path("ResourceClaim", "c1", cluster.ns)) is None)
    for name in (uid, f"{cluster.ns}/c1"):
        gone = story(cluster, name)
        assert (gone["present"], gone["uid"], gone["charges"]) == (False, uid, [])
        assert [each for each in kinds(gone) if each in ("refused", "charged", "released")] == [
            "refused",
            "charged",
            "released",
        ]
    assert [(each["name"], each["present"]) for each in gone["pods"]] == [("p1", False)]
    assert guard.metric("allocguard_events_dropped_total") == 0
    assert not guard.lines(event="events not written")
