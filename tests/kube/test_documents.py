import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webhook.kube import documents
from webhook.kube.documents import Document, Unreadable, load

VECTORS = json.loads((Path(__file__).parent / "data" / "yaml.json").read_text(encoding="utf-8"))["texts"]

# Where this reader differs from sigs.k8s.io/yaml, and why.
KNOWN = {
    "base: &b {x: 1, y: 2}\nobj:\n  <<: *b\n  x: 3\n": "kubectl reads without strictness and takes it",
    "a: &a {x: 1}\nb: &b {x: 2, z: 3}\nobj:\n  <<: [*a, *b]\n": "the same",
    '{"a":"\\u00e9\\n\\/"}': "it is JSON, and the API server takes JSON as JSON",
}


def one(text: str | bytes) -> Document:
    found = load(text.encode() if isinstance(text, str) else text, "f.yaml")
    assert len(found) == 1
    assert isinstance(found[0], Document), found[0]
    return found[0]


def broken(text: str | bytes) -> Unreadable:
    found = load(text.encode() if isinstance(text, str) else text, "f.yaml")
    assert isinstance(found[-1], Unreadable)
    return found[-1]


def value(text: str) -> Any:
    return one(f"v: {text}\n").value["v"]


@pytest.mark.parametrize("vector", [v for v in VECTORS if v["in"] not in KNOWN], ids=lambda vector: repr(vector["in"]))
def test_yaml_is_read_as_kubectl_reads_it(vector: dict[str, Any]) -> None:
    found = load(vector["in"].encode(), "f.yaml")
    if vector["ok"] and isinstance(vector["out"], dict):
        assert [document.value for document in found if isinstance(document, Document)] == [vector["out"]]
        assert json.dumps(one(vector["in"]).value, sort_keys=True) == json.dumps(vector["out"], sort_keys=True)
    else:
        assert [type(document) for document in found] == [Unreadable]


@pytest.mark.parametrize("data", [b"", b"# only\n", b"---\n---\n", b"null\n", b"%YAML 1.1\n---\n"])
def test_a_file_without_a_document_is_told_and_an_empty_list_is_one(data: bytes) -> None:
    assert [str(getattr(each, "text", "")) for each in load(data, "f.yaml")] == [
        "f.yaml:1:1: has no document; write an object with apiVersion and kind"
    ]
    assert load(data + b"\n---\nkind: List\nitems: []\n", "f.yaml") == []


def test_a_merge_is_overwritten_by_what_follows_it() -> None:
    assert one("b: &b {x: 1, z: 2}\nobj:\n  <<: *b\n  x: 3\n").value["obj"] == {"x": 3, "z": 2}
    assert one("a: &a {x: 1}\nb: &b {x: 2, z: 3}\nobj:\n  <<: [*a, *b]\n").value["obj"] == {"x": 1, "z": 3}


def test_a_merge_after_its_key_is_refused_since_readers_disagree() -> None:
    problem = broken("b: &b {x: 1}\nobj:\n  x: 3\n  <<: *b\n")
    assert (problem.line, problem.message) == (4, "has a merge that overwrites the key 'x' before it")


def test_documents_are_counted_without_the_empty_ones() -> None:
    found = load(b"# head\n---\n# still nothing\n---\na: 1\n---\n---\n~\n---\nb: 2\n...\n---\nc: 3\n", "f.yaml")
    assert [(d.index, d.value) for d in found if isinstance(d, Document)] == [
        (1, {"a": 1}),
        (2, {"b": 2}),
        (3, {"c": 3}),
    ]
    assert [d.position() for d in found if isinstance(d, Document)] == [(5, 1), (10, 1), (13, 1)]


def test_a_broken_document_leaves_the_others_alone() -> None:
    found = load(b"a: 1\n---\nb: [\n---\nc: 3\n---\nd: \xff\n---\ne: 5\n", "f.yaml")
    assert [(type(d).__name__, d.index) for d in found] == [
        ("Document", 1),
        ("Unreadable", 2),
        ("Document", 3),
        ("Unreadable", 4),
        ("Document", 5),
    ]
    assert [d.line for d in found if isinstance(d, Unreadable)] == [4, 7]
    assert found[3] == Unreadable("f.yaml", 7, 4, "has the byte 0xff, which is no UTF-8", "save the file as UTF-8", 4)


def test_what_stands_before_the_break_in_one_stream_is_kept_with_its_places() -> None:
    found = load(b'{"a": {"b": 1}}\n{"c": 2}\n{"d": ', "f.json")
    assert [d.value for d in found if isinstance(d, Document)] == [{"a": {"b": 1}}, {"c": 2}]
    assert isinstance(found[1], Document)
    assert found[1].position("c") == (2, 2)
    assert isinstance(found[2], Unreadable)
    assert (found[2].line, found[2].message, found[2].fix) == (
        3,
        "is no JSON: expecting value",
        "the text may be cut off",
    )


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("a: 1\na: 2\n", 2, 1, "has the key 'a' twice"),
        ('{"a": {"b": 1,\n "b": 2}}', 2, 2, "has the key 'b' twice"),
        ('{"a": 1, "a": 2}', 1, 10, "has the key 'a' twice"),
        ("a:\n\tb: 1\n", 2, 1, "has a tab where YAML needs spaces"),
        ("a: .inf\n", 1, 4, "has .inf, which JSON cannot say"),
        ("a: !!python/object/apply:os.system [ls]\n", 1, 4, "has the tag !!python/object/apply:os.system, which"),
        ("a: !!binary aGk=\n", 1, 4, "has the tag !!binary, which Kubernetes does not know"),
        ("a: !mine x\n", 1, 4, "has the tag !mine, which Kubernetes does not know"),
        ("1.5: x\n", 1, 1, "has the key 1.5, which is no text"),
        ("a: \x07\n", 1, 4, "has the control character 0x07"),
        ("- a\n", 1, 1, "has a list, needs an object with apiVersion and kind"),
        ("just text\n", 1, 1, "has a plain value, needs an object with apiVersion and kind"),
        ("kind: List\nitems:\n- kind: Pod\n- 5\n", 4, 3, "has a plain value, needs an object"),
        ('{"a": NaN, "a": 1}', 1, 7, "has NaN, which is no JSON"),
    ],
)
def test_the_place_and_the_reason_are_told(text: str, line: int, column: int, message: str) -> None:
    problem = broken(text)
    assert (problem.line, problem.column) == (line, column)
    assert problem.message.startswith(message)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-16-le", "utf-16-be"])
def test_other_encodings_are_named(encoding: str) -> None:
    problem = broken("kind: Pod\n".encode(encoding))
    assert problem.message == "is UTF-16 or UTF-32, needs UTF-8"


def test_a_byte_order_mark_of_utf_8_is_skipped() -> None:
    assert one(b"\xef\xbb\xbfa: 1\n").value == {"a": 1}
    assert one(b'\xef\xbb\xbf{"a": 1}').value == {"a": 1}


@pytest.mark.parametrize(
    "text",
    ["a: " + "[" * 5000, "[" * 100_000, '{"a":' * 5000, '{"a":' * 200 + "1" + "}" * 200, "a: " + "[" * 150 + "]" * 150],
)
def test_depth_is_bounded(text: str) -> None:
    assert "levels deep" in broken(text).message or "no JSON" in broken(text).message


def test_depth_through_aliases_is_bounded() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 150)]
    assert "levels deep" in broken("\n".join(lines)).message


def test_aliases_that_unfold_without_end_are_refused() -> None:
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x]"] + [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    problem = broken("\n".join(lines))
    assert problem.message == "has aliases that unfold to more than 100000 values"


def test_a_file_without_bounds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_BYTES", 10)
    assert broken("a: 1234567890\n").message == "has 14 bytes, more than 10"


def test_numbers_with_thousands_of_digits_are_no_traceback() -> None:
    assert one('{"a": ' + "9" * 5000 + "}").value == {"a": "9" * 5000}
    assert value("9" * 5000) == "9" * 5000


def test_numbers_keep_what_a_quantity_needs() -> None:
    document = one('{"a": 0.1, "b": 1e3, "c": 1e400, "d": 123456789012345678901234567890, "e": 1.5}')
    assert document.value == {"a": 0.1, "b": 1000, "c": "1e400", "d": 123456789012345678901234567890, "e": 1.5}
    assert type(document.value["b"]) is int


def test_half_a_surrogate_pair_becomes_the_replacement_character() -> None:
    document = one('{"a": "x\\ud800y", "b": "\\ud83d\\ude00", "c": "\\\\ud800", "d": "\\uDC00"}')
    assert document.value == {"a": "x\ufffdy", "b": "\U0001f600", "c": "\\ud800", "d": "\ufffd"}
    assert document.position("c") == (1, 40)


def test_lists_are_taken_apart_and_items_get_the_type_of_their_list() -> None:
    text = """\
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: a}
- apiVersion: resource.k8s.io/v1
  kind: ResourceSliceList
  items:
  - metadata: {name: b}
  - kind: Odd
    metadata: {name: c}
- apiVersion: v1
  kind: PodList
  items: []
- apiVersion: v1
  kind: NodeList
---
kind: Pod
"""
    found = load(text.encode(), "f.yaml")
    assert [(d.index, d.value.get("apiVersion"), d.value["kind"]) for d in found if isinstance(d, Document)] == [
        (1, "v1", "Pod"),
        (2, "resource.k8s.io/v1", "ResourceSlice"),
        (3, "resource.k8s.io/v1", "Odd"),
        (4, "v1", "NodeList"),
        (5, None, "Pod"),
    ]
    assert [d.position("metadata.name") for d in found if isinstance(d, Document)][:3] == [(6, 14), (10, 16), (12, 16)]


SLICE = """\
# a comment
kind: ResourceSlice
metadata:
  annotations: {a.b/c: x, "odd]key": y}
spec:
  devices:
  - name: d0
    basic:
      capacity:
        cpu.x/cpus: {value: "1"}
        cpu.x/cpus.more: {value: "2"}
  - name: d1
    requests:
    - {name: r, deviceClassName: c}
"""


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("", (2, 1)),
        ("kind", (2, 1)),
        ("spec.devices[1].name", (12, 5)),
        ("spec.devices[1]", (12, 5)),
        ("metadata.annotations[a.b/c]", (4, 17)),
        ("metadata.annotations[odd]key]", (4, 27)),
        ("spec.devices[0].basic.capacity[cpu.x/cpus].value", (10, 22)),
        ("spec.devices[0].capacity[cpu.x/cpus].value", (10, 22)),
        ("spec.devices[0].capacity[cpu.x/cpus.more].value", (11, 27)),
        ("spec.devices[1].requests[0].exactly.deviceClassName", (14, 17)),
        ("spec.devices[1].nope.deeper[3]", (12, 5)),
        ("spec.devices[7].name", (6, 3)),
        ("spec.devices[99999999999999999999999].name", (6, 3)),
        ("status.allocation", (2, 1)),
        ("[[[", (2, 1)),
    ],
)
def test_positions_of_field_paths(path: str, place: tuple[int, int]) -> None:
    assert one(SLICE).position(path) == place
    as_json = one("{\n" + json.dumps(one(SLICE).value)[1:])
    assert as_json.position(path)[0] in (1, 2)


def test_positions_inside_aliases_and_merges_lead_to_the_anchor() -> None:
    document = one("a: &a\n  x: 1\nb:\n- *a\n- <<: *a\n  z: 2\n")
    assert document.position("b[0]") == (4, 3)
    assert document.position("b[0].x") == (2, 3)
    assert document.position("b[1].x") == (2, 3)
    assert document.position("b[1].z") == (6, 3)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=6), JSON_VALUES, max_size=5))
def test_what_json_wrote_is_read_back_and_every_member_has_a_place(members: dict[str, Any]) -> None:
    if str(members.get("kind")).endswith("List"):
        return
    document = one(json.dumps(members, ensure_ascii=True))
    assert json.loads(json.dumps(document.value), parse_int=float) == json.loads(json.dumps(members), parse_int=float)
    line, column = document.position("anything.at[0].all")
    assert line == 1
    assert column >= 1


@settings(max_examples=300)
@given(st.binary(max_size=60) | st.text(alphabet='ab:-{}[]",*&!<? \n\t01|>%#.\u00e9', max_size=40).map(str.encode))
def test_any_bytes_give_documents_or_reasons(data: bytes) -> None:
    for found in load(data, "f.yaml"):
        if isinstance(found, Document):
            assert isinstance(found.value, dict)
            assert found.position("a.b[0]") >= (1, 1)
        else:
            assert found.message
            assert "\n" not in found.message
            assert found.line >= 1
            assert found.column >= 1
