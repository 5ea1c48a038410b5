from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from webhook.policy.compile import compile_files
from webhook.store.objects import PolicyObjects
from webhook.store.policies import PolicyStore, shipped


def policy(name: str = "two", expression: str = "true", generation: int = 1, uid: str = "u1") -> dict[str, Any]:
    """An object as the API server gives it."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    return {
        "apiVersion": "allocguard.dev/v1alpha1",
        "kind": "AdmissionPolicy",
        "metadata": {
            "name": name,
            "uid": uid,
            "generation": generation,
            "resourceVersion": str(100 + generation),
            "creationTimestamp": "2026-11-30T02:00:00Z",
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
            "managedFields": [{"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:spec": {}}}],
        },
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"name": "rule", "expression": expression}],
            "action": "Deny",
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """A folder with the policy ``one``."""
    document = policy("one")
    document = {**document, "metadata": {"name": "one"}}
    del document["status"]
    (tmp_path / "one.yaml").write_text(yaml.safe_dump(document))
    return [str(tmp_path)]


def expression(store: PolicyStore, name: str) -> str:
    (compiled,) = (compiled for compiled in store.revision.policies if compiled.name == name)
    return compiled.validations[0].program.source


def test_an_object_says_the_same_as_the_file_it_came_from() -> None:
    for path in Path(shipped()).glob("*.yaml"):
        if path.name.endswith(".test.yaml"):
            continue
        document = yaml.safe_load(path.read_text())
        stored = copy.deepcopy(policy()) | {"spec": document["spec"]}
        stored["metadata"]["name"] = document["metadata"]["name"]
        objects = PolicyObjects()
        objects.take({document["metadata"]["name"]: orjson.loads(orjson.dumps(stored))})
        ((_, entry),) = objects.items()
        (filed,) = compile_files({str(path): path.read_bytes()}).policies
        assert entry.problems == ()
        assert entry.good is not None
        assert entry.good.policy.digest == filed.policy.digest


def test_what_kubectl_prints_of_an_object_is_a_policy_file() -> None:
    printed = yaml.safe_dump(policy("one")).encode()
    bare = {**policy("one"), "metadata": {"name": "one"}}
    assert compile_files({"a.yaml": printed}).hash == compile_files({"b.yaml": yaml.safe_dump(bare).encode()}).hash


def test_files_and_objects_serve_together(files: list[str]) -> None:
    store = PolicyStore(files)
    before = store.revision
    assert store.set_objects({"two": policy()}) == "loaded"
    assert [compiled.name for compiled in store.revision.policies] == ["one", "two"]
    verdict = store.verdicts["two"]
    assert (verdict.uid, verdict.generation, verdict.ready, verdict.reason) == ("u1", 1, True, "Serving")
    assert verdict.message == "serves"
    assert store.set_objects({"two": policy(), "three": policy()}) == "loaded"
    assert store.verdicts["two"] == verdict
    assert store.set_objects({}) == "loaded"
    assert store.revision.hash == before.hash
    assert store.verdicts == {}


def test_an_object_stands_in_place_of_a_file_of_its_name(files: list[str]) -> None:
    store = PolicyStore(files)
    store.set_objects({"one": policy("one", "1 == 1")})
    assert expression(store, "one") == "1 == 1"
    assert store.replaced == ("one",)
    assert store.verdicts["one"].message.endswith("in place of that in the files")
    store.set_objects({})
    assert expression(store, "one") == "true"
    assert store.replaced == ()


def test_a_bad_edit_leaves_what_the_object_said_before_and_holds_nobody_else_up(files: list[str]) -> None:
    store = PolicyStore(files)
    store.set_objects({"two": policy(), "three": policy("three", uid="u3")})
    before = store.revision
    bad = policy(expression="true &&\n  objct == null", generation=2)
    assert store.set_objects({"two": bad, "three": policy("three", uid="u3")}) == "refused"
    assert store.revision.hash == before.hash
    verdict = store.verdicts["two"]
    assert (verdict.generation, verdict.ready, verdict.reason) == (2, False, "DoesNotCompile")
    assert verdict.message.split("\n") == [
        "spec.validations[0].expression:2:3: has the unknown name `objct`; did you mean `object`?",
        "what it said in generation 1 goes on serving",
    ]
    assert [problem.text for problem in store.problems] == [f"admissionpolicy/two: {verdict.message.splitlines()[0]}"]
    assert store.set_objects({"two": bad, "three": policy("three", "2 == 2", 2, "u3")}) == "loaded"
    assert (expression(store, "two"), expression(store, "three")) == ("true", "2 == 2")
    assert store.verdicts["three"].ready
    good = policy(expression="3 == 3", generation=3)
    assert store.set_objects({"two": good, "three": policy("three", "2 == 2", 2, "u3")}) == "loaded"
    assert expression(store, "two") == "3 == 3"
    assert (store.verdicts["two"].generation, store.verdicts["two"].ready) == (3, True)
    assert store.problems == ()


def test_an_object_that_is_bad_from_the_start_is_left_out(files: list[str]) -> None:
    store = PolicyStore(files)
    assert store.set_objects({"two": policy(expression="nope"), "three": policy("three")}) == "refused"
    assert [compiled.name for compiled in store.revision.policies] == ["one", "three"]
    assert store.verdicts["two"].message.endswith("left out: it has not compiled since this server started")
    assert store.set_objects({"one": policy("one", "nope")}) == "refused"
    assert expression(store, "one") == "true"
    assert store.verdicts["one"].message.endswith("the policy of this name in the files serves")


def test_another_object_of_the_same_name_owes_nothing_to_the_one_before(files: list[str]) -> None:
    store = PolicyStore(files)
    store.set_objects({"two": policy()})
    store.set_objects({"two": policy(expression="nope", uid="u2")})
    assert [compiled.name for compiled in store.revision.policies] == ["one"]
    assert store.set_objects({"two": policy(expression="nope", uid="u2")}) == ""


def test_a_write_of_status_or_labels_changes_nothing_that_serves(files: list[str]) -> None:
    store = PolicyStore(files)
    store.set_objects({"two": policy()})
    before, verdicts = store.revision, store.verdicts
    told = policy()
    told["status"] = {"conditions": []}
    told["metadata"] |= {"labels": {"a": "b"}, "resourceVersion": "999"}
    assert store.set_objects({"two": told}) == ""
    assert store.revision is before
    assert store.verdicts == verdicts


def test_a_spec_written_back_as_it_was_is_seen_as_observed(files: list[str]) -> None:
    store = PolicyStore(files)
    store.set_objects({"two": policy()})
    assert store.set_objects({"two": policy(generation=3)}) == ""
    assert store.verdicts["two"].generation == 3


def test_a_null_that_the_server_drops_makes_no_other_revision(files: list[str]) -> None:
    store = PolicyStore(files)
    written = policy()
    written["spec"] |= {"variables": None, "params": {"x": None}}
    written["spec"]["validations"][0]["message"] = None
    store.set_objects({"two": written})
    before = store.revision.hash
    stored = policy()
    stored["spec"]["params"] = {"x": None}
    store.set_objects({"two": stored})
    assert store.revision.hash == before
    stored["spec"] = {**stored["spec"], "params": {}}
    store.set_objects({"two": stored})
    assert store.revision.hash != before


def test_audited_policies_refuse_and_warn_nobody_and_say_so_in_the_revision(files: list[str]) -> None:
    enforced, audited = PolicyStore(files), PolicyStore(files, audit=True)
    for store in (enforced, audited):
        store.set_objects({"two": policy()})
    assert audited.revision.hash == f"{enforced.revision.hash}-audit"
    assert {compiled.policy.action for compiled in enforced.revision.policies} == {"Deny"}
    assert {compiled.policy.action for compiled in audited.revision.policies} == {"Audit"}
    assert audited.verdicts["two"].message == "serves, audited only"


def test_a_policy_about_what_no_webhook_is_sent_is_told_so(files: list[str]) -> None:
    store = PolicyStore(files)
    leases = policy()
    leases["spec"]["matchConstraints"]["resourceRules"][0] |= {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
    }
    store.set_objects({"two": leases})
    first, second = store.verdicts["two"].message.split("\n")
    assert first == "serves"
    assert second.startswith("coordination.k8s.io is not registered: ")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ["matchConstraints", "validations", "action", "params", "variables", "exceptions", "auditAnnotations"]


@settings(max_examples=150, deadline=None)
@given(spec=JSON | st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, JSON)), metadata=JSON, whole=JSON)
def test_any_json_is_refused_without_a_traceback(spec: Any, metadata: Any, whole: Any) -> None:
    objects = PolicyObjects()
    objects.take({"a": {**policy(), "spec": spec}, "b": {**policy(), "metadata": metadata}, "c": whole})
    assert all(entry.problems for name, entry in objects.items() if name != "b")


def test_an_object_nested_without_end_is_refused_and_holds_nobody_up() -> None:
    nested: Any = 1
    for _ in range(900):
        nested = {"a": [nested]}
    deep = policy()
    deep["spec"]["params"] = nested
    objects = PolicyObjects()
    objects.take({"one": policy("one"), "two": deep})
    assert [[problem.text for problem in entry.problems] for _, entry in objects.items()] == [
        [],
        ["admissionpolicy/two: spec: is nested more than 100 levels deep"],
    ]
