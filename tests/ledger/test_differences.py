"""Whom differences are about."""

from __future__ import annotations

from typing import Any

from tests.ledger.builders import DRIVER, allocated, container, device, entry, node, old, pod, result, slice_of, world
from webhook.ledger.book import Book
from webhook.ledger.differences import concerned, unplaced

Json = dict[str, Any]
GRP = slice_of(device("grp", old("1", "cpus"), capacity={"cpus": "8"}))


def held(name: str = "c1", cpus: str = "4", uid: str = "") -> Json:
    made: Json = allocated(name, result(consumed={"cpus": cpus}), pods=("p1",))
    made["metadata"]["uid"] = uid or f"uid-{name}"
    return made


def user(*entries: Json) -> Json:
    return pod("p1", container(claims=("c1",)), claims=("c1",), entries=list(entries))


def told(*objs: Json, cpu: str = "16") -> tuple[set[str], set[str]]:
    """The rules of the differences on a node with so many CPUs, and whom they are about."""
    snapshot = world(node(cpu=cpu), *objs)
    found = Book().differences(snapshot, "n1")
    return {each.finding.rule for each in found}, concerned(found, snapshot)


def test_where_all_agrees_nobody_is() -> None:
    assert told(GRP, held(), user(entry("c1", cpu="4"))) == (set(), set())


def test_a_status_that_disagrees_is_about_the_pod_its_claims_and_what_it_has_entries_for() -> None:
    other = held("c2", "1")
    other["status"]["reservedFor"] = []
    assert told(GRP, held(), other, user(entry("c1", cpu="1"))) == ({"pod-status-disagrees"}, {"uid-p1", "uid-c1"})
    entries = entry("c1", cpu="4"), entry("c2", cpu="2"), entry("gone", cpu="1")
    rules, uids = told(GRP, held(), other, user(*entries))
    assert rules == {"pod-status-disagrees", "claim-unknown"}
    assert uids == {"uid-p1", "uid-c1", "uid-c2"}


def test_a_device_that_is_gone_is_about_its_claim() -> None:
    rules, uids = told(held())
    assert rules == {"device-unknown"}
    assert uids == {"uid-c1"}


def test_an_overcommitted_node_is_about_no_claim_in_particular() -> None:
    assert told(GRP, held(cpus="8"), user(entry("c1", cpu="8")), cpu="4") == ({"node-overcommit"}, set())


def test_a_mapping_that_changed_is_about_its_claim_until_the_change_is_acknowledged() -> None:
    changed = slice_of(device("grp", old("2", "cpus"), capacity={"cpus": "8"}))
    row = {
        "claimUID": "uid-c1",
        "allocation": "2026-01-01T00:00:00Z",
        "request": "r",
        "driver": DRIVER,
        "pool": "n1",
        "device": "grp",
        "shareID": "share-grp-r",
        "resource": "cpu",
        "namespace": "ns",
        "name": "c1",
        "amount": "4",
        "digest": "sha256:before",
    }
    ledger = {
        "apiVersion": "allocguard.dev/v1alpha1",
        "kind": "NodeLedger",
        "metadata": {"name": "n1"},
        "status": {"charges": [row]},
    }
    objs = changed, held(), user(entry("c1", cpu="4")), ledger
    assert told(*objs) == ({"mapping-changed"}, {"uid-c1"})
    [charge] = Book().charges(world(node(cpu="16"), changed, held()), "n1")
    rollout = {
        "apiVersion": "allocguard.dev/v1alpha1",
        "kind": "DriverRollout",
        "metadata": {"name": DRIVER},
        "spec": {"resumeAt": {"mappingDigests": [charge.digest]}},
    }
    assert told(*objs, rollout) == ({"mapping-changed"}, set())


def test_a_claim_on_no_known_node_is_concerned() -> None:
    snapshot = world(GRP, held())
    found = unplaced(snapshot)
    assert [each.finding.rule for each in found] == ["node-unknown"]
    assert concerned(found, snapshot) == {"uid-c1"}


def test_what_has_no_uid_is_nobody() -> None:
    nameless = held()
    del nameless["metadata"]["uid"]
    rules, uids = told(nameless)
    assert rules == {"device-unknown"}
    assert uids == set()
