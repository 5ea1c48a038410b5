from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from webhook.kube.policy_report import FAMILIES, LEFT_OUT, MOST, NAME, Row, changed, gravest, ours, report

Json = dict[str, Any]
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
OPEN, OLDER = FAMILIES


def row(name: str = "c", severity: Any = "error", rule: str = "node-overcommit", **more: Any) -> Row:
    fields: Json = {
        "policy": "claim-allocation",
        "rule": rule,
        "severity": severity,
        "path": "status.allocation",
        "message": "has 9, needs 8",
        "fix": "release a claim",
        "api_version": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "namespace": "ns",
        "name": name,
        "uid": f"uid-{name}",
        "category": "Admission",
    }
    return Row(**{**fields, **more})


def counts(rows: list[Row]) -> Any:
    return {name: sum(each.severity == name for each in rows) for name in ("error", "warning", "info")}


def made(rows: list[Row], family: Any = OPEN, now: datetime = NOW, held: Json | None = None) -> Json:
    return report(family, rows[0].namespace, gravest(rows), counts(rows), now, held or {})


def test_a_report_of_a_namespace() -> None:
    assert made([row()]) == {
        "apiVersion": "openreports.io/v1alpha1",
        "kind": "Report",
        "metadata": {"name": "allocguard", "namespace": "ns", "labels": {"app.kubernetes.io/managed-by": "allocguard"}},
        "source": "allocguard",
        "configuration": {"limits": {"maxResults": MOST}},
        "scope": {"apiVersion": "v1", "kind": "Namespace", "name": "ns"},
        "summary": {"pass": 0, "fail": 1, "warn": 0, "error": 0, "skip": 0},
        "results": [
            {
                "source": "allocguard",
                "policy": "claim-allocation",
                "rule": "node-overcommit",
                "category": "Admission",
                "severity": "high",
                "result": "fail",
                "scored": True,
                "message": "status.allocation: has 9, needs 8; release a claim",
                "resources": [
                    {
                        "apiVersion": "resource.k8s.io/v1",
                        "kind": "ResourceClaim",
                        "name": "c",
                        "namespace": "ns",
                        "uid": "uid-c",
                    }
                ],
                "properties": {"path": "status.allocation"},
                "timestamp": {"seconds": 1796040000, "nanos": 0},
            }
        ],
    }


def test_the_cluster_has_one_without_a_scope_and_the_older_kinds_know_less() -> None:
    whole = made([row(kind="Node", namespace="", severity="info")], OLDER)
    assert (whole["apiVersion"], whole["kind"]) == ("wgpolicyk8s.io/v1alpha2", "ClusterPolicyReport")
    assert whole.keys() == {"apiVersion", "kind", "metadata", "summary", "results"}
    assert whole["results"][0]["resources"] == [
        {"apiVersion": "resource.k8s.io/v1", "kind": "Node", "name": "c", "uid": "uid-c"}
    ]
    # The first definitions of PolicyReport refuse the severity info.
    assert (whole["results"][0]["severity"], whole["results"][0]["result"]) == ("low", "warn")
    assert made([row(severity="info")])["results"][0]["severity"] == "info"


@pytest.mark.parametrize(
    ("family", "clustered", "namespace", "path"),
    [
        (OPEN, False, "ns", "/apis/openreports.io/v1alpha1/namespaces/ns/reports"),
        (OPEN, True, "", "/apis/openreports.io/v1alpha1/clusterreports"),
        (OLDER, False, "", "/apis/wgpolicyk8s.io/v1alpha2/policyreports"),
        (OLDER, True, "", "/apis/wgpolicyk8s.io/v1alpha2/clusterpolicyreports"),
    ],
)
def test_paths(family: Any, clustered: bool, namespace: str, path: str) -> None:
    assert family.path(clustered, namespace) == path


def test_gravest_first_and_what_is_left_out_is_counted() -> None:
    rows = [row(f"c{number:03d}", "info") for number in range(MOST)] + [row("z", "error"), row("y", "warning")]
    whole = made(rows)
    assert [each["resources"][0]["name"] for each in whole["results"]][:3] == ["z", "y", "c000"]
    assert len(whole["results"]) == MOST
    assert whole["summary"] == {"pass": 0, "fail": 1, "warn": MOST + 1, "error": 0, "skip": 0}
    assert whole["metadata"]["annotations"] == {LEFT_OUT: "2"}


def test_the_largest_is_no_more_than_etcd_takes() -> None:
    long = {"path": "\U0001d49c" * 5000, "message": "\u2028\U0001d49c" * 5000, "fix": "f" * 5000, "uid": "u" * 36}
    whole = made([row(f"{number:0253}", rule=f"r{number}", **long) for number in range(MOST + 9)])
    assert len(orjson.dumps(whole)) < 1_400_000
    assert all(each["message"].isprintable() for each in whole["results"])


def test_since_when_is_kept_while_it_lasts() -> None:
    first = made([row("a"), row("b")])
    later = NOW + timedelta(hours=1)
    second = made([row("b"), row("c")], now=later, held=first)
    at = {each["resources"][0]["name"]: each["timestamp"]["seconds"] for each in second["results"]}
    assert at == {"b": int(NOW.timestamp()), "c": int(later.timestamp())}


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([row("a"), row("b")], (False, False)),
        ([row("a"), row("b", message="has 9, needs 7")], (True, False)),
        ([row("a")], (True, True)),
        ([row("a"), row("b", "warning")], (True, True)),
        ([row("a"), row("b", uid="another")], (True, True)),
    ],
)
def test_what_is_another_thing_to_say(rows: list[Row], says: tuple[bool, bool]) -> None:
    held = made([row("b"), row("a")])
    assert changed(made(rows, now=NOW + timedelta(days=1), held=held), held) == says


def test_one_that_a_server_has_without_some_fields_is_the_same() -> None:
    whole = made([row()])
    stored = {name: value for name, value in whole.items() if name not in ("source", "configuration")}
    assert changed(whole, stored) == (False, False)


def test_only_those_with_our_name_and_label_are_ours() -> None:
    whole = made([row()])
    assert ours(whole)
    assert not ours({"metadata": {"name": NAME, "labels": {"app.kubernetes.io/managed-by": "kyverno"}}})
    assert not ours({"metadata": {**whole["metadata"], "name": "other"}})
    assert not ours({"metadata": None})
