import json
import os

import pytest
import yaml

from webhook.cli import judge

NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "u1"},
        "status": {"allocatable": {"cpu": "8", "memory": "32Gi"}}}  # fmt: skip
AT = ("--at", "2026-11-20T09:00:00Z")


def slice_of(name, mapping, field="nodeAllocatableResourceMappings", generation=1):
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": "cpu.example",
            "nodeName": "n1",
            "pool": {"name": "n1", "generation": generation, "resourceSliceCount": 1},
            "devices": [{"name": "cpu-0", field: mapping}],
        },
    }


GOOD = slice_of("good", {"cpu": {"allocationMultiplier": "2"}})
BAD = slice_of("bad", {"cpus": {"allocationMultiplier": "2"}})


@pytest.fixture
def check(run, tmp_path, monkeypatch):
    """Checks objects (or the bytes of a file) and gives exit code, findings by rule, and what was told."""
    monkeypatch.chdir(tmp_path)

    def check(*objects, options=()):
        for number, obj in enumerate(objects):
            data = obj if isinstance(obj, bytes) else yaml.safe_dump(obj).encode()
            (tmp_path / f"{number}.yaml").write_bytes(data)
        ran = run("check", *(f"{number}.yaml" for number in range(len(objects))), *AT, "-o", "json", *options)
        assert ran.out, ran.err
        return ran.code, {each["rule"]: each for each in json.loads(ran.out)["findings"]}, ran.err

    return check


def test_a_good_object_passes_without_any_cluster(check):
    code, found, told = check(GOOD)
    assert code == 0
    assert {each["severity"] for each in found.values()} <= {"info"}
    assert told == ""


def test_what_decoder_and_policy_both_see_is_told_once_in_the_form_of_v1beta1_too(check):
    old = slice_of("old", {})
    basic = {"nodeAllocatableResourceMappings": {"memory": {"allocationMultiplier": "8 GB"}}}
    old["apiVersion"] = "resource.k8s.io/v1beta1"
    old["spec"]["devices"] = [{"name": "cpu-0", "basic": basic}]
    _, found, _ = check(NODE, old)
    assert found["multiplier-not-quantity"]["policy"] == "schema"


def test_a_finding_names_policy_place_and_fix(check):
    code, found, _ = check(NODE, BAD)
    finding = found["key-unknown"]
    assert code == 1
    assert finding["policy"] == "slice-mappings"
    assert finding["origin"] == "guard"
    assert finding["severity"] == "error"
    assert finding["path"] == "spec.devices[0].nodeAllocatableResourceMappings[cpus]"
    assert finding["message"].startswith("has ")
    assert (finding["file"], finding["document"]) == ("1.yaml", 1)
    assert (finding["apiVersion"], finding["kind"]) == ("resource.k8s.io/v1", "ResourceSlice")
    assert (finding["namespace"], finding["name"]) == ("", "bad")
    assert finding["line"] > 1


def test_one_at_which_the_guard_fails_is_told_and_the_others_are_judged(check, monkeypatch):
    rest = judge.at_rest

    def at_rest(obj, *more):
        if obj["metadata"]["name"] == "good":
            raise RecursionError("too deep")
        return rest(obj, *more)

    monkeypatch.setattr(judge, "at_rest", at_rest)
    code, found, _ = check(GOOD, BAD)
    assert code == 1
    assert (found["not-judged"]["policy"], found["not-judged"]["name"]) == ("guard", "good")
    assert "(RecursionError: too deep)" in found["not-judged"]["message"]
    assert found["key-unknown"]["name"] == "bad"


def test_the_api_servers_own_rules_are_told_apart(check):
    _, found, _ = check(slice_of("x", [1]))
    assert found["mapping-is-list"]["origin"] == "apiserver"


def test_files_are_part_of_the_cluster_unless_alone(check):
    too_much = slice_of("much", {"cpu": {"allocationMultiplier": "9"}})
    assert "sum-exceeds-node" in check(NODE, too_much)[1]
    assert "sum-exceeds-node" not in check(NODE, too_much, options=["--alone"])[1]


def test_an_object_is_judged_without_itself(check):
    code, found, _ = check(NODE, GOOD, options=["--cluster", "1.yaml"])
    assert code == 0
    assert "device-name-dup-in-pool" not in found


def test_the_later_of_two_counts_and_that_is_told(check):
    code, _, told = check(NODE, GOOD, GOOD)
    assert code == 0
    told_of = "ResourceSlice good stands in document 1 of 1.yaml too, the later one counts"
    assert told == f"allocguard: 2.yaml: document 1: {told_of}\n"


def test_the_release_is_the_newest_that_fits_the_objects(check):
    newer = {"cpu": {"mapping": {"deviceMultiplier": "2"}}}
    assert "field-from-1.37" not in check(slice_of("a", newer, "nodeAllocatableResources"))[1]
    assert "field-from-1.37" in check(GOOD, slice_of("b", newer, "nodeAllocatableResources"), GOOD, GOOD)[1]
    # A sketch without a type shows which release its author had in mind, too.
    for field, form in (
        ("nodeAllocatableResourceMappings", "allocationMultiplier"),
        ("nodeAllocatableResources", "mapping"),
    ):
        _, found, _ = check({"resourceSlice": {field: {"cpu": {"allocationMultiplier": 2}}}})
        assert f"{field}: {{cpu: {{{form}: " in found["field-from-article"]["fix"]
    both = check(slice_of("a", newer, "nodeAllocatableResources"), options=["--kubernetes-version", "1.36"])
    assert "field-from-1.37" in both[1]


def test_a_gate_that_is_off_drops_the_field(check):
    options = ["--feature-gates", "DRANodeAllocatableResources=false", "--kubernetes-version", "1.36"]
    assert "gate-off-fields-dropped" in check(GOOD, options=options)[1]


def test_a_status_is_judged_as_if_written_now(check, example):
    cluster = ["--cluster", str(example / "cluster")]
    review = yaml.safe_load((example / "reviews" / "06-claim-node-full.yaml").read_text())
    code, found, _ = check(review["request"]["object"], options=cluster)
    assert code == 1
    assert found["node-overcommit"]["path"] == "status.allocation"
    code, found, _ = check(review["request"]["oldObject"], options=cluster)
    assert code == 0
    assert "node-overcommit" not in found


def test_a_recorded_review_is_judged_too(check, example):
    review = yaml.safe_load((example / "reviews" / "06-claim-node-full.yaml").read_text())
    code, found, _ = check(review, options=["--cluster", str(example / "cluster")])
    assert code == 1
    assert found["node-overcommit"]["path"] == "request.object.status.allocation"
    review["request"]["operation"] = "MOVE"
    code, found, _ = check(review)
    assert code == 1
    assert found["review-invalid"]["path"] == "request.operation"


def test_documents_of_our_own_group(check):
    own = {"apiVersion": "allocguard.dev/v1alpha1", "metadata": {"name": "cpu.example"}}
    code, found, _ = check({**own, "kind": "DriverRollout", "spec": {"stage": "canary"}})
    assert code == 1
    assert found
    code, found, _ = check({**own, "kind": "AdmissionPolicy", "spec": {"action": "Hold"}})
    assert code == 1
    assert {each["policy"] for each in found.values()} == {"policy"}
    rule = {"name": "r", "expression": "object.spec +"}
    code, found, _ = check({**own, "kind": "AdmissionPolicy", "spec": {"validations": [rule], "mutations": []}})
    assert found["policy-invalid"]["path"].startswith("spec")
    assert not found["policy-invalid"]["message"].startswith("spec")
    code, found, _ = check({**own, "kind": "PolicyTest", "spec": 7})
    assert (code, found["policy-invalid"]["path"]) == (1, "spec")
    code, found, _ = check({**own, "kind": "Rollout"})
    assert (code, found["kind-unknown"]["path"]) == (1, "kind")


def test_a_canary_selector_is_judged_by_the_nodes_that_are_given(check, tmp_path):
    def rollout(**labels):
        spec = {"stage": "Canary", "canaryNodeSelector": {"matchLabels": labels}}
        return {
            "apiVersion": "allocguard.dev/v1alpha1",
            "kind": "DriverRollout",
            "metadata": {"name": "d.x"},
            "spec": spec,
        }

    def node(name, **labels):
        return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}

    nodes = [node("n1", pool="gpu", canary="yes"), node("n2", pool="gpu")]
    assert check(rollout(pool="cpu"))[:2] == (0, {})
    assert check(rollout(canary="yes"), *nodes)[:2] == (0, {})
    (tmp_path / "nodes.yaml").write_text(yaml.safe_dump_all(nodes))
    for given, message in (
        ("cpu", "has no node that it chooses, needs one"),
        ("gpu", "has all 2 nodes, needs labels that"),
    ):
        for objects, options in (
            ([rollout(pool=given), *nodes], []),
            ([rollout(pool=given)], ["--cluster", tmp_path / "nodes.yaml"]),
        ):
            code, found, _ = check(*objects, options=options)
            (each,) = found.values()
            assert (code, each["severity"], each["path"]) == (0, "warning", "spec.canaryNodeSelector")
            assert each["message"].startswith(message)
    # A selector that is wrong is told as that.
    wrong = rollout()
    wrong["spec"]["canaryNodeSelector"] = {"matchExpressions": [{"key": "pool", "operator": "Is"}]}
    assert {each["severity"] for each in check(wrong, *nodes)[1].values()} == {"error"}


def test_a_policys_action_decides_how_grave_a_finding_is(check, tmp_path):
    policy = """
apiVersion: allocguard.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: mine}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [resource.k8s.io], apiVersions: [v1], operations: [CREATE], resources: [resourceslices]}
  validations:
  - {name: never, expression: "false", message: never}
  action: %s
"""
    for action, severity, expected in (("Deny", "error", 1), ("Warn", "warning", 0), ("Audit", "info", 0)):
        (tmp_path / "policy.yaml").write_text(policy % action)
        code, found, _ = check(GOOD, options=["--policies", str(tmp_path / "policy.yaml")])
        assert (code, found["never"]["severity"]) == (expected, severity)


HOSTILE = {
    "nothing": b"",
    "binary": bytes(range(256)),
    "utf-16": "kind: Node".encode("utf-16"),
    "truncated": b'{"kind": "Node", "metadata": {',
    "tab": b"kind:\tNode\n\tname: x\n",
    "deep": b"[" * 100_000,
    "duplicate": b"kind: Node\nkind: Pod\n",
    "anchors": b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
        b"%c: &%c [%s]\n" % (n + 1, n + 1, b",".join([b"*%c" % n] * 9)) for n in range(97, 107)
    ),
    "python": b"!!python/object/apply:os.system [id]",
    "plain": b"just text",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_text_that_is_no_document_is_exit_code_2_and_the_rest_is_judged(check, name):
    code, found, told = check(HOSTILE[name], BAD)
    assert code == 2
    assert "key-unknown" in found
    assert told.startswith("allocguard: 0.yaml:")
    assert "Traceback" not in told


SHAPES = [None, 7, "x", [], [None], {}, {"x": None}, True, -1]


KINDS = {
    **dict.fromkeys(("ResourceSlice", "ResourceClaim", "ResourceClaimTemplate", "DeviceClass"), "resource.k8s.io/v1"),
    **dict.fromkeys(("Pod", "Node", "Namespace"), "v1"),
    **dict.fromkeys(("DriverRollout", "AdmissionPolicy", "PolicyTest"), "allocguard.dev/v1alpha1"),
    "AdmissionReview": "admission.k8s.io/v1",
}


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_types_anywhere_never_break_the_run(check, kind):
    base = {"apiVersion": KINDS[kind], "kind": kind}
    objects = [
        {**base, **({"metadata": shape} if field == "metadata" else {"metadata": {"name": "x"}, field: shape})}
        for field in ("metadata", "spec", "status", "request")
        for shape in SHAPES
    ]
    code, _, _ = check("---\n".join(yaml.safe_dump(each) for each in objects).encode())
    assert code in (0, 1)


@pytest.mark.parametrize("obj", [{"kind": 7}, {"apiVersion": [], "kind": {}}, {"x": 1}, {"kind": "Node"}])
def test_an_object_without_a_type_is_a_finding(check, obj):
    code, found, _ = check(obj)
    assert code == 1
    assert found


def test_a_missing_path_and_an_unreadable_file_leave_the_rest(run, tmp_path):
    (tmp_path / "good.yaml").write_text(yaml.safe_dump(GOOD))
    ran = run("check", tmp_path / "gone.yaml", tmp_path / "good.yaml", *AT)
    assert ran.code == 2
    assert ran.err == f"allocguard: {tmp_path}/gone.yaml: cannot be read: no such file or directory; check the path\n"
    assert "1 document" in ran.out
    os.symlink("loop.yaml", tmp_path / "loop.yaml")
    ran = run("check", tmp_path, *AT)
    assert ran.code == 2
    assert "loop.yaml: cannot be read" in ran.err
    assert "1 document" in ran.out


def test_folders_are_read_with_what_is_in_them(run, tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "x.json").write_text(json.dumps(GOOD))
    (tmp_path / "a" / "notes.txt").write_text("not yaml: [")
    ran = run("check", tmp_path, *AT)
    assert (ran.code, ran.err) == (0, "")
    assert "1 document" in ran.out
    (tmp_path / "empty").mkdir()
    ran = run("check", tmp_path / "empty", *AT)
    assert ran.code == 2
    assert "has no YAML or JSON file" in ran.err


def test_standard_input_is_a_file(run):
    ran = run("check", "-", *AT, "-o", "json", stdin=json.dumps(BAD))
    assert ran.code == 1
    assert json.loads(ran.out)["findings"][0]["file"] == "-"
