from __future__ import annotations

import copy
import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.admission.decode import BadReview, decode, read_review

REVIEW: dict[str, Any] = {
    "kind": "AdmissionReview",
    "apiVersion": "admission.k8s.io/v1",
    "request": {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "resource.k8s.io", "version": "v1", "kind": "ResourceClaim"},
        "resource": {"group": "resource.k8s.io", "version": "v1", "resource": "resourceclaims"},
        "subResource": "status",
        "name": "enc",
        "namespace": "media-live",
        "operation": "UPDATE",
        "userInfo": {
            "username": "system:kube-scheduler",
            "groups": ["system:authenticated"],
            "extra": {"authentication.kubernetes.io/node-name": ["kiln-01"]},
        },
        "object": {"kind": "ResourceClaim", "metadata": {"name": "enc"}},
        "oldObject": {"kind": "ResourceClaim", "metadata": {"name": "enc"}},
        "dryRun": True,
        "options": {"kind": "UpdateOptions"},
    },
}


def edited(path: str, value: Any) -> dict[str, Any]:
    review = copy.deepcopy(REVIEW)
    *parents, last = path.split(".")
    at = review
    for name in parents:
        at = at[name]
    if value is ...:
        del at[last]
    else:
        at[last] = value
    return review


def test_reads_what_the_api_server_sends() -> None:
    request = decode(json.dumps(REVIEW, separators=(",", ":")).encode() + b"\n")
    assert request.uid == "705ab4f5-6393-11e8-b7cc-42010a800002"
    assert (request.resource.group, request.resource.name, request.sub_resource) == (
        "resource.k8s.io",
        "resourceclaims",
        "status",
    )
    assert (request.user, request.groups) == ("system:kube-scheduler", ("system:authenticated",))
    assert request.extra == {"authentication.kubernetes.io/node-name": ("kiln-01",)}
    assert request.dry_run
    assert request.object == REVIEW["request"]["object"]


def test_keeps_the_bytes_it_came_in() -> None:
    """How a blob is written is not in the value any more."""
    for number in ("1", "1.0", "1e21", '"\\u00e9"'):
        data = json.dumps(edited("request.object.status", {"devices": [{"data": "DATA"}]})).replace('"DATA"', number)
        assert decode(data.encode()).sent == data.encode()
    assert read_review(REVIEW).sent == b""


def test_reads_indented_and_escaped_text_the_same() -> None:
    review = edited("request.object.metadata.annotations", {"a": "<b> & \u00e9\u2028", "c\\u003c": "\\u003c"})
    compact = json.dumps(review, separators=(",", ":"), ensure_ascii=False).encode()
    as_go = compact.replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")
    texts = [compact, as_go, json.dumps(review, indent=1).encode()]
    assert [decode(text).object for text in texts] == [review["request"]["object"]] * 3


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("kind", "Pod", "kind: has 'Pod', needs AdmissionReview"),
        ("kind", ..., "kind: has nothing, needs AdmissionReview"),
        ("apiVersion", "admission.k8s.io/v1beta1", "needs admission.k8s.io/v1"),
        ("request", ..., "request: has nothing, needs an object"),
        ("request", [], "request: has a list, needs an object"),
        ("request.uid", ..., "request.uid: has nothing, needs a string"),
        ("request.uid", "", "request.uid: has '', needs a string"),
        ("request.uid", 7, "request.uid: has 7, needs a string"),
        ("request.operation", "PATCH", "request.operation: has 'PATCH', needs one of CREATE"),
        ("request.operation", ["CREATE"], "request.operation: has a list"),
        ("request.kind", "Pod", "request.kind: has 'Pod', needs an object"),
        ("request.resource", None, "request.resource: has nothing, needs an object"),
        ("request.resource.resource", "", "request.resource.resource: has '', needs a name"),
        ("request.resource.group", 1, "request.resource.group: has 1, needs a string"),
        ("request.object", None, "request.object: has nothing, needs the object of UPDATE"),
        ("request.object", "x", "request.object: has 'x', needs an object"),
        ("request.oldObject", ..., "request.oldObject: has nothing, needs the object of UPDATE"),
        ("request.name", {}, "request.name: has an object, needs a string"),
        ("request.dryRun", "true", "request.dryRun: has 'true', needs true or false"),
        ("request.userInfo", [], "request.userInfo: has a list, needs an object"),
        ("request.userInfo.groups", "system:masters", "request.userInfo.groups: has 'system:masters', needs a list"),
        ("request.object.metadata.generation", 1 << 64, "request.object.metadata.generation: has 18446744073709551616"),
        ("request.object.metadata.generation", -(1 << 63) - 1, "needs a number of 64 bits"),
        ("request.object.metadata.name", "\ud800", "request.object.metadata.name: has half a surrogate pair"),
        ("request.object.metadata", {"\udc00": 1}, "request.object.metadata: has half a surrogate pair in a name"),
    ],
)
def test_refuses_and_names_the_place(path: str, value: Any, message: str) -> None:
    with pytest.raises(BadReview) as caught:
        decode(json.dumps(edited(path, value)).encode())
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "line 1 column 1: input is a zero-length, empty document"),
        (b'{"kind":', "line 1 column 9: unexpected end of data"),
        (b"[]", "has a list, needs an AdmissionReview"),
        (b"null", "has nothing, needs an AdmissionReview"),
        (b'{"kind": "\xff"}', "byte 11: is not UTF-8"),
        (json.dumps(REVIEW).encode("utf-16"), "byte 1: is not UTF-8"),
        (b"\xef\xbb\xbf" + json.dumps(REVIEW).encode(), "line 1 column 1"),
        (b'{"a": NaN}', "has NaN, needs a number"),
        (b'{"a": -Infinity}', "has -Infinity, needs a number"),
        (b'{"a": 1e400}', "a: has 1e400, needs a number of 64 bits"),
        (b'{"a": 1} {}', "line 1 column 10"),
        (b'{"a":' + b"9" * 5000 + b"}", "a: has 9999"),
        (b"[" * 100_000, "nested deeper than 254 levels"),
        (b"[" * 500 + b"]" * 500, "is nested deeper than 254 levels"),
        (b'{"a":{"b":1,"c":{},"b":2}}', "a: has 'b' twice, needs each member once"),
    ],
)
def test_refuses_what_is_not_exactly_json(data: bytes, message: str) -> None:
    with pytest.raises(BadReview) as caught:
        decode(data)
    assert message in str(caught.value)
    assert str(caught.value).isprintable()


def test_refuses_a_member_given_twice_even_in_compact_text() -> None:
    text = json.dumps(REVIEW, separators=(",", ":")).replace('"name":"enc"', '"name":"enc","name":"dec"', 1)
    with pytest.raises(BadReview, match="request: has 'name' twice"):
        decode(text.encode())


@pytest.mark.parametrize(
    "parameters",
    [
        '{"a":1,"a":2}',
        '{"a":18446744073709551616}',
        '{"a":1e999}',
        '{"a":"\\ud800","\\udfff":1}',
        "[" * 300 + "]" * 300,
    ],
)
def test_nobody_switches_the_guard_off_by_what_stands_in_opaque_parameters(parameters: str) -> None:
    config = [{"opaque": {"driver": "x", "parameters": "HERE"}}]
    review = edited("request.object.spec", {"devices": {"config": config}})
    request = decode(json.dumps(review, separators=(",", ":")).replace('"HERE"', parameters).encode())
    assert request.name == "enc"
    orjson.dumps(request.object)


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("spec.devices.requests", 64),
        ("spec.spec.devices.constraints", 64),
        ("status.allocation.devices.results", 64),
        ("status.reservedFor", 512),
    ],
)
@pytest.mark.parametrize("member", ["object", "oldObject"])
def test_a_claim_that_no_api_server_stores_is_not_judged(path: str, most: int, member: str) -> None:
    def claim(count: int) -> dict[str, Any]:
        value: Any = [{"name": f"r{i}"} for i in range(count)]
        for name in reversed(path.split(".")):
            value = {name: value}
        return {"metadata": {"name": "enc"}, **value}

    read_review(edited(f"request.{member}", claim(most)))
    with pytest.raises(BadReview) as refused:
        read_review(edited(f"request.{member}", claim(most + 1)))
    assert str(refused.value) == f"request.{member}.{path}: has {most + 1} entries, needs at most {most}"


def test_delete_needs_the_old_object_only() -> None:
    review = edited("request.operation", "DELETE")
    review["request"]["object"] = None
    assert decode(json.dumps(review).encode()).target == REVIEW["request"]["oldObject"]
    del review["request"]["oldObject"]
    with pytest.raises(BadReview, match=r"request\.oldObject: has nothing, needs the object of DELETE"):
        decode(json.dumps(review).encode())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)


@given(st.sampled_from(sorted(REVIEW["request"])), JSON)
def test_any_json_anywhere_is_read_or_refused(member: str, value: Any) -> None:
    review = {**REVIEW, "request": {**REVIEW["request"], member: value}}
    try:
        request = read_review(review)
    except BadReview as error:
        problem = str(error)
    else:
        problem = ""
        assert request.raw[member] == value
    assert not problem or member in problem


@given(st.binary(max_size=60))
def test_any_bytes_are_refused_on_one_line(data: bytes) -> None:
    with pytest.raises(BadReview) as caught:
        decode(data)
    assert str(caught.value).isprintable()
