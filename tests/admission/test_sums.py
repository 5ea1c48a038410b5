from __future__ import annotations

from datetime import UTC, datetime

from tests.ledger.builders import allocated, container, device, node, old, pod, result, slice_of, world
from webhook.admission.decide import decide
from webhook.admission.sums import fit_rows, told
from webhook.kube.admission import raw_request, read_request
from webhook.ledger.book import Book
from webhook.policy.facts import Facts
from webhook.store import policies

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
REVISION = policies.read([policies.shipped()])
OBJECTS = (
    node(cpu="16", memory="1Gi"),
    slice_of(device("gpu", old("4"), zone=0)),
    pod("me", container(cpu="1", memory="2Gi", claims=("mine",)), claims=("mine",), node_name="", phase="Pending"),
)


def facts_of(operation: str) -> Facts:
    claim = allocated("mine", result("gpu"), pods=("me",))
    before = {**claim, "status": {}}
    writes = {"allocate": (claim, before), "release": (before, claim)}
    request = read_request(raw_request("UPDATE", *writes[operation], sub_resource="status"))
    return decide(request, "validate", REVISION, world(*OBJECTS), Book(), NOW).evaluation.facts


def test_sums_that_do_not_come_out_are_told_first() -> None:
    assert told(fit_rows(facts_of("allocate"))) == [
        "memory: 1Gi allocatable - 2Gi this pod = -1Gi",
        "cpu: 16 allocatable - 4 this claim - 1 this pod = 11",
        "cpu in zone 0: unknown - 4 this claim",
    ]


def test_no_sum_is_made_that_no_policy_asked_for() -> None:
    facts = facts_of("release")
    assert fit_rows(facts) == ()
    assert "fitted" not in vars(facts.claim)
