"""Claims that are waited for: how long, for what, and that it is over, as moments."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby

from msgspec.structs import replace

from webhook.facts.pending import NOTHING_KNOWN, Pending, pending
from webhook.facts.times import duration
from webhook.facts.waits import allocated_at, delay, wanted_since
from webhook.kube.claims import Claim
from webhook.kube.core import Pod
from webhook.kube.finding import one_line
from webhook.kube.snapshot import Snapshot
from webhook.ledger.moments import Kind, Moment, some


def waits(
    claims: Iterable[Claim],
    snapshot: Snapshot,
    now: datetime,
    refused: Mapping[str, str],
    followed: Container[str] = frozenset(),
) -> Iterator[Moment]:
    """The ``pending`` moments of those of ``claims``, which are of ``snapshot``, that wait for us: for a driver whose
    devices cost its nodes something, or that has a rollout, or because the guard refused their last allocation
    (``refused``: by claim id the rule); and of those that are ``followed``, by id.

    Since when and why are as :func:`webhook.facts.pending.pending` has them; of several drivers the first counts that
    is stopped. One whose times do not tell, or lie ahead, waits since ``now``.
    """
    for claim, found in groupby(pending(claims, snapshot, now, refused), key=lambda each: each.claim.id):
        rows = [*found]
        if claim in refused or claim in followed or any(_ours(each.driver, snapshot) for each in rows):
            yield _pending(rows, now)


def _ours(driver: str, snapshot: Snapshot) -> bool:
    return driver in snapshot.mapped_slices or driver in snapshot.rollouts


def _pending(rows: Sequence[Pending], now: datetime) -> Moment:
    row = next((each for each in rows if each.reason != NOTHING_KNOWN), rows[0])
    begun = now if row.since is None else min(row.since, now)
    text = f"awaited by {some([pod.key for pod in row.pods])} for {_said(begun, now)}: {row.text}"
    drivers = tuple([each.driver for each in rows if each.driver])
    return _moment("pending", row.claim, row.pods, begun, now, text, row.reason, drivers)


def settled(claim: Claim, pods: Sequence[Pod], now: datetime) -> Moment:
    """That ``pods`` wait no more for ``claim``, which has its devices. For what they waited, :func:`because` adds."""
    allocation = claim.allocation
    assert allocation is not None, claim.key
    # The clock of who allocates may be ahead.
    until = min(allocated_at(claim) or now, now)
    begun = min(wanted_since(claim, pods) or until, until)
    drivers = tuple(dict.fromkeys(each.driver for each in allocation.results))
    over = _moment("settled", claim, pods, begun, until, "", NOTHING_KNOWN, drivers)
    late = delay(claim, until)
    return replace(_over(over, "has its devices"), node=allocation.node, allocation=allocation.identity, delay=late)


def because(made: Moment, wait: Moment) -> Moment:
    """The ``settled`` moment of what waited as the ``pending`` moment ``wait`` says."""
    known = replace(made, begun=min(made.begun, wait.begun), reason=wait.reason)
    return _over(known, "has its devices")


def given_up(wait: Moment, now: datetime) -> Moment:
    """That what waited as the ``pending`` moment ``wait`` says is not waited for any more, and has no devices."""
    return _over(replace(wait, kind="settled", at=max(wait.begun, now)), "is not awaited any more")


def _over(made: Moment, outcome: str) -> Moment:
    reason = f"; what it waited for last: {made.reason}" if made.reason != NOTHING_KNOWN else ""
    return replace(made, text=one_line(f"{outcome}, after {_said(made.begun, made.at)}{reason}"))


def _moment(
    kind: Kind,
    claim: Claim,
    pods: Sequence[Pod],
    begun: datetime,
    at: datetime,
    text: str,
    reason: str,
    drivers: tuple[str, ...],
) -> Moment:
    return Moment(
        kind=kind,
        begun=begun,
        at=at,
        uid=claim.uid,
        namespace=claim.namespace,
        name=claim.name,
        text=one_line(text),
        reason=reason,
        drivers=drivers,
        pods=tuple([pod.key for pod in pods]),
        pod_uids=tuple([pod.uid for pod in pods if pod.uid]),
    )


def _said(begun: datetime, until: datetime) -> str:
    return duration((until - begun).total_seconds())
