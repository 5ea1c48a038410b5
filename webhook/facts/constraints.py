"""Whether an allocation meets the constraints of its claim: devices that share an attribute, or differ in it.

Semantics of the allocator: a scalar is a list of one, all chosen devices must have an element in common (KEP-5491,
KEP-6072); an attribute without a domain is of its driver's domain; a device without the attribute meets no constraint.
"""

from __future__ import annotations

from msgspec.structs import replace

from webhook.facts.placement import claim_node, find_device
from webhook.facts.pools import costless
from webhook.kube.claims import Claim, Constraint, Result
from webhook.kube.finding import Finding, Severity
from webhook.kube.raw import mapping, sequence
from webhook.kube.resource import Device
from webhook.kube.snapshot import Snapshot

Values = frozenset[tuple[str, object]]

_FORMS = ("int", "bool", "string", "version")
_NUMA_NAMES = frozenset({"numanode", "numanodeid", "numaid", "numa"})


def attribute_values(device: Device, driver: str, name: str) -> Values | None:
    """The values of the attribute ``name`` (with its domain) of a device of ``driver``; None when it has none."""
    raw = device.attributes.get(name)
    domain, _, identifier = name.rpartition("/")
    if raw is None and domain == driver:
        raw = device.attributes.get(identifier)
    fields = mapping(raw)
    found: set[tuple[str, object]] = set()
    for form in _FORMS:
        single, several = fields.get(form), sequence(fields.get(f"{form}s"))
        for value in (single, *several):
            if isinstance(value, str | int):
                found.add((form, value))
    return frozenset(found) if found else None


def constraint_problems(claim: Claim, snapshot: Snapshot) -> list[Finding]:
    """The constraints of a claim that its allocation does not meet. Results on devices that nobody offers are left out:
    they have a finding of their own.
    """
    if claim.allocation is None or not claim.constraints:
        return []
    node = claim_node(claim, snapshot)
    found: list[Finding] = []
    for constraint in claim.constraints:
        name = constraint.match_attribute or constraint.distinct_attribute
        if not name:
            continue
        bound: list[tuple[Result, Values]] = []
        for result in claim.allocation.results:
            if not _covers(constraint, result):
                continue
            offer = find_device(snapshot, result, node)
            if offer is None:
                continue
            values = attribute_values(offer[1], result.driver, name)
            if values is None:
                found.append(_missing(result, name))
            else:
                bound.append((result, values))
        problem = _unmatched(name, bound, snapshot) if constraint.match_attribute else _repeated(name, bound, snapshot)
        if problem is not None:
            found.append(problem)
    if all(costless(snapshot, result, claim) for result in claim.allocation.results):
        return [replace(each, severity="warning") if each.severity == "error" else each for each in found]
    return found


def _covers(constraint: Constraint, result: Result) -> bool:
    main = result.request.partition("/")[0]
    return not constraint.requests or result.request in constraint.requests or main in constraint.requests


def _missing(result: Result, name: str) -> Finding:
    path = f"status.allocation.devices.results[{result.index}].device"
    has = f"no attribute {name} on device {result.device} of {result.driver}"
    fix = "use an attribute that all drivers of the claim publish"
    return Finding("attribute-missing", path, has, "the attribute that the claim's constraint compares", fix)


def _numa(name: str, drivers: set[str], snapshot: Snapshot) -> bool:
    """Whether the attribute tells the NUMA zone of devices of ``drivers``."""
    aliases = {alias for driver in drivers for alias in _aliases(driver, snapshot)}
    return name in aliases or name.rpartition("/")[2].lower() in _NUMA_NAMES


def _aliases(driver: str, snapshot: Snapshot) -> tuple[str, ...]:
    rollout = snapshot.rollouts.get(driver)
    return rollout.numa_attributes if rollout is not None else ()


def _show(result: Result, values: Values) -> str:
    listed = " or ".join(str(value) for _, value in sorted(values, key=str))
    return f"{result.request} on {result.device} = {listed}"


def _finding(
    name: str, bound: list[tuple[Result, Values]], culprit: Result, needs: str, snapshot: Snapshot, severity: Severity
) -> Finding:
    numa = _numa(name, {result.driver for result, _ in bound}, snapshot)
    rule = "numa-constraint-broken" if numa else "constraint-broken"
    path = f"status.allocation.devices.results[{culprit.index}].device"
    shown = ", ".join(_show(result, values) for result, values in bound[:4])
    fix = "release the claim so that it is allocated anew"
    return Finding(rule, path, f"{name}: {shown}", needs, fix, severity)


def _unmatched(name: str, bound: list[tuple[Result, Values]], snapshot: Snapshot) -> Finding | None:
    common: Values | None = None
    for result, values in bound:
        common = values if common is None else common & values
        if not common:
            return _finding(name, bound, result, "a value that all of them have", snapshot, "error")
    if common is None or not _numa(name, {result.driver for result, _ in bound}, snapshot):
        return None
    zones = [value for form, value in common if form == "int" and isinstance(value, int) and value >= 0]
    return None if len(zones) == len(common) == 1 else _ambiguous(name, bound)


def _ambiguous(name: str, bound: list[tuple[Result, Values]]) -> Finding:
    """Values in common that name no one zone: none is known (negative), or any of several."""
    shown = ", ".join(_show(result, values) for result, values in bound[:4])
    needs = "one NUMA node that all of them name, to know that they are in one zone"
    return Finding("zone-unknown", "status.allocation.devices", f"{name}: {shown}", needs, severity="info")


def _repeated(name: str, bound: list[tuple[Result, Values]], snapshot: Snapshot) -> Finding | None:
    seen: set[tuple[str, object]] = set()
    for result, values in bound:
        if seen & values:
            # The allocator itself overlooks a repetition among three devices of one request.
            return _finding(name, bound, result, "a different value on each of them", snapshot, "warning")
        seen |= values
    return None
