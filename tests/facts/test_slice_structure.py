from __future__ import annotations

import random
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.facts.builders import grp, samples, slice_of
from webhook.facts.slice_mappings import mapping_problems
from webhook.facts.slice_structure import immutable_problems, structure_problems
from webhook.kube.release import Release

R36 = Release(36)
LISTS = Release(36, {"DRAListTypeAttributes": True})


def found(obj: Any, release: Release = LISTS, old: Any = None) -> list[tuple[str, str]]:
    return [(f.rule, f.path) for f in structure_problems(obj, release, old)]


def with_device(**fields: Any) -> dict[str, Any]:
    return slice_of({"name": "d0", **fields})


def test_slices_of_real_drivers_are_fine() -> None:
    for obj in samples("02", "03", "04", "05", "06", "07", "08", "09", "10"):
        assert found(obj) == []


def test_b6_an_attribute_that_is_too_long_is_named_with_its_device() -> None:
    obj = slice_of({"name": "d0"}, {"name": "nic-3", "attributes": {"addresses": {"string": "10.0.0.1," * 8}}})
    (finding,) = structure_problems(obj, R36)
    assert (finding.rule, finding.path) == ("attribute-too-long", "spec.devices[1].attributes[addresses].string")
    assert finding.has == "72 bytes"


def test_a_list_attribute_is_no_value_without_its_gate() -> None:
    obj = with_device(attributes={"numaNode": {"ints": [0, 1]}})
    assert found(obj) == []
    assert found(obj, R36) == [("attribute-value", "spec.devices[0].attributes[numaNode]")]
    # A slice that is stored with lists already may go on using them.
    assert found(obj, R36, old=deepcopy(obj)) == []


def test_c21_numa_nodes_have_no_upper_bound() -> None:
    for number in (0, 2, 10, 18, -1):
        assert found(with_device(attributes={"resource.kubernetes.io/numaNode": {"int": number}})) == []


@pytest.mark.parametrize(
    ("count", "extra", "limit"),
    [(128, {}, False), (129, {}, True), (64, {"taints": [{"key": "k", "effect": "None"}]}, False)]
    + [
        (65, extra, True)
        for extra in ({"taints": [{"key": "k", "effect": "None"}]}, {"attributes": {"a": {"ints": [1]}}})
    ],
)
def test_b5_how_many_devices_a_slice_may_have(count: int, extra: dict[str, Any], limit: bool) -> None:
    devices = [{"name": f"d{index}"} for index in range(count)]
    devices[0] |= extra
    assert found(slice_of(*devices)) == ([("too-many-devices", "spec.devices")] if limit else [])


def test_fields_behind_a_gate_that_is_off_are_not_judged() -> None:
    off = Release(36, {"DRADeviceTaints": False, "DRAPartitionableDevices": False, "DRAConsumableCapacity": False})
    obj = with_device(
        taints=[{"key": "", "effect": "Evict"}],
        consumesCounters=[{"counterSet": ""}],
        capacity={"size": {"value": "1", "requestPolicy": {"default": "9"}}},
        allNodes=False,
    )
    assert len(found(obj)) >= 5
    assert found(obj, off) == []


def test_per_device_selection_is_wanted_by_the_slice_and_kept_by_the_devices() -> None:
    obj = with_device(nodeName="n1")
    assert found(obj) == [("device-node-selection", "spec.devices[0]")]
    del obj["spec"]["nodeName"]
    obj["spec"]["perDeviceNodeSelection"] = True
    assert found(obj) == []
    obj["spec"]["devices"].append({"name": "d1"})
    assert found(obj) == [("device-node-selection", "spec.devices[1]")]


def test_v1beta1_keeps_fields_below_basic() -> None:
    obj = slice_of({"name": "d0", "basic": {"attributes": {"a": {}}}}, where="", pool="p", nodeName="")
    obj["apiVersion"] = "resource.k8s.io/v1beta1"
    obj["spec"]["allNodes"] = True
    assert found(obj) == [("attribute-value", "spec.devices[0].attributes[a]")]
    assert found(obj, Release(37)) == [("attribute-value", "spec.devices[0].basic.attributes[a]")]


def test_what_an_update_may_not_change() -> None:
    old, new = slice_of(grp()), slice_of(grp(), where="n2", driver="e.example")
    assert [f.path for f in immutable_problems(old, new)] == ["spec.pool.name", "spec.driver", "spec.nodeName"]
    assert all(f.rule == "field-immutable" for f in immutable_problems(old, new))
    assert immutable_problems(old, slice_of(grp(), generation=2)) == []


def test_b20_devices_in_another_order_are_the_same_slice() -> None:
    devices = [{"name": f"d{index}", "attributes": {"i": {"int": index}}} for index in range(20)]
    shuffled = random.Random(1).sample(devices, k=len(devices))
    assert found(slice_of(*shuffled), old=slice_of(*devices)) == []


DOCUMENTS = samples("06", "07", "08")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.data())
def test_any_json_gives_findings_and_no_traceback(data: st.DataObject) -> None:
    obj = deepcopy(data.draw(st.sampled_from(DOCUMENTS)))
    place: Any = obj
    while isinstance(place, dict | list) and place:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or data.draw(st.integers(0, 3)) == 0:
            place[key] = data.draw(JSON)
            break
        place = place[key]
    for release in (R36, LISTS, Release(37)):
        for finding in structure_problems(obj, release) + structure_problems(obj, release, obj):
            assert finding.text("p").isprintable()
        for finding in mapping_problems(obj, release):
            assert finding.text("p").isprintable()


@given(JSON)
def test_documents_that_are_no_slices(value: Any) -> None:
    for obj in (value, {"spec": value}, {"metadata": value, "spec": {"devices": value, "pool": value}}):
        assert structure_problems(obj, R36)
        mapping_problems(obj, R36)
