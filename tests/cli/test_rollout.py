"""``allocguard rollout`` on files, as people run it; the live part is in tests/e2e/test_rollout_cli.py."""

import json
import re
import textwrap

import pytest
import yaml

from tests.ledger.builders import DRIVER, device, node, old, slice_of
from tests.ledger.history import History
from webhook.kube.node_ledger import node_ledger_object
from webhook.kube.release import Release
from webhook.ledger.fold import fold

AT = ("--at", "2026-11-20T09:00:00Z")
GPU, CPU = "gpu.ferrite.example", "cpu.ferrite.example"
GPU_DIGEST = "sha256:1d96df3f455907fb18730151b55cf6dd1b70295c7305297df7221224e1d382e2"
NOBODYS = "sha256:" + "0" * 64
CANARY = {"matchLabels": {"example.org/canary": "yes"}}


@pytest.fixture
def cluster(example):
    return example / "cluster"


@pytest.fixture
def files(tmp_path):
    """Writes objects as a cluster; the options that name it."""

    def written(*objects, name="cluster.yaml"):
        path = tmp_path / name
        path.write_text(yaml.safe_dump_all(objects))
        return ("--cluster", path, *AT)

    return written


def rollout(stage="Canary", name=DRIVER, status=None, **spec):
    obj = {"apiVersion": "allocguard.dev/v1alpha1", "kind": "DriverRollout", "metadata": {"name": name}}
    obj["spec"] = {"stage": stage, "canaryNodeSelector": CANARY, **spec}
    return obj if status is None else {**obj, "status": status}


def fleet(canaries=2, nodes=3, mapping="1"):
    """Nodes, the first of which are canaries with a pool."""
    for number in range(nodes):
        made = node(f"n{number}", uid=f"u{number}", cpu="16")
        if number < canaries:
            made["metadata"]["labels"]["example.org/canary"] = "yes"
            yield slice_of(device("d", old(mapping)), name=f"s{number}", pool=f"n{number}", nodeName=f"n{number}")
        yield made


def digest_of(run, where):
    value = json.loads(run("rollout", "status", DRIVER, *where, "-o", "json").out)
    return value["drivers"][0]["digests"]


# status


def test_status_tells_every_driver_with_costs_or_a_rollout(run, cluster):
    ran = run("rollout", "status", "--cluster", cluster, *AT)
    assert (ran.code, ran.err) == (0, "")
    told = " ".join(ran.out.split())
    assert f"{CPU}: stage General coverage: 1 of 2 nodes with a Fresh mapped pool (50%), not anvil-2" in told
    assert "pools: 1 Fresh, 1 Rebuilding claims: 1 bound, 0 waiting" in told
    assert f"{GPU}: stage General held: mapping v7 books half the memory, by on-call, since" in told
    assert f"mapping {GPU_DIGEST}" in told
    value = json.loads(run("rollout", "status", "--cluster", cluster, *AT, "-o", "json").out)
    assert yaml.safe_load(run("rollout", "status", "--cluster", cluster, *AT, "-o", "yaml").out) == value
    gpu = value["drivers"][1]
    assert (gpu["driver"], gpu["stage"], gpu["rollout"]) == (GPU, "General", True)
    assert gpu["hold"] == {
        "reason": "mapping v7 books half the memory",
        "by": "on-call",
        "since": "2026-11-20T08:40:00Z",
        "until": "",
        "badMappings": [],
        "standing": True,
    }
    assert (gpu["coverage"], gpu["digests"]) == (
        {"nodes": 1, "fresh": 1, "percent": 100, "lacking": []},
        {GPU_DIGEST: ["bellows-1"]},
    )
    assert [row["name"] for row in gpu["heldPools"]] == ["bellows-1"]


def test_status_of_a_driver_without_a_rollout_and_of_drills(run, files):
    done = {"name": "Rollback", "at": "2026-11-19T09:00:00Z", "passed": False, "by": "dana", "message": "n1 refuses"}
    where = files(*fleet(), rollout(status={"drills": [done]}), slice_of(device("x", old("1")), driver="other.example"))
    ran = run("rollout", "status", *where)
    assert "other.example: stage General (it has no DriverRollout)" in ran.out
    assert "drill Rollback failed at 2026-11-19T09:00:00Z by dana: n1 refuses" in ran.out
    assert run("rollout", "status", DRIVER, *where).out.count("stage") == 1


def test_status_tells_which_pools_have_which_of_several_mappings(run, files):
    other = [slice_of(device("d", old("2")), name=f"t{n:02}", pool=f"p{n:02}", nodeName="n2") for n in range(21)]
    where = files(*fleet(), *other)
    (row,) = json.loads(run("rollout", "status", DRIVER, *where, "-o", "json").out)["drivers"]
    assert sorted(row["digests"].values()) == [["n0", "n1"], [f"p{n:02}" for n in range(21)]]
    told = run("rollout", "status", DRIVER, *where).out
    assert "\n    on n0, n1\n" in told
    assert "p19 and 1 more\n" in told
    assert "\n    on " not in run("rollout", "status", DRIVER, *files(*fleet())).out


@pytest.mark.parametrize("command", [["status"], ["hold", "--reason", "x"], ["resume"], ["check"], ["promote"]])
def test_a_driver_that_nobody_knows_is_named_with_the_nearest_one(run, cluster, command):
    ran = run("rollout", *command, "gpu.ferrit.example", "--cluster", cluster, *AT)
    assert (ran.code, ran.out) == (2, "")
    told = "gpu.ferrit.example: the cluster has no slice, no claim and no DriverRollout of such a driver; did you mean"
    assert f"{told} {GPU}?" in ran.err
    ran = run("rollout", *command, "zzz", "--cluster", cluster, *AT)
    assert f"its drivers are {CPU}, {GPU}" in ran.err


def test_status_as_markdown_says_the_same(run, files):
    done = {
        "name": "Rollback",
        "at": "2026-11-19T09:00:00Z",
        "passed": False,
        "by": "dana",
        "message": "n1 | n2 refuse",
    }
    other = slice_of(device("d", old("2")), name="t", pool="p", nodeName="n2")
    where = files(*fleet(), other, rollout(status={"drills": [done]}, hold={"reason": "books *half*"}))
    ran = run("rollout", "status", DRIVER, *where, "-o", "markdown")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[:4] == [f"at {AT[1]}", "", f"**{DRIVER}: stage Canary**", ""]
    assert "- held: books \\*half\\*" in lines
    assert "- coverage: 2 of 2 nodes with a Fresh mapped pool (100%)" in lines
    assert "  - on n0, n1" in lines
    assert "- drill Rollback failed at 2026-11-19T09:00:00Z by dana: n1 \\| n2 refuse" in lines
    # Beside marks and line breaks, nothing is in one and not in the other.
    text = " ".join(run("rollout", "status", DRIVER, *where).out.split())
    plain = " ".join(re.sub(r"^ *- ", "", line).replace("\\", "").replace("**", "") for line in lines)
    assert " ".join(plain.split()) == text.removesuffix(" 1 driver")


# hold


def test_hold_prints_the_document_and_writes_nothing(run, cluster):
    before = (cluster / "rollouts.yaml").read_text()
    ran = run("rollout", "hold", CPU, "--reason", "books half", "--by", "dana", "--cluster", cluster, *AT)
    assert ran.code == 0
    document = yaml.safe_load(ran.out)
    assert (document["kind"], document["metadata"]) == ("DriverRollout", {"name": CPU})
    assert document["spec"]["hold"] == {"reason": "books half", "by": "dana", "since": "2026-11-20T09:00:00Z"}
    assert document["spec"]["writers"][0]["serviceAccount"] == "cpu-node-plugin"
    assert "no new claims on all pools; bound ones stay, and releases go on" in ran.err
    assert "nothing is written: apply what is printed" in ran.err
    assert (cluster / "rollouts.yaml").read_text() == before
    said = ("--reason", "books half", "--by", "dana", "-o", "json")
    assert json.loads(run("rollout", "hold", CPU, *said, "--cluster", cluster, *AT).out) == document


def test_what_hold_prints_holds(run, cluster, tmp_path):
    held = tmp_path / "held.yaml"
    held.write_text(run("rollout", "hold", CPU, "--reason", "books half", "--cluster", cluster, *AT).out)
    both = ("--cluster", cluster, "--cluster", held, *AT)
    value = json.loads(run("rollout", "status", CPU, *both, "-o", "json").out)
    assert value["drivers"][0]["heldCount"] == 2
    # Once more it is as it was, since when it began too.
    later = run("rollout", "hold", CPU, "--reason", "books half", *both[:-1], "2026-11-20T10:00:00Z")
    assert "is held already, since 2026-11-20T09:00:00Z: nothing to change" in later.err
    assert yaml.safe_load(later.out) == yaml.safe_load(held.read_text())


def test_hold_needs_a_reason_and_a_time_that_is_to_come(run, cluster):
    where = ("--cluster", cluster, *AT)
    assert run("rollout", "hold", CPU, *where).err.startswith("allocguard: missing option '--reason'")
    ran = run("rollout", "hold", CPU, "--reason", " ", *where)
    assert (ran.code, "--reason: is empty" in ran.err) == (2, True)
    ran = run("rollout", "hold", CPU, "--reason", "x", "--until", "2026-11-20T09:00:00Z", *where)
    assert (ran.code, "--until 2026-11-20T09:00:00Z is over already" in ran.err) == (2, True)
    ran = run("rollout", "hold", CPU, "--reason", "x", "--until", "2026-11-20T10:00:00+00:00", *where)
    assert yaml.safe_load(ran.out)["spec"]["hold"]["until"] == "2026-11-20T10:00:00Z"


def test_hold_of_bad_mappings(run, cluster):
    where = ("--cluster", cluster, *AT)
    ran = run("rollout", "hold", CPU, "--reason", "x", "--bad-mapping", "sha256:ab", *where)
    assert (ran.code, ran.out) == (2, "")
    # What is refused is not told of as if it were held.
    [told] = ran.err.splitlines()
    assert "--bad-mapping: has 'sha256:ab', needs sha256: and 64 hexadecimal digits" in told
    ran = run("rollout", "hold", GPU, "--reason", "x", "--bad-mapping", NOBODYS, *where)
    assert yaml.safe_load(ran.out)["spec"]["hold"]["badMappings"] == [NOBODYS]
    assert f"no pool of {GPU} has it, so it holds nothing yet; its pools have {GPU_DIGEST}" in ran.err


def test_hold_makes_a_rollout_where_there_is_none_and_takes_back_what_was_resumed(run, files):
    where = files(*fleet())
    document = yaml.safe_load(run("rollout", "hold", DRIVER, "--reason", "x", *where).out)
    assert document["spec"] == {"stage": "General", "hold": {"reason": "x", "since": "2026-11-20T09:00:00Z"}}
    (digest,) = digest_of(run, where)
    hold = {"reason": "x", "since": "2026-11-20T08:00:00Z"}
    where = files(*fleet(), rollout(hold=hold, resumeAt={"mappingDigests": [digest]}))
    ran = run("rollout", "hold", DRIVER, "--reason", "x", *where)
    assert yaml.safe_load(ran.out)["spec"] == {"stage": "Canary", "canaryNodeSelector": CANARY, "hold": hold}
    assert "it is no longer resumed at 1 mapping" in ran.err


@pytest.mark.parametrize(
    "command",
    [["hold", "--reason", "x"], ["resume"], ["promote"], ["check"], ["drill", "Rollback"]],
    ids=lambda each: each[0],
)
def test_nothing_is_made_of_a_cluster_part_of_which_cannot_be_read(run, files, command):
    files(*fleet())
    # As after `rollout hold … --cluster folder > folder/rollout.yaml`: the shell has emptied it.
    _, folder, *at = files(name="rollout.yaml")
    ran = run("rollout", command[0], DRIVER, *command[1:], "--cluster", folder.parent, *at)
    assert (ran.code, ran.out) == (2, "")
    assert "rollout.yaml:1:1: has no document" in ran.err
    assert f"{DRIVER}: has part of its cluster unread, needs all of it;" in ran.err


def test_of_two_documents_for_one_driver_the_later_counts_and_that_is_said(run, files):
    where = files(*fleet(), rollout(hold={"reason": "first"}), rollout(hold={"reason": "second"}))
    ran = run("rollout", "status", *where)
    assert "held: second" in ran.out
    assert "DriverRollout d.example stands in document" in ran.err
    assert "the later one counts" in ran.err


# resume


def test_resume_takes_the_hold_back(run, cluster):
    ran = run("rollout", "resume", GPU, "--cluster", cluster, *AT)
    assert (ran.code, "hold" in yaml.safe_load(ran.out)["spec"]) == (0, False)
    assert f"{GPU} takes claims again" in ran.err


@pytest.mark.parametrize("hold", [{}, {"by": ""}, True, "wrong mapping"])
def test_a_hold_that_says_nothing_holds_and_is_taken_back_too(run, files, hold):
    where = files(*fleet(), rollout(hold=hold))
    assert "2 held" in run("rollout", "status", DRIVER, *where).out
    ran = run("rollout", "resume", DRIVER, *where)
    assert (ran.code, "hold" in yaml.safe_load(ran.out)["spec"]) == (0, False)
    assert f"{DRIVER} takes claims again" in ran.err


@pytest.mark.parametrize("spec", [{}, {"resumeAt": {"mappingDigests": [NOBODYS]}}])
def test_resume_without_a_hold_says_so(run, files, spec):
    ran = run("rollout", "resume", DRIVER, *files(*fleet(), rollout(**spec)))
    assert (ran.code, yaml.safe_load(ran.out)["spec"]) == (0, {"stage": "Canary", "canaryNodeSelector": CANARY})
    assert f"{DRIVER} is not held" in ran.err
    ran = run("rollout", "resume", DRIVER, *files(*fleet()))
    assert (ran.code, ran.out) == (0, f"{DRIVER} has no DriverRollout, and so no hold: nothing to resume\n")


def test_resume_at_a_mapping_lets_its_pools_go_on_alone(run, files):
    other = slice_of(device("d", old("2")), name="s9", pool="n2", nodeName="n2")
    hold = {"reason": "x"}
    where = files(*fleet(), other, rollout("General", hold=hold))
    one, two = digest_of(run, where)
    ran = run("rollout", "resume", DRIVER, "--at-mapping", two, *where)
    counts = {one: "2 of 3 pools take claims, 1 stays held", two: "1 of 3 pools takes claims, 2 stay held"}
    assert yaml.safe_load(ran.out)["spec"]["resumeAt"] == {"mappingDigests": [two]}
    assert any(told in ran.err for told in counts.values())
    # One after the other they add up: to resume never holds anything.
    where = files(*fleet(), other, rollout("General", hold=hold, resumeAt={"mappingDigests": [two]}))
    ran = run("rollout", "resume", DRIVER, "--at-mapping", one, *where)
    assert yaml.safe_load(ran.out)["spec"]["resumeAt"] == {"mappingDigests": sorted([one, two])}
    assert "resumed at 2 mappings: 3 of 3 pools take claims;" in ran.err
    ran = run("rollout", "resume", DRIVER, "--at-mapping", two, *where)
    assert (ran.code, "nothing to change" in ran.err) == (0, True)


def test_resume_at_what_nobody_has_or_what_is_bad(run, files):
    where = files(*fleet(), rollout(hold={"reason": "x"}))
    (digest,) = digest_of(run, where)
    ran = run("rollout", "resume", DRIVER, "--at-mapping", NOBODYS, *where)
    assert (ran.code, ran.out) == (2, "")
    assert f"--at-mapping {NOBODYS}: no pool of {DRIVER} has it; its pools have {digest}" in ran.err
    where = files(*fleet(), rollout(hold={"reason": "x", "badMappings": [digest]}))
    ran = run("rollout", "resume", DRIVER, "--at-mapping", digest, *where)
    assert (ran.code, ran.out) == (2, "")
    assert f"is among the bad mappings of the hold; hold {DRIVER} without it first" in ran.err


def test_resume_keeps_what_claims_are_acknowledged_by(run, files):
    """A claim that was booked by an earlier mapping: taking resumeAt away would stop its pool."""
    history = History()
    history.node(cpu="16")
    history.slice("1")
    history.claim()
    history.pod()
    history.allocate("c", (0, "2"), pod_name="p1")
    history.bind(cpu="2")
    history.slice("2", generation=2)
    ledger = fold(history.events, Release(36)).snapshot.ledgers["n1"]
    objects = [*history.objects.values(), node_ledger_object(ledger)]
    where = files(*objects, rollout("General"))
    (digest,) = digest_of(run, where)
    where = files(*objects, rollout("General", hold={"reason": "x"}, resumeAt={"mappingDigests": [digest]}))
    ran = run("rollout", "resume", DRIVER, *where)
    spec = yaml.safe_load(ran.out)["spec"]
    assert ("hold" in spec, spec["resumeAt"]) == (False, {"mappingDigests": [digest]})
    assert "resumeAt stays while claims that were booked by an earlier mapping hold devices of n1" in ran.err


# check


def test_check_tells_each_gate_with_its_number_in_every_format(run, files):
    where = files(*fleet(), rollout(promotion={"minCoverage": 95, "quietDays": 7, "drills": ["Rollback"]}))
    ran = run("rollout", "check", DRIVER, *where)
    assert (ran.code, ran.err) == (1, "")
    told = " ".join(ran.out.split())
    assert told.startswith(f"{DRIVER} at stage Canary, next Expanding: 2 gates failed pass coverage has 2 of 2 nodes")
    assert "fail drill-rollback has never done, needs drill Rollback passed" in told
    value = json.loads(run("rollout", "check", DRIVER, *where, "-o", "json").out)
    gates = {gate["name"]: gate["passed"] for gate in value["gates"]}
    assert (value["passed"], value["stage"], value["nextStage"]) == (False, "Canary", "Expanding")
    assert gates == {
        "coverage": True,
        "hold": True,
        "drill-rollback": False,
        "replays": True,
        "quiet": False,
        "capacity": True,
        "pending": None,
        "duplicates": None,
        "zones": None,
    }
    markdown = run("rollout", "check", DRIVER, *where, "-o", "markdown").out
    assert "| drill-rollback | fail | never done | drill Rollback passed |" in markdown


def test_check_passes_by_the_status_of_this_stage_only(run, files):
    asked = {"minCoverage": 95, "quietDays": 7, "drills": ["Rollback"], "pendingP99": "30s"}
    seen = {
        "stage": "Canary",
        "observedSince": "2026-11-10T09:00:00Z",
        "quietSince": "2026-11-12T09:00:00Z",
        "pending": {"count": 40, "p99": "12s"},
        "duplicates": 0,
        "zoneFailures": 0,
        "drills": [{"name": "Rollback", "at": "2026-11-19T09:00:00Z", "passed": True, "by": "dana", "message": "fine"}],
    }
    ran = run("rollout", "check", DRIVER, *files(*fleet(), rollout(promotion=asked, status=seen)))
    assert ran.code == 0
    assert "next Expanding: every gate passed" in ran.out
    ran = run("rollout", "check", DRIVER, *files(*fleet(), rollout(promotion=asked, status={**seen, "stage": "Off"})))
    failed = [line.split()[1] for line in ran.out.splitlines() if line.startswith("  fail")]
    assert (ran.code, failed) == (1, ["quiet", "pending"])


def test_a_selector_that_matches_no_node(run, files):
    never = {"matchLabels": {"example.org/canary": "never"}}
    ran = run("rollout", "check", DRIVER, *files(*fleet(), rollout(canaryNodeSelector=never)))
    assert ran.code == 1
    told = " ".join(ran.out.split())
    assert "fail coverage has 0 of 0 nodes with a Fresh mapped pool (0%), needs a node that canaryNodeSelector" in told


# drill


@pytest.mark.parametrize("name", ["Rollback", "NodeRestart", "DriverUpgrade"])
def test_drills_on_files_pass_and_touch_nothing(run, cluster, name):
    for driver in (CPU, GPU):
        ran = run("rollout", "drill", driver, name, "--cluster", cluster, *AT)
        assert (ran.code, ran.err) == (0, "")
        assert ran.out.startswith(f"drill {name} of {driver}: passed\n  pass  claims are bound to pools")
    value = json.loads(run("rollout", "drill", GPU, name, "--cluster", cluster, *AT, "-o", "json").out)
    assert (value["name"], value["driver"], value["passed"]) == (name, GPU, True)
    assert {step["passed"] for step in value["steps"]} == {True}


def test_a_drill_as_markdown(run, files):
    where = files(*fleet(), rollout())
    ran = run("rollout", "drill", DRIVER, "NodeRestart", *where, "-o", "markdown")
    lines = ran.out.splitlines()
    assert (ran.code, lines[0]) == (0, f"**drill NodeRestart of {DRIVER}: passed** ({AT[1]})")
    steps = json.loads(run("rollout", "drill", DRIVER, "NodeRestart", *where, "-o", "json").out)["steps"]
    assert lines[1:4] == ["", "| Step | Result | Detail |", "|---|---|---|"]
    assert [line.replace("\\", "") for line in lines[4:]] == [f"| {s['what']} | pass | {s['detail']} |" for s in steps]
    ran = run("rollout", "drill", DRIVER, "Rollback", *files(*fleet(canaries=0), rollout()), "-o", "markdown")
    assert (ran.code, "| fail | has none of" in ran.out) == (1, True)


@pytest.mark.parametrize(
    "command", [["hold", "--reason", "a\n```\nb"], ["resume"], ["promote"], ["drill", "Rollback", "--record"]]
)
def test_a_document_as_markdown_is_a_code_block(run, files, command):
    where = files(*fleet(), rollout())
    name, *rest = command
    ran = run("rollout", name, DRIVER, *rest, *where, "-o", "markdown")
    lines = ran.out.rstrip("\n").splitlines()
    assert ran.code == 0
    assert all(line.startswith("    ") or not line for line in lines)
    assert textwrap.dedent(ran.out) == run("rollout", name, DRIVER, *rest, *where).out


def test_a_drill_that_cannot_be_done_fails(run, files):
    ran = run("rollout", "drill", DRIVER, "Rollback", *files(*fleet(canaries=0), rollout()))
    assert ran.code == 1
    assert "fail  claims are bound to pools that take new ones: has none of d.example, needs a pool" in ran.out
    ran = run("rollout", "drill", DRIVER, "Fire", *files(*fleet(), rollout()))
    assert (ran.code, "'Fire' is not one of 'Rollback', 'NodeRestart', 'DriverUpgrade'" in ran.err) == (2, True)


SEEN = {
    "stage": "Canary",
    "observedSince": "2026-11-10T09:00:00Z",
    "quietSince": "2026-11-12T09:00:00Z",
    "pending": {"count": 40, "p99": "12s"},
    "duplicates": 0,
    "zoneFailures": 0,
}


def test_drills_that_passed_on_files_let_the_driver_go_on_on_files(run, files, tmp_path):
    asked = {"minCoverage": 95, "quietDays": 7, "drills": ["Rollback", "NodeRestart"], "pendingP99": "30s"}
    status = {**SEEN, "heldPools": [], "told": {"hold": "x"}, "conditions": [{"type": "Valid", "status": "True"}]}
    where = files(*fleet(), rollout(promotion=asked, status=status))
    assert run("rollout", "promote", DRIVER, *where).code == 1
    done = "2 claims on 2 of 2 pools, 2 made for the drill"
    for name, by in (("Rollback", "dana"), ("NodeRestart", "")):
        ran = run("rollout", "drill", DRIVER, name, "--record", *(("--by", by) if by else ()), *where)
        assert (ran.code, yaml.safe_load(ran.out)["status"]["stage"]) == (0, "Canary")
        assert f"drill {name} of {DRIVER}: passed; {done}" in ran.err
        assert f"recorded in the status of DriverRollout {DRIVER}; nothing is written: name what is printed" in ran.err
        (tmp_path / f"{name}.yaml").write_text(ran.out)
        where = (*where, "--cluster", tmp_path / f"{name}.yaml")
    # What was seen is in it, and what follows from the cluster as it is now is not.
    rows = [
        {"name": "NodeRestart", "at": AT[1], "passed": True, "message": done},
        {"name": "Rollback", "at": AT[1], "passed": True, "message": done, "by": "dana"},
    ]
    assert yaml.safe_load(ran.out)["status"] == {**SEEN, "drills": rows}
    ran = run("rollout", "check", DRIVER, *where, "-o", "json")
    gates = {gate["name"]: gate for gate in json.loads(ran.out)["gates"]}
    assert (ran.code, gates["drill-rollback"]["has"]) == (
        0,
        f"passed at {AT[1]} by dana: {done}",
    )
    ran = run("rollout", "promote", DRIVER, *where)
    assert (ran.code, yaml.safe_load(ran.out)["spec"]["stage"]) == (0, "Expanding")
    # Of the next stage nothing was seen, but a drill is a drill.
    (tmp_path / "promoted.yaml").write_text(ran.out)
    ran = run("rollout", "check", DRIVER, *where, "--cluster", tmp_path / "promoted.yaml", "-o", "json")
    failed = [gate["name"] for gate in json.loads(ran.out)["gates"] if gate["passed"] is False]
    assert failed == ["quiet", "pending"]


def test_a_drill_that_failed_on_files_is_recorded_as_such(run, files, tmp_path):
    where = files(*fleet(canaries=0), rollout(promotion={"drills": ["Rollback"]}))
    ran = run("rollout", "drill", DRIVER, "Rollback", "--record", *where, "-o", "json")
    (row,) = json.loads(ran.out)["status"]["drills"]
    assert (ran.code, row["passed"]) == (1, False)
    assert f"drill Rollback of {DRIVER}: failed; claims are bound to pools that take new ones: has none" in ran.err
    (tmp_path / "drilled.yaml").write_text(ran.out)
    ran = run("rollout", "check", DRIVER, *where, "--cluster", tmp_path / "drilled.yaml")
    assert f"drill-rollback  has failed at {AT[1]}: claims are bound" in ran.out
    ran = run("rollout", "drill", DRIVER, "Rollback", "--record", *files(*fleet()))
    assert (ran.code, ran.out, "has no DriverRollout to record a drill in" in ran.err) == (2, "", True)


@pytest.mark.parametrize("command", [["hold", "--reason", "x"], ["resume"]])
def test_what_is_printed_of_files_has_what_was_seen(run, files, command):
    hold = {"hold": {"reason": "y"}} if command == ["resume"] else {}
    ran = run("rollout", *command, DRIVER, *files(*fleet(), rollout(status={**SEEN, "differences": 1}, **hold)))
    assert yaml.safe_load(ran.out)["status"] == SEEN
    ran = run("rollout", *command, DRIVER, *files(*fleet(), rollout(**hold)))
    assert "status" not in yaml.safe_load(ran.out)


# promote


def test_promote_goes_on_when_the_gates_pass(run, files):
    old_override = {"override": {"by": "dana", "reason": "r", "stage": "Off"}, "minCoverage": 95}
    ran = run("rollout", "promote", DRIVER, *files(*fleet(), rollout(promotion=old_override)))
    assert ran.code == 0
    spec = yaml.safe_load(ran.out)["spec"]
    assert (spec["stage"], spec["promotion"]) == ("Expanding", {"minCoverage": 95})
    assert f"{DRIVER} goes on from stage Canary to Expanding" in ran.err


def test_promote_stays_when_a_gate_fails_unless_somebody_answers_for_it(run, files):
    where = files(*fleet(), rollout(promotion={"drills": ["Rollback"]}))
    ran = run("rollout", "promote", DRIVER, *where)
    assert (ran.code, "fail  drill-rollback" in ran.out) == (1, True)
    assert f"{DRIVER} stays at stage Canary; see to the gates, or say --override NAME --reason TEXT" in ran.err
    for output in ("json", "yaml", "markdown"):
        told = run("rollout", "promote", DRIVER, *where, "-o", output)
        assert (told.code, told.out) == (1, run("rollout", "check", DRIVER, *where, "-o", output).out)
    ran = run("rollout", "promote", DRIVER, *where, "--override", "dana", "--reason", "CHG-1042")
    spec = yaml.safe_load(ran.out)["spec"]
    assert (ran.code, spec["stage"]) == (0, "Expanding")
    override = {"by": "dana", "reason": "CHG-1042", "stage": "Canary", "at": AT[1]}
    assert spec["promotion"] == {"drills": ["Rollback"], "override": override}
    assert "as dana decided: CHG-1042" in ran.err


def test_an_override_is_complete_and_is_not_written_where_it_is_not_needed(run, files):
    where = files(*fleet(), rollout())
    for given in (
        ["--override", "dana"],
        ["--reason", "x"],
        ["--override", "dana", "--reason", " "],
        ["--override", " ", "--reason", "x"],
    ):
        ran = run("rollout", "promote", DRIVER, *where, *given)
        assert (ran.code, "--override and --reason belong together" in ran.err) == (2, True)
    ran = run("rollout", "promote", DRIVER, *where, "--override", "dana", "--reason", "x")
    assert yaml.safe_load(ran.out)["spec"] == {"stage": "Expanding", "canaryNodeSelector": CANARY}
    assert "the override is not needed, and not written" in ran.err


def test_promote_at_the_last_stage(run, files):
    ran = run("rollout", "promote", DRIVER, *files(*fleet(), rollout("General")))
    assert ran.code == 0
    assert f"{DRIVER} is at stage General, the last one: nothing to promote" in ran.err
    ran = run("rollout", "promote", DRIVER, *files(*fleet()))
    assert (ran.code, ran.out.startswith(f"{DRIVER} has no DriverRollout, and so is at stage General")) == (0, True)


def test_from_off_it_goes_to_canary_once_there_are_canary_nodes(run, files):
    ran = run("rollout", "promote", DRIVER, *files(*fleet(), rollout("Off", promotion={"quietDays": 7})))
    assert (ran.code, yaml.safe_load(ran.out)["spec"]["stage"]) == (0, "Canary")
    ran = run("rollout", "promote", DRIVER, *files(*fleet(canaries=0), rollout("Off")))
    assert (ran.code, "fail  coverage    has 0 canary nodes" in ran.out) == (1, True)
