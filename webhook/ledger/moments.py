"""Moments in the life of a claim: what log, traces and events tell of it beside the decisions about its writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Literal

from msgspec import Struct

from webhook.facts.account import add
from webhook.kube.node_ledger import BookedCharge, quantity
from webhook.kube.quantity import Number

Kind = Literal["charged", "bound", "released", "lapsed", "pending", "settled"]


class Moment(Struct, frozen=True, kw_only=True):
    """One thing that happened to the claim ``namespace``/``name`` with the UID ``uid``.

    * ``charged``: ``charges`` are in the book of ``node`` now. ``bound``: ``pods`` run there with the allocation that
      ``charges`` are all of. ``released``: ``charges`` are in that book no more. ``lapsed``: the allocation that
      ``charges`` were reserved for there never came. Each is told once, by whoever wrote the book.
    * ``pending``: ``pods`` wait for it since ``begun`` (for this reason, not since the claim is there), and do so at
      ``at``. Told when the reason is another one than before, and now and then while it is the same. ``settled``: they
      waited from ``begun`` to ``at``, and wait no more, or for another reason.

    ``begun`` to ``at`` is how long it took, by the clock of the API server; ``begun`` is never later. ``reason`` is a
    rule of ours, or one of a few words that say why: for ``pending`` and ``settled`` what is waited for, for
    ``released`` and ``lapsed`` what became of the allocation. ``pods`` are ``namespace/name``. ``text`` is all of that
    in one line. The charges have amount, formula and the version of the mapping that they were computed with.
    """

    kind: Kind
    begun: datetime
    at: datetime
    uid: str
    namespace: str
    name: str
    text: str
    reason: str = ""
    node: str = ""
    allocation: str = ""
    drivers: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    charges: tuple[BookedCharge, ...] = ()

    @property
    def key(self) -> str:
        """``namespace/name`` of the claim."""
        return f"{self.namespace}/{self.name}"

    @property
    def amounts(self) -> Mapping[str, str]:
        """What the charges come to: canonical quantities by resource."""
        return amounts(self.charges)


def amounts(charges: Iterable[BookedCharge]) -> Mapping[str, str]:
    """What ``charges`` come to: canonical quantities by resource, sorted."""
    sums: dict[str, Number] = {}
    for charge in charges:
        add(sums, {charge.resource: charge.amount})
    return {resource: quantity(resource, amount) for resource, amount in sorted(sums.items())}
