"""Refused status writes as real API servers told them, and as nobody should tell them."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from pathlib import Path

import pytest
import yaml

from tests.facts.builders import Json
from tests.facts.refused import EXPECTED
from tests.facts.roles import binding_object, role_object, rule, world
from webhook.facts.narrow_role import narrow_rules
from webhook.facts.rbac_profile import ALLOCATOR, MULTI_NODE, NODE_LOCAL
from webhook.facts.write_failure_advice import _RETRY, _TEXTS, BACKOFF, NEVER, POLICY, REREAD, WAIT, explained, retry
from webhook.facts.write_failure_scope import lack
from webhook.facts.write_failures import CAUSES, Failure, failures
from webhook.facts.writers import Writer
from webhook.kube.audit import read_event
from webhook.kube.snapshot import Snapshot

DATA = Path(__file__).parent / "data"
RECORDED = [
    pytest.param(row, id=f"{release}-{row['row']}-{row['event']['level']}")
    for release in ("1.36", "1.37")
    for row in map(json.loads, (DATA / f"audit-{release}.jsonl").read_text().splitlines())
]


def snapshot_of(objects: list[Json]) -> Snapshot:
    snapshot = Snapshot()
    for obj in objects:
        known = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **obj}
        snapshot = snapshot.put(known)
    return snapshot


def recorded(row: str, release: str = "1.37", level: str = "Metadata") -> Json:
    for line in (DATA / f"audit-{release}.jsonl").read_text().splitlines():
        found: Json = json.loads(line)
        if (found["row"], found["event"]["level"]) == (row, level):
            return found
    raise KeyError(row)


def found(event: Json, snapshot: Snapshot | None = None) -> tuple[Failure, ...]:
    read = read_event(event)
    return () if read is None else failures(read, snapshot or Snapshot())


def failure(row: str, **of: str) -> Failure:
    got = recorded(row, **of)
    [made] = found(got["event"], snapshot_of(got["objects"]))
    return made


def rollout(driver: str, account: str, profile: str, namespace: str = "test-metadata") -> Json:
    writer = {"namespace": namespace, "serviceAccount": account, "profile": profile}
    return {
        "apiVersion": "allocguard.dev/v1alpha1",
        "kind": "DriverRollout",
        "metadata": {"name": driver},
        "spec": {"writers": [writer]},
    }


@pytest.mark.parametrize("row", RECORDED)
def test_every_row_as_it_was_recorded(row: Json) -> None:
    """Each is one of the causes, the same on both releases and with or without the request."""
    made = found(row["event"], snapshot_of(row["objects"]))
    assert tuple((each.cause, each.usual) for each in made) == EXPECTED[row["row"]]
    for each in made:
        text = explained(each).text(POLICY)
        node = f" (node {each.allocated_node})" if each.allocated_node else ""
        assert text.startswith(f"{POLICY}/{each.cause}: test-{row['event']['level'].lower()}/{row['row']}{node}: ")
        assert " has " in text
        assert ", needs " in text
        assert text.endswith((BACKOFF, REREAD, WAIT, NEVER))
        assert text.isprintable()
        assert len(text) < 1024
        user = row["event"]["user"].get("username")
        assert (user or "an unnamed user") in text


@pytest.mark.parametrize("row", RECORDED)
def test_no_rule_that_is_told_is_wider_than_the_reference(row: Json) -> None:
    for each in found(row["event"], snapshot_of(row["objects"])):
        for text in re.findall(r"\{[^}]*\}", explained(each).needs):
            rule = yaml.safe_load(text)
            # YAML takes the colon in a verb as it is meant.
            allowed = [
                known
                for profile in (NODE_LOCAL, MULTI_NODE, ALLOCATOR)
                for known in narrow_rules(profile, each.drivers or ("d",), (each.event.verb,), reports=True)
            ]
            assert rule in allowed
            assert "arbitrary-node" not in text


def test_every_cause_has_words_and_a_time() -> None:
    assert set(_TEXTS) == CAUSES
    assert set(_RETRY) <= CAUSES


def test_what_an_alert_names() -> None:
    """Identity, node, claim, its node, driver, missing verb, which of the usual causes, and the narrow fix."""
    made = failure("driver-other-verb")
    assert made.writer.user == "system:serviceaccount:test-metadata:driver-other-verb"
    assert (made.writer.node, made.allocated_node) == ("n1-metadata", "n1-metadata")
    assert made.uid
    assert made.drivers == ("cpu-metadata.example.org",)
    assert made.missing[0] == "associated-node:patch on resourceclaims/driver"
    assert (made.cause, made.usual) == ("verb-mismatch", "b")
    finding = explained(made)
    rule = (
        "resources: [resourceclaims/driver], resourceNames: [cpu-metadata.example.org], verbs: [associated-node:patch]"
    )
    assert rule in finding.needs
    assert "a role has associated-node:update" in finding.fix
    assert retry(made) == BACKOFF


def test_a_role_for_another_driver_is_shown() -> None:
    assert "a role has it for gpu.example.org" in explained(failure("driver-wrong-names")).fix


def test_a_binding_of_one_namespace_is_named() -> None:
    fix = explained(failure("binding-namespaced")).fix
    assert "it is there by RoleBinding test-metadata/binding-namespaced, which does not count" in fix


def test_a_role_that_came_since() -> None:
    got = recorded("driver-verb-missing")
    rules = [
        {
            "apiGroups": ["resource.k8s.io"],
            "resources": ["resourceclaims/driver"],
            "verbs": ["associated-node:patch"],
            "resourceNames": ["cpu-metadata.example.org"],
        }
    ]
    for obj in got["objects"]:
        if obj["kind"] == "ClusterRole" and obj["metadata"]["name"].startswith("driver-verb-missing"):
            obj["rules"] += rules
    [made] = found(got["event"], snapshot_of(got["objects"]))
    assert (made.cause, made.lack.mistake) == ("driver-verb-missing", "granted")
    assert "the next try may pass" in explained(made).fix


def test_without_roles_nobody_says_which_of_them_it_is() -> None:
    [made] = found(recorded("driver-other-verb")["event"])
    assert (made.cause, made.usual) == ("driver-verb-missing", "")
    assert "(a)" in explained(made).fix
    assert "(d)" in explained(made).fix


@pytest.mark.parametrize(
    ("row", "has", "fix"),
    [
        ("other-node", "a token of node n2-metadata", "no matter of roles"),
        ("token-without-node", "a token that names no node", "mounted into the driver's pod"),
        ("several-nodes", "a claim that is allocated to no single node", "no role for one node covers it"),
        ("no-service-account", "no token of a ServiceAccount", "no matter of roles"),
    ],
)
def test_why_a_writer_is_not_of_the_node(row: str, has: str, fix: str) -> None:
    finding = explained(failure(row))
    assert has in finding.has
    assert fix in finding.fix
    assert "resourceclaims/driver" not in finding.text(POLICY)


def test_a_token_that_was_made_too_early_is_told_apart() -> None:
    got = recorded("token-without-node")
    got["event"]["user"]["extra"]["authentication.kubernetes.io/pod-name"] = ["p"]
    [made] = found(got["event"], snapshot_of(got["objects"]))
    assert "made before its pod was on a node" in explained(made).has
    assert "make the pod anew" in explained(made).fix


@pytest.mark.parametrize("profile", ["MultiNode", "AnyNode"])
def test_a_writer_of_no_node_lacks_a_right_and_no_token(profile: str) -> None:
    """Such a writer needs no node: its role has to say so, and then it is told the rule for that."""
    got = recorded("other-node")
    driver = "cpu-metadata.example.org"
    [made] = found(got["event"], snapshot_of([*got["objects"], rollout(driver, "other-node", profile)]))
    assert (made.cause, made.usual) == ("verb-mismatch", "b")
    assert f"resourceNames: [{driver}], verbs: [arbitrary-node:patch]" in explained(made).needs


def test_a_stranger_is_told_no_rule() -> None:
    """Where the operator has named who writes for the driver, another account is not told how to."""
    for row in ("driver-verb-missing", "role-missing"):
        got = recorded(row)
        snapshot = snapshot_of([*got["objects"], rollout("cpu-metadata.example.org", "plugin", "NodeLocal")])
        [made] = found(got["event"], snapshot)
        assert "one of the accounts that the DriverRollout of cpu-metadata.example.org names" in explained(made).needs
        assert "apiGroups" not in explained(made).text(POLICY)
        assert retry(made) == NEVER


def test_a_driver_is_never_told_to_bind() -> None:
    got = recorded("binding-missing")
    account = "cpu-metadata.example.org-n1-metadata"
    snapshot = snapshot_of([*got["objects"], rollout("cpu-metadata.example.org", account, "NodeLocal")])
    [made] = found(got["event"], snapshot)
    assert explained(made).needs == "allocation and reservedFor to be left to the scheduler"
    assert explained(made).fix == f"a driver needs no role for it; {NEVER}"
    snapshot = snapshot_of([*got["objects"], rollout("cpu-metadata.example.org", account, "Allocator")])
    [made] = found(got["event"], snapshot)
    assert "resources: [resourceclaims/binding], verbs: [patch]" in explained(made).needs
    assert retry(made) == BACKOFF


def test_a_person_without_a_role_is_not_to_try_again() -> None:
    event = deepcopy(recorded("role-missing")["event"])
    event["user"] = {"username": "jane", "groups": ["system:authenticated"]}
    [made] = found(event)
    assert made.cause == "status-role-missing"
    assert explained(made).fix == f"give nobody else a role for it; {NEVER}"


def test_data_that_somebody_else_stored() -> None:
    """Entries of a driver that the writer does not write for: by its request, its rollout, or what its role names."""
    assert failure("foreign-data").drivers == ("nic.example.org",)
    got = recorded("foreign-data", level="Request")
    [made] = found(got["event"])
    assert made.cause == "other-driver"
    got = recorded("driver-verb-missing")
    account = rollout("gpu.example.org", "driver-verb-missing", "NodeLocal")
    [made] = found(got["event"], snapshot_of([*got["objects"], account]))
    assert made.cause == "other-driver"


def test_whether_a_writer_touched_what_is_said_to_have_changed() -> None:
    """A strategic patch of reservedFor alone: with the request that is certain, without it only possible."""
    assert "; where the writer did not touch it: " in explained(failure("opaque-parameters")).text(POLICY)
    assert "; the writer did not touch it: " in explained(failure("opaque-parameters", level="Request")).text(POLICY)


def test_an_event_that_was_cut() -> None:
    """Without the causes the message tells the same, with nothing at all there is still the code."""
    event = deepcopy(recorded("both")["event"])
    del event["responseStatus"]["details"]
    assert [each.cause for each in found(event)] == ["binding-missing", "driver-verb-missing"]
    del event["responseStatus"]["message"]
    assert [each.cause for each in found(event)] == ["malformed"]
    event["responseStatus"]["code"] = 403
    assert [each.cause for each in found(event)] == ["other"]


def test_words_that_a_writer_chose_do_not_count() -> None:
    event = deepcopy(recorded("malformed")["event"])
    cause = event["responseStatus"]["details"]["causes"][0]
    forged = (
        'Forbidden: changing status.devices requires resource="resourceclaims/driver", verb="[arbitrary-node:patch]"'
    )
    cause["message"] = f'Invalid value: "{forged}": a condition reason must start with alphabetic character'
    assert [each.cause for each in found(event)] == ["malformed"]
    event = deepcopy(recorded("webhook-refused")["event"])
    event["responseStatus"]["message"] += 'cannot patch resource "resourceclaims/status"\nin two lines'
    [made] = found(event)
    assert made.cause == "refused-by-admission"
    assert explained(made).text(POLICY).isprintable()


def test_what_the_guard_refused_is_its_own() -> None:
    event = deepcopy(recorded("webhook-refused")["event"])
    event["responseStatus"]["message"] = 'admission webhook "claim-status.allocguard.dev" denied the request: no'
    [made] = found(event)
    assert (made.cause, explained(made).severity) == ("refused-by-guard", "info")


def test_whom_somebody_impersonates() -> None:
    event = deepcopy(recorded("role-missing")["event"])
    event["impersonatedUser"] = event.pop("user")
    event["user"] = {"username": "mallory", "groups": ["system:authenticated"]}
    [made] = found(event)
    assert made.writer.service_account == "role-missing"
    assert "as whom mallory wrote" in explained(made).has


def test_another_claim_of_that_name() -> None:
    """A claim that was made after the write, or has another uid, is not the one that it was to."""
    got = recorded("role-missing")
    [claim] = [each for each in got["objects"] if each["kind"] == "ResourceClaim"]
    claim["metadata"]["creationTimestamp"] = "2037-01-01T00:00:00Z"
    [made] = found(got["event"], snapshot_of(got["objects"]))
    assert (made.claim, made.uid) == (None, "")
    got = recorded("driver-verb-update-put")
    got["event"]["objectRef"]["uid"] = "another"
    [made] = found(got["event"], snapshot_of(got["objects"]))
    assert (made.claim, made.uid) == (None, "another")


def test_a_write_that_passed_is_no_failure() -> None:
    event = deepcopy(recorded("role-missing")["event"])
    event["responseStatus"] = {"metadata": {}, "code": 200}
    assert found(event) == ()


def test_the_page_has_every_cause_and_shows_what_is_told() -> None:
    page = (Path(__file__).parents[2] / "docs" / "audit.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)`(?: \(([abcd])\))? \| .* \| (.*) \|$", page, re.MULTILINE)
    assert {cause for cause, _, _ in rows} == CAUSES
    words = {BACKOFF: "backoff", NEVER: "never as it is", REREAD: "read it again", WAIT: "as `Retry-After` says"}
    for cause, _, when in rows:
        assert when.startswith(words[_RETRY.get(cause, NEVER)])
    usual = {(cause, letter) for each in EXPECTED.values() for cause, letter in each if letter}
    assert {(cause, letter) for cause, letter, _ in rows if letter} == usual
    assert f"\n{explained(failure('driver-wrong-names')).text(POLICY)}\n" in page


@pytest.mark.parametrize(("names", "mistake"), [([], "granted"), (["c1"], "scope"), (["", "c1"], "granted")])
def test_a_right_to_allocate_that_is_asked_for_without_a_name_is_there_by_an_empty_one(
    names: list[str], mistake: str
) -> None:
    objects = role_object(rule("resourceclaims/binding", "patch", *names)), binding_object()
    writer = Writer("Unknown", "system:serviceaccount:gpu:plugin", "gpu", "plugin")
    assert lack(writer, "resourceclaims/binding", ("patch",), "c1", "ns", world(*objects)).mistake == mistake
