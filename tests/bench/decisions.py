"""What one decision about an allocation costs, by the size of the cluster: ``python -m tests.bench.decisions``.

A decision looks at one node. So the comparison of clusters has the very same reviews, on the same ten nodes, judged in
a cluster of ten and in one of 15,000: what differs is the cluster. Beside it stand decisions on any node of the large
cluster, each on a node that no decision was about before: neither the processor's caches nor the guard's own, which are
smaller than such a cluster, have anything of it but its page. Batches take turns, and ratios are those of batches next
to each other, so that what else the machine does falls on all alike; times are the processor's.

A node's page is made when it is first asked for and kept until something of the node changes; what that costs does not
depend on the size of the cluster. All pages are made before anything is measured, those of the nodes that decisions are
about first, so that those of all other nodes have taken their places in the caches.
"""

from __future__ import annotations

import gc
import json
import random
import statistics
import time

from tests.bench import fleet
from tests.bench.ledger import NOW, row
from webhook.admission.action import apply
from webhook.admission.decide import decide
from webhook.admission.decode import decode
from webhook.admission.respond import respond
from webhook.kube.release import Release
from webhook.kube.snapshot import Snapshot, build
from webhook.ledger.book import Book
from webhook.policy.revision import Revision
from webhook.store import policies

FEW, MANY, DECISIONS, BATCH = 10, 15_000, 3_000, 50
GOAL = "goal 1.2 or less"


def reviews(nodes: list[int]) -> list[bytes]:
    """An allocation on each of ``nodes``, of the claim that waits for that node or the one before."""
    made = (fleet.allocation_review(node - node % 2, node) for node in nodes)
    return [json.dumps(review, separators=(",", ":")).encode() for review in made]


def seconds(texts: list[bytes], revision: Revision, snapshot: Snapshot, book: Book) -> float:
    """Seconds of the processor's time that one decision takes, from the bytes of the review to those of the answer;
    raises RuntimeError where one refuses, which would be another path.
    """
    allowed = 0
    started = time.process_time()
    for text in texts:
        answer = apply(decide(decode(text), "validate", revision, snapshot, book, NOW))
        respond(answer)
        allowed += answer.allowed
    took = (time.process_time() - started) / len(texts)
    if allowed < len(texts):
        raise RuntimeError(f"{len(texts) - allowed} of {len(texts)} allocations were refused, all are to be allowed")
    return took


def main() -> None:
    revision = policies.read([policies.shipped()])
    clusters = {nodes: (build(fleet.cluster(nodes), Release(36)), Book()) for nodes in (FEW, MANY)}
    choose = random.Random(7)
    chosen = choose.sample(range(MANY), DECISIONS)
    for nodes, (snapshot, book) in clusters.items():
        for number in (*(number for number in chosen if number < nodes), *range(nodes)):
            book.account(snapshot, fleet.name(number))
    gc.collect()
    gc.freeze()
    same, anywhere = reviews(choose.choices(range(FEW), k=DECISIONS)), reviews(chosen)
    measured = {"few": (same, FEW), "same": (same, MANY), "any": (anywhere, MANY)}
    costs: dict[str, list[float]] = {what: [] for what in measured}
    for begin in range(0, DECISIONS, BATCH):
        for what, (texts, nodes) in measured.items():
            costs[what].append(seconds(texts[begin : begin + BATCH], revision, *clusters[nodes]))

    def times(what: str) -> str:
        ratios = (large / small for small, large in zip(costs["few"], costs[what], strict=True))
        return f"{statistics.median(ratios):.2f} x"

    cost = {what: f"{statistics.median(each) * 1e6:,.0f} us" for what, each in costs.items()}
    row(f"decision about an allocation, {FEW} nodes", cost["few"])
    row(f"  on the same {FEW} of {MANY:,} nodes", cost["same"])
    row("    against the small cluster", times("same"), GOAL)
    row(f"  on any of {MANY:,} nodes", cost["any"])
    row(f"    a node in no cache, against {FEW} that are", times("any"), GOAL)


if __name__ == "__main__":
    main()
