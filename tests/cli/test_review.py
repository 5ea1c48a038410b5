import json

import pytest
import yaml

from webhook.cli.reviewing import Write

AT = ("--at", "2026-11-20T09:00:00Z")


@pytest.fixture
def cluster(example):
    return ("--cluster", example / "cluster", *AT)


def test_one_answer_a_line_in_the_order_of_the_files(run, example, cluster):
    ran = run("review", example / "reviews", *cluster)
    answers = [json.loads(line)["response"] for line in ran.out.splitlines()]
    assert ran.code == 0
    assert [each["allowed"] for each in answers] == [True, False, False, False, True, False]
    named = [yaml.safe_load(file.read_text())["request"]["uid"] for file in sorted((example / "reviews").iterdir())]
    assert [each["uid"] for each in answers] == named


def test_exit_code_tells_a_denial_when_asked(run, example, cluster):
    denied, allowed = example / "reviews" / "06-claim-node-full.yaml", example / "reviews" / "05-claim-fits.yaml"
    assert run("review", denied, *cluster).code == 0
    assert run("review", denied, "--exit-code", *cluster).code == 1
    assert run("review", allowed, "--exit-code", *cluster).code == 0


def test_json_yaml_a_list_and_standard_input_are_read_alike(run, example, cluster, tmp_path):
    source = example / "reviews" / "06-claim-node-full.yaml"
    value = yaml.safe_load(source.read_text())
    expected = run("review", source, *cluster).out
    (tmp_path / "one.json").write_text(json.dumps(value))
    (tmp_path / "list.yaml").write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [value, value]}))
    assert run("review", tmp_path / "one.json", *cluster).out == expected
    assert run("review", tmp_path / "list.yaml", *cluster).out == expected * 2
    assert run("review", "-", *cluster, stdin=json.dumps(value)).out == expected
    assert run("review", "-", *cluster, stdin=f"{json.dumps(value)}\n{json.dumps(value)}\n").out == expected * 2


def test_the_answer_is_what_the_server_sends(run, example, cluster):
    from datetime import UTC, datetime

    from webhook.admission.action import apply
    from webhook.admission.decide import decide
    from webhook.admission.decode import read_review
    from webhook.admission.respond import respond
    from webhook.cluster.files import Cluster
    from webhook.ledger.book import Book
    from webhook.store import policies

    source = example / "reviews" / "06-claim-node-full.yaml"
    request = read_review(yaml.safe_load(source.read_text()))
    snapshot = Cluster([str(example / "cluster")]).snapshot
    revision = policies.read([policies.shipped()])
    verdict = decide(request, "validate", revision, snapshot, Book(), datetime(2026, 11, 20, 9, tzinfo=UTC))
    assert run("review", source, *cluster).out.encode() == respond(apply(verdict)) + b"\n"


def test_a_bare_object_is_reviewed_as_if_written(run, example, cluster):
    ran = run("review", "--object", example / "manifests" / "slice.yaml", *cluster)
    assert json.loads(ran.out)["response"]["allowed"] is False


def test_a_status_write_is_built_from_two_objects(run, example, cluster, tmp_path):
    request = yaml.safe_load((example / "reviews" / "06-claim-node-full.yaml").read_text())["request"]
    new, old = tmp_path / "new.yaml", tmp_path / "old.yaml"
    new.write_text(yaml.safe_dump(request["object"]))
    old.write_text(yaml.safe_dump(request["oldObject"]))
    ran = run("review", "--object", new, "--old", old, "--operation", "UPDATE", "--subresource", "status", *cluster)
    response = json.loads(ran.out)["response"]
    assert "claim-allocation/node-overcommit" in response["status"]["message"]
    assert response["uid"]


def test_a_delete_has_only_the_old_object(run, example, cluster):
    ran = run("review", "--object", example / "manifests" / "slice.yaml", "--operation", "DELETE", *cluster)
    assert json.loads(ran.out)["response"]["allowed"] is True


@pytest.mark.parametrize(
    ("content", "place", "told"),
    [
        ("kind: Pod\napiVersion: v1\n", "1:1", "needs AdmissionReview"),
        ('{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}', "1:1", "request: has nothing"),
        (
            "apiVersion: admission.k8s.io/v1\nkind: AdmissionReview\nrequest:\n  uid: x\n  operation: MOVE\n",
            "5:3",
            "request.operation",
        ),
        ('{"kind": "AdmissionReview",', "1:28", ""),
        ("a: b: c", "1:5", ""),
    ],
)
def test_what_is_no_review_is_told_with_its_place(run, cluster, tmp_path, content, place, told):
    file = tmp_path / "x.yaml"
    file.write_text(content)
    ran = run("review", file, *cluster)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith(f"allocguard: {file}:{place}: ")
    assert told in ran.err


def test_a_broken_review_leaves_the_others_alone(run, example, cluster, tmp_path):
    (tmp_path / "broken.json").write_text("{")
    ran = run("review", tmp_path, example / "reviews" / "05-claim-fits.yaml", *cluster)
    assert ran.code == 2
    assert len(ran.out.splitlines()) == 1


@pytest.mark.parametrize("command", ["review", "explain"])
def test_of_reviews_that_were_cut_off_the_whole_ones_are_read(run, example, cluster, tmp_path, command):
    whole = json.dumps(yaml.safe_load((example / "reviews" / "05-claim-fits.yaml").read_text()))
    (tmp_path / "cut.json").write_text(f"{whole}\n{whole[:200]}")
    (tmp_path / "whole.json").write_text(whole)
    ran = run(command, tmp_path / "cut.json", *cluster)
    assert ran.code == 2
    assert ran.out == run(command, tmp_path / "whole.json", *cluster).out
    [told] = ran.err.splitlines()
    assert told.startswith(f"allocguard: {tmp_path / 'cut.json'}:2:")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["x.json", "--user", "u"],
        ["--object", "x", "--old", "y"],
        ["--object", "x", "--operation", "UPDATE"],
        ["--object", "x", "--extra", "no-value"],
    ],
)
def test_options_that_do_not_go_together_are_refused(run, cluster, arguments):
    ran = run("review", *arguments, *cluster)
    assert ran.code == 2
    assert "see `allocguard review --help`" in ran.err


def test_the_writer_is_who_the_options_say(run, example, cluster):
    from webhook.cli.reviewing import requests

    described = Write((str(example / "manifests" / "slice.yaml"),), "CREATE", (), "me", ("a", "b"), (("k", "v"),), "")
    (request,) = requests([], described)
    assert (request.user, request.groups, dict(request.extra)) == ("me", ("a", "b"), {"k": ("v",)})
