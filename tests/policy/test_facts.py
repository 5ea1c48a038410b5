"""Facts: at most once, null where they do not belong, and no traceback whatever an object holds."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook import cel
from webhook.cel.types import StructType
from webhook.kube.admission import raw_request, read_request
from webhook.kube.finding import Finding
from webhook.kube.release import Release
from webhook.kube.rollout import API_VERSION
from webhook.kube.snapshot import build
from webhook.ledger.book import Book
from webhook.policy.fact import Fact, fact, known, struct
from webhook.policy.facts import DOCS, ENVIRONMENT, STRUCTS, SUBJECTS, Facts, Names
from webhook.policy.types import FINDINGS

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
KINDS = {
    "ResourceSlice": ("resource.k8s.io/v1", ""),
    "ResourceClaim": ("resource.k8s.io/v1", "status"),
    "ResourceClaimTemplate": ("resource.k8s.io/v1", ""),
    "DeviceClass": ("resource.k8s.io/v1", ""),
    "Pod": ("v1", "status"),
    "Binding": ("v1", "binding"),
    "Node": ("v1", ""),
    "ClusterRole": ("rbac.authorization.k8s.io/v1", ""),
    "RoleBinding": ("rbac.authorization.k8s.io/v1", ""),
}
CLUSTER = [
    {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4"}}},
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": "ns"}, "spec": {}},
]


def facts_of(obj, operation="CREATE", old=None, minor=36, sub_resource="", cluster=CLUSTER) -> Facts:
    request = read_request(raw_request(operation, obj, old, sub_resource=sub_resource))
    return Facts(request, build(cluster, Release(minor)), Book(), NOW)


def read_all(struct_type, value) -> None:
    """Reads every field of a struct, and of what it holds."""
    if value is None:
        return
    for field in struct_type.fields.values():
        read(field.type, getattr(value, field.attribute))


def read(kind, value) -> None:
    if isinstance(kind, StructType):
        read_all(kind, value)
    elif kind == FINDINGS:
        assert all(isinstance(each, Finding) for each in value)
        assert all(each.text("p").isprintable() for each in value)
    elif kind.name == "list":
        for each in value:
            read(kind.parameters[0], each)
    elif kind.name == "map":
        for each in value.values():
            read(kind.parameters[1], each)
    else:
        expected = {"string": str, "int": int, "bool": bool}.get(kind.name, object)
        assert isinstance(value, expected), (kind, value)


def read_everything(facts: Facts) -> None:
    for name, kind in STRUCTS.items():
        read_all(kind, Names(facts, {})[name].get())


def test_a_fact_is_computed_when_read_and_once() -> None:
    calls = []

    class Thing:
        @fact(cel.INT)
        def some_number(self) -> int:
            """A number."""
            calls.append(1)
            return 7

    thing = Thing()
    assert known(thing) == {}
    assert [thing.some_number, thing.some_number] == [7, 7]
    assert calls == [1]
    assert known(thing) == {"someNumber": 7}
    kind = struct("Thing", Thing)
    assert {name: (f.type, f.attribute, f.doc) for name, f in kind.fields.items()} == {
        "someNumber": (cel.INT, "some_number", "A number.")
    }
    assert isinstance(Thing.some_number, Fact)


def test_several_policies_share_one_computation(policy, compiled, judge) -> None:
    validations = [{"name": "x", "findings": "pod.specProblems"}]
    evaluation = judge(compiled(policy("a", validations=validations), policy("b", validations=validations)))
    first, second = evaluation.policies
    assert len(first.rules) == len(second.rules) == 1
    assert "specProblems" in known(evaluation.facts.pod)


def test_nothing_is_computed_that_nobody_reads(policy, compiled, judge) -> None:
    evaluation = judge(compiled(policy(validations=[{"name": "x", "expression": "request.name == 'p1'"}])))
    assert "pod" not in vars(evaluation.facts)
    assert "account" not in vars(evaluation.facts)


@pytest.mark.parametrize("kind", KINDS)
def test_subjects_are_null_for_other_writes(kind) -> None:
    version, sub_resource = KINDS[kind]
    meta = {"name": "x", "namespace": "ns"}
    facts = facts_of({"apiVersion": version, "kind": kind, "metadata": meta}, sub_resource=sub_resource)
    of_kind = {"Binding": "pods", "Pod": "pods", "DeviceClass": "deviceclasses"}.get(kind, f"{kind.lower()}s")
    for name, resources in SUBJECTS.items():
        value = Names(facts, {})[name].get()
        assert (value is not None) is (of_kind in resources), name


def test_the_node_and_its_account() -> None:
    facts = facts_of({"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {"nodeName": "n1"}})
    assert facts.node is not None
    assert facts.node.allocatable == {"cpu": "4"}
    assert facts.ledger.resources["cpu"].free == "4"
    assert facts.ledger.known
    nowhere = facts_of({"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {}})
    assert (nowhere.node, nowhere.ledger.known, nowhere.ledger.resources) == (None, False, {})


@pytest.mark.parametrize(
    ("hold", "stands"),
    [
        (None, False),
        ({}, True),
        ({"until": "2026-11-29T12:00:01Z"}, True),
        ({"until": "2026-11-29T12:00:00Z"}, False),
        ({"badMappings": ["sha256:" + "a" * 64]}, True),
        ({"badMappings": ["sha256:" + "a" * 64], "until": "2026-11-29T12:00:00Z"}, False),
    ],
)
def test_a_driver_is_held_until_its_hold_ends(hold, stands) -> None:
    spec = {} if hold is None else {"hold": {"reason": "books half", **hold}}
    rollout = {"apiVersion": API_VERSION, "kind": "DriverRollout", "metadata": {"name": "d"}, "spec": spec}
    of_slice = write("ResourceSlice", rollout, spec={"driver": "d", "pool": {"name": "n1"}}).driver
    results = [{"request": "r", "driver": "d", "pool": "n1", "device": "a"}]
    claim = write("ResourceClaim", rollout, status={"allocation": {"devices": {"results": results}}}).claim
    assert claim is not None
    for driver in (of_slice, *claim.rollouts):
        assert (driver.held, driver.hold_reason) == (stands, "books half" if stands else "")


def write(kind, *more, **fields) -> Facts:
    obj = {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": "x", "namespace": "ns"}, **fields}
    return facts_of(obj, cluster=[*CLUSTER, *more])


def test_every_name_and_field_is_documented() -> None:
    assert set(DOCS) == set(STRUCTS)
    assert set(ENVIRONMENT.variables) == {*STRUCTS, "object", "oldObject", "namespaceObject", "params"}
    for kind in cel.types.struct_types(*STRUCTS.values()):
        for name, field in kind.fields.items():
            assert field.doc.endswith("."), f"{kind.name}.{name}"


MEMBERS = [
    "rules",
    "verbs",
    "annotations",
    "metadata",
    "spec",
    "status",
    "name",
    "namespace",
    "devices",
    "results",
    "allocation",
    "reservedFor",
    "resources",
    "requests",
    "claims",
    "capacity",
    "nodeAllocatableResourceMappings",
    "nodeAllocatableResources",
    "mapping",
    "overhead",
    "cpu",
    "memory",
    "driver",
    "pool",
    "device",
    "uid",
    "containers",
    "resourceClaims",
    "exactly",
    "firstAvailable",
    "attributes",
    "value",
    "int",
    "string",
    "selectors",
    "cel",
    "expression",
]
PLAIN = ["", "x", "1", "-3", "4Gi", "n1", "\ud800", "é\n"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**64) | st.sampled_from(PLAIN),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=4),
    max_leaves=12,
)


@given(
    kind=st.sampled_from(sorted(KINDS)), spec=JSON, status=JSON, meta=JSON, old=JSON, minor=st.sampled_from([36, 37])
)
def test_no_object_breaks_a_fact(kind, spec, status, meta, old, minor) -> None:
    version, sub_resource = KINDS[kind]
    obj = {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec, "status": status}
    obj |= {"rules": spec, "aggregationRule": status, "subjects": spec, "roleRef": status}
    before = old if isinstance(old, dict) else {}
    read_everything(facts_of(obj, "UPDATE", before, minor, sub_resource))
    read_everything(facts_of(obj, "CREATE", None, minor, sub_resource, [*CLUSTER, obj]))
