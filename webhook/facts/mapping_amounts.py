"""What is wrong with the amounts of one node cost: key, multiplier, and the products they can give (KEP-5517).

Nothing here knows where in a slice the cost stands: problems carry the path below the entry. All is memoised, because
the devices of a slice, and of a fleet, repeat the same few costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from webhook.facts.field_names import shown
from webhook.kube.finding import Finding, Origin, Severity
from webhook.kube.quantity import Number, beyond_int64, canonical, of_resource, try_parse

BYTES: Final = ("memory", "ephemeral-storage")
PAGES: Final = "hugepages-"
_PAGE = 4096
# Real node resources that no claim is ever charged for.
OTHER_RESOURCES: Final = ("pods", "storage")
OTHER_PREFIXES: Final = ("attachable-volumes-", "requests.", "limits.")
_MEANT: Final = {
    "cpus": "cpu",
    "core": "cpu",
    "cores": "cpu",
    "mem": "memory",
    "ram": "memory",
    "CPU": "cpu",
    "Memory": "memory",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """A finding without its place: ``suffix`` is the path below the entry."""

    rule: str
    suffix: str
    has: str
    needs: str
    fix: str = ""
    severity: Severity = "error"
    origin: Origin = "guard"
    error_type: str = ""

    def at(self, path: str) -> Finding:
        """The finding for the entry at ``path``."""
        where = f"{path}{self.suffix}"
        return Finding(self.rule, where, self.has, self.needs, self.fix, self.severity, self.origin, self.error_type)


@dataclass(frozen=True, slots=True)
class Grid:
    """The amounts of a capacity that a claim can consume, as far as they are known (base units, None: unreadable).

    ``value`` is the whole capacity, ``points`` amounts that do occur (smallest, a step, the default, listed values),
    ``bound`` tells that a policy keeps consumption to steps or listed values.
    """

    value: Number | None
    points: tuple[Number, ...]
    bound: bool


@lru_cache(maxsize=1 << 12)
def page_size(resource: str) -> int | None:
    """Bytes of a page of ``hugepages-<size>``; None when the size is none that a node can have: not a power of two,
    or not written as the kubelet writes it.
    """
    size = try_parse(resource.removeprefix(PAGES))
    if not isinstance(size, int) or size <= 0 or size & (size - 1) or resource != PAGES + canonical(size, binary=True):
        return None
    return size


def finer_than_nano(amount: Number) -> bool:
    """Whether a quantity cannot be written: its smallest unit is the billionth, and the scheduler's products may be
    finer. They are then written without any unit, in both releases.
    """
    return (amount * 10**9).denominator != 1


def in_bytes(resource: str) -> bool:
    """Whether amounts of ``resource`` are bytes."""
    return resource in BYTES or resource.startswith(PAGES)


def key_problem(resource: str, minor: int) -> Problem | None:
    """What is wrong with the resource that a device says it costs, for release 1.``minor``; None when it is booked."""
    if resource.startswith(PAGES):
        if page_size(resource) is not None:
            return None
        size, fix = resource.removeprefix(PAGES), "write the size as the node does (hugepages-2Mi, hugepages-1Gi)"
        return Problem("hugepage-size-unknown", "", f"page size {size!r}", "a page size that a node can have", fix)
    if resource in ("cpu", "memory") or (resource == "ephemeral-storage" and minor < 37):
        return None
    booked = "cpu, memory or hugepages-<size>" if minor >= 37 else "cpu, memory, ephemeral-storage or hugepages-<size>"
    meant = _MEANT.get(resource, "")
    fix = f"write {meant}" if meant else ""
    domain = "/" in resource
    if domain and (minor >= 37 or "kubernetes.io/" not in resource):
        return _refused("key-extended-resource", resource, booked, fix)
    if minor >= 37:
        return _refused("key-not-allowed", resource, booked, fix)
    known = resource in OTHER_RESOURCES or resource.startswith(OTHER_PREFIXES)
    rule = "key-not-consumable" if known else "key-unknown"
    return Problem(rule, "", f"resource {resource!r}, which no scheduler checks", booked, fix)


def _refused(rule: str, resource: str, needs: str, fix: str) -> Problem:
    return Problem(rule, "", f"resource {resource!r}", needs, fix, "error", "apiserver", "FieldValueInvalid")


def fixed_problems(resource: str, amount: Number, suffix: str, what: str) -> list[Problem]:
    """Problems of an amount that an allocation always costs: a multiplier without capacity key, or an overhead."""
    shown = of_resource(resource, amount)
    if beyond_int64(resource, amount):
        needs = "at most 2^63-1 in the scheduler's unit: beyond that it counts as zero"
        return [Problem("product-overflow", suffix, f"{what} {shown}", needs)]
    return _fraction(resource, [amount], suffix, f"{what} {shown}")


def tiny_problems(resource: str, amount: Number, limit: str) -> list[Problem]:
    """The problem of a cost that is one byte, as a multiplier that is left out gives on 1.36, or no page of memory."""
    if not in_bytes(resource) or not (amount == 1 or (resource in BYTES and 0 < amount < _PAGE)):
        return []
    has = f"a cost of {limit}{'one byte' if amount == 1 else f'{canonical(amount)} bytes'} of {resource}"
    fix = 'write the amount with its unit ("4Gi"); on 1.36 a missing multiplier counts as 1'
    return [Problem("mapping-empty", "", has, "the amount that a device takes", fix, "warning")]


def product_problems(resource: str, multiplier: Number, grid: Grid, suffix: str) -> list[Problem]:
    """Problems of the products that consumed capacity times ``multiplier`` can give."""
    found: list[Problem] = []
    if grid.value is not None and grid.value < 0:
        found.append(
            Problem(
                "capacity-negative-value",
                ".capacityKey",
                f"a capacity of {shown(grid.value)}",
                "a capacity of zero or more",
                "a negative capacity would take amounts off the node's account",
            )
        )
    elif grid.value == 0:
        has, fix = "a capacity of 0", "publish the real capacity, or drop the mapping"
        found.append(
            Problem(
                "capacity-zero-books-nothing", ".capacityKey", has, "a capacity that books something", fix, "warning"
            )
        )
    if grid.value is not None and beyond_int64(resource, grid.value * multiplier):
        has = f"capacity {shown(grid.value)} times {shown(multiplier)}"
        needs = "a product of at most 2^63-1 in the scheduler's unit: beyond that it counts as zero"
        return [*found, Problem("product-overflow", suffix, has, needs)]
    amounts = list(grid.points)
    if not grid.bound and resource.startswith(PAGES) and grid.value is not None:
        amounts.append(grid.value)
    elif not grid.bound:
        amounts.append(1)
    what = f"multiplier {shown(multiplier)}"
    return found + _fraction(resource, [amount * multiplier for amount in amounts], suffix, what)


def _fraction(resource: str, amounts: list[Number], suffix: str, what: str) -> list[Problem]:
    size = page_size(resource) if resource.startswith(PAGES) else None
    for amount in amounts:
        if size is not None and amount % size:
            has = f"{what}, which can cost {of_resource(resource, amount)}"
            fix = f"use multiples of {canonical(size, binary=True)}, in the requestPolicy too"
            return [Problem("hugepage-not-whole-pages", suffix, has, f"whole pages of {resource}", fix)]
        if in_bytes(resource) and amount.denominator != 1:
            has = f"{what}, which can cost {shown(amount)} bytes"
            fix = "the suffix m is a thousandth; write M or Mi for megabytes"
            return [Problem("multiplier-fraction-of-byte", suffix, has, "whole bytes", fix)]
        if resource == "cpu" and finer_than_nano(amount):
            has = f"{what}, which can cost less than a billionth of a cpu, or a part of one"
            fix = "the scheduler writes such an amount without its unit (500m times 1n as 500), and counts that"
            return [Problem("product-too-fine", suffix, has, "whole billionths of a cpu", fix)]
        if resource == "cpu" and (amount * 1000).denominator != 1:
            has = f"{what}, which can cost {shown(amount)} cpu"
            fix = "the scheduler rounds the pod's sum up"
            return [Problem("multiplier-fraction", suffix, has, "whole thousandths of a cpu", fix, "warning")]
    return []
