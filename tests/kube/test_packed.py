"""The rows of a ledger as texts: the same rows come back, whatever they have in common."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from webhook.kube.node_ledger import (
    BookedCharge,
    NodeLedger,
    Reservation,
    node_ledger_object,
    read_node_ledger,
    stored_node_ledger,
)
from webhook.kube.packed import packed_status, unpacked

FEW = st.sampled_from(["a", "b"])
CHARGES = st.builds(
    BookedCharge,
    claim_uid=FEW,
    allocation=st.sampled_from(["2026-11-30T12:00:00Z", "results:0123"]),
    request=st.sampled_from(["", "r", "r/sub"]),
    driver=FEW,
    pool=FEW,
    device=st.sampled_from(["d0", "d1", 'ü"{']),
    share_id=st.sampled_from(["", "s"]),
    resource=st.sampled_from(["cpu", "memory"]),
    namespace=FEW,
    name=FEW,
    slice=st.sampled_from(["", "s1"]),
    slice_uid=st.sampled_from(["", "u1"]),
    generation=st.integers(0, 2),
    resource_version=st.sampled_from(["", "7"]),
    digest=st.sampled_from(["", "sha256:1"]),
    amount=st.integers(0, 2**40),
    zone=st.sampled_from([None, 0, 1]),
    formula=st.sampled_from(["", "1 x 2"]),
    since=st.sampled_from(["", "2026-11-30T12:00:00Z"]),
    claim_version=st.sampled_from(["", "8"]),
)


def stored(ledger: NodeLedger) -> Any:
    obj = node_ledger_object(ledger, {"cpu": {"free": "1"}}, [{"zone": 0}], 3)
    return orjson.loads(orjson.dumps({**obj, "status": packed_status(obj["status"])}))


@given(st.lists(CHARGES, unique_by=lambda row: row.key))
def test_the_same_charges_come_back_in_the_same_order(charges: list[BookedCharge]) -> None:
    ledger = NodeLedger("n1", charges=tuple(charges))
    obj = stored(ledger)
    assert read_node_ledger(obj) == ledger
    assert all(isinstance(each, str) for each in obj["status"]["charges"])


@given(st.lists(CHARGES, unique_by=lambda row: row.key, max_size=4), st.booleans())
def test_the_same_reservations_come_back(charges: list[BookedCharge], seen: bool) -> None:
    mine = [row for row in charges if (row.claim_uid, row.allocation) == ("a", "results:0123")]
    held = Reservation(
        "a", "results:0123", "ns", "n", "p", "ns", "pod", tuple(mine), {"cpu": 1}, {"memory": 2}, "t", "h", "9", seen
    )
    ledger = NodeLedger("n1", reservations=(held,))
    assert read_node_ledger(stored(ledger)) == ledger


def test_a_claim_is_one_text_with_what_its_charges_share_said_once() -> None:
    row = BookedCharge("u", "t", "r", "dr", "p", "d0", "", "cpu", "ns", "n", "s", "su", 1, "7", "x", 2, 0, "f", "t")
    rows = (replace(row, device=name, resource=each) for name in ("d0", "d1") for each in ("cpu", "memory"))
    (text,) = stored(NodeLedger("n1", charges=tuple(rows)))["status"]["charges"]
    assert orjson.loads(text) == {
        "claimUID": "u",
        "allocation": "t",
        "namespace": "ns",
        "name": "n",
        "since": "t",
        "mappings": [
            {
                "driver": "dr",
                "pool": "p",
                "slice": "s",
                "sliceUID": "su",
                "generation": 1,
                "resourceVersion": "7",
                "digest": "x",
            }
        ],
        "devices": [
            {
                "request": "r",
                "device": name,
                "zone": 0,
                "mapping": 0,
                "costs": [["cpu", "2", "f"], ["memory", "2", "f"]],
            }
            for name in ("d0", "d1")
        ],
    }


def test_rows_that_are_no_texts_are_themselves() -> None:
    for row in ({"claimUID": "u"}, 7, None, []):
        assert unpacked(row) == [row]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("{", "status.charges[0]: has a text that is no JSON"),
        ("7", "status.charges[0]: has 7, needs a map"),
        ('{"devices":[]}', None),
        ('{"devices":7}', "status.charges[0]: has not the shape of a claim's charges"),
        ('{"devices":[{"mapping":0}],"mappings":[]}', "status.charges[0]: has not the shape of a claim's charges"),
        ('{"devices":[{"mapping":0,"costs":[[1]]}],"mappings":[{}]}', "status.charges[0]: has not the shape"),
        ('{"devices":[{"mapping":"a","costs":[["cpu","1",""]]}],"mappings":7}', "status.charges[0]: has not the shape"),
        ('{"devices":[{"mapping":0,"costs":[["cpu","1",""]]}],"mappings":[{}]}', "status.charges[0].claimUID: has"),
        ("{}", "status.charges[0].claimUID: has nothing, needs a text"),
    ],
)
def test_what_nobody_packed_is_told_with_its_place(row: str, said: str | None) -> None:
    for _ in range(2):
        problem = stored_node_ledger({"metadata": {"name": "n1"}, "status": {"charges": [row]}}).problem
        assert problem.startswith(said) if said else not problem
