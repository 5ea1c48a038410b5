from __future__ import annotations

import pytest

from webhook.facts.mapping_amounts import Grid, fixed_problems, key_problem, page_size, product_problems
from webhook.kube.quantity import Number, parse


@pytest.mark.parametrize(
    ("resource", "size"),
    [
        ("hugepages-2Mi", 2 << 20),
        ("hugepages-1Gi", 1 << 30),
        ("hugepages-64Ki", 64 << 10),
        ("hugepages-", None),
        ("hugepages-2M", None),
        ("hugepages-2048Ki", None),
        ("hugepages-3Mi", None),
        ("hugepages-big", None),
    ],
)
def test_a_page_size_is_a_power_of_two_as_the_node_writes_it(resource: str, size: int | None) -> None:
    assert page_size(resource) == size


@pytest.mark.parametrize(
    ("resource", "old", "new"),
    [
        ("cpu", "", ""),
        ("memory", "", ""),
        ("hugepages-2Mi", "", ""),
        ("ephemeral-storage", "", "key-not-allowed"),
        ("pods", "key-not-consumable", "key-not-allowed"),
        ("attachable-volumes-csi", "key-not-consumable", "key-not-allowed"),
        ("cpus", "key-unknown", "key-not-allowed"),
        ("mem", "key-unknown", "key-not-allowed"),
        ("foo", "key-unknown", "key-not-allowed"),
        ("", "key-unknown", "key-not-allowed"),
        ("C P U", "key-unknown", "key-not-allowed"),
        ("x.kubernetes.io/y", "key-unknown", "key-extended-resource"),
        ("vendor.example/accel", "key-extended-resource", "key-extended-resource"),
        ("hugepages-2M", "hugepage-size-unknown", "hugepage-size-unknown"),
    ],
)
def test_c15_keys_that_no_scheduler_books(resource: str, old: str, new: str) -> None:
    rules = [problem.rule if problem else "" for problem in (key_problem(resource, 36), key_problem(resource, 37))]
    assert rules == [old, new]


def test_c15_the_fix_names_what_was_meant() -> None:
    problem = key_problem("cpus", 36)
    assert problem is not None
    assert problem.fix == "write cpu"


@pytest.mark.parametrize(
    ("resource", "amount", "rules"),
    [
        ("cpu", "2", []),
        ("cpu", "500m", []),
        ("cpu", "100u", ["multiplier-fraction"]),
        ("cpu", "9E", ["product-overflow"]),
        ("cpu", "9223372036854775", []),
        ("cpu", "9223372036854776", ["product-overflow"]),
        ("memory", "500m", ["multiplier-fraction-of-byte"]),
        ("memory", "4Gi", []),
        ("memory", "9223372036854775808", ["product-overflow"]),
        ("hugepages-2Mi", "3Mi", ["hugepage-not-whole-pages"]),
        ("hugepages-2Mi", "64Mi", []),
        ("hugepages-1Gi", "1500m", ["hugepage-not-whole-pages"]),
    ],
)
def test_fixed_amounts(resource: str, amount: str, rules: list[str]) -> None:
    assert [p.rule for p in fixed_problems(resource, parse(amount), ".m", "multiplier")] == rules


def grid(value: Number | None, *points: Number, bound: bool = True) -> Grid:
    return Grid(value, points, bound)


@pytest.mark.parametrize(
    ("resource", "multiplier", "capacity", "rules"),
    [
        ("cpu", "1", grid(31, 1), []),
        ("cpu", "333m", grid(3, 1), []),
        ("cpu", "1u", grid(3, 1), ["multiplier-fraction"]),
        ("cpu", "1n", grid(3, 1), ["multiplier-fraction"]),
        ("cpu", "1n", grid(3, parse("500m")), ["product-too-fine"]),
        ("memory", "500m", grid(8, 2), []),
        ("memory", "500m", grid(8, 1), ["multiplier-fraction-of-byte"]),
        ("memory", "500m", grid(8, bound=False), ["multiplier-fraction-of-byte"]),
        ("memory", "9E", grid(2, 1), ["product-overflow"]),
        ("cpu", "1", grid(-1, 1), ["capacity-negative-value"]),
        ("cpu", "1", grid(0, 1), ["capacity-zero-books-nothing"]),
        ("hugepages-2Mi", "1", grid(8 << 30, 2 << 20), []),
        ("hugepages-2Mi", "1", grid(8 << 30, 1 << 20), ["hugepage-not-whole-pages"]),
        ("hugepages-2Mi", "1", grid(8 << 30, bound=False), []),
        ("hugepages-2Mi", "1", grid(3 << 20, bound=False), ["hugepage-not-whole-pages"]),
        ("hugepages-2Mi", "2Mi", grid(100, 1), []),
    ],
)
def test_products(resource: str, multiplier: str, capacity: Grid, rules: list[str]) -> None:
    assert [p.rule for p in product_problems(resource, parse(multiplier), capacity, ".m")] == rules
