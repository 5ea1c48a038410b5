"""What is wrong with the requests of a ResourceClaim or template, beyond what the API server refuses.

Judged against the devices that exist anywhere, never against what is free now: whether there is room is decided when
the claim is allocated.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.facts.constraints import attribute_values
from webhook.facts.field_names import shown
from webhook.facts.offers import Offer, Offers, candidates, choices, class_selectors
from webhook.facts.request_policy import consumed_for, off_policy
from webhook.facts.request_structure import claim_structure_problems
from webhook.facts.selectors import compile_problems, matches
from webhook.kube.claims import (
    ADMIN_ACCESS_LABEL,
    EXTENDED_RESOURCE_ANNOTATION,
    Claim,
    DeviceRequest,
    read_claim,
    read_template,
)
from webhook.kube.finding import Finding, Severity, cause
from webhook.kube.quantity import INT64_MAX, Number, try_parse
from webhook.kube.raw import Json, indexed, mapping, text
from webhook.kube.release import Release
from webhook.kube.snapshot import Snapshot

SCHEDULER = "system:kube-scheduler"
RESULTS_MAX = 32
# Nothing on a node is as large, and from here rounding up to a step can leave 64 bits.
ABSURD = INT64_MAX // 2


def request_problems(obj: object, snapshot: Snapshot, user: str | None = None) -> list[Finding]:
    """Everything about the requests of a new raw claim or template, the API server's own rules first.

    ``user`` is who creates it; None where that is not known (objects at rest).
    """
    fields = mapping(obj)
    template = fields.get("kind") == "ResourceClaimTemplate"
    claim = read_template(obj) if template else read_claim(obj)
    path = "spec.spec.devices" if template else "spec.devices"
    return [
        *claim_structure_problems(obj, snapshot.release),
        *_admin(fields, template, claim.namespace or "default", snapshot),
        *guard_problems(claim, path, snapshot),
        *forged_problems(claim, user),
    ]


def guard_problems(claim: Claim, path: str, snapshot: Snapshot) -> list[Finding]:
    """What the API server lets pass in the requests of ``claim``; ``path`` is that of their ``devices``."""
    found: list[Finding] = []
    total = 0
    offers: dict[str, tuple[DeviceRequest, Offers]] = {}
    for group in claim.groups:
        counts = [0]
        for request in group.alternatives:
            where = f"{path}.{request.path}"
            offers[request.name] = (request, candidates(request, snapshot))
            found += unknown_class(request, where, snapshot)
            found += _selectors(request, where, offers[request.name][1], snapshot)
            found += _capacity(request, where, offers[request.name][1], snapshot.release)
            counts.append(request.count if request.mode == "ExactCount" else 1)
        total += min(counts[1:], default=0)
    if total > RESULTS_MAX:
        has, fix = f"{total} devices", "spread them over several claims"
        found.append(
            Finding("too-many-devices-requested", f"{path}.requests", has, f"at most {RESULTS_MAX}", fix, "warning")
        )
    for constraint in claim.constraints:
        attribute = constraint.match_attribute or constraint.distinct_attribute
        field = "matchAttribute" if constraint.match_attribute else "distinctAttribute"
        for name, (request, offered) in offers.items():
            main = name.partition("/")[0]
            if attribute and (not constraint.requests or name in constraint.requests or main in constraint.requests):
                where = f"{path}.{constraint.path}.{field}"
                found += _constraint(attribute, where, request, offered, snapshot)
    return found


def forged_problems(claim: Claim, user: str | None) -> list[Finding]:
    """A claim that says it is the scheduler's own for extended resources, so that quota skips it (k/k#135404)."""
    if claim.annotations.get(EXTENDED_RESOURCE_ANNOTATION) != "true" or user == SCHEDULER:
        return []
    by = "" if user is None else f" from {user}"
    has, fix = f"the annotation of the scheduler's own claims{by}", "remove the annotation"
    needs = f"no annotation {EXTENDED_RESOURCE_ANNOTATION}, unless the scheduler makes the claim"
    severity: Severity = "warning" if user is None else "error"
    path = f"metadata.annotations[{EXTENDED_RESOURCE_ANNOTATION}]"
    return [Finding("forged-special-claim", path, has, needs, fix, severity)]


def _admin(obj: Json, template: bool, name: str, snapshot: Snapshot) -> Iterator[Finding]:
    namespace = snapshot.namespaces.get(name)
    if namespace is None or not snapshot.release.enabled("DRAAdminAccess"):
        return
    labels = mapping(mapping(namespace.get("metadata")).get("labels"))
    if labels.get(ADMIN_ACCESS_LABEL) == "true":
        return
    spec = mapping(obj.get("spec"))
    devices = mapping((mapping(spec.get("spec")) if template else spec).get("devices"))
    flat = obj.get("apiVersion") == "resource.k8s.io/v1beta1"
    for index, request in indexed(devices.get("requests")):
        # It looks at what is asked for exactly, whatever else stands beside it.
        if (request if flat else mapping(request.get("exactly"))).get("adminAccess") is True:
            # The server names the first such request, by this path also in templates.
            path = f"spec.devices.requests[{index}].adminAccess"
            needs = f'the label {ADMIN_ACCESS_LABEL}: "true" on namespace {name}'
            yield cause("admin-access-namespace", path, "FieldValueForbidden", "adminAccess", needs)
            return


def unknown_class(request: DeviceRequest, path: str, snapshot: Snapshot) -> Iterator[Finding]:
    """``class-unknown`` where the class of ``request``, at ``path``, is not there: a warning, or, where no class is
    known at all, an info.
    """
    name = request.class_name
    if not name or name in snapshot.classes:
        return
    fix = "create the class, or correct the name: the pod pends until it is there"
    severity: Severity = "warning" if snapshot.classes else "info"
    has, needs = f"device class {name}, which is not there", "a DeviceClass of that name"
    yield Finding("class-unknown", f"{path}.deviceClassName", has, needs, fix, severity)


def _selectors(request: DeviceRequest, path: str, offers: Offers, snapshot: Snapshot) -> Iterator[Finding]:
    """Selectors that end in an error on every device of the class, as for an attribute that none has."""
    of_class = class_selectors(request.class_name, snapshot)
    devices = [
        (offer.driver, device)
        for offer in offers.offers
        for device in offer.examples
        if all(matches(expression, offer.driver, device) for expression in of_class)
    ]
    for index, expression in enumerate(request.selectors):
        where = f"{path}.selectors[{index}].cel.expression"
        if not devices or compile_problems(expression, where, snapshot.release):
            continue
        if all(matches(expression, driver, device) is None for driver, device in devices):
            driver, device = devices[0]
            has = f"an expression that ends in an error on device {device.name} of {driver} and on all its like"
            needs = "attributes that the devices have"
            fix = "the scheduler gives up at such an error: the pod would pend"
            yield Finding("selector-fails", where, has, needs, fix, "warning")


def _capacity(request: DeviceRequest, path: str, offers: Offers, release: Release) -> Iterator[Finding]:
    for name, raw in request.capacity.items():
        where = f"{path}.capacity.requests[{name}]"
        asked = try_parse(raw)
        if asked is None:
            continue
        if asked < 0:
            fix = "1.36 would take it off what the device has given out"
            yield Finding("capacity-negative", where, shown(asked), "zero or more", fix)
        elif asked >= ABSURD:
            fix = "rounding it up leaves 64 bits, and the device then seems to have more than it has"
            yield Finding("capacity-overflow", where, shown(asked), "an amount that a device can have", fix)
        elif offers.known:
            yield from _against(name, asked, where, offers, release)


def _against(name: str, asked: Number, path: str, offers: Offers, release: Release) -> Iterator[Finding]:
    having = [offer for offer in offers.offers if name in offer.capacity]
    if not having:
        if offers.complete:
            yield _unknown(name, path, offers)
        return
    given: list[Number] = []
    largest: Number = 0
    whole = False
    for offer in having:
        amount, value, stepped = _given(asked, name, offer, release)
        largest = max(largest, value)
        if amount is not None and amount <= value:
            given.append(amount)
            whole = whole or stepped
    if not given:
        if offers.complete:
            fix = f"the largest has {shown(largest)}"
            if asked <= largest:
                fix = f"a device gives {_allowed(asked, name, having[0], release)}"
            needs = "an amount that some device of the class can give"
            yield Finding("capacity-exceeds-every-device", path, shown(asked), needs, fix, "warning")
        return
    least = min(given)
    if asked in given or least == asked:
        return
    if asked.denominator != 1 and whole:
        has, needs = (
            f"{shown(asked)}, which gets {shown(least)}",
            "a whole amount: the device gives no fractions",
        )
        yield Finding("capacity-fractional", path, has, needs, f"ask for {shown(least)}", "warning")
    else:
        has = f"{shown(asked)}, which is rounded up to {shown(least)}"
        needs = "an amount that the device gives"
        yield Finding("capacity-rounded-up", path, has, needs, f"ask for {shown(least)}", "warning")


def _given(asked: Number, name: str, offer: Offer, release: Release) -> tuple[Number | None, Number, bool]:
    """What a device of the offer gives for the amount (None: nothing), what it has, and whether that is whole."""
    entry: Json = mapping(offer.capacity.get(name))
    value = try_parse(entry.get("value")) or 0
    amount = consumed_for(asked, entry, release)
    if amount is None or off_policy(amount, entry, release):
        return None, value, False
    # An exclusive device is given as a whole; the amount is only a condition.
    return (amount if offer.shared else max(asked, 0)), value, amount.denominator == 1


def _allowed(asked: Number, name: str, offer: Offer, release: Release) -> str:
    entry = offer.capacity.get(name)
    amount = consumed_for(asked, entry, release)
    wanted = "" if amount is None else off_policy(amount, entry, release)
    return wanted or "no such amount"


def _unknown(name: str, path: str, offers: Offers) -> Finding:
    there = sorted({str(key) for offer in offers.offers for key in offer.capacity})
    same = [key for key in there if key.rpartition("/")[2] == name.rpartition("/")[2]]
    has = f"capacity {name!r}, which no device of the class has"
    needs = f"the name as in the slice: {', '.join(same or there) or 'these devices have no capacity'}"
    fix = "names are compared as written, domain included: the pod would pend for ever"
    return Finding("capacity-name-unknown", path, has, needs, fix, "warning")


def _constraint(
    attribute: str, path: str, request: DeviceRequest, offers: Offers, snapshot: Snapshot
) -> Iterator[Finding]:
    if not offers.complete or not all(offer.whole for offer in offers.offers):
        return
    devices = list(choices(request, offers, snapshot))
    if not devices or any(attribute_values(device, driver, attribute) for driver, device in devices):
        return
    driver, device = devices[0]
    there = ", ".join(sorted(text(key) for key in device.attributes)) or "none"
    others = f"all others that request {request.name} can get"
    has = f"{attribute}, missing on device {device.name} of {driver} and on {others}"
    needs = f"an attribute that they have: {there}"
    fix = "name the attribute that all drivers of the claim publish"
    yield Finding("constraint-attribute-unknown", path, has, needs, fix, "warning")
