"""Where a pod's claims fit their NUMA zones, whichever of the devices there the scheduler takes.

Where only some zones have room, the devices of the others are told: the scheduler leaves them alone once they are
tainted, and what it takes then fits.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from datetime import datetime
from fractions import Fraction

from msgspec import Struct

from webhook.facts.account import Account, Amounts, bookable, rounded
from webhook.facts.assignment import Choice, InZones, Room, assign
from webhook.facts.candidates import Candidates, bounds, candidates
from webhook.facts.drivers import drivers_of
from webhook.facts.interval import misfits
from webhook.facts.matching import node_selected
from webhook.facts.node_offers import Identity, tolerated
from webhook.facts.placement import claim_node
from webhook.facts.pool_survey import Reason
from webhook.facts.room import room_for
from webhook.facts.steering import HOSTNAME
from webhook.facts.taints import TaintWanted
from webhook.kube.claims import Claim
from webhook.kube.core import Node, Pod
from webhook.kube.finding import Finding
from webhook.kube.node_ledger import PLACE, NodeLedger
from webhook.kube.quantity import Number, of_resource
from webhook.kube.raw import Json, mapping
from webhook.kube.rollout import GROUP
from webhook.kube.snapshot import Snapshot

RULE = "zone-overcommit"
# Devices of one node that are tainted so that a pod may go there; of more, the zones have to be free.
MOST_FULL = 32

_TAINT: Json = {"key": f"{GROUP}/{RULE}", "effect": "NoSchedule"}
_FIX = "release a claim there, or ask for less"
_NOTHING: InZones = {}


class Place(Struct, frozen=True):
    """A node for a pod. ``groups`` are the choices that fit, for each request of its claims; ``full`` are the devices
    to taint first, since their zones have no room. ``room`` tells how often the node could take the least that the
    claims cost, None where that is nothing. ``asked`` is the most that zones can be asked for, of what is ``free``
    there (absent: not known), each zone and resource for itself.
    """

    node: str
    hostname: str
    groups: Sequence[Sequence[Choice]]
    full: tuple[TaintWanted, ...]
    room: Fraction | None
    asked: InZones
    free: InZones

    def bears(self, more: InZones) -> bool:
        """Whether the zones surely have room for ``more`` beside the claims."""
        return all(
            rounded(key[1], self.asked[key] + amount) <= self.free[key]
            for key, amount in more.items()
            if self.asked.get(key) and key in self.free
        )


def better(place: Place) -> tuple[bool, int, Fraction, str]:
    """The order in which places are taken: where nothing has to be tainted first, then where most is free."""
    return bool(place.full), place.room is not None, -(place.room or Fraction(0)), place.node


def nodes_for(claims: tuple[Claim, ...], pod: Pod, snapshot: Snapshot) -> list[str]:
    """The nodes that could serve ``claims``, those of ``pod`` that have no allocation, by where their drivers are and
    where its other claims are; in order of name, without those that take no pods.
    """
    found: set[str] | None = None
    for claim in claims:
        for group in claim.groups:
            names: set[str] = set()
            for alternative in group.alternatives:
                drivers = drivers_of(alternative, snapshot)
                if not drivers or any(driver in snapshot.free_slices for driver in drivers):
                    break
                for driver in drivers:
                    names.update(snapshot.slices[name].node for name in snapshot.driver_slices.get(driver, ()))
            else:
                found = names if found is None else found & names
    for name in pod.claim_names.values():
        other = snapshot.claims.get((pod.namespace, name))
        place = claim_node(other, snapshot) if other is not None else ""
        if place:
            found = {place} if found is None else found & {place}
    nodes = snapshot.nodes.values() if found is None else [snapshot.nodes[n] for n in found if n in snapshot.nodes]
    return sorted(node.name for node in nodes if node.ready is not False and not node.deleting)


def allowed(pod_raw: Json, node: Node) -> bool:
    """Whether the node selector and the required node affinity of the raw pod choose ``node``."""
    spec = mapping(pod_raw.get("spec"))
    if any(node.labels.get(key) != value for key, value in mapping(spec.get("nodeSelector")).items()):
        return False
    affinity = mapping(mapping(spec.get("affinity")).get("nodeAffinity"))
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or node_selected(required, node)


def place_on(
    pod: Pod,
    claims: tuple[Claim, ...],
    snapshot: Snapshot,
    account: Account,
    now: datetime,
    coming: InZones = _NOTHING,
) -> Place | Reason:
    """The place for ``claims``, those of ``pod`` that have no allocation, on the node of ``account``, or why there is
    none. What other pods have been given places for counts in every zone that it may come to be in; ``coming`` is what
    may come beside that.
    """
    node = snapshot.nodes[account.node]
    hostname, ledger = node.labels.get(HOSTNAME, ""), snapshot.ledgers.get(node.name)
    if not hostname:
        return Reason(RULE, f"node {node.name} without the label {HOSTNAME}", "the label, to choose the node by")
    if ledger is not None and ledger.problem:
        return Reason(RULE, f"node {node.name}, whose ledger cannot be read", "a ledger to reserve on", "delete it")
    found = candidates(claims, snapshot, account, now, pod)
    # What no node owns is of no zone, and may be had elsewhere.
    groups = [choices for choices in found.groups if choices or not found.elsewhere]
    if found.reasons and not found.elsewhere:
        return _said(found.reasons)
    unplaced = _unplaced(claims, snapshot, found.account, now, ledger)
    full: dict[Identity, Reason] = {}
    while all(groups) and len(full) <= MOST_FULL and not (full and _tolerates(claims)):
        bare = room_for(claims, snapshot, found.account, found.holdings, groups, pod)
        free = {key: left - unplaced.get(key, 0) for key, left in bare.zones.items()}
        room = replace(bare, zones={key: left - coming.get(key, 0) for key, left in free.items()})
        outcome = assign(groups, found.constraints, room)
        if outcome.fits is False:
            if full:
                break
            least: dict[str, Number] = {}
            for choices in groups:
                bounds(choices, least, {})
            return _said(misfits(outcome, found.account, least, claims, pod))
        asked: dict[tuple[int, str], Number] = {}
        for choices in groups:
            _add_most(asked, choices)
        short = _short(groups, found, room, asked)
        if not short:
            taints = tuple(TaintWanted(*identity, reason) for identity, reason in full.items())
            return Place(node.name, hostname, groups, taints, _often(groups, found.account), asked, free)
        for zone, resource in sorted(short):
            left = room.zones[zone, resource]
            reason = _reason(node.name, zone, resource, asked[zone, resource], left)
            full |= dict.fromkeys(_too_much(groups, zone, resource, left), reason)
        groups = _without(groups, full.keys())
    return next(iter(full.values()))


def _short(groups: list[list[Choice]], found: Candidates, room: Room, most: InZones) -> set[tuple[int, str]]:
    """Zones, with a resource, that have no room for all that the scheduler may take of them; ``most`` is the most that
    they can be asked for.
    """

    def over(zones: InZones) -> set[tuple[int, str]]:
        return {
            key
            for key, asked in zones.items()
            if asked and key in room.zones and bookable(key[1]) and rounded(key[1], asked) > room.zones[key]
        }

    suspects = over(most)
    if not suspects:
        return set()
    seen: set[tuple[int, str]] = set()

    def accepts(amounts: Amounts, per_pod: Amounts, per_container: Amounts, zones: InZones) -> bool:
        short = over(zones)
        if not short or not room.accepts(amounts, per_pod, per_container, zones):
            return False
        seen.update(short)
        return True

    # The scheduler knows no zones: whatever it could take without them counts.
    outcome = assign(groups, found.constraints, replace(room, zones={}, accepts=accepts))
    return set() if outcome.fits is False else seen if outcome.fits else suspects


def _add_most(total: dict[tuple[int, str], Number], choices: Sequence[Choice]) -> None:
    """Adds the most that one request can cost in each zone to ``total``, each zone and resource for itself."""
    most: dict[tuple[int, str], Number] = {}
    for choice in choices:
        costs: dict[tuple[int, str], list[Number]] = {}
        for offer in choice.offers:
            for resource, amount in offer.amounts.items() if offer.zone is not None else ():
                costs.setdefault((offer.zone or 0, resource), []).append(amount)
        shared = any(offer.consumed is not None for offer in choice.offers)
        for key, amounts in costs.items():
            amounts.sort(reverse=True)
            if choice.count is None:
                asked = sum(amounts, 0)
            else:
                # A shared device may serve the same request again.
                asked = amounts[0] * choice.count if shared else sum(amounts[: choice.count], 0)
            most[key] = max(asked, most.get(key, 0))
    for key, amount in most.items():
        total[key] = total.get(key, 0) + amount


def _unplaced(
    claims: tuple[Claim, ...], snapshot: Snapshot, account: Account, now: datetime, ledger: NodeLedger | None
) -> InZones:
    """What claims with a place on the node may come to cost in each zone, where it is not certain in which."""
    mine = {claim.id for claim in claims}
    total: dict[tuple[int, str], Number] = {}
    for each in ledger.reservations if ledger is not None else ():
        claim = snapshot.claims_by_uid.get(each.claim_uid)
        uncertain = each.allocation == PLACE and any(row.zone is None for row in each.charges)
        if uncertain and claim is not None and claim.id not in mine and claim.allocation is None:
            for choices in candidates((claim,), snapshot, account, now, None).groups:
                _add_most(total, choices)
    return total


def _too_much(groups: list[list[Choice]], zone: int, resource: str, free: Number) -> list[Identity]:
    """The devices in the zone that alone cost more than is free there, or all of them where none does."""
    costs = {
        offer.identity: offer.amounts[resource]
        for choices in groups
        for choice in choices
        for offer in choice.offers
        if offer.zone == zone and offer.amounts.get(resource)
    }
    return [identity for identity, cost in costs.items() if rounded(resource, cost) > free] or [*costs]


def _without(groups: list[list[Choice]], full: Set[Identity]) -> list[list[Choice]]:
    """``groups`` as they are once the devices in ``full`` are tainted."""
    left: list[list[Choice]] = []
    for choices in groups:
        kept = [
            replace(choice, offers=tuple(offer for offer in choice.offers if offer.identity not in full))
            for choice in choices
        ]
        pairs = zip(choices, kept, strict=True)
        left.append([each for whole, each in pairs if _serves(each, len(each.offers) == len(whole.offers))])
    return left


def _serves(choice: Choice, whole: bool) -> bool:
    if choice.count is None:
        return whole
    shared = any(offer.consumed is not None for offer in choice.offers)
    return len(choice.offers) >= (1 if shared else choice.count)


def _tolerates(claims: tuple[Claim, ...]) -> bool:
    """Whether a taint of ours would not keep the claims off a device."""
    return any(
        tolerated(_TAINT, alternative.tolerations)
        for claim in claims
        for group in claim.groups
        for alternative in group.alternatives
    )


def _reason(node: str, zone: int, resource: str, asked: Number, free: Number) -> Reason:
    has = f"{resource} up to {of_resource(resource, asked)} on zone {zone} of node {node}"
    needs = f"at most {of_resource(resource, max(free, 0))}, which is what is free there"
    return Reason(RULE, has, needs, _FIX)


def _often(groups: list[list[Choice]], account: Account) -> Fraction | None:
    least: dict[str, Number] = {}
    for choices in groups:
        bounds(choices, least, {})
    shares = [
        Fraction(account.resources[name].free) / Fraction(amount)
        for name, amount in least.items()
        if amount and name in account.resources
    ]
    return min(shares, default=None)


def _said(findings: Sequence[Finding]) -> Reason:
    first = findings[0]
    return Reason(first.rule, first.has, first.needs, first.fix)
