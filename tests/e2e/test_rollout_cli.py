"""``allocguard rollout`` on a real cluster, as an on-call engineer has it: hold, look, resume at the repaired mapping,
practise, promote; and nothing that is bound is ever disturbed.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta

from click.testing import CliRunner

from tests.e2e.client import Json
from tests.e2e.cluster import Cluster
from tests.e2e.driver import Driver, each, per
from tests.e2e.guarding import definitions, deployed
from tests.e2e.kinds import path
from tests.e2e.scenes import cpu_claim, entry, shared_cpus
from tests.e2e.test_scenarios import bound, guarding
from tests.e2e.waiting import eventually, steady
from webhook.cli.options import Where
from webhook.cli.program import program
from webhook.cli.rollout_edit import Edit, hold
from webhook.cli.rollout_live import written

CANARY = "e2e.allocguard.dev/canary"


def ran(cluster: Cluster, *arguments: str, user: str = "dana") -> tuple[int, str, str]:
    """Exit code, output and notes of `allocguard rollout`, as ``user`` of the live cluster."""
    kubeconfig = str(cluster.plane.kubeconfig(user, "system:masters"))
    command = ["rollout", *arguments, "--kubeconfig", kubeconfig]
    result = CliRunner(catch_exceptions=False).invoke(program, command)
    return result.exit_code, result.stdout, result.stderr


def as_json(cluster: Cluster, *arguments: str) -> Json:
    """What `allocguard rollout` prints as JSON."""
    _, out, err = ran(cluster, *arguments, "-o", "json")
    assert out, err
    found: Json = json.loads(out)
    return found


def stored(cluster: Cluster, driver: Driver) -> Json:
    """The DriverRollout."""
    return cluster.as_admin.get(path("DriverRollout", driver.name))


def standing(cluster: Cluster) -> dict[str, tuple[str, str]]:
    """UID and resourceVersion of what is bound."""
    found = {name: cluster.get(kind, name)["metadata"] for kind, name in (("Pod", "p1"), ("ResourceClaim", "c1"))}
    return {name: (metadata["uid"], metadata["resourceVersion"]) for name, metadata in found.items()}


def publish(driver: Driver, multiplier: str) -> None:
    """The driver's group of 8 cpus, at so many cpus of the node each."""
    costs = {"cpu": per("cpus", multiplier), "memory": each("1Gi")}
    driver.publish([driver.device("group-0", {"cpus": "8"}, costs, zone=0)])


def digests(cluster: Cluster, driver: Driver) -> list[str]:
    """The mapping digests that `rollout status` shows."""
    found: list[str] = as_json(cluster, "status", driver.name)["drivers"][0]["digests"]
    return found


def test_hold_look_resume_practise_and_promote(cluster: Cluster) -> None:
    """The whole way of one driver at stage Canary, with the commands alone."""
    guard = deployed(cluster)
    driver = shared_cpus(cluster, labels={CANARY: cluster.tag}, cpu="32")  # type: ignore[arg-type] # labels of the node
    name = driver.name
    selector = {"matchLabels": {CANARY: cluster.tag}}
    asked = {"minCoverage": 100, "quietDays": 7, "drills": ["Rollback"]}
    document = {"apiVersion": "allocguard.dev/v1alpha1", "kind": "DriverRollout", "metadata": {"name": name}}
    spec: Json = {"stage": "Canary", "canaryNodeSelector": selector, "promotion": asked}
    cluster.as_admin.create(path("DriverRollout"), {**document, "spec": spec})
    guarding(cluster, guard, driver)
    cpu_claim(cluster, "c1", 3)
    cluster.pod("p1", claims=["c1"])
    cluster.scheduled("p1")
    before = standing(cluster)

    # Hold: new claims wait, and the reason is what was said.
    code, out, err = ran(cluster, "hold", name, "--reason", "books half")
    assert (code, err) == (0, "")
    assert out.startswith(f"{name} is held: no new claims on all pools; bound ones stay, and releases go on")
    hold = stored(cluster, driver)["spec"]["hold"]
    assert (hold["reason"], hold["by"]) == ("books half", "dana")
    version = stored(cluster, driver)["metadata"]["generation"]
    code, out, _ = ran(cluster, "hold", name, "--reason", "books half", user="eve")
    assert (code, "is held already, since" in out) == (0, True)
    assert stored(cluster, driver)["metadata"]["generation"] == version
    eventually(lambda: guard.metric("allocguard_rollout_hold", driver=name) == 1)
    cpu_claim(cluster, "c2", 2)
    cluster.pod("p2", claims=["c2"])
    steady(lambda: not bound(cluster, "p2"), during=3)
    row = as_json(cluster, "status", name)["drivers"][0]
    assert (row["stage"], row["hold"]["by"], row["heldCount"]) == ("Canary", "dana", 1)
    assert (row["coverage"]["nodes"], row["coverage"]["fresh"]) == (1, 1)
    assert row["claims"]["bound"] == 1

    # The mapping is repaired: pools that have it go on, and no others.
    (wrong,) = digests(cluster, driver)
    nobodys = "sha256:" + "0" * 64
    code, _, err = ran(cluster, "resume", name, "--at-mapping", nobodys)
    assert (code, f"its pools have {wrong}" in err) == (2, True)
    publish(driver, "2")
    right = next(digest for digest in eventually(lambda: [d for d in digests(cluster, driver) if d != wrong]))
    code, out, _ = ran(cluster, "resume", name, "--at-mapping", right)
    assert (code, out.strip()) == (0, f"{name} is resumed at 1 mapping: 1 of 1 pool takes claims")
    assert ran(cluster, "resume", name, "--at-mapping", right)[1].strip().endswith("nothing to change")
    assert entry(cluster, cluster.scheduled("p2"))["c2"]["cpu"] == "4"
    code, out, _ = ran(cluster, "resume", name)
    assert (code, out.startswith(f"{name} takes claims again; resumeAt stays while claims")) == (0, True)
    assert "hold" not in stored(cluster, driver)["spec"]
    assert ran(cluster, "resume", name)[1].startswith(f"{name} is not held; resumeAt stays")

    # Practised, written down, and what is missing is told.
    assert failed(cluster, name) == {"drill-rollback", "quiet"}
    code, out, err = ran(cluster, "drill", name, "Rollback", "--record")
    assert (code, out.startswith(f"drill Rollback of {name}: passed")) == (0, True), out
    assert err.strip() == f"allocguard: recorded in the status of DriverRollout {name}"
    (done,) = stored(cluster, driver)["status"]["drills"]
    assert (done["name"], done["passed"], done["by"]) == ("Rollback", True, "dana")
    assert failed(cluster, name) == {"quiet"}

    # Nobody goes on by accident; somebody may, by name.
    code, out, err = ran(cluster, "promote", name)
    assert (code, "fail  quiet" in out, f"{name} stays at stage Canary" in err) == (1, True, True)
    assert stored(cluster, driver)["spec"]["stage"] == "Canary"
    code, out, _ = ran(cluster, "promote", name, "--override", "dana", "--reason", "CHG-1042")
    assert (code, out.strip()) == (0, f"{name} goes on from stage Canary to Expanding, as dana decided: CHG-1042")
    after = stored(cluster, driver)["spec"]
    assert (after["stage"], after["canaryNodeSelector"]) == ("Expanding", selector)
    word = {"by": "dana", "reason": "CHG-1042", "stage": "Canary", "at": after["promotion"]["override"]["at"]}
    assert after["promotion"] == {**asked, "override": word}
    assert abs(datetime.fromisoformat(word["at"]) - datetime.now(UTC)) < timedelta(minutes=1)
    assert standing(cluster) == before
    assert stored(cluster, driver)["status"]["drills"] == [done]
    # Back, and on again by the same words: they are said anew.
    cluster.as_admin.patch(path("DriverRollout", name), {"spec": {"stage": "Canary"}})
    time.sleep(1)
    assert ran(cluster, "promote", name, "--override", "dana", "--reason", "CHG-1042")[0] == 0
    assert stored(cluster, driver)["spec"]["promotion"]["override"]["at"] > word["at"]


def failed(cluster: Cluster, name: str) -> set[str]:
    """The gates that `rollout check` says failed; its exit code says so too."""
    code, out, _ = ran(cluster, "check", name, "-o", "json")
    gates = json.loads(out)["gates"]
    found = {gate["name"] for gate in gates if gate["passed"] is False}
    assert code == (1 if found else 0)
    return found


def test_a_hold_makes_the_rollout_of_a_driver_that_has_none(cluster: Cluster) -> None:
    """No guard runs, and no DriverRollout is there: the hold stands when one comes."""
    definitions(cluster)
    driver = shared_cpus(cluster)
    code, out, err = ran(cluster, "hold", driver.name, "--reason", "x", "--by", "the pager", "-o", "json")
    assert (code, err) == (0, "")
    assert json.loads(out)["spec"]["hold"]["by"] == "the pager"
    made = stored(cluster, driver)
    try:
        assert (made["spec"]["stage"], made["spec"]["hold"]["reason"]) == ("General", "x")
        assert as_json(cluster, "status", driver.name)["drivers"][0]["heldCount"] == 1
        code, _, err = ran(cluster, "hold", f"x{driver.name}", "--reason", "x")
        assert (code, f"did you mean {driver.name}?" in err) == (2, True)
        assert ran(cluster, "promote", driver.name)[1].strip().endswith("the last one: nothing to promote")
    finally:
        cluster.as_admin.delete(path("DriverRollout", driver.name))
    assert ran(cluster, "resume", driver.name)[1].strip().endswith("no hold: nothing to resume")


def test_what_somebody_else_writes_meanwhile_is_not_written_over(cluster: Cluster) -> None:
    """Between reading and writing another operator changes the object: the edit is made anew of what is there then."""
    definitions(cluster)
    driver = shared_cpus(cluster)
    document = {"apiVersion": "allocguard.dev/v1alpha1", "kind": "DriverRollout", "metadata": {"name": driver.name}}
    cluster.as_admin.create(path("DriverRollout"), {**document, "spec": {"stage": "General"}})
    seen: list[Json] = []

    def make(current: Json) -> Edit:
        seen.append(current["spec"])
        if len(seen) == 1:
            cluster.as_admin.patch(path("DriverRollout", driver.name), {"spec": {"numaAttributes": ["a/b"]}})
        return hold(current, "x", "dana", None, (), datetime.now(UTC))

    where = Where((), str(cluster.plane.kubeconfig("dana", "system:masters")))
    assert written(where, driver.name, make, "text") == 0
    assert seen == [{"stage": "General"}, {"stage": "General", "numaAttributes": ["a/b"]}]
    spec = stored(cluster, driver)["spec"]
    assert (spec["numaAttributes"], spec["hold"]["reason"]) == (["a/b"], "x")


def test_promote_asks_the_status_that_the_guard_writes(cluster: Cluster) -> None:
    """The gates pass as the command sees them: the API server takes the stage once the guard has written that too, and
    then for this stage alone.
    """
    definitions(cluster)
    driver = shared_cpus(cluster, labels={CANARY: cluster.tag})  # type: ignore[arg-type] # labels of the node
    name = driver.name
    document = {"apiVersion": "allocguard.dev/v1alpha1", "kind": "DriverRollout", "metadata": {"name": name}}
    selector = {"matchLabels": {CANARY: cluster.tag}}
    spec: Json = {"stage": "Canary", "canaryNodeSelector": selector, "promotion": {"minCoverage": 100}}
    cluster.as_admin.create(path("DriverRollout"), {**document, "spec": spec})
    assert failed(cluster, name) == set()
    code, out, err = ran(cluster, "promote", name)
    assert (code, out) == (1, "")
    assert f"{name} stays as it is: the API server refuses: 422 Invalid" in err
    assert "spec.promotion.override" in err
    deployed(cluster)

    def goes_on() -> bool:
        return ran(cluster, "promote", name)[0] == 0

    eventually(goes_on)
    assert stored(cluster, driver)["spec"]["stage"] == "Expanding"
    eventually(goes_on)
    assert stored(cluster, driver)["spec"] == {**spec, "stage": "General"}
    code, out, _ = ran(cluster, "promote", name)
    assert (code, out.strip()) == (0, f"{name} is at stage General, the last one: nothing to promote")
