"""The cross-check: what a pod's status books for its claims, against what the ledger charges for them (KEP-5517).

The scheduler counts a bound pod by these entries alone; the API server compares neither with the claims. What admission
counts is the ledger's figure, whatever an entry says.
"""

from __future__ import annotations

from collections.abc import Callable

from webhook.facts.account import Amounts
from webhook.facts.footprint import Footprint
from webhook.facts.pods import Counted, reserved_to
from webhook.facts.podstatus import BASE, NANO, container_problems, repeated
from webhook.kube.claims import Claim
from webhook.kube.core import Pod
from webhook.kube.finding import Finding
from webhook.kube.quantity import Number, of_resource
from webhook.kube.resource import Entry
from webhook.kube.snapshot import Snapshot
from webhook.ledger.charges import Difference
from webhook.ledger.differences import said

Parts = dict[tuple[str, str], Number]


def pod_differences(
    pod: Pod,
    snapshot: Snapshot,
    shares: Counted,
    cost_of: Callable[[Claim], Footprint],
    charged: Callable[[Claim], Amounts],
) -> list[Difference]:
    """What a bound pod's status entries say otherwise than the ledger: entries that are missing (``uncounted``, those
    of ``shares``), surplus, or of another amount than is ``charged`` (by mapping; overhead counts as computed).
    """
    found: list[Finding] = []
    seen: set[str] = set()
    for index, entry in enumerate(pod.entries):
        path = f"{BASE}[{index}]"
        claim = snapshot.claims.get((pod.namespace, entry.claim))
        if entry.claim in seen:
            found.append(repeated(pod, entry, path))
        elif claim is None:
            found.append(_unknown(entry, path))
        elif claim.allocation is None or not reserved_to(pod, claim):
            found.append(_surplus(pod, claim, path))
        else:
            cost = cost_of(claim)
            found += _disagrees(entry, path, cost, charged(claim))
            found += container_problems(pod, entry, path, cost)
        seen.add(entry.claim)
    found += [_uncounted(claim, cost) for claim, cost in shares.uncounted]
    return [Difference("pod-status", "v1", "Pod", pod.namespace, pod.name, finding) for finding in found]


def _unknown(entry: Entry, path: str) -> Finding:
    return Finding(
        "claim-unknown",
        f"{path}.resourceClaimName",
        f"claim {entry.claim}, which is not known",
        "a claim of its namespace; its amount is charged to the pod",
        "give the claim too, or make the pod again",
        "warning",
    )


def _surplus(pod: Pod, claim: Claim, path: str) -> Finding:
    holder = next((holder.name for holder in claim.reserved_for), "")
    state = "not allocated" if claim.allocation is None else f"reserved for {holder}"
    return Finding(
        "pod-status-disagrees",
        path,
        f"an entry for claim {claim.name}, which is {state}",
        "entries of the claims that the pod holds; the ledger charges nothing for it, the scheduler does",
        f"make pod {pod.key} again; anything else than a scheduler that wrote the entry is to be found and stopped",
        "warning",
    )


def _uncounted(claim: Claim, cost: Footprint) -> Finding:
    return Finding(
        "uncounted",
        BASE,
        f"no entry for claim {claim.name}",
        f"one of {said(cost.amounts)}: its devices cost the node that, and the scheduler counts entries only",
        "make the pod again, so that the scheduler allocates and counts its claim together with it",
        "warning",
    )


def _disagrees(entry: Entry, path: str, cost: Footprint, charged: Amounts) -> list[Finding]:
    if not cost.complete:
        return []
    stated = _parts(entry.amounts, entry.per_pod, entry.per_container)
    wanted = _parts(charged, cost.per_pod, cost.per_container)
    names = sorted(key for key in {*stated, *wanted} if not -NANO < stated.get(key, 0) - wanted.get(key, 0) < NANO)
    if not names:
        return []
    has, needs = _differing(stated, names), f"{_differing(wanted, names)}, what claim {entry.claim} is charged"
    fix = "let the scheduler write the entry; anything else that wrote it is to be found and stopped"
    return [Finding("pod-status-disagrees", path, has, needs, fix, "warning")]


def _parts(amounts: Amounts, per_pod: Amounts, per_container: Amounts) -> Parts:
    columns = (("", amounts), (" a pod", per_pod), (" a container", per_container))
    return {(name, how): amount for how, column in columns for name, amount in column.items() if amount}


def _differing(parts: Parts, names: list[tuple[str, str]]) -> str:
    return ", ".join(f"{of_resource(name, parts.get((name, how), 0))} {name}{how}" for name, how in names)
