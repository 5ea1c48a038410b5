"""What would let a refused or waiting claim in: other nodes that take it, and the smallest change that would help."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Any

from msgspec.structs import replace

from webhook.admission.action import Answer, stopped_by
from webhook.admission.decide import Verdict
from webhook.facts.change import released, smallest_changes
from webhook.facts.drivers import claim_drivers
from webhook.facts.interval import NodeFit, interval
from webhook.facts.pod_needs import wanted_claims
from webhook.kube.claims import Claim
from webhook.kube.core import Pod
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book
from webhook.ledger.views import change_json

Tree = dict[str, Any]

# Each node is a whole judgement, and a change of it is many.
_MOST_NODES = 128
_MOST_NAMES = 8
# A claim that is only asked for is refused for how it is written; this one says that it is for its size.
_TOO_LARGE = "fits-nowhere"


def remedy(verdict: Verdict, answer: Answer) -> Tree | None:
    """What :func:`would_fit` says of the claims of the write; None where that is not what is wrong."""
    facts = verdict.evaluation.facts
    wanted, pod = _wanted(verdict, answer)
    return would_fit(wanted, facts.snapshot, facts.book, facts.now, pod, facts.node_name) if wanted else None


def would_fit(
    wanted: tuple[Claim, ...], snapshot: Snapshot, book: Book, now: datetime, pod: Pod | None, node: str
) -> Tree:
    """Where the claims ``wanted`` would fit now, as if they were not allocated, together and with the whole request of
    their pod. Takes some milliseconds for each node: nothing for a review that somebody waits for.

    ``looked`` nodes of ``nodes`` that have devices of their drivers were tried, ``node`` first, where one was meant;
    ``fit`` names the first of those that take them, ``fits`` counts them; ``why`` counts by rule what keeps the others
    from it; ``smallestChange`` is what would help, each alone, on ``node`` where other nodes take them, as ``ledger
    fit`` tells it.
    """
    for claim in wanted:
        snapshot = released(snapshot, claim)
    free = tuple([replace(claim, allocation=None, reserved_for=()) for claim in wanted])
    names = _nodes(free, snapshot, node)
    tried = list(islice(names, _MOST_NODES))
    fits = interval(free, snapshot, lambda name: book.account(snapshot, name), tried, now, pod).nodes
    good = [fit.node for fit in fits if fit.fits]
    here = tuple(fit for fit in fits if fit.node == node and not fit.fits)
    changes = smallest_changes(free, snapshot, book.account, here if good else fits, now, pod)
    return {
        "looked": len(fits),
        "nodes": len(tried) + sum(1 for _ in names),
        "fits": len(good),
        "fit": good[:_MOST_NAMES],
        "here": node in good,
        "why": dict(Counter(rule for fit in fits for rule in _rules(fit)).most_common()),
        "smallestChange": [change_json(each) for each in changes],
    }


def _rules(fit: NodeFit) -> list[str]:
    return [] if fit.fits else sorted({reason.rule for reason in fit.reasons})


def _wanted(verdict: Verdict, answer: Answer) -> tuple[tuple[Claim, ...], Pod | None]:
    """The claims that something is to be found for, and the pod that needs it."""
    facts = verdict.evaluation.facts
    claim, pod = facts.claim, facts.pod
    if claim is not None and claim.model.allocation is None:
        large = any(judged.finding.rule == _TOO_LARGE for judged in verdict.judged)
        return ((claim.model,), None) if large else ((), None)
    if claim is not None:
        return ((claim.model,), claim.newcomer) if stopped_by(verdict, "claim") and not answer.allowed else ((), None)
    if pod is not None and stopped_by(verdict, "pod"):
        return wanted_claims(pod.model, facts.snapshot), pod.model
    return (), None


def _nodes(claims: tuple[Claim, ...], snapshot: Snapshot, first: str) -> Iterator[str]:
    """The nodes with devices of the drivers that the claims name, each once; all nodes where a driver is not named, or
    has devices that are not one node's.
    """
    drivers = {driver for claim in claims for driver in claim_drivers(claim, snapshot)}
    if not drivers or any(driver in snapshot.free_slices for driver in drivers):
        names = set(snapshot.nodes)
    else:
        slices = (snapshot.slices[name] for driver in drivers for name in snapshot.driver_slices.get(driver, ()))
        names = {item.node for item in slices if item.node in snapshot.nodes}
    if first in snapshot.nodes:
        yield first
    yield from sorted(names - {first})
