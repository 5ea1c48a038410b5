"""Audit events, and everything that is sent as one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.kube.audit import names_claim_status, read_event

EVENT: dict[str, Any] = {
    "auditID": "1",
    "stage": "ResponseComplete",
    "verb": "patch",
    "requestURI": "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c/status",
    "user": {"username": "u", "groups": ["g", 1], "extra": {"k": ["v", None], "w": "x"}},
    "objectRef": {"apiGroup": "resource.k8s.io", "resource": "resourceclaims", "subresource": "status", "name": "c"},
    "responseStatus": {"code": 422, "reason": "Invalid", "message": "m", "details": {"causes": [{"field": "f"}, 7]}},
    "stageTimestamp": "2026-11-30T12:00:00.000000Z",
}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def test_what_is_read() -> None:
    event = read_event(EVENT)
    assert event is not None
    assert (event.name, event.verb, event.code, event.user, event.groups) == ("c", "patch", 422, "u", ("g",))
    assert event.extra == {"k": ("v",), "w": ()}
    assert [cause.field for cause in event.causes] == ["f"]
    assert event.failed
    assert not event.dry_run
    assert event.body is None


@pytest.mark.parametrize(
    "change",
    [
        {"objectRef": {**EVENT["objectRef"], "apiGroup": "apps"}},
        {"objectRef": {**EVENT["objectRef"], "subresource": "binding"}},
        {"objectRef": {**EVENT["objectRef"], "resource": "pods"}},
        {"objectRef": {**EVENT["objectRef"], "name": ""}},
        {"stage": "RequestReceived"},
        {"verb": "get"},
        {"responseStatus": None},
        {"responseStatus": {"code": "422"}},
        {"responseStatus": {"code": 99}},
        {"responseStatus": {"code": True}},
    ],
)
def test_what_is_none_of_ours(change: dict[str, Any]) -> None:
    assert read_event({**EVENT, **change}) is None


def test_a_try_is_told_apart() -> None:
    for uri, dry in (("?dryRun=All", True), ("?fieldManager=dryRun", False), ("?" + "a=1&" * 200, False)):
        event = read_event({**EVENT, "requestURI": EVENT["requestURI"] + uri})
        assert event is not None
        assert event.dry_run is dry


def test_causes_are_bounded() -> None:
    status = {"code": 422, "details": {"causes": [{"field": "f"}] * 1000}}
    event = read_event({**EVENT, "responseStatus": status})
    assert event is not None
    assert len(event.causes) == 64


@given(st.sampled_from([*EVENT, "impersonatedUser", "requestObject"]), json_values)
def test_a_member_of_any_type(name: str, value: Any) -> None:
    """Whatever one member is, the others are read, or the event is none of ours."""
    read_event({**EVENT, name: value})


@given(json_values)
def test_any_value(value: Any) -> None:
    assert read_event(value) is None


def test_which_bytes_are_looked_into() -> None:
    assert names_claim_status(b'{"resource":"resourceclaims","subresource":"status"}')
    assert not names_claim_status(b'{"resource":"resourceclaims"}')
    assert not names_claim_status(b'{"resource":"pods","subresource":"status"}')
