"""What a pod's status says its claims cost, against what their allocations cost (KEP-5517).

The scheduler counts a pod by these entries alone: one that is too small frees the node, a missing one counts nothing.
The API server compares neither with the claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from webhook.facts.footprint import Footprint, footprint
from webhook.facts.pods import counted
from webhook.kube.core import Pod
from webhook.kube.finding import Finding, Severity
from webhook.kube.quantity import Number, of_resource
from webhook.kube.release import Release
from webhook.kube.resource import POD_FIELD, Entry
from webhook.kube.snapshot import Snapshot

BASE = f"status.{POD_FIELD}"

# Rules by which a pod's status disagrees with what is charged.
DISAGREES = frozenset({"pod-status-disagrees", "uncounted"})

# Quantities are stored to nano precision.
NANO = Fraction(1, 10**9)


def status_problems(pod: Pod, old: Pod | None, snapshot: Snapshot, release: Release) -> list[Finding]:
    """Entries that disagree with the claims' allocations (``pod-status-disagrees``), and claims that cost something and
    have no entry on a pod that is bound or has others (``uncounted``).

    Judged only where the entries differ from ``old`` (None: a pod at rest); nothing is said of pods that have ended.
    """
    if pod.terminal or (old is not None and old.entries == pod.entries):
        return []
    found: list[Finding] = []
    seen: set[str] = set()
    for index, entry in enumerate(pod.entries):
        if entry.claim in seen:
            found.append(repeated(pod, entry, f"{BASE}[{index}]"))
            continue
        seen.add(entry.claim)
        found += _entry(pod, entry, f"{BASE}[{index}]", old is None, snapshot, release)
    if pod.node or pod.entries:
        found += uncounted_problems(pod, snapshot)
    return found


def _entry(pod: Pod, entry: Entry, path: str, rest: bool, snapshot: Snapshot, release: Release) -> list[Finding]:
    claim = snapshot.claims.get((pod.namespace, entry.claim))
    if claim is None or claim.allocation is None:
        state = "is not known" if claim is None else "is not allocated"
        # The scheduler writes the allocation a moment before the entry: a watch may still be behind it.
        severity: Severity = "warning" if rest else "info"
        has = f"an entry for claim {entry.claim}, which {state}"
        return [Finding("pod-status-disagrees", path, has, "entries of allocated claims only", severity=severity)]
    cost = footprint(claim, snapshot)
    if not cost.complete:
        return []
    found: list[Finding] = []
    if not entry.readable:
        has, needs = f"an entry for claim {entry.claim} that cannot be read", "quantities"
        found.append(Finding("pod-status-disagrees", path, has, needs, severity="warning"))
    old_shape = release.minor == 36
    rows: tuple[tuple[str, Mapping[str, Number], Mapping[str, Number]], ...] = (
        ("resources[{}]" if old_shape else "mapping[{}].quantity", entry.amounts, cost.amounts),
        ("overhead[{}].perPod", entry.per_pod, cost.per_pod),
        ("overhead[{}].perContainer", entry.per_container, cost.per_container),
    )
    for form, stated, due in rows:
        for resource in dict.fromkeys([*stated, *due]):
            there: Number = stated.get(resource, 0)
            wanted: Number = due.get(resource, 0)
            if not -NANO < there - wanted < NANO:
                found.append(_differs(pod, entry, f"{path}.{form.format(resource)}", resource, there, wanted))
    found += container_problems(pod, entry, path, cost)
    return found


def repeated(pod: Pod, entry: Entry, path: str) -> Finding:
    """A second entry for one claim: 1.36 takes several entries for one claim, and its scheduler adds them all up."""
    has, needs = f"a second entry for claim {entry.claim}", "one entry for each claim"
    fix = f"the scheduler counts too much for pod {pod.key}; remove the entry"
    return Finding("pod-status-disagrees", path, has, needs, fix, "warning")


def _differs(pod: Pod, entry: Entry, path: str, resource: str, there: Number, wanted: Number) -> Finding:
    has = f"{of_resource(resource, there)} {resource} for claim {entry.claim}"
    needs = f"{of_resource(resource, wanted)}, which its allocation costs"
    effect = "too little" if there < wanted else "too much"
    fix = f"the scheduler counts {effect} for pod {pod.key}; restore the entry or recreate the pod"
    return Finding("pod-status-disagrees", path, has, needs, fix, "warning")


def container_problems(pod: Pod, entry: Entry, path: str, cost: Footprint) -> list[Finding]:
    """An entry of 1.37 that names other containers than those that use the claim, each of which pays its overhead."""
    if not cost.per_container:
        return []
    users = {user for local, name in pod.claim_names.items() if name == entry.claim for user in pod.users(local)}
    if set(entry.containers) == users:
        return []
    has = f"containers {', '.join(sorted(set(entry.containers))) or 'none'} for claim {entry.claim}"
    needs = f"{', '.join(sorted(users)) or 'none'}, each of which pays the overhead"
    return [Finding("pod-status-disagrees", f"{path}.containers", has, needs, severity="warning")]


def uncounted_problems(pod: Pod, snapshot: Snapshot) -> list[Finding]:
    """``uncounted`` for each allocated claim of the pod that costs something and has no entry in its status."""
    found: list[Finding] = []
    for claim, cost in counted(pod, snapshot).uncounted:
        amounts = ", ".join(f"{of_resource(name, amount)} {name}" for name, amount in cost.amounts.items())
        has = f"no entry for claim {claim.name}, which costs {amounts or 'overhead'}"
        fix = f"the ledger charges it, the scheduler does not; recreate pod {pod.key} with a new claim"
        found.append(Finding("uncounted", BASE, has, "the entry that the scheduler counts", fix, "warning"))
    return found
