"""What log and trace say of the moments in a claim's life."""

from __future__ import annotations

import io
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from tests.kube.test_node_ledger import charge
from tests.telemetry.receiver import Receiver
from webhook.ledger.moments import Kind, Moment
from webhook.ledger.transitions import _ENDS
from webhook.telemetry.log import Log
from webhook.telemetry.moment_lines import MomentLines, attributes, log_fields
from webhook.telemetry.spans import anchor
from webhook.telemetry.tracing import Tracing

UID, POD = "0123ab34-5678-4abc-8def-0123456789ab", "6123ab34-5678-4abc-8def-0123456789ab"
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
CHARGES = (
    charge(claim_uid=UID),
    charge(claim_uid=UID, resource="memory", amount=4 << 30, formula="2 \N{MULTIPLICATION SIGN} 2Gi"),
)


def moment(kind: Kind, **more: Any) -> Moment:
    fields: dict[str, Any] = {"begun": NOW, "at": NOW, "uid": UID, "namespace": "ns", "name": "c", "text": "so it is"}
    return Moment(kind=kind, **{**fields, **more})


CHARGED = moment(
    "charged",
    at=NOW + timedelta(seconds=0.25),
    node="n1",
    allocation="2026-01-01T00:00:00Z",
    drivers=("d.example",),
    pods=("ns/p",),
    pod_uids=(POD,),
    charges=CHARGES,
)


def told(*moments: Moment, ratio: float = 1.0) -> tuple[list[dict[str, Any]], list[Any]]:
    """The lines and the spans."""
    said = io.StringIO()
    log = Log(said)
    with Receiver() as receiver:
        tracing = Tracing(receiver.url, ratio=ratio)
        MomentLines(log, tracing).tell(moments)
        assert tracing.close() == 0
    log.close()
    return [json.loads(line) for line in said.getvalue().splitlines()], receiver.spans


def test_a_charge_is_a_line_and_a_span_that_say_the_same() -> None:
    [line], [span] = told(CHARGED)
    assert (line["event"], line["level"]) == ("charged", "info")
    assert (line["claim"], line["claimUID"], line["trace"]) == ("ns/c", UID, UID.replace("-", ""))
    assert (line["node"], line["pods"], line["drivers"], line["seconds"]) == ("n1", ["ns/p"], ["d.example"], 0.25)
    assert line["amounts"] == {"cpu": "1500m", "memory": "4Gi"}
    assert [(row["resource"], row["amount"], row["formula"]) for row in line["charges"]] == [
        ("cpu", "1500m", "3 \N{MULTIPLICATION SIGN} 500m"),
        ("memory", "4Gi", "2 \N{MULTIPLICATION SIGN} 2Gi"),
    ]
    mapping = {"slice": "s1", "sliceUID": "uid-s1", "generation": 3, "resourceVersion": "17", "digest": "sha256:ab"}
    assert [row["mapping"] for row in line["charges"]] == [mapping, mapping]

    assert (span.name, span.trace) == ("ledger.charge", line["trace"])
    assert (span.attributes["allocguard.verdict"], span.attributes["allocguard.message"]) == (
        "charged",
        line["message"],
    )
    assert span.attributes["allocguard.amounts"] == ["cpu 1500m", "memory 4Gi"]
    assert span.attributes["allocguard.charges"] == [
        "d.example/n1/grp cpu 1500m = 3 \N{MULTIPLICATION SIGN} 500m by s1@3/17 sha256:ab",
        "d.example/n1/grp memory 4Gi = 2 \N{MULTIPLICATION SIGN} 2Gi by s1@3/17 sha256:ab",
    ]
    assert (span.attributes["k8s.node.name"], span.attributes["allocguard.device"]) == ("n1", "grp")
    assert span.attributes["allocguard.mapping.digest"] == "sha256:ab"
    assert [tuple(link) for link in span.links] == [tuple(anchor(POD))]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("charged", "ledger.charge"),
        ("bound", "ledger.bind"),
        ("released", "ledger.release"),
        ("lapsed", "ledger.release"),
        ("pending", "claim.pending"),
        ("settled", "claim.pending"),
    ],
)
def test_each_kind_has_its_span_and_tells_itself(kind: Kind, name: str) -> None:
    [line], [span] = told(moment(kind, reason="driver-held"))
    assert span.name == name
    assert span.attributes["allocguard.verdict"] == line["event"] == kind
    assert span.attributes["allocguard.rule"] == line["reason"] == "driver-held"
    assert line["level"] == ("warning" if kind in ("pending", "lapsed") else "info")
    over = span.attributes.get("allocguard.pending.over")
    assert over is {"pending": False, "settled": True}.get(kind)


def test_what_everybody_has_is_no_line() -> None:
    """A short wait for nothing in particular; a span of the claim's trace it is all the same."""
    short = moment("settled", at=NOW + timedelta(seconds=14), reason="unscheduled")
    long = replace(short, at=NOW + timedelta(seconds=15))
    refused = replace(short, reason="node-overcommit")
    lines, spans = told(short, long, refused)
    assert [(line["seconds"], line["reason"]) for line in lines] == [(15, "unscheduled"), (14, "node-overcommit")]
    assert len(spans) == 3


@pytest.mark.parametrize(
    ("trouble", "kept"),
    [
        (moment("pending", reason="unscheduled"), True),
        (moment("lapsed"), True),
        (moment("settled", reason="node-overcommit"), True),
        (moment("settled", reason="unscheduled", at=NOW + timedelta(seconds=15)), True),
        (moment("settled", reason="unscheduled", at=NOW + timedelta(seconds=14)), False),
        (CHARGED, False),
        (replace(CHARGED, delay=timedelta(seconds=30)), False),
        (replace(CHARGED, delay=timedelta(seconds=31)), True),
    ],
)
def test_what_somebody_will_ask_about_is_kept_and_what_comes_after_it(trouble: Moment, kept: bool) -> None:
    _, spans = told(trouble, moment("released"), ratio=0.0)
    assert len(spans) == (2 if kept else 0)


def test_what_becomes_of_a_claim_that_waited_is_kept_by_who_leads_since() -> None:
    _, spans = told(moment("released", delay=timedelta(seconds=31)), ratio=0.0)
    assert [span.name for span in spans] == ["ledger.release"]


def test_lines_and_spans_are_bounded_and_hostile_names_stay_on_their_line() -> None:
    many = tuple(charge(claim_uid=UID, device=f"d{number}\n\x1b[31m", request=str(number)) for number in range(100))
    wide = replace(CHARGED, charges=many, pods=tuple(f"ns/p{number}" for number in range(300)))
    assert len(log_fields(wide)["charges"]) == 64  # type: ignore[arg-type]  # a list
    assert {len(value) for value in attributes(wide).values() if isinstance(value, tuple)} <= {1, 64}
    lines, _ = told(wide)
    assert len(lines) == 1


def test_the_guide_tells_each_kind_and_its_span() -> None:
    text = (Path(__file__).parents[2] / "docs" / "claim-life.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `([a-z.]+)`", text, re.MULTILINE)
    assert [kind for kind, _ in rows] == sorted(get_args(Kind), key=[kind for kind, _ in rows].index)
    for kind, name in rows:
        _, [span] = told(moment(kind))
        assert span.name == name
    ends = next(line for line in text.splitlines() if line.startswith("| `released`"))
    assert set(re.findall(r"`([a-z]+(?:-[a-z]+)*)`", ends)) - {"released"} == set(_ENDS)
