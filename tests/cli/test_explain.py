import json

import yaml

AT = ("--at", "2026-11-20T09:00:00Z")


def test_text_shows_conditions_rules_sums_and_verdict(run, example):
    ran = run("explain", example / "reviews" / "06-claim-node-full.yaml", "--cluster", example / "cluster", *AT)
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0] == "denied: UPDATE resourceclaims/status studio/batch"
    assert "  fix: release a claim or move a pod there, or allocate elsewhere" in lines
    assert "policy claim-allocation (Deny)" in lines
    assert "  condition allocates-or-adds-a-consumer: true" in lines
    assert "  rule fit: 1 finding" in lines
    assert "  cpu: 30 allocatable - 12 pods - 8 claims - 12 this claim - 1 this pod = -3, does not fit" in lines
    commands = [line for line in lines if line.startswith("    allocguard ")]
    assert len(commands) == 5
    assert max(len(line) for line in lines if line not in commands) <= 100


def test_json_has_the_same_verdict_as_review(run, example):
    options = (example / "reviews" / "06-claim-node-full.yaml", "--cluster", example / "cluster", *AT)
    tree = json.loads(run("explain", *options, "-o", "json").out)
    response = json.loads(run("review", *options).out)["response"]
    assert tree["verdict"]["allowed"] is response["allowed"]
    assert tree["verdict"]["message"] == response["status"]["message"]
    assert tree["revision"] == response["auditAnnotations"]["revision"]
    assert yaml.safe_load(run("explain", *options, "-o", "yaml").out) == tree


def test_many_reviews_are_many_trees(run, example):
    options = (example / "reviews", "--cluster", example / "cluster", *AT)
    assert (
        len([line for line in run("explain", *options).out.splitlines() if line.startswith(("allowed", "denied"))]) == 6
    )
    assert len(list(yaml.safe_load_all(run("explain", *options, "-o", "yaml").out))) == 6


def test_a_bare_object_can_be_explained(run, example):
    ran = run("explain", "--object", example / "manifests" / "slice.yaml", "--cluster", example / "cluster", *AT)
    assert ran.out.startswith("denied: CREATE resourceslices cpu.ferrite.example-bellows-1-z1r6n\n")


def test_it_needs_something_to_explain(run, example):
    ran = run("explain", "--cluster", example / "cluster")
    assert ran.code == 2
    assert "see `allocguard explain --help`" in ran.err
