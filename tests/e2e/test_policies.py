"""Policies kept as objects of the cluster, edited with the API while the guard serves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.client import ApiError, Json
from tests.e2e.cluster import Cluster
from tests.e2e.guard import Guard
from tests.e2e.guarding import admission_policy, definitions, guarded, malformed, ready
from tests.e2e.kinds import path
from tests.e2e.waiting import eventually, steady

ROOT = Path(__file__).parents[2]


def about_colours(cluster: Cluster, expression: str, name: str = "colours", colour: str = "blue") -> Json:
    """A policy about the test's ConfigMaps of one colour."""
    made = admission_policy(
        cluster.name(name),
        ["configmaps"],
        ["CREATE"],
        validations=[{"name": "colour", "expression": expression, "message": f"is {colour}"}],
    )
    made["spec"]["matchConditions"] = [
        {"name": "mine", "expression": f"request.namespace == '{cluster.ns}' && object.data.colour == '{colour}'"}
    ]
    return made


def answer(cluster: Cluster, colour: str = "blue") -> str:
    """What is said to a ConfigMap of that colour; empty where it passes."""
    body = {"metadata": {"generateName": "c-"}, "data": {"colour": colour}}
    try:
        cluster.as_admin.create(f"/api/v1/namespaces/{cluster.ns}/configmaps", body, dryRun="All")
    except ApiError as error:
        return error.message
    return ""


def edit(cluster: Cluster, policy: Json) -> None:
    """Put ``policy`` in place of the object of its name."""
    where = path("AdmissionPolicy", policy["metadata"]["name"])
    there = cluster.as_admin.get(where)
    cluster.as_admin.update(where, {**there, "spec": policy["spec"]})


def revision(guard: Guard) -> str:
    """The revision that serves, as /readyz tells it."""
    (line,) = (line for line in guard.get("/readyz?verbose").text.splitlines() if line.startswith("[+]policies"))
    return line.partition("revision ")[2].partition(";")[0].partition(",")[0]


def checked(cluster: Cluster, obj: Json) -> int:
    """The exit code of `allocguard check` of ``obj`` by the live cluster: 1 where something would be refused."""
    file = cluster.folder / "checked.json"
    file.write_text(json.dumps(obj))
    access = cluster.plane.kubeconfig("admin", "system:masters")
    command = [sys.executable, "-m", "webhook.cli", "check", str(file), f"--kubeconfig={access}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode


def test_a_policy_is_made_edited_and_deleted_with_the_api_and_verdicts_follow(cluster: Cluster) -> None:
    """A policy object serves within seconds, about a resource that nothing asked about before too, and says so."""
    guard = guarded(cluster)
    before = revision(guard)
    assert answer(cluster) == ""
    cluster.create("AdmissionPolicy", about_colours(cluster, "false"))
    message = eventually(lambda: answer(cluster))
    assert f"{cluster.name('colours')}/colour: is blue" in message
    condition = ready(cluster, "colours", 1)
    assert (condition["status"], condition["reason"]) == ("True", "Serving")
    assert condition["message"] == "serves"
    since = condition["lastTransitionTime"]
    edit(cluster, about_colours(cluster, "object.data.colour == 'blue'"))
    eventually(lambda: not answer(cluster))
    condition = ready(cluster, "colours", 2)
    assert (condition["status"], condition["lastTransitionTime"]) == ("True", since)
    assert condition["message"] == "serves"
    cluster.delete("AdmissionPolicy", "colours")
    eventually(lambda: revision(guard) == before)


def test_a_policy_that_breaks_keeps_its_last_good_form_and_holds_nobody_up(cluster: Cluster) -> None:
    """A bad edit is told in the object's own status with path, line and column, what it said before serves, other
    edits are taken in meanwhile, and the repair makes it ready again.
    """
    guard = guarded(cluster)
    cluster.create("AdmissionPolicy", about_colours(cluster, "false"))
    cluster.create("AdmissionPolicy", about_colours(cluster, "true", "reds", "red"))
    eventually(lambda: answer(cluster))
    ready(cluster, "colours", 1)
    ready(cluster, "reds", 1)
    edit(cluster, about_colours(cluster, "true ||\n  objct == null"))
    condition = ready(cluster, "colours", 2)
    assert (condition["status"], condition["reason"]) == ("False", "DoesNotCompile")
    assert condition["message"].splitlines() == [
        "spec.validations[0].expression:2:3: has the unknown name `objct`; did you mean `object`?",
        "what it said in generation 1 goes on serving",
    ]
    assert "is blue" in answer(cluster)
    assert guard.ready()
    assert f"admissionpolicy/{cluster.name('colours')}: spec.validations[0]" in guard.get("/readyz?verbose").text
    eventually(lambda: guard.metric("allocguard_policy_reloads_total", outcome="refused") == 1)
    assert guard.metric("allocguard_policy_problems") == 1
    eventually(lambda: guard.lines(event="policies refused"))
    assert answer(cluster, "red") == ""
    edit(cluster, about_colours(cluster, "false", "reds", "red"))
    eventually(lambda: "is red" in answer(cluster, "red"))
    assert ready(cluster, "reds", 2)["status"] == "True"
    edit(cluster, about_colours(cluster, "true"))
    assert ready(cluster, "colours", 3)["status"] == "True"
    eventually(lambda: not answer(cluster))
    assert "admissionpolicy/" not in guard.get("/readyz?verbose").text
    assert guard.metric("allocguard_policy_problems") == 0


def test_a_policy_that_is_bad_at_the_start_is_left_out_and_the_others_serve(cluster: Cluster) -> None:
    """A server that starts with a policy object that does not compile is ready, serves the others, and says so."""
    definitions(cluster)
    cluster.create("AdmissionPolicy", about_colours(cluster, "nope"))
    cluster.create("AdmissionPolicy", about_colours(cluster, "false", "reds", "red"))
    guard = guarded(cluster)
    eventually(lambda: "is red" in answer(cluster, "red"))
    condition = ready(cluster, "colours", 1)
    assert (condition["status"], condition["reason"]) == ("False", "DoesNotCompile")
    assert condition["message"].endswith("left out: it has not compiled since this server started")
    assert ready(cluster, "reds", 1)["status"] == "True"
    assert answer(cluster) == ""
    assert f"admissionpolicy/{cluster.name('colours')}: " in guard.get("/readyz?verbose").text
    eventually(lambda: guard.metric("allocguard_policy_reloads_total", outcome="refused") >= 1)


def test_an_object_replaces_the_shipped_policy_of_its_name_until_it_is_deleted(cluster: Cluster) -> None:
    """A shipped policy is changed by an object of its name and comes back when that is deleted."""
    node = cluster.node("n1")
    driver = cluster.driver("cpu.example.org", node)
    guard = guarded(cluster)
    bad = driver.slice([malformed(driver)])

    def said() -> str:
        try:
            driver.client.create(path("ResourceSlice"), bad, dryRun="All")
        except ApiError as error:
            return error.message
        return ""

    before = revision(guard)
    assert "slice-mappings/" in said()
    policy = yaml.safe_load((ROOT / "policies" / "slice-mappings.yaml").read_text())
    cluster.as_admin.create(path("AdmissionPolicy"), policy)
    eventually(lambda: "objects in place of files: slice-mappings" in guard.get("/readyz?verbose").text)
    assert "in place of" in ready(cluster, policy["metadata"]["name"])["message"]
    assert revision(guard) == before
    assert checked(cluster, bad) == 1
    policy["spec"]["action"] = "Audit"
    edit(cluster, policy)
    eventually(lambda: not said())
    assert checked(cluster, bad) == 0
    cluster.as_admin.delete(path("AdmissionPolicy", "slice-mappings"))
    eventually(lambda: "slice-mappings/" in said())
    assert revision(guard) == before


def test_the_status_is_written_once_for_each_thing_there_is_to_say(cluster: Cluster) -> None:
    """What the controller writes starts no write of its own."""
    guarded(cluster)
    cluster.create("AdmissionPolicy", about_colours(cluster, "false"))
    ready(cluster, "colours", 1)

    def version() -> str:
        found: str = cluster.get("AdmissionPolicy", "colours")["metadata"]["resourceVersion"]
        return found

    now = version()
    # Nor does what somebody else edits.
    cluster.create("AdmissionPolicy", about_colours(cluster, "true", "reds", "red"))
    ready(cluster, "reds", 1)
    steady(lambda: version() == now, during=2)
    # Somebody else's condition stays, and what is not so is put right.
    other = {"type": "Reviewed", "status": "True", "reason": "ByHand", "message": "", "lastTransitionTime": None}
    ours = cluster.get("AdmissionPolicy", "colours")["status"]["conditions"][0]
    conditions = [{**other, "lastTransitionTime": ours["lastTransitionTime"]}, {**ours, "status": "False"}]
    cluster.as_admin.patch(cluster.path("AdmissionPolicy", "colours", "status"), {"status": {"conditions": conditions}})

    def restored() -> dict[str, Any]:
        found = cluster.get("AdmissionPolicy", "colours")["status"]["conditions"]
        return {each["type"]: each["status"] for each in found}

    eventually(lambda: restored() == {"Ready": "True", "Reviewed": "True"})


def test_a_mounted_folder_and_objects_serve_together(cluster: Cluster) -> None:
    """Files and objects, either edited without the other."""
    folder = cluster.folder / "policies"
    folder.mkdir(parents=True)
    file = folder / "colours.yaml"
    file.write_text(json.dumps(about_colours(cluster, "false")))
    definitions(cluster)
    guard = cluster.guard(f"--namespace={cluster.namespace('guard')}", f"--policies={folder}")
    eventually(lambda: "is blue" in answer(cluster))
    cluster.create("AdmissionPolicy", about_colours(cluster, "false", "reds", "red"))
    eventually(lambda: "is red" in answer(cluster, "red"))
    file.write_text(json.dumps(about_colours(cluster, "nope")))
    eventually(lambda: guard.lines(event="policies refused"))
    assert "is blue" in answer(cluster)
    file.write_text(json.dumps(about_colours(cluster, "true")))
    eventually(lambda: not answer(cluster))
    assert "is red" in answer(cluster, "red")


def test_in_audit_mode_all_is_judged_and_nobody_refused_or_warned(cluster: Cluster) -> None:
    """`serve --mode audit` counts what it would have refused, and lets it pass."""
    node = cluster.node("n1")
    driver = cluster.driver("cpu.example.org", node)
    guard = guarded(cluster, "--mode=audit")
    assert revision(guard).endswith("-audit")
    driver.publish([malformed(driver)])
    assert guard.metric("allocguard_findings_total", policy="slice-mappings", action="Audit") >= 1
    assert "slice-mappings/" in eventually(lambda: guard.lines(event="audited"))[0]["audited"][0]
    assert guard.metric("allocguard_findings_total", action="Deny") == 0
    assert guard.metric("allocguard_findings_total", action="Warn") == 0
    configuration = cluster.as_admin.get(path("ValidatingWebhookConfiguration", "allocguard"))
    assert {webhook["failurePolicy"] for webhook in configuration["webhooks"]} == {"Ignore"}
