"""The terms of a sum: which claims and pods are behind each number, with formula and the version of the mapping."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from webhook.facts.account import Account, PodPart
from webhook.facts.fit import FitRow, charged_as
from webhook.facts.footprint import DeviceCharge, Footprint
from webhook.facts.pods import pod_id
from webhook.kube.core import Pod
from webhook.kube.quantity import Number, of_resource
from webhook.kube.snapshot import Snapshot
from webhook.ledger.charges import Charge
from webhook.policy.facts import Facts

Tree = dict[str, Any]
Part = tuple[Number, Tree]

# The largest of a term; the rest is one number.
_MOST = 8


class Terms:
    """The terms of the sums of one decision. What the write itself adds is not among those of others, though the ledger
    may have it already.
    """

    def __init__(self, facts: Facts) -> None:
        claim, pod = facts.claim, facts.pod
        self._snapshot: Snapshot = facts.snapshot
        self._account: Account | None = facts.account
        self._cost: Footprint = claim.cost if claim is not None else Footprint("")
        self._claim = charged_as(claim.model, facts.snapshot) if claim is not None else ""
        self._pod: Pod | None = claim.newcomer if claim is not None else pod.model if pod is not None else None
        self._charges: tuple[Charge, ...] = facts.book.charges(facts.snapshot, facts.node_name)

    def of(self, row: FitRow) -> list[Tree]:
        """Each term of the row that is not zero: ``term`` as the equation calls it, ``amount``, ``of`` the largest
        parts of it, and ``rest`` for what is left out.
        """
        parts: dict[str, list[Part]] = {
            "pods": list(self._pods(row, bound=True, requests=True)),
            "claims": list(self._claims(row, reserved=False)),
            "overhead": list(self._pods(row, bound=True, overhead=True)),
            "reserved": [
                *self._claims(row, reserved=True),
                *self._pods(row, bound=False, requests=True, overhead=True),
            ],
            "this claim": list(self._own(row)),
            "this pod": [(row.pod, {"pod": self._pod.key})] if self._pod is not None else [],
        }
        amounts = (row.pods, row.claims, row.overhead, row.reserved, row.claim, row.pod)
        named = zip(parts.items(), amounts, strict=True)
        return [_term(row.resource, name, amount, found) for (name, found), amount in named if amount]

    def _pods(self, row: FitRow, *, bound: bool, requests: bool = False, overhead: bool = False) -> Iterator[Part]:
        if self._account is None or row.zone is not None:
            return
        mine = pod_id(self._pod) if self._pod is not None else ""
        for uid, part in self._account.pods.items():
            if uid != mine and part.reserved != bound:
                amount = _of_pod(part, row.resource, requests, overhead)
                if amount:
                    known = self._snapshot.pods_by_uid.get(uid)
                    yield amount, {"pod": known.key if known is not None else uid}

    def _claims(self, row: FitRow, *, reserved: bool) -> Iterator[Part]:
        for charge in self._charges:
            key = charge.key
            if key.claim_uid == self._claim or key.resource != row.resource:
                continue
            if (charge.state == "reserved") == reserved and row.zone in (None, charge.zone):
                yield charge.amount, _charge(charge)

    def _own(self, row: FitRow) -> Iterator[Part]:
        for charge in self._cost.charges:
            if charge.resource == row.resource and row.zone in (None, charge.zone):
                yield charge.amount, _device_charge(charge)


def _of_pod(part: PodPart, resource: str, requests: bool, overhead: bool) -> Number:
    amount = part.requests.get(resource, 0) if requests else 0
    return amount + (part.overhead.get(resource, 0) if overhead else 0)


def _charge(charge: Charge) -> Tree:
    key = charge.key
    return {
        "claim": f"{charge.namespace}/{charge.name}",
        "device": f"{key.driver}/{key.pool}/{key.device}",
        "formula": charge.formula,
        "zone": charge.zone,
        "state": charge.state,
        "mapping": {
            "slice": charge.slice,
            "sliceUID": charge.slice_uid,
            "generation": charge.generation,
            "resourceVersion": charge.resource_version,
            "digest": charge.digest,
        },
    }


def _device_charge(charge: DeviceCharge) -> Tree:
    item = charge.slice
    return {
        "request": charge.result.request,
        "device": "/".join(charge.result.identity),
        "formula": charge.formula,
        "zone": charge.zone,
        "mapping": {
            "slice": item.name,
            "sliceUID": item.uid,
            "generation": item.generation,
            "resourceVersion": item.resource_version,
            "digest": charge.digest,
        },
    }


def _term(resource: str, name: str, amount: Number, parts: Iterable[Part]) -> Tree:
    ordered = sorted(parts, key=lambda part: -part[0])
    told = [{"amount": of_resource(resource, part), **of} for part, of in ordered[:_MOST]]
    rest = amount - sum(part for part, _ in ordered[:_MOST])
    return {
        "term": name,
        "amount": of_resource(resource, amount),
        "of": told,
        "rest": {"count": len(ordered) - len(told), "amount": of_resource(resource, rest)} if rest else None,
    }
