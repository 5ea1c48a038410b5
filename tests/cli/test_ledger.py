import json

import pytest
import yaml

AT = ("--at", "2026-11-20T09:00:00Z")


def test_the_account_of_the_example(run, example):
    ran = run("ledger", "show", "--cluster", example / "cluster", *AT, "-o", "json")
    value = json.loads(ran.out)
    assert ran.code == 0
    assert value["at"] == "2026-11-20T09:00:00Z"
    assert [node["node"] for node in value["nodes"]] == ["anvil-1", "anvil-2", "bellows-1"]
    cpu = value["nodes"][0]["resources"]["cpu"]
    assert cpu == {
        "allocatable": "30", "pods": "12", "claims": "8", "overhead": "0", "reserved": "0", "free": "10"
    }  # fmt: skip


def test_yaml_is_the_same_value(run, example):
    options = ("ledger", "show", "--cluster", example / "cluster", *AT)
    assert yaml.safe_load(run(*options, "-o", "yaml").out) == json.loads(run(*options, "-o", "json").out)


def test_text_shows_accounts_zones_charges_and_pools(run, example):
    told = run("ledger", "show", "--cluster", example / "cluster", *AT).out
    assert "  cpu                30    12       8         0         0     10\n" in told
    assert "  zone 0  cpu             15       8         0     7\n" in told
    assert "studio/render" in told
    assert "8 \u00d7 1" in told
    assert "pool Rebuilding cpu.ferrite.example anvil-2" in told
    assert "has driver gpu.ferrite.example held: mapping v7 books half the memory" in told
    assert told.endswith("3 nodes, 1 charge, 0 differences\n")


def test_one_node(run, example):
    ran = run("ledger", "show", "--cluster", example / "cluster", *AT, "--node", "anvil-2", "-o", "json")
    assert [node["node"] for node in json.loads(ran.out)["nodes"]] == ["anvil-2"]


def test_a_node_that_is_not_there(run, example):
    ran = run("ledger", "show", "--cluster", example / "cluster", "--node", "anvil-9")
    assert ran.code == 2
    assert "--node anvil-9: the cluster has no such node" in ran.err


def test_a_broken_file_among_good_ones_leaves_an_account_and_exit_code_2(run, example, tmp_path):
    (tmp_path / "broken.yaml").write_text("a: [")
    ran = run("ledger", "show", "--cluster", example / "cluster", "--cluster", tmp_path, *AT)
    assert ran.code == 2
    assert "3 nodes" in ran.out
    assert f"{tmp_path}/broken.yaml:2:1: " in ran.err


def test_a_path_that_is_not_there(run, tmp_path):
    ran = run("ledger", "show", "--cluster", tmp_path / "nothing")
    assert ran.code == 2
    assert ran.err == f"allocguard: {tmp_path}/nothing: cannot be read: no such file or directory; check the path\n"


def fit(run, example, *options):
    claim = example / "manifests" / "claim.yaml"
    return run("ledger", "fit", "--claim", claim, "--cluster", example / "cluster", *AT, *options)


def test_fit_tells_each_node_and_what_would_help(run, example):
    ran = fit(run, example, "-o", "json")
    value = json.loads(ran.out)
    assert ran.code == 1
    assert value["verdict"] == "nowhere"
    reasons = {node["node"]: {reason["rule"] for reason in node["reasons"]} for node in value["nodes"]}
    assert "node-overcommit" in reasons["anvil-1"]
    assert "pool-incomplete" in reasons["anvil-2"]
    assert {"kind": "node-grow", "node": "anvil-1", "claim": "", "resource": "cpu", "amount": "2"} in value[
        "smallestChange"
    ]
    text = fit(run, example).out
    assert text.startswith("fits nowhere: 0 of 3 nodes\n")
    assert "  give anvil-1 2 more of cpu\n" in text


def test_fit_counts_the_pod_too(run, example, tmp_path):
    (tmp_path / "small.yaml").write_text((example / "manifests" / "claim.yaml").read_text().replace('"12"', '"10"'))
    claim = ("ledger", "fit", "--claim", tmp_path / "small.yaml", "--cluster", example / "cluster", *AT)
    assert run(*claim).code == 0
    assert run(*claim).out.startswith("fits somewhere: 1 of 3 nodes\n")
    pod = yaml.safe_load_all((example / "cluster" / "pending.yaml").read_text())
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(next(each for each in pod if each["kind"] == "Pod")))
    assert run(*claim, "--pod", tmp_path / "pod.yaml").code == 1


def test_fit_of_several_pods_has_room_for_all_of_them_at_once(run, example, tmp_path):
    given = yaml.safe_load((example / "manifests" / "claim.yaml").read_text().replace('"12"', '"5"'))
    meta = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "cores", "namespace": "studio"},
    }
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "studio"},
            "spec": {
                "containers": [{"name": "main", "image": "i", "resources": {"claims": [{"name": "cpus"}]}}],
                "resourceClaims": [{"name": "cpus", "resourceClaimTemplateName": "cores"}],
            },
        }
        for name in ("one", "two", "three")
    ]
    (tmp_path / "template.yaml").write_text(yaml.safe_dump({**meta, "spec": {"spec": given["spec"]}}))
    (tmp_path / "pods.yaml").write_text(yaml.safe_dump_all(pods))
    (tmp_path / "two.yaml").write_text(yaml.safe_dump_all(pods[:2]))
    options = ("ledger", "fit", "--claim", tmp_path / "template.yaml", "--cluster", example / "cluster", *AT)
    ran = run(*options, "--pod", tmp_path / "two.yaml")
    assert (ran.code, ran.out) == (
        0,
        "fits: 2 of 2 have room at once\n"
        "  pod studio/one with studio/one-cpus: anvil-1\n"
        "  pod studio/two with studio/two-cpus: anvil-1\n",
    )
    ran = run(*options, "--pod", tmp_path / "pods.yaml", "-o", "json")
    value = json.loads(ran.out)
    assert (ran.code, value["verdict"]) == (1, "nowhere")
    assert [node["node"] for node in value["nodes"] if node["fits"]] == ["anvil-1"]
    *placed, left = value["placements"]
    assert [(each["pod"], each["node"], each["nodes"]) for each in placed] == [
        ("studio/one", "anvil-1", []),
        ("studio/two", "anvil-1", []),
    ]
    assert (left["pod"], left["claims"], left["node"], left["sure"]) == (
        "studio/three",
        ["studio/three-cpus"],
        "",
        False,
    )
    assert "node-overcommit" in {reason["rule"] for node in left["nodes"] for reason in node["reasons"]}
    # To take it from one of the same set would help nobody.
    assert [(each["kind"], each["node"], each["amount"]) for each in value["smallestChange"]] == [
        ("node-grow", "anvil-1", "5")
    ]
    assert "  pod studio/three with studio/three-cpus: no node after the others; another order may fit\n" in (
        run(*options, "--pod", tmp_path / "pods.yaml").out
    )
    pods.append({**pods[0], "metadata": {"name": "four", "namespace": "studio"}})
    (tmp_path / "pods.yaml").write_text(yaml.safe_dump_all(pods))
    lines = run(*options, "--pod", tmp_path / "pods.yaml").out.splitlines()
    # Reasons are told once, however many pods there are, and no line is wider than the terminal.
    assert "    for the same reasons as pod studio/three with studio/three-cpus" in lines
    assert (len([line for line in lines if "node-overcommit" in line]), max(map(len, lines))) == (1, 100)
    pods[0]["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = "gone"
    (tmp_path / "pods.yaml").write_text(yaml.safe_dump_all(pods))
    ran = run(*options, "--pod", tmp_path / "pods.yaml")
    assert ran.code == 2
    assert "pod studio/one: has template studio/gone, which is neither given nor in the cluster" in ran.err


@pytest.mark.parametrize(("option", "what"), [("--claim", "ResourceClaim studio/a"), ("--pod", "Pod studio/a")])
def test_fit_of_two_objects_of_one_name(run, example, tmp_path, option, what):
    claim = yaml.safe_load((example / "manifests" / "claim.yaml").read_text())
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "main", "image": "i"}]}}
    for path, obj in (("--claim", claim), ("--pod", pod)):
        named = {**obj, "metadata": {"name": "a", "namespace": "studio"}}
        (tmp_path / path).write_text(yaml.safe_dump_all([named] * (2 if path == option else 1)))
    given = ("--claim", tmp_path / "--claim", "--pod", tmp_path / "--pod")
    ran = run("ledger", "fit", *given, "--cluster", example / "cluster", *AT)
    assert ran.code == 2
    assert f"two of {what} are given: leave one out, or give each a name of its own" in ran.err


def test_a_claim_that_does_not_decode_fits_nowhere(run, example, tmp_path):
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": 7}
    (tmp_path / "claim.yaml").write_text(yaml.safe_dump(claim))
    ran = run("ledger", "fit", "--claim", tmp_path / "claim.yaml", "--cluster", example / "cluster", *AT, "-o", "json")
    value = json.loads(ran.out)
    assert (ran.code, value["verdict"], value["smallestChange"]) == (1, "nowhere", [])
    assert [reason["rule"] for node in value["nodes"] for reason in node["reasons"]] == ["decode"] * 3


@pytest.mark.parametrize("pods", [1, 2])
@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"containers": [{"name": "m", "resources": {"requests": {"cpu": "-1"}}}]}, "containers[0].resources.requests"),
        (
            {"initContainers": [{"name": "i", "resources": {"limits": {"cpu": "-1"}}}]},
            "initContainers[0].resources.requests",
        ),
        ({"resources": {"requests": {"cpu": "-1"}}}, "resources.requests"),
        ({"overhead": {"cpu": "-1"}}, "overhead"),
    ],
)
def test_a_pod_that_asks_for_less_than_nothing_fits_nowhere(run, example, tmp_path, spec, path, pods):
    rows = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{number}", "namespace": "studio"}, "spec": spec}
        for number in range(pods)
    ]
    (tmp_path / "pods.yaml").write_text(yaml.safe_dump_all(rows))
    ran = fit(run, example, "--pod", tmp_path / "pods.yaml", "-o", "json")
    value = json.loads(ran.out)
    assert (ran.code, value["verdict"]) == (1, "nowhere")
    found = {(reason["path"], reason["message"]) for node in value["nodes"] for reason in node["reasons"]}
    assert found == {(f"spec.{path}[cpu]", f"has in Pod p{number} -1, needs zero or more") for number in range(pods)}


@pytest.mark.parametrize("pods", [0, 2])
def test_a_claim_of_a_class_that_is_not_there_fits_nowhere(run, example, tmp_path, pods):
    alternatives = [{"name": name, "deviceClassName": of} for name, of in (("a", "cpus.ferrite.example"), ("b", "no"))]
    spec = {"devices": {"requests": [{"name": "r", "firstAvailable": alternatives}]}}
    head = {"apiVersion": "resource.k8s.io/v1", "metadata": {"name": "t", "namespace": "default"}}
    claim = {**head, "kind": "ResourceClaimTemplate", "spec": {"spec": spec}}
    uses = [{"name": "x", "resourceClaimTemplateName": "t"}]
    users = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{number}", "namespace": "default"}}
        | {"spec": {"containers": [{"name": "m", "image": "m"}], "resourceClaims": uses}}
        for number in range(pods)
    ]
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all([claim, *users]))
    given = ["--claim", tmp_path / "all.yaml", *(["--pod", tmp_path / "all.yaml"] if pods else [])]
    ran = run("ledger", "fit", *given, "--cluster", example / "cluster", *AT, "-o", "json")
    value = json.loads(ran.out)
    assert (ran.code, value["verdict"]) == (1, "nowhere")
    (reason,) = {node["reasons"][0]["message"] for node in value["nodes"]}
    assert reason.startswith("has for claim default/t device class no, which is not there, needs a DeviceClass")
    assert value["nodes"][0]["reasons"][0]["path"] == "spec.devices.requests[0].firstAvailable[1].deviceClassName"


def test_fit_refuses_what_is_no_claim(run, example, tmp_path):
    node = example / "cluster" / "nodes.yaml"
    ran = run("ledger", "fit", "--claim", node, "--cluster", example / "cluster", *AT)
    assert ran.code == 2
    assert ran.err.startswith(f"allocguard: {node}:3:1: has the kind 'Node', needs ResourceClaim")


def test_a_cluster_folder_without_files_is_told(run, tmp_path):
    ran = run("ledger", "show", "--cluster", tmp_path)
    assert ran.code == 0
    assert ran.err == f"allocguard: {tmp_path}: has no YAML or JSON file; name another folder, or files\n"


def test_a_manifest_of_a_pod_and_its_claim_is_read_for_both(run, example, tmp_path):
    claim = (example / "manifests" / "claim.yaml").read_text()
    pod = yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "studio"}})
    both, alone = tmp_path / "both.yaml", tmp_path / "pod.yaml"
    both.write_text(f"{claim}\n---\n{pod}")
    alone.write_text(pod)
    cluster = ("--cluster", example / "cluster", *AT)
    ran = run("ledger", "fit", "--claim", both, "--pod", both, *cluster)
    assert (ran.code, ran.err) == (1, "")
    ran = run("ledger", "fit", "--claim", alone, *cluster)
    assert ran.code == 2
    assert "has the kind 'Pod', needs ResourceClaim or ResourceClaimTemplate; leave it out" in ran.err


def test_what_concerns_many_nodes_or_none_stands_before_the_summary(run, example, tmp_path):
    text = (example / "cluster" / "slices.yaml").read_text().replace("resourceSliceCount: 1", "resourceSliceCount: 2")
    (tmp_path / "slices.yaml").write_text(text)
    ran = run("ledger", "show", "--cluster", example / "cluster", "--cluster", tmp_path, *AT)
    *_, note, summary = ran.out.split("\n\n")
    assert note.startswith("info pools-waiting: DriverRollout ")
    # Wrapped as everything that has no columns.
    assert all(line.startswith("  ") and len(line) <= 100 for line in note.splitlines()[1:])
    assert summary.strip().rpartition(", ")[2] == "1 difference"
