from __future__ import annotations

from typing import Any

import pytest

from tests.facts.builders import gpu, grp, slice_of
from webhook.facts.slice_mappings import mapping_problems, sketch_problems
from webhook.kube.finding import Finding
from webhook.kube.release import Release

R36, R37 = Release(36), Release(37)
OLD, NEW = "nodeAllocatableResourceMappings", "nodeAllocatableResources"


def old(**entries: Any) -> list[Finding]:
    return mapping_problems(slice_of(gpu("d0", {name.replace("_", "-"): e for name, e in entries.items()})), R36)


def new(entry: Any, **device: Any) -> list[Finding]:
    return mapping_problems(slice_of({"name": "d0", NEW: {"cpu": entry}, **device}), R37)


def rules(findings: list[Finding]) -> list[str]:
    return [finding.rule for finding in findings]


def test_ordinary_mappings_are_silent() -> None:
    assert mapping_problems(slice_of(grp(), gpu("g", {"memory": {"allocationMultiplier": "16Gi"}})), R36) == []
    assert old(cpu={}) == []
    assert new({"mapping": {"deviceMultiplier": "8"}, "overhead": {"perPod": "500m"}}) == []


@pytest.mark.parametrize(
    "entry", [{}, None, {"allocationMultiplier": "1"}, {"allocationMultiplier": "1000m"}, {"allocationMultiplier": 1}]
)
def test_one_byte_of_memory_is_a_warning(entry: Any) -> None:
    (finding,) = old(memory=entry)
    assert (finding.rule, finding.severity) == ("mapping-empty", "warning")
    assert finding.path == f"spec.devices[0].{OLD}[memory]"


def test_one_byte_of_a_page_is_an_error_too() -> None:
    assert rules(old(hugepages_2Mi={})) == ["mapping-empty", "hugepage-not-whole-pages"]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"allocationMultiplier": "0"}, [("multiplier-zero", ".allocationMultiplier", "FieldValueInvalid")]),
        ({"allocationMultiplier": "-2"}, [("multiplier-negative", ".allocationMultiplier", "FieldValueInvalid")]),
        ({"allocationMultiplier": "8 GB"}, [("multiplier-not-quantity", ".allocationMultiplier", "")]),
        ({"allocationMultiplier": ["2"]}, [("multiplier-not-quantity", ".allocationMultiplier", "")]),
        ({"allocationMultiplier": True}, [("multiplier-not-quantity", ".allocationMultiplier", "")]),
        ({"capacityKey": ""}, [("capacitykey-empty", ".capacityKey", "FieldValueInvalid")]),
        ({"capacityKey": "d.example/cpus"}, [("capacitykey-unknown", ".capacityKey", "FieldValueNotFound")]),
    ],
)
def test_a_rules_of_1_36(entry: Any, expected: list[tuple[str, str, str]]) -> None:
    found = mapping_problems(slice_of(grp(**{OLD: {"cpu": entry}})), R36)
    base = f"spec.devices[0].{OLD}[cpu]"
    assert [(f.rule, f.path.removeprefix(base), f.error_type) for f in found] == expected
    assert all(f.origin == "apiserver" for f in found)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({}, {("mapping-missing", "", "FieldValueRequired")}),
        (None, {("mapping-missing", "", "FieldValueRequired")}),
        ({"mapping": {}}, {("mapping-missing", ".mapping", "FieldValueInvalid")}),
        (
            {"mapping": {"capacityKey": "cpus"}},
            {("multiplier-missing", ".mapping.capacityMultiplier", "FieldValueRequired")},
        ),
        (
            {"mapping": {"capacityMultiplier": "1"}},
            {
                ("capacitykey-empty", ".mapping.capacityKey", "FieldValueRequired"),
                ("mapping-missing", ".mapping", "FieldValueInvalid"),
            },
        ),
        (
            {"mapping": {"capacityKey": "cpus", "capacityMultiplier": "1", "deviceMultiplier": "1"}},
            {("mapping-both", ".mapping", "FieldValueInvalid")},
        ),
        ({"overhead": {}}, {("overhead-empty", ".overhead", "FieldValueInvalid")}),
        ({"overhead": {"perPod": "-1"}}, {("overhead-negative", ".overhead.perPod", "FieldValueInvalid")}),
        ({"overhead": {"perContainer": "0"}}, set()),
    ],
)
def test_b_rules_of_1_37(entry: Any, expected: set[tuple[str, str, str]]) -> None:
    device = {key: value for key, value in grp().items() if key != OLD}
    found = mapping_problems(slice_of({**device, NEW: {"cpu": entry}}), R37)
    base = f"spec.devices[0].{NEW}[cpu]"
    assert {(f.rule, f.path.removeprefix(base), f.error_type) for f in found} == expected


def test_a_capacity_key_on_an_exclusive_device_books_nothing() -> None:
    device = gpu("d0", {"cpu": {"capacityKey": "cpus"}}, capacity={"cpus": {"value": "8"}})
    (finding,) = mapping_problems(slice_of(device), R36)
    assert (finding.rule, finding.origin) == ("capacitykey-exclusive", "guard")


def test_b16_a_capacity_of_zero_books_nothing() -> None:
    (finding,) = mapping_problems(slice_of(grp(size="0")), R36)
    assert (finding.rule, finding.severity) == ("capacity-zero-books-nothing", "warning")


def test_d1_a_negative_capacity_is_refused() -> None:
    assert rules(mapping_problems(slice_of(grp(size="-8")), R36)) == ["capacity-negative-value"]


def test_c28_pages_that_the_policy_does_not_keep_whole() -> None:
    policy = {"default": "1Mi", "validRange": {"min": "1Mi", "step": "1Mi"}}
    pages = {"hugepages-2Mi": {"capacityKey": "size"}}
    device = grp(capacity={"size": {"value": "8Gi", "requestPolicy": policy}}, **{OLD: pages})
    assert rules(mapping_problems(slice_of(device), R36)) == ["hugepage-not-whole-pages"]


def test_b8_c16_the_other_releases_field_books_nothing() -> None:
    cost = {"cpu": {"mapping": {"deviceMultiplier": "2"}}}
    (finding,) = mapping_problems(slice_of({"name": "d0", NEW: cost}), R36)
    assert (finding.rule, finding.path, finding.severity) == ("field-from-1.37", f"spec.devices[0].{NEW}", "error")
    both = slice_of(gpu("d0", {"cpu": {"allocationMultiplier": "2"}}, **{NEW: cost}))
    assert rules(mapping_problems(both, R36)) == ["mapping-both-releases"]
    assert rules(mapping_problems(both, R37)) == ["mapping-both-releases"]
    assert rules(mapping_problems(slice_of(gpu("d0", {"cpu": {}})), R37)) == ["field-from-1.36"]


def test_the_rest_of_a_device_is_judged_beside_a_foreign_field() -> None:
    both = slice_of(gpu("d0", {"pods": {}}, **{NEW: {"cpu": {}}}))
    assert rules(mapping_problems(both, R36)) == ["mapping-both-releases", "key-not-consumable"]


@pytest.mark.parametrize("value", [[{"resourceName": "cpu"}], "cpu", 7, True])
def test_a_cost_that_is_no_map_does_not_decode(value: Any) -> None:
    (finding,) = mapping_problems(slice_of({"name": "d0", OLD: value}), R36)
    assert (finding.rule, finding.origin) == ("mapping-is-list", "apiserver")


def test_products_that_leave_64_bits_only_together() -> None:
    devices = [gpu(f"d{i}", {"memory": {"allocationMultiplier": "4E"}}) for i in range(3)]
    (finding,) = mapping_problems(slice_of(*devices), R36)
    assert (finding.rule, finding.path) == ("product-overflow", "spec.devices")
    assert mapping_problems(slice_of(*devices[:2]), R36) == []


def test_nothing_is_judged_that_the_server_drops() -> None:
    off = Release(36, {"DRANodeAllocatableResources": False})
    assert mapping_problems(slice_of(gpu("d0", {"foo": {}})), off) == []


def test_paths_of_v1beta1_leave_basic_out() -> None:
    obj = slice_of({"name": "d0", "basic": {OLD: {"cpu": {"allocationMultiplier": "0"}}}})
    obj["apiVersion"] = "resource.k8s.io/v1beta1"
    assert [f.path for f in mapping_problems(obj, R36)] == [f"spec.devices[0].{OLD}[cpu].allocationMultiplier"]


def test_the_sketch_of_articles_is_told_where_the_field_belongs() -> None:
    sketch = {"resourceSlice": {OLD: {"cpu": {"allocationMultiplier": 2}}}}
    (finding,) = sketch_problems(sketch)
    assert (finding.rule, finding.path) == ("field-from-article", f"resourceSlice.{OLD}")
    assert "spec.devices[]" in finding.needs
    in_spec = slice_of({"name": "d0"}, **{OLD: {"cpu": {}}})
    assert rules(mapping_problems(in_spec, R36)) == ["field-from-article"]


def test_b20_the_order_of_devices_does_not_matter() -> None:
    devices = [grp(), gpu("a", {"memory": {"allocationMultiplier": "1Gi"}}), gpu("b")]
    assert mapping_problems(slice_of(*devices), R36) == mapping_problems(slice_of(*reversed(devices)), R36) == []
