from __future__ import annotations

import pytest

from tests.facts.builders import samples, slice_of
from webhook.facts.selectors import compile_problems, matches
from webhook.kube.release import Release
from webhook.kube.resource import read_slice

(GPUS,) = [read_slice(obj) for obj in samples("06")]
(CPUS,) = [read_slice(obj) for obj in samples("02")]


def chosen(expression: str) -> list[bool | None]:
    return [matches(expression, GPUS.driver, device) for device in GPUS.devices]


@pytest.mark.parametrize(
    ("expression", "answers"),
    [
        ('device.driver == "gpu.basalt.example"', [True] * 4),
        ("device.allowMultipleAllocations", [False] * 4),
        ('device.attributes["gpu.basalt.example"].type == "gpu"', [True] * 4),
        ('device.capacity["gpu.basalt.example"].memory.compareTo(quantity("40Gi")) >= 0', [True] * 4),
        ('device.capacity["gpu.basalt.example"].memory.isLessThan(quantity("1000M"))', [False] * 4),
        ('device.attributes["gpu.basalt.example"].driverVersion.isGreaterThan(semver("570.0.0"))', [True] * 4),
        ('device.attributes["resource.kubernetes.io"].numaNode == 0', [True, True, False, False]),
        ('1 in device.attributes["resource.kubernetes.io"].numaNode', [None, None, None, True]),
        ('device.attributes["resource.kubernetes.io"].numaNode.includes(1)', [False, False, True, True]),
        ('device.attributes["gpu.basalt.example"].type.includes("gpu")', [True] * 4),
        ('has(device.attributes["no.such.domain"].x)', [False] * 4),
        ('device.attributes["no.such.domain"].?x.orValue(true)', [True] * 4),
        # An attribute that is not there is an error, not a no.
        ('device.attributes["gpu.basalt.example"].nope == 1', [None] * 4),
        ('device.attributes["gpu.basalt.example"].productName', [None] * 4),
    ],
)
def test_answers(expression: str, answers: list[bool | None]) -> None:
    assert compile_problems(expression, "p", Release(36, {"DRAListTypeAttributes": True})) == []
    assert chosen(expression) == answers


def test_a_key_without_a_domain_is_in_the_drivers_domain() -> None:
    device = read_slice(slice_of({"name": "d0", "attributes": {"numa": {"int": 1}}, "capacity": {"c": {"value": "2"}}}))
    assert matches('device.attributes["d.example"].numa == 1', "d.example", device.devices[0]) is True
    assert matches('device.attributes["e.example"].numa == 1', "d.example", device.devices[0]) is None
    assert (
        matches('device.capacity["d.example"].c.compareTo(quantity("2")) == 0', "d.example", device.devices[0]) is True
    )
    assert matches("device.allowMultipleAllocations", CPUS.driver, CPUS.devices[0]) is True


def test_values_that_cannot_be_read_are_errors() -> None:
    device = read_slice(slice_of({"name": "d0", "attributes": {"a": {}}, "capacity": {"c": {"value": []}}})).devices[0]
    for expression in ('device.attributes["d.example"].a == 1', 'device.capacity["d.example"].c.isInteger()'):
        assert matches(expression, "d.example", device) is None


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("", "FieldValueInvalid"),
        ("device.driver ==", "FieldValueInvalid"),
        ("device.nope", "FieldValueInvalid"),
        ("1 + 1", "FieldValueInvalid"),
        ("'text'", "FieldValueInvalid"),
        ("true" + " " * 10240, "FieldValueTooLong"),
    ],
)
def test_expressions_that_the_server_refuses(expression: str, kind: str) -> None:
    (finding,) = compile_problems(expression, "spec.selectors[0].cel.expression", Release(36))
    assert (finding.rule, finding.error_type, finding.origin) == ("selector-cel", kind, "apiserver")
    if len(expression) < 100:
        assert matches(expression, GPUS.driver, GPUS.devices[0]) is None


def test_the_function_for_lists_comes_with_the_gate() -> None:
    expression = "device.attributes['a'].b.includes(1)"
    assert compile_problems(expression, "p", Release(36, {"DRAListTypeAttributes": True})) == []
    (finding,) = compile_problems(expression, "p", Release(36))
    assert finding.error_type == "FieldValueInvalid"


def test_whether_a_device_is_shared_comes_with_the_gate() -> None:
    assert compile_problems("device.allowMultipleAllocations", "p", Release(37)) == []
    (finding,) = compile_problems("device.allowMultipleAllocations", "p", Release(37, {"DRAConsumableCapacity": False}))
    assert finding.error_type == "FieldValueInvalid"
