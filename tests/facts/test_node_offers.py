from __future__ import annotations

from typing import Any

import pytest

from tests.facts.builders import (
    NOW,
    as_claim,
    claim,
    device_class,
    entry,
    gpu,
    grp,
    node,
    pod,
    pod_ref,
    result,
    rollout,
    slice_of,
    world,
)
from webhook.facts.node_offers import node_offers
from webhook.facts.pools import allocation_pool_problems
from webhook.facts.rollout import allocation_rollout_problems

HELD = claim(results=[result()], reserved=[pod_ref()])
OWNER = pod(where="n1", status=entry(cpu="4"))
HOLD = {"reason": "books half", "by": "on-call", "since": "2026-11-20T09:00:00Z"}
PLAIN = gpu("plain")
BARE = {name: value for name, value in grp().items() if name != "nodeAllocatableResourceMappings"}


@pytest.mark.parametrize(
    ("objs", "rules"),
    [
        pytest.param([slice_of(PLAIN)], [], id="a driver that maps nothing"),
        pytest.param([slice_of(PLAIN, count=2)], [], id="a driver that maps nothing, its pool incomplete"),
        pytest.param([slice_of(PLAIN, grp())], [], id="beside a device with a cost"),
        pytest.param([slice_of(PLAIN, grp(), count=2)], ["pool-incomplete"], id="the same, incomplete"),
        pytest.param([slice_of(PLAIN), HELD, OWNER], ["pool-rebuilding"], id="in place of a booked device"),
        pytest.param([slice_of(PLAIN, BARE), HELD, OWNER], ["mapping-lost"], id="beside one that lost its cost"),
        pytest.param([slice_of(PLAIN), rollout(hold=HOLD)], ["driver-held"], id="held"),
        pytest.param([slice_of(PLAIN), rollout(stage="Off")], [], id="a stage is about costs alone"),
        pytest.param([slice_of(PLAIN, grp()), rollout(stage="Off")], [], id="also beside a device with a cost"),
    ],
)
def test_a_device_without_a_cost_is_offered_as_its_allocation_is_judged(objs: list[Any], rules: list[str]) -> None:
    selector = [{"cel": {"expression": "!device.allowMultipleAllocations"}}]
    requests = [{"name": "r", "exactly": {"deviceClassName": "d", "count": 1, "selectors": selector}}]
    snapshot = world(node(), device_class(), *objs)
    (request,) = as_claim(claim("c2", requests=requests)).groups[0].alternatives
    offers = node_offers(request, snapshot, "n1", None, NOW)
    assert [reason.rule for reason in offers.reasons] == rules
    assert [offer.device.name for offer in offers.offers] == ([] if rules else ["plain"])
    written = as_claim(claim("c2", results=[result("plain", None)], reserved=[pod_ref("p2")], requests=requests))
    refused = [*allocation_pool_problems(written, snapshot, NOW), *allocation_rollout_problems(written, snapshot, NOW)]
    assert [finding.rule for finding in refused if finding.severity == "error"] == rules
