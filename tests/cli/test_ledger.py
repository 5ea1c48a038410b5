import json

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
    assert "  zone 0  cpu             15       8     7\n" in told
    assert "studio/render" in told
    assert "8 \u00d7 1" in told
    assert "pool Rebuilding cpu.ferrite.example anvil-2" in told
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
