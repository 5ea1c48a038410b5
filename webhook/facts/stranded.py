"""Claims that a failed attempt left allocated: on 1.36 the next one takes them for allocated before, and their pod
would be bound without being counted.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.facts.pods import pod_claims
from webhook.facts.sharing import mapped
from webhook.kube.claims import Claim
from webhook.kube.core import Pod
from webhook.kube.snapshot import Snapshot


def stranded(snapshot: Snapshot) -> Iterator[tuple[Claim, Pod]]:
    """Each claim that costs its node something, is allocated and reserved for nobody, with a pod that waits for it: one
    that has no node, and may be scheduled. None on releases that count such a claim. Looks at every pod.
    """
    if snapshot.release.minor != 36:
        return
    found: set[str] = set()
    for _, pod in sorted(snapshot.pods.items()):
        if pod.node or pod.terminal or pod.deleting or pod.gates or not pod.claims:
            continue
        for _, claim in pod_claims(pod, snapshot):
            left = claim.allocation is not None and not claim.reserved_for and not claim.deleting
            if left and claim.id not in found and mapped(claim, snapshot):
                found.add(claim.id)
                yield claim, pod
