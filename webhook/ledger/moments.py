"""Moments in the life of a claim: what log, traces and events tell of it beside the decisions about its writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Literal

from msgspec import Struct

from webhook.facts.account import add
from webhook.facts.pending import ORDINARY
from webhook.kube.node_ledger import BookedCharge, quantity
from webhook.kube.quantity import Number

# Devices and pods of which the line for people tells each.
_DEVICES, _PODS = 4, 4
# A digest by which people tell mappings apart: ``sha256:`` and 12 digits.
_SHORT = 19

# A claim that waits so long is told as pending.
WAITED = timedelta(seconds=15)

Kind = Literal["charged", "bound", "released", "lapsed", "pending", "settled"]


class Moment(Struct, frozen=True, kw_only=True):
    """One thing that happened to the claim ``namespace``/``name`` with the UID ``uid``.

    * ``charged``: ``charges`` are in the book of ``node`` now. ``bound``: ``pods`` run there with the allocation that
      ``charges`` are all of. ``released``: ``charges`` are in that book no more. ``lapsed``: the allocation that
      ``charges`` were reserved for there never came. Each is told once, by whoever wrote the book.
    * ``pending``: ``pods`` wait for it since ``begun``, and still do at ``at``, for ``reason``. Told when the reason is
      another one than before, and now and then while it is the same; ``begun`` is then what it was before.
      ``settled``: they waited from ``begun`` to ``at``, and do so no more.

    ``begun`` to ``at`` is how long it took, by the clock of the API server; ``begun`` is never later. ``reason`` is a
    rule of ours, or one of a few words that say why: for ``pending`` and ``settled`` what is (last) waited for, for
    ``released`` and ``lapsed`` what became of the allocation, for ``charged`` whether nothing had been reserved.
    ``pods`` are ``namespace/name``, ``pod_uids`` the UIDs of those that are known. ``text`` is all of that in one line.
    ``delay`` is how long after the claim was made it got the allocation, where that is known.
    The charges have amount, formula and the version of the mapping that they were computed with.
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
    pod_uids: tuple[str, ...] = ()
    charges: tuple[BookedCharge, ...] = ()
    delay: timedelta = timedelta()

    @property
    def key(self) -> str:
        """``namespace/name`` of the claim."""
        return f"{self.namespace}/{self.name}"

    @property
    def notable(self) -> bool:
        """Whether people are told: every claim waits, most of them a moment and for nothing in particular."""
        return self.kind != "settled" or self.reason not in ORDINARY or self.at - self.begun >= WAITED

    @property
    def amounts(self) -> Mapping[str, str]:
        """What the charges come to: canonical quantities by resource."""
        return amounts(self.charges)


def amounts(charges: Iterable[BookedCharge]) -> Mapping[str, str]:
    """What ``charges`` come to: canonical quantities by resource, sorted."""
    total: dict[str, Number] = {}
    for charge in charges:
        add(total, {charge.resource: charge.amount})
    return {resource: quantity(resource, amount) for resource, amount in sorted(total.items())}


def sums(charges: Iterable[BookedCharge]) -> str:
    """What ``charges`` come to, for people: ``3 cpu, 4Gi memory``."""
    return ", ".join(f"{amount} {resource}" for resource, amount in amounts(charges).items())


def costs(charges: Sequence[BookedCharge]) -> str:
    """What ``charges`` come to and why, device by device with formula and version of the mapping, for people. Of many
    devices the first few.
    """
    said = [sums(charges)]
    groups = [(device, [*rows]) for device, rows in groupby(charges, _device)]
    for (driver, pool, device, *_), rows in groups[:_DEVICES]:
        parts = [f"{quantity(each.resource, each.amount)} {each.resource} = {each.formula}" for each in rows]
        row = rows[0]
        version = f"generation {row.generation}, resourceVersion {row.resource_version}, {row.digest[:_SHORT]}"
        origin = f" (slice {row.slice}, {version})" if row.slice else ""
        said.append(f"{driver}/{pool}/{device}: {', '.join(parts)}{origin}")
    if len(groups) > _DEVICES:
        said.append(f"and {len(groups) - _DEVICES} devices more")
    return "; ".join(said)


def some(pods: Sequence[str]) -> str:
    """``pods`` for people; of many the first few."""
    more = f" and {len(pods) - _PODS} more" if len(pods) > _PODS else ""
    return f"{', '.join(pods[:_PODS])}{more}"


def _device(row: BookedCharge) -> tuple[str, ...]:
    return row.driver, row.pool, row.device, row.share_id, row.slice, row.digest
