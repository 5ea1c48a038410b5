from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from webhook.admission.action import ANNOTATION_SIZE, MAX_CAUSES, WARNING_SIZE, WARNINGS_SIZE, Answer, apply
from webhook.admission.decide import Judged, Verdict, decide
from webhook.kube.admission import raw_request, read_request
from webhook.kube.core import GATE
from webhook.kube.finding import Finding, cause
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book
from webhook.policy.compile import compile_files
from webhook.policy.evaluate import FAILED, evaluate
from webhook.policy.revision import Revision, audited

PODS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
REQUEST = read_request({"uid": "u-1", "operation": "CREATE"})
EVALUATION = evaluate(Revision("abc", ()), REQUEST, "validate", Snapshot(), Book(), datetime(2026, 11, 29, tzinfo=UTC))


def finding(rule: str = "key-unknown", severity: Any = "error", **more: Any) -> Finding:
    return Finding(rule, "spec.devices[0]", "foo", "cpu", "name a resource", severity, **more)


def answer(*judged: Judged, **more: Any) -> Answer:
    values: dict[str, Any] = {"errors": (), "annotations": {}} | more
    return apply(Verdict(REQUEST, "validate", "abc", judged, evaluation=EVALUATION, **values))


@pytest.mark.parametrize(
    ("action", "severity", "allowed", "warned"),
    [
        ("Deny", "error", False, False),
        ("Deny", "warning", True, True),
        ("Deny", "info", True, False),
        ("Warn", "error", True, True),
        ("Warn", "warning", True, True),
        ("Warn", "info", True, False),
        ("Hold", "error", True, True),
        ("Hold", "warning", True, True),
        ("Hold", "info", True, False),
        ("Audit", "error", True, False),
        ("Audit", "warning", True, False),
        ("Audit", "info", True, False),
    ],
)
def test_severity_and_action_decide(action: str, severity: str, allowed: bool, warned: bool) -> None:
    given = answer(Judged("p", action, finding(severity=severity)))
    assert (given.allowed, bool(given.warnings)) == (allowed, warned)
    assert given.annotations == {"revision": "abc", "findings": "p/key-unknown"}


def test_nothing_found_is_allowed_with_the_revision_alone() -> None:
    assert answer() == Answer("u-1", True, annotations={"revision": "abc"})


def test_a_denial_names_the_first_and_how_many_more_and_each_as_a_cause() -> None:
    wrong = cause("field-immutable", "spec", "FieldValueForbidden", "another", "the same")
    given = answer(Judged("a", "Deny", finding()), Judged("b", "Deny", wrong))
    assert given.message == "a/key-unknown: spec.devices[0]: has foo, needs cpu; name a resource (and 1 more)"
    assert [(c.reason, c.field) for c in given.causes] == [
        ("FieldValueInvalid", "spec.devices[0]"),
        ("FieldValueForbidden", "spec"),
    ]
    assert given.causes[1].message == "b/field-immutable: spec: has another, needs the same"


def test_a_policy_that_failed_does_not_hide_what_another_found() -> None:
    failed = Judged("a", "Deny", Finding(FAILED, "", "x could not be judged: division by zero", ""))
    given = answer(failed, Judged("b", "Deny", finding()))
    assert given.message.startswith("b/key-unknown: ")
    assert answer(failed).message == "a/evaluation-failed: x could not be judged: division by zero"


def test_warnings_are_short_errors_first_and_none_twice() -> None:
    warning = Judged("a", "Warn", finding("second", "warning"))
    error = Judged("b", "Warn", Finding("first", "spec", "x" * 500, "y"))
    given = answer(warning, error, warning)
    assert [text.partition(":")[0] for text in given.warnings] == ["b/first", "a/second"]
    assert len(given.warnings[0]) == WARNING_SIZE
    assert given.warnings[0].endswith("...")


def test_a_long_path_leaves_a_warning_room_for_what_is_wrong() -> None:
    path = f"status.allocation.devices.results[0].consumedCapacity[{'x' * 60}]"
    given = answer(Judged("a", "Warn", Finding("rule", path, "47 of cpus", "at most 31")))
    assert given.warnings == ("a/rule: has 47 of cpus, needs at most 31",)
    assert answer(Judged("a", "Warn", finding())).warnings == (
        "a/key-unknown: spec.devices[0]: has foo, needs cpu; name a resource",
    )


def test_many_warnings_stay_within_what_the_api_server_passes_on() -> None:
    given = answer(*(Judged("a", "Warn", finding(f"rule-{number}", "warning")) for number in range(500)))
    assert sum(map(len, given.warnings)) <= WARNINGS_SIZE
    assert given.warnings[-1] == f"and {500 - len(given.warnings) + 1} more; the audit log has them all"


def test_thousands_of_long_findings_make_a_small_answer() -> None:
    long = Finding("rule", "spec." + "p" * 100_000, "x" * 100_000, "y", "z" * 100_000)
    given = answer(*(Judged("a", "Deny", long) for _ in range(5000)))
    assert len(given.causes) == MAX_CAUSES + 1
    assert given.causes[-1].message == f"{5000 - MAX_CAUSES} more findings are not listed"
    assert sum(len(c.message) + len(c.field) for c in given.causes) + len(given.message) < 1 << 20


def test_texts_stay_on_one_line() -> None:
    given = answer(Judged("a", "Deny", Finding("rule", "spec[\n]", "a\r\nb", "c\x1b[0m", "d\n")))
    assert (given.message + given.causes[0].message + given.causes[0].field).isprintable()


def test_exceptions_errors_and_annotations_of_policies_are_audited() -> None:
    excepted = Judged("p", "Audit", finding(), "migration (ticket OPS-1)")
    given = answer(excepted, excepted, errors=("q/rule: no such key",), annotations={"p.note": "x"})
    assert given.allowed
    assert given.annotations == {
        "p.note": "x",
        "revision": "abc",
        "findings": "p/key-unknown",
        "exceptions": "p/migration (ticket OPS-1)",
        "errors": "q/rule: no such key",
    }


def test_no_audit_annotation_is_longer_than_the_audit_log_should_have() -> None:
    many = [Judged("p" * 60, "Audit", finding(f"rule-{i}"), f"exception-{i} (ticket OPS-1)") for i in range(300)]
    errors = tuple(f"q/rule-{i}: no such key: {'x' * 60}" for i in range(300))
    given = answer(*many, errors=errors, annotations={"p.note": "n" * 30_000, "p.lines": "two\nlines " * 3000})
    assert set(given.annotations) == {"p.note", "p.lines", "revision", "findings", "errors", "exceptions"}
    assert {key: len(value) for key, value in given.annotations.items() if key != "revision"} == dict.fromkeys(
        ("p.note", "p.lines", "findings", "errors", "exceptions"), ANNOTATION_SIZE
    )
    assert all(value.isprintable() for value in given.annotations.values())


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"matchConditions": [{"name": "c0", "expression": "object.nope"}]}, "p/c0: 1:7: no such key: nope"),
        (
            {"matchConstraints": {"resourceRules": [PODS], "namespaceSelector": {"matchLabels": {"team": "a"}}}},
            "p/namespaceSelector: namespace ns is not known, needs its labels for the namespaceSelector",
        ),
    ],
)
def test_a_policy_of_which_nobody_can_tell_whether_it_matches_is_audited_under_ignore(
    spec: dict[str, Any], error: str
) -> None:
    policy = {
        "apiVersion": "allocguard.dev/v1alpha1",
        "kind": "AdmissionPolicy",
        "metadata": {"name": "p"},
        "spec": {
            "matchConstraints": {"resourceRules": [PODS]},
            "validations": [{"name": "r", "expression": "false"}],
            "action": "Deny",
            "failurePolicy": "Ignore",
            **spec,
        },
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": "ns"}, "spec": {}}
    revision = compile_files({"p.yaml": orjson.dumps(policy)})
    now = datetime(2026, 11, 29, tzinfo=UTC)
    given = apply(decide(read_request(raw_request("CREATE", pod)), "validate", revision, Snapshot(), Book(), now))
    assert (given.allowed, given.annotations) == (True, {"revision": revision.hash, "errors": error})


POLICIES = b"""
apiVersion: allocguard.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: labels}
spec:
  endpoint: mutate
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  mutations: [{patchType: JSONPatch, expression: "[{'op': 'add', 'path': '/metadata/labels', 'value': {'a': 'b'}}]"}]
  action: Warn
---
apiVersion: allocguard.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: waits}
spec:
  endpoint: mutate
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{name: closed, expression: "object.metadata.name != 'x'", message: it is closed}]
  action: Hold
"""
LABELS = {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}
GATED = {"op": "add", "path": "/spec/schedulingGates", "value": [{"name": GATE}]}


def mutated(name: str = "x", may_hold: bool = True, **spec: Any) -> Answer:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ns"}, "spec": spec}
    request = read_request(raw_request("CREATE", pod))
    now = datetime(2026, 11, 29, tzinfo=UTC)
    revision = compile_files({"p.yaml": POLICIES})
    return apply(decide(request, "mutate", revision, Snapshot(), Book(), now, may_hold=may_hold))


def test_a_hold_is_a_gate_after_the_patches_of_policies_and_says_why() -> None:
    given = mutated()
    assert (given.allowed, given.held, given.patch) == (True, True, (LABELS, GATED))
    assert given.warnings == ("waits/closed: it is closed",)
    assert given.annotations["held"] == "waits/closed: it is closed"
    assert given.annotations["mutations"] == "labels"


def test_nothing_found_holds_nothing() -> None:
    given = mutated("y")
    assert (given.held, given.patch, given.warnings) == (False, (LABELS,), ())
    assert "held" not in given.annotations


@pytest.mark.parametrize(
    "fields", [{"may_hold": False}, {"nodeName": "n1"}, {"schedulingGates": [{"name": "other"}, {"name": GATE}]}]
)
def test_where_no_gate_is_to_be_put_a_hold_only_warns(fields: dict[str, Any]) -> None:
    given = mutated(**fields)
    assert (given.held, given.patch) == (False, (LABELS,))
    assert given.warnings == ("waits/closed: it is closed",)
    assert "held" not in given.annotations


def test_policies_that_are_only_audited_change_and_hold_nothing() -> None:
    revision = audited(compile_files({"p.yaml": POLICIES}))
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": "ns"}, "spec": {}}
    now = datetime(2026, 11, 29, tzinfo=UTC)
    given = apply(decide(read_request(raw_request("CREATE", pod)), "mutate", revision, Snapshot(), Book(), now))
    assert (given.patch, given.held, given.warnings) == ((), False, ())
    assert given.annotations["findings"] == "waits/closed"
