"""What is stored and does not agree, or that somebody has to clean up: node by node, and of the whole cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial

from webhook.facts.times import age, instant
from webhook.kube.finding import Finding
from webhook.kube.node_ledger import KIND, PLACE, NodeLedger, Reservation
from webhook.kube.rollout import API_VERSION
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book, NodeBook
from webhook.ledger.booked import arrived
from webhook.ledger.charges import Difference, about_claim
from webhook.ledger.differences import claim_unplaced
from webhook.ledger.inventory import inventory
from webhook.ledger.leftovers import leftovers
from webhook.ledger.pod_notes import pod_notes
from webhook.ledger.reserve import LIFE

# Who leads lets a reservation go when it has known it for its life; a new leader counts from its own beginning.
STALE = 4 * LIFE
# A clock of another replica may be ahead by less.
_AHEAD = timedelta(minutes=1)


def page_differences(page: NodeBook, snapshot: Snapshot, now: datetime) -> tuple[Difference, ...]:
    """Everything that is to be told of one node beside its sums."""
    node = page.account.node
    return (
        *page.differences,
        *leftovers(node, page.charges, snapshot, now),
        *inventory(node, page.charges, snapshot),
        *pod_notes(node, snapshot),
    )


def stored_differences(book: Book, snapshot: Snapshot, now: datetime) -> Iterator[list[Difference]]:
    """What does not agree in the whole cluster, leftovers and stale reservations too: one list for each node that has
    claims, devices with costs or a ledger, then one for each claim, of those on no known node. To be taken bit by bit.
    A node or claim that cannot be looked at is told, and the others are looked at.
    """
    for node in sorted(snapshot.nodes):
        if node in snapshot.ledgers or _concerned(node, snapshot):
            told = partial(Difference, "amount", "v1", "Node", "", node)
            yield _looked(partial(_node_differences, book, node, snapshot, now), told)
    for key in sorted(snapshot.claims):
        claim = snapshot.claims[key]
        yield _looked(partial(claim_unplaced, claim, snapshot), partial(about_claim, claim))


def not_judged(error: Exception) -> Finding:
    """What is told of an object that nobody can look at, since the guard fails at it with ``error``."""
    has = f"something that the guard fails at ({type(error).__name__}: {error})"[:500]
    fix = "it is a mistake of the guard: report it with the object; writes that it has to judge are refused"
    return Finding("not-judged", "", has, "an object that can be judged", fix)


def _looked(look: Callable[[], Iterable[Difference]], told: Callable[[Finding], Difference]) -> list[Difference]:
    try:
        return [*look()]
    except Exception as error:  # noqa: BLE001 - a mistake of ours about one object must not keep the others
        return [told(not_judged(error))]


def _node_differences(book: Book, node: str, snapshot: Snapshot, now: datetime) -> Iterator[Difference]:
    page, ledger = book.page(snapshot, node), snapshot.ledgers.get(node)
    if page is not None:
        yield from page_differences(page, snapshot, now)
    if ledger is not None:
        yield from stale_reservations(ledger, snapshot, now)


def stale_reservations(ledger: NodeLedger, snapshot: Snapshot, now: datetime) -> list[Difference]:
    """The reservations of ``ledger`` that should have been let go: what they hold nobody else gets."""
    found: list[Difference] = []
    for index, each in enumerate(ledger.reservations):
        taken = instant(each.taken)
        old = taken is None or now - taken > STALE or taken - now > _AHEAD
        if old and not each.seen and not arrived(each, snapshot.claims_by_uid.get(each.claim_uid)):
            finding = Finding(
                "reservation-stale",
                f"status.reservations[{index}]",
                _held(each, now),
                f"an allocation within {LIFE.total_seconds():.0f}s; until the reservation is gone nobody else gets it",
                "see that a replica leads and may write NodeLedgers: it lets the reservation go",
                "warning",
            )
            found.append(Difference("surplus", API_VERSION, KIND, "", ledger.node, finding))
    return found


def _held(reservation: Reservation, now: datetime) -> str:
    what = "a place" if reservation.allocation == PLACE else "room"
    pod = f" and pod {reservation.pod_namespace}/{reservation.pod_name}" if reservation.pod_name else ""
    since = age(reservation.taken, now)
    return (
        f"{what} for claim {reservation.namespace}/{reservation.name}{pod}, taken at {reservation.taken or 'no time'}"
        f"{f' ({since})' if since else ''} by {reservation.holder or 'nobody'}"
    )


def _concerned(node: str, snapshot: Snapshot) -> bool:
    """Whether devices cost the node something, or may: on all others there is nothing that could disagree."""
    return (
        node in snapshot.node_claims
        or any(pod.claim_names for pod in snapshot.node_pods.get(node, ()))
        or any(item.mapped for item in snapshot.node_slices.get(node, ()))
    )
