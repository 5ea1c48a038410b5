import copy
from fractions import Fraction
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from webhook.kube.node_ledger import (
    BookedCharge,
    NodeLedger,
    Reservation,
    as_stored,
    node_ledger_object,
    quantity,
    read_node_ledger,
)
from webhook.kube.quantity import INT64_MAX, Number, parse
from webhook.kube.release import Release
from webhook.kube.snapshot import Snapshot, build


def charge(**more: Any) -> BookedCharge:
    fields: dict[str, Any] = {
        "claim_uid": "uid-c",
        "allocation": "2026-01-01T00:00:00Z",
        "request": "r",
        "driver": "d.example",
        "pool": "n1",
        "device": "grp",
        "share_id": "",
        "resource": "cpu",
        "namespace": "ns",
        "name": "c",
        "slice": "s1",
        "slice_uid": "uid-s1",
        "generation": 3,
        "resource_version": "17",
        "digest": "sha256:ab",
        "amount": Fraction(3, 2),
        "zone": 1,
        "formula": "3 \N{MULTIPLICATION SIGN} 500m",
        "since": "2026-01-01T00:00:00Z",
        "claim_version": "21",
    }
    return BookedCharge(**{**fields, **more})


def reservation(*charges: BookedCharge, **more: Any) -> Reservation:
    fields: dict[str, Any] = {
        "claim_uid": "uid-c",
        "allocation": "2026-01-01T00:00:00Z",
        "namespace": "ns",
        "name": "c",
        "pod_uid": "uid-p",
        "pod_namespace": "ns",
        "pod_name": "p",
        "charges": charges,
        "pod_request": {"cpu": Fraction(1, 10), "memory": 1 << 30},
        "siblings": {"cpu": 2},
        "taken": "2026-01-01T00:00:01Z",
        "holder": "allocguard-0",
        "claim_version": "22",
    }
    return Reservation(**{**fields, **more})


def ledger(*charges: BookedCharge, reservations: tuple[Reservation, ...] = ()) -> NodeLedger:
    return NodeLedger("n1", "u1", "99", charges, reservations, "boot-1")


def test_what_is_written_is_read_again() -> None:
    full = ledger(
        charge(claim_uid="uid-a", zone=None, share_id="x"),
        charge(claim_uid="uid-a", resource="memory", amount=4 << 30, digest="", slice="", generation=0),
        reservations=(
            reservation(charge()),
            reservation(claim_uid="uid-b", pod_request={}, siblings={}, seen=True, counted=True),
        ),
    )
    raw = node_ledger_object(full, {"cpu": {"allocatable": "8"}}, [{"zone": 0, "resources": {}}], 2)
    assert read_node_ledger(orjson.loads(orjson.dumps(raw))) == full
    assert raw["status"]["charges"][0]["amount"] == "1500m"
    assert raw["status"]["charges"][1]["amount"] == "4Gi"
    assert raw["status"]["reservations"][0]["podRequest"] == {"cpu": "100m", "memory": "1Gi"}
    assert (raw["status"]["resources"], raw["status"]["zones"], raw["status"]["differences"]) == (
        {"cpu": {"allocatable": "8"}},
        [{"zone": 0, "resources": {}}],
        2,
    )


def test_a_ledger_that_was_never_written_is_empty() -> None:
    assert read_node_ledger({"metadata": {"name": "n1"}}) == NodeLedger("n1")
    assert read_node_ledger({"metadata": {"name": "n1"}, "spec": {"nodeName": "n1"}, "status": None}) == NodeLedger(
        "n1"
    )


numbers = st.one_of(st.integers(0, 10**40), st.fractions(min_value=0, max_value=10**6))


@given(numbers, st.sampled_from(["cpu", "memory", "hugepages-2Mi", "x"]))
def test_an_amount_is_read_as_it_is_kept(amount: Number, resource: str) -> None:
    assert parse(quantity(resource, amount)) == as_stored(amount)
    assert as_stored(as_stored(amount)) == as_stored(amount)


def test_amounts_are_kept_to_the_billionth_rounded_up() -> None:
    assert as_stored(Fraction(1, 3)) == Fraction(333333334, 10**9)
    assert as_stored(Fraction(3, 2)) == Fraction(3, 2)
    assert as_stored(Fraction(4, 2)) == 2
    assert as_stored(10**400) == 10**36
    assert parse(quantity("memory", INT64_MAX + 1)) == INT64_MAX + 1


BROKEN: list[tuple[tuple[Any, ...], Any, str]] = [
    (("metadata", "name"), None, "metadata.name: has nothing, needs a text"),
    (("metadata", "name"), "", "metadata.name: has '', needs some text"),
    (("spec", "nodeName"), "n2", "spec.nodeName: has n2, needs n1"),
    (("status", "charges"), {}, "status.charges: has a map, needs a list"),
    (("status", "charges", 0), "x", r"status.charges\[0\]: has a text that is no JSON"),
    (("status", "charges", 0, "driver"), None, r"status.charges\[0\].driver: has nothing"),
    (("status", "charges", 0, "device"), 7, r"status.charges\[0\].device: has 7, needs some text"),
    (("status", "charges", 0, "amount"), "3 cpu", r"status.charges\[0\].amount: has the unknown suffix"),
    (("status", "charges", 0, "amount"), "-1", r"status.charges\[0\].amount: has '-1', needs zero or more"),
    (("status", "charges", 0, "amount"), None, r"status.charges\[0\].amount: is null"),
    (("status", "charges", 0, "zone"), -1, r"status.charges\[0\].zone: has -1, needs a whole number"),
    (("status", "charges", 0, "zone"), True, r"status.charges\[0\].zone: has True, needs a whole number"),
    (("status", "charges", 0, "generation"), "1", r"status.charges\[0\].generation: has '1', needs a whole number"),
    (("status", "charges", 1, "claimUID"), "uid-a", r"status.charges\[1\]: has the key of another charge"),
    (("status", "reservations", 0, "claimUID"), "", r"status.reservations\[0\].claimUID: has '', needs some text"),
    (("status", "reservations", 0, "podRequest"), [], r"status.reservations\[0\].podRequest: has a list, needs a map"),
    (("status", "reservations", 0, "seen"), "yes", r"status.reservations\[0\].seen: has 'yes', needs true or false"),
    (("status", "reservations", 0, "counted"), 1, r"status.reservations\[0\].counted: has 1, needs true or false"),
    (("status", "reservations", 0, "siblings", "cpu"), "x", r"status.reservations\[0\].siblings\[cpu\]: is not a"),
    (
        ("status", "reservations", 0, "charges", 0, "claimUID"),
        "y",
        r"reservations\[0\].charges\[0\]: has another claim",
    ),
    (("status", "reservations", 1, "claimUID"), "uid-c", r"status.reservations\[1\]: has the claim and pod of another"),
]


def raw_ledger() -> dict[str, Any]:
    return node_ledger_object(
        ledger(
            charge(claim_uid="uid-a"),
            charge(claim_uid="uid-b"),
            reservations=(reservation(charge()), reservation(claim_uid="uid-d")),
        )
    )


@pytest.mark.parametrize(("path", "value", "message"), BROKEN, ids=[message for _, _, message in BROKEN])
def test_a_value_that_no_ledger_has_is_named(path: tuple[Any, ...], value: Any, message: str) -> None:
    raw = raw_ledger()
    read_node_ledger(copy.deepcopy(raw))
    owner: Any = raw
    for step in path[:-1]:
        owner = owner[step]
    owner[path[-1]] = value
    with pytest.raises(ValueError, match=message):
        read_node_ledger(raw)


def test_a_snapshot_keeps_ledgers_by_node_and_tells_of_one_that_cannot_be_read() -> None:
    raw = raw_ledger()
    snapshot = build([raw], Release())
    assert snapshot.ledgers["n1"] == read_node_ledger(raw)
    raw["status"]["charges"][0]["amount"] = "much"
    worse = snapshot.put(raw).ledgers["n1"]
    assert (worse.node, worse.resource_version, worse.charges) == ("n1", "99", ())
    assert worse.problem.startswith("status.charges[0].amount: ")
    assert snapshot.keys("NodeLedger") == {("", "n1")}
    assert snapshot.remove(raw).ledgers == Snapshot().ledgers
    other = {**raw, "apiVersion": "example.org/v1"}
    assert snapshot.put(other) is snapshot
    changed = snapshot.with_ledger(NodeLedger("n2"))
    assert set(changed.ledgers) == {"n1", "n2"}


def test_sums_are_no_more_than_the_definition_takes() -> None:
    sums = {name: {"claims": "1"} for name in ("memory", "cpu", *(f"hugepages-{size}Ki" for size in range(99)))}
    zones = [{"zone": zone, "resources": sums} for zone in range(999)]
    status = node_ledger_object(ledger(), sums, zones)["status"]
    names = {"cpu", "memory"}
    definition = yaml.safe_load((Path(__file__).parents[2] / "deploy" / "crds" / "nodeledgers.yaml").read_text())
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    of_zones = schema["zones"]["items"]["properties"]["resources"]["maxProperties"]
    assert (len(status["resources"]), len(status["zones"])) == (
        schema["resources"]["maxProperties"],
        schema["zones"]["maxItems"],
    )
    assert {len(zone["resources"]) for zone in status["zones"]} == {of_zones}
    assert names <= status["resources"].keys()
    assert names <= status["zones"][0]["resources"].keys()


def test_a_ledger_of_a_full_node_fits_into_what_the_store_takes() -> None:
    uid = "3f1c9b1e-6d1c-4f57-a2a5-0d8f6a3c9e10"
    charges = [
        charge(
            claim_uid=uid,
            device=f"gpu-{index:04}",
            resource=resource,
            driver="accelerator.vendor.example.com",
            pool="node-with-a-long-name-0001.region.example.com",
            slice="00001-accelerator.vendor.example.com-node-with-a-long-name-0001-abcde",
            slice_uid=uid,
            share_id=uid,
            digest="sha256:" + 64 * "a",
            request="a-request/its-alternative",
            namespace="a-team-with-a-name",
            name="a-pod-of-a-deployment-6d4cf56db6-abcde-claim-xyz12",
        )
        for index in range(640)
        for resource in ("cpu", "memory")
    ]
    held = [
        reservation(claim_uid=f"{uid}{index}", pod_name="a-pod-of-a-deployment-6d4cf56db6-abcde")
        for index in range(110)
    ]
    raw = orjson.dumps(node_ledger_object(ledger(*charges, reservations=tuple(held))))
    assert len(raw) < 1_200_000  # etcd takes 1.5 MiB, and managed fields come on top
