"""``ledger explain``, ``export``, ``replay`` and ``diff`` as people run them."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from webhook.cluster.files import Cluster
from webhook.store.journal import Journal

AT = ("--at", "2026-11-20T09:00:00Z")
NOW = datetime(2026, 11, 20, 9, tzinfo=UTC)


@pytest.fixture
def cluster(example, tmp_path):
    """A copy of the example cluster."""
    made = tmp_path / "cluster"
    made.mkdir()
    for path in (example / "cluster").iterdir():
        (made / path.name).write_text(path.read_text())
    return made


@pytest.fixture
def exported(run, cluster, tmp_path):
    ran = run("ledger", "export", "--cluster", cluster, *AT)
    assert (ran.code, ran.err) == (0, "")
    path = tmp_path / "export.json"
    path.write_text(ran.out)
    return path


def dearer(cluster):
    """The slices of the cluster, with twice the cost."""
    path = cluster / "slices.yaml"
    key = "capacityKey: cpu.ferrite.example/cpus"
    path.write_text(path.read_text().replace(key, f'{key}, allocationMultiplier: "2"'))
    return path


def test_explain_tells_reason_formula_and_mapping(run, cluster):
    ran = run("ledger", "explain", "claim/studio/render", "--cluster", cluster, *AT)
    assert ran.code == 0
    told = " ".join(ran.out.split())
    assert told.startswith("claim studio/render: bound on anvil-1, allocated 2026-11-20T07:00:00Z 8 cpu = 8 ")
    assert "of which the claim consumes 8" in told
    assert "(uid 51000001-0000-4000-8000-000000000001, version 1001), pool generation 2, sha256:" in told
    assert "its status books 8 cpu" in told


@pytest.mark.parametrize("name", ["claim/studio/render", "pod/studio/render", "anvil-1"])
def test_explain_says_the_same_in_every_format(run, cluster, name):
    options = ("ledger", "explain", name, "--cluster", cluster, *AT)
    value = json.loads(run(*options, "-o", "json").out)
    assert yaml.safe_load(run(*options, "-o", "yaml").out) == value
    text = " ".join(run(*options).out.split())
    charges = [*value.get("charges", ()), *(row for claim in value.get("claims", ()) for row in claim["charges"])]
    assert charges
    for charge in charges:
        assert charge["formula"] in text
        assert charge["mapping"]["digest"] in text
        assert charge["reason"] in text


def test_explain_of_what_is_not_there_or_may_be_two(run, cluster):
    ran = run("ledger", "explain", "studio/nobody", "--cluster", cluster)
    assert (ran.code, ran.out) == (2, "")
    assert "studio/nobody: the cluster has no such claim, pod or node; name it NAMESPACE/NAME, or NODE" in ran.err
    ran = run("ledger", "explain", "studio/render", "--cluster", cluster)
    assert (ran.code, ran.out) == (2, "")
    assert "may be more than one; write claim/studio/render or pod/studio/render" in ran.err


def test_an_export_comes_out_again(run, exported):
    value = json.loads(exported.read_text())
    assert (value["kind"], value["format"], value["release"]["version"]) == ("LedgerExport", 1, "1.36")
    ran = run("ledger", "replay", exported)
    assert (ran.code, ran.out) == (0, "equal: 22 events, 3 nodes, 0 differences\n")
    ran = run("ledger", "replay", exported, "-o", "json")
    assert json.loads(ran.out) == {
        "equal": True, "events": 22, "nodes": 3, "gaps": [], "stale": {}, "duplicates": {}, "incidents": [],
        "differences": []
    }  # fmt: skip


def test_an_export_from_standard_input(run, exported):
    assert run("ledger", "replay", "-", stdin=exported.read_bytes()).code == 0


def test_diff_with_a_cluster_and_with_another_export(run, exported, cluster, tmp_path):
    assert run("ledger", "diff", exported, "--cluster", cluster).out == "equal: 22 events, 3 nodes, 0 differences\n"
    dearer(cluster)
    ran = run("ledger", "diff", exported, "--cluster", cluster, "-o", "json")
    value = json.loads(ran.out)
    assert (ran.code, value["equal"]) == (1, False)
    messages = {each["path"]: each["message"] for each in value["differences"] if each["name"] == "anvil-1"}
    assert messages["resources[cpu].claims"] == f"has 16 in the cluster, needs 8 as in {exported}"
    other = tmp_path / "other.json"
    other.write_text(run("ledger", "export", "--cluster", cluster, *AT).out)
    ran = run("ledger", "diff", exported, other)
    assert ran.code == 1
    assert f"has 16 in {other}, needs 8 as in {exported}" in " ".join(ran.out.split())
    assert ran.out.splitlines()[-1].startswith("not equal: ")


def test_diff_has_one_other_side(run, exported, cluster):
    ran = run("ledger", "diff", exported, exported, "--cluster", cluster)
    assert ran.code == 2
    assert "two exports are given, and a cluster too" in ran.err


def test_replay_tells_what_an_edited_mapping_would_have_cost(run, exported, cluster):
    ran = run("ledger", "replay", exported, "--edited", dearer(cluster), "-o", "json")
    value = json.loads(ran.out)
    assert ran.code == 1
    claims = [each for each in value["differences"] if each["path"] == "resources[cpu].claims"]
    assert [each["message"] for each in claims] == ["has 16 after the replay, needs 8 as recorded"]


def test_replay_decides_again_about_what_stands(run, exported, tmp_path):
    def decided(folder):
        value = json.loads(run("ledger", "replay", exported, "--policies", folder, "-o", "json").out)
        return {each["claim"]["name"]: each["allowed"] for each in value["decisions"]}

    shipped = decided(policies_folder())
    assert shipped
    assert all(shipped.values())
    stricter = (policies_folder() / "claim-allocation.yaml").read_text().replace("headroom: {}", "headroom: {cpu: 1k}")
    (tmp_path / "stricter.yaml").write_text(stricter)
    assert decided(tmp_path / "stricter.yaml") == dict.fromkeys(shipped, False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", ":2:1: "),
        (
            '{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}',
            ":1:22: kind: has Node, needs LedgerExport",
        ),
        ("", ": has 0 documents, needs one export of `ledger export`"),
    ],
)
def test_what_is_no_export(run, tmp_path, text, message):
    path = tmp_path / "file.json"
    path.write_text(text)
    for command in ("replay", "diff"):
        ran = run("ledger", command, path)
        assert (ran.code, ran.out) == (2, "")
        assert f"{path}{message}" in ran.err


def test_an_edited_export_is_found_out(run, exported):
    exported.write_text(exported.read_text().replace('"claims": "8"', '"claims": "9"'))
    ran = run("ledger", "replay", exported)
    assert (ran.code, ran.out) == (2, "")
    assert re.search(rf"{exported}:\d+:\d+: digest: is not that of the content", ran.err)


def test_an_edit_that_no_account_depends_on(run, exported, tmp_path):
    (tmp_path / "secret.yaml").write_text("{apiVersion: v1, kind: Secret, metadata: {name: s}}")
    ran = run("ledger", "replay", exported, "--edited", tmp_path / "secret.yaml")
    assert ran.code == 2
    assert "kind: has Secret, needs one of" in ran.err


@pytest.fixture
def journal(cluster, tmp_path):
    """The journal of a cluster whose claims were allocated while it was written."""
    folder = tmp_path / "journal"
    moment = [NOW - timedelta(minutes=10)]

    def clock():
        moment[0] += timedelta(seconds=1)
        return moment[0]

    workload = cluster / "workload.yaml"
    documents = list(yaml.safe_load_all(workload.read_text()))
    before = [
        {**each, "status": {}} if each["kind"] == "ResourceClaim" else each
        for each in documents
        if each["kind"] != "Pod"
    ]
    told_to = Journal(folder, clock)
    workload.write_text(yaml.safe_dump_all(before))
    view = Cluster([str(cluster)], recorder=told_to)
    for each in documents:
        each["metadata"]["resourceVersion"] = str(int(each["metadata"].get("resourceVersion", "1")) + 100_000)
    workload.write_text(yaml.safe_dump_all(documents))
    view.refresh()
    view.refresh()
    assert told_to.flush()
    told_to.close()
    return folder


def written(run, path, *options):
    ran = run("ledger", "export", *options, *AT)
    assert ran.code == 0, ran.err
    path.write_text(ran.out)
    return path


def test_a_journal_gives_the_accounts_of_the_cluster_that_it_followed(run, journal, cluster, tmp_path):
    path = written(run, tmp_path / "live.json", "--journal", journal, "--cluster", cluster)
    value = json.loads(path.read_text())
    assert value["journal"].startswith("sha256:")
    assert value["statement"]["nodes"][0]["resources"]["cpu"]["claims"] == "8"
    ran = run("ledger", "replay", path)
    assert ran.out.startswith("equal: "), ran.out
    assert ran.code == 0


def test_a_journal_alone_is_enough(run, journal, cluster, tmp_path):
    path = written(run, tmp_path / "alone.json", "--journal", journal)
    assert run("ledger", "replay", path).code == 0
    assert run("ledger", "diff", path, "--cluster", cluster).code == 0


def test_what_other_policies_and_mappings_would_have_decided(run, journal, cluster, tmp_path):
    path = written(run, tmp_path / "alone.json", "--journal", journal)
    ran = run("ledger", "replay", path, "--policies", policies_folder(), "-o", "json")
    value = json.loads(ran.out)
    assert [(each["claim"]["name"], each["node"], each["allowed"]) for each in value["decisions"]] == [
        ("render", "anvil-1", True)
    ]
    assert (ran.code, value["equal"]) == (0, True)
    # Four times the cost: what was allocated would not have fitted.
    slices = cluster / "slices.yaml"
    key = "capacityKey: cpu.ferrite.example/cpus"
    slices.write_text(slices.read_text().replace(key, f'{key}, allocationMultiplier: "4"'))
    ran = run("ledger", "replay", path, "--edited", slices)
    assert ran.code == 1
    assert re.search(r"^denied +2026-11-20T08:5\d:\d\dZ  studio/render on anvil-1$", ran.out, re.MULTILINE)
    assert "node-overcommit" in ran.out
    assert "1 of 1 allocation denied" in ran.out


def policies_folder():
    return Path(__file__).parents[2] / "policies"


@pytest.mark.parametrize("what", ["nothing", "empty", "file"])
def test_a_journal_that_is_none(run, tmp_path, what):
    folder = tmp_path / "journal"
    if what == "empty":
        folder.mkdir()
    if what == "file":
        folder.write_text("")
    ran = run("ledger", "export", "--journal", folder)
    assert (ran.code, ran.out) == (2, "")
    assert f"{folder}: " in ran.err


def test_a_journal_that_was_tampered_with(run, journal):
    (segment,) = journal.glob("*.journal")
    data = segment.read_bytes()
    segment.write_bytes(data.replace(b'"8"', b'"9"', 1))
    ran = run("ledger", "export", "--journal", journal)
    assert (ran.code, ran.out) == (2, "")
    assert "is not what was written; restore the file" in ran.err


def test_incidents_are_told_before_the_summary_and_are_no_difference(run, example, tmp_path):
    item = next(yaml.safe_load_all((example / "cluster" / "slices.yaml").read_text()))
    clock = iter(NOW + timedelta(seconds=20 * number) for number in range(100))
    journal = Journal(tmp_path / "journal", lambda: next(clock))
    for version in range(3):
        seen = {**item, "metadata": {**item["metadata"], "resourceVersion": str(2000 + version)}}
        journal.put(seen)
        journal.gone({key: seen[key] for key in ("apiVersion", "kind", "metadata")})
    journal.close()
    ran = run("ledger", "export", "--journal", tmp_path / "journal")
    (tmp_path / "history.json").write_text(ran.out)
    ran = run("ledger", "replay", tmp_path / "history.json")
    assert ran.code == 0
    said = " ".join(ran.out.split())
    assert said.startswith(f"pool-flapping: ResourceSlice {item['metadata']['name']}: spec.pool: has pool ")
    assert "without any slice 3 times from " in said
    assert said.endswith("equal: 6 events, 0 nodes, 0 differences")
