"""The API server's rules for a pod's ``nodeAllocatableResourceClaimStatuses``, by release (KEP-5517)."""

from __future__ import annotations

from webhook.kube.finding import Finding, cause
from webhook.kube.quantity import try_parse
from webhook.kube.raw import Json, mapping, objects, sequence, text
from webhook.kube.release import Release
from webhook.kube.resource import POD_FIELD

BASE = f"status.{POD_FIELD}"

REQUIRED, INVALID, DUPLICATE = "FieldValueRequired", "FieldValueInvalid", "FieldValueDuplicate"


def entry_problems(obj: Json, release: Release) -> list[Finding]:
    """What the API server of ``release`` refuses in the entries of a raw pod (all ``origin: apiserver``)."""
    status = mapping(mapping(obj).get("status"))
    if not status.get(POD_FIELD):
        return []
    known = _claims(mapping(mapping(obj).get("spec")), status)
    found: list[Finding] = []
    seen: set[str] = set()
    for index, row in objects(status.get(POD_FIELD)):
        path = f"{BASE}[{index}]"
        name = text(row.get("resourceClaimName"))
        if not name:
            has = "no claim name"
            found.append(cause("entry-claim-missing", f"{path}.resourceClaimName", REQUIRED, has, "a claim's name"))
        if name not in known and (name or release.minor == 36):
            has = f"claim {name or '(empty)'}, which the pod does not use"
            needs = f"one of {', '.join(sorted(known)) or 'its claims, it has none'}"
            found.append(cause("entry-claim-unknown", f"{path}.resourceClaimName", INVALID, has, needs))
        if release.minor == 36:
            found += _entry_136(row, path)
        else:
            if name and name in seen:
                found.append(cause("entry-duplicate", path, DUPLICATE, f"claim {name} again", "one entry for a claim"))
            seen.add(name)
            # Without a claim name the server looks no further than at what its schema asks for.
            found += [f for f in _entry_137(row, path) if name or f.error_type in (REQUIRED, DUPLICATE)]
    return found


def _claims(spec: Json, status: Json) -> set[str]:
    names = {text(row.get("resourceClaimName")) for _, row in objects(spec.get("resourceClaims"))}
    names |= {text(row.get("resourceClaimName")) for _, row in objects(status.get("resourceClaimStatuses"))}
    return names - {""}


def _entry_136(row: Json, path: str) -> list[Finding]:
    found: list[Finding] = []
    if not row.get("containers"):
        found.append(
            cause("entry-incomplete", f"{path}.containers", REQUIRED, "no container", "the claim's containers")
        )
    if not row.get("resources"):
        found.append(cause("entry-incomplete", f"{path}.resources", REQUIRED, "no resource", "what the claim costs"))
    for name, given in mapping(row.get("resources")).items():
        where = f"{path}.resources[{name}]"
        if "/" in str(name) and "kubernetes.io/" not in str(name):
            found.append(_bad_name(where, str(name), "a name without a domain"))
        found += _negative(where, given)
    return found


def _entry_137(row: Json, path: str) -> list[Finding]:
    found: list[Finding] = []
    containers: set[object] = set()
    for index, name in enumerate(sequence(row.get("containers"))):
        if isinstance(name, str):
            if name in containers:
                where = f"{path}.containers[{index}]"
                found.append(cause("entry-duplicate", where, DUPLICATE, f"{name} again", "every container once"))
            containers.add(name)
    for member, amounts in (("mapping", ("quantity",)), ("overhead", ("perPod", "perContainer"))):
        names: set[str] = set()
        for index, item in objects(row.get(member)):
            where = f"{path}.{member}[{index}]"
            name = text(item.get("name"))
            if not name:
                found.append(cause("entry-incomplete", f"{where}.name", REQUIRED, "no name", "a resource"))
            if name not in ("cpu", "memory") and not name.startswith("hugepages-"):
                found.append(_bad_name(f"{where}.name", name, "cpu, memory or hugepages-SIZE"))
            if name and name in names:
                found.append(cause("entry-duplicate", where, DUPLICATE, f"{name} again", "every resource once"))
            names.add(name)
            given = [amount for amount in amounts if item.get(amount) is not None]
            if member == "mapping" and not given:
                found.append(cause("entry-incomplete", f"{where}.quantity", REQUIRED, "no quantity", "a quantity"))
            elif not given:
                found.append(cause("entry-incomplete", where, INVALID, "no quantity", "perPod or perContainer"))
            for amount in given:
                found += _negative(f"{where}.{amount}", item[amount])
    return found


def _bad_name(path: str, name: str, needs: str) -> Finding:
    return cause("entry-resource-name", path, INVALID, f"resource {name}", needs)


def _negative(path: str, given: object) -> list[Finding]:
    amount = try_parse(given)
    if amount is None or amount >= 0:
        return []
    return [cause("entry-negative", path, INVALID, str(given), "zero or more")]
