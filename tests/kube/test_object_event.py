from __future__ import annotations

from typing import Any

import pytest

from webhook.kube.object_event import NODE, RULE, SINCE, ObjectEvent, read_object_event

ABOUT = {"kind": "Pod", "namespace": "ns", "name": "p1", "uid": "u1"}
OURS: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Event",
    "metadata": {
        "name": "p1.1",
        "annotations": {RULE: "driver-held", NODE: "n1", SINCE: "2026-11-30T12:00:00.250000Z"},
    },
    "involvedObject": ABOUT,
    "related": {"kind": "ResourceClaim", "uid": "c1"},
    "reason": "ClaimRefused",
    "message": "no",
    "type": "Warning",
    "source": {"component": "allocguard"},
    "firstTimestamp": "2026-11-30T12:00:00Z",
    "lastTimestamp": "2026-11-30T12:05:00Z",
    "count": 7,
}
# As the scheduler writes it, in the words of both APIs.
SCHEDULERS: dict[str, Any] = {
    "metadata": {"name": "p1.2", "creationTimestamp": "2026-11-30T12:00:01Z"},
    "reason": "FailedScheduling",
    "type": "Warning",
    "eventTime": "2026-11-30T12:00:00.500000Z",
    "series": {"count": 3, "lastObservedTime": "2026-11-30T12:01:00.000000Z"},
}
V1 = SCHEDULERS | {"involvedObject": ABOUT, "message": "0/1", "reportingComponent": "default-scheduler", "source": {}}
NEW = SCHEDULERS | {"regarding": ABOUT, "note": "0/1", "reportingController": "default-scheduler"}


def test_ours_has_rule_node_and_the_moment_in_full() -> None:
    event = read_object_event(OURS)
    assert event.ours
    assert (event.rule, event.node, event.related, event.count) == ("driver-held", "n1", "c1", 7)
    assert (event.since, event.until) == ("2026-11-30T12:00:00.250000Z", "2026-11-30T12:05:00Z")


@pytest.mark.parametrize("obj", [V1, NEW], ids=["v1", "events.k8s.io/v1"])
def test_the_schedulers_is_the_same_by_either_api(obj: dict[str, Any]) -> None:
    assert read_object_event({**obj, "firstTimestamp": None, "lastTimestamp": None}) == ObjectEvent(
        kind="Pod",
        namespace="ns",
        name="p1",
        uid="u1",
        reason="FailedScheduling",
        message="0/1",
        count=3,
        since="2026-11-30T12:00:00.500000Z",
        until="2026-11-30T12:01:00.000000Z",
        by="default-scheduler",
        warning=True,
    )


@pytest.mark.parametrize("obj", [{}, {"metadata": None, "series": [], "source": "x", "count": "9", "related": 3}])
def test_whatever_it_holds_it_is_read(obj: dict[str, Any]) -> None:
    event = read_object_event(obj)
    assert (event.count, event.since, event.by, event.ours) == (1, "", "", False)
