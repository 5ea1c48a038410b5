"""Whether the devices of an allocation are free: exclusive ones, shares, capacities and counters, against every other
claim that holds something of them.

A claim holds its devices until its allocation is gone, also while it is being deleted. Results with admin access take
nothing from anybody. Other claims are found by index: the cost does not depend on the size of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from webhook.facts.bookings import allocated_as, made_for, released
from webhook.facts.pool_survey import survey, view
from webhook.kube.claims import Claim, Result
from webhook.kube.finding import Finding
from webhook.kube.node_ledger import BookedCharge
from webhook.kube.quantity import Number, canonical, try_parse
from webhook.kube.raw import mapping, text
from webhook.kube.resource import Device, Slice
from webhook.kube.snapshot import Snapshot

_RESULTS = "status.allocation.devices.results"

Identity = tuple[str, str, str]


def use_problems(
    claim: Claim, offers: Mapping[int, tuple[Slice, Device]], snapshot: Snapshot, node: str
) -> list[Finding]:
    """What others already hold of the devices of ``claim``, or are about to, as the ledger of ``node`` has it;
    ``offers`` are its published devices by result index.
    """
    if claim.allocation is None:
        return []
    found: list[Finding] = []
    groups: dict[Identity, list[Result]] = {}
    for result in claim.allocation.results:
        if not result.admin and result.index in offers:
            groups.setdefault(result.identity, []).append(result)
    unseen = _unseen(snapshot, node, claim)
    for identity, results in groups.items():
        device = offers[results[0].index][1]
        others = list(_holders(snapshot, identity, claim))
        coming = [row for row in unseen if (row.driver, row.pool, row.device) == identity]
        if device.multiple:
            found += _share_problems(results, others)
            found += _capacity_problems(device, results, others, coming)
        else:
            found += _exclusive_problems(device, results, others, coming)
    pools = {identity[:2] for identity, results in groups.items() if offers[results[0].index][1].counters}
    for pool in pools:
        mine = {
            name: (results[0].index, offers[results[0].index][1])
            for (driver, where, name), results in groups.items()
            if (driver, where) == pool
        }
        coming = [row for row in unseen if (row.driver, row.pool) == pool]
        found += _counter_problems(claim, pool, mine, snapshot, node, coming)
    return found


def _holders(snapshot: Snapshot, identity: Identity, claim: Claim) -> Iterator[tuple[Claim, Result]]:
    for other in snapshot.device_claims.get(identity, ()):
        if other.id != claim.id and other.allocation is not None:
            for result in other.allocation.results:
                if result.identity == identity and not result.admin:
                    yield other, result


def _unseen(snapshot: Snapshot, node: str, claim: Claim) -> list[BookedCharge]:
    """What the ledger of ``node`` has reserved for other claims, or booked, and the snapshot does not show yet."""
    ledger = snapshot.ledgers.get(node)
    if ledger is None:
        return []
    claims = snapshot.claims_by_uid
    waiting = [each for each in ledger.reservations if not allocated_as(claims.get(each.claim_uid), each.allocation)]
    rows = [row for each in waiting for row in each.charges]
    for row in ledger.charges:
        seen = claims.get(row.claim_uid)
        if not made_for(row, seen) and not released(row, seen, node):
            rows.append(row)
    return [row for row in rows if row.claim_uid != claim.id]


def _exclusive_problems(
    device: Device, results: list[Result], others: list[tuple[Claim, Result]], coming: list[BookedCharge]
) -> list[Finding]:
    path = f"{_RESULTS}[{results[-1].index}].device"
    needs = "a free device"
    if others:
        holder = others[0][0]
        state = ", which is being deleted and keeps it until its allocation is gone" if holder.deleting else ""
        has = f"device {device.name}, held by claim {holder.key}{state}"
        fix = f"wait until {holder.key} is released" if holder.deleting else "release one of the two claims"
        return [Finding("exclusive-device-taken", path, has, needs, fix)]
    if coming:
        holder_key = f"{coming[0].namespace}/{coming[0].name}"
        has = f"device {device.name}, reserved for claim {holder_key}, whose allocation is not seen yet"
        return [
            Finding("exclusive-device-taken", path, has, needs, f"wait until {holder_key} is allocated or released")
        ]
    if len(results) > 1:
        has = f"device {device.name} twice in this claim"
        return [Finding("exclusive-device-taken", path, has, f"{needs} for each result")]
    return []


def _share_problems(results: list[Result], others: list[tuple[Claim, Result]]) -> list[Finding]:
    found: list[Finding] = []
    seen = {result.share_id: f"claim {claim.key}" for claim, result in others if result.share_id}
    for result in results:
        holder = seen.get(result.share_id)
        if holder is not None:
            path = f"{_RESULTS}[{result.index}].shareID"
            has = f"shareID {result.share_id} of device {result.device} again, as in {holder}"
            found.append(Finding("shareid-duplicate", path, has, "a shareID of its own for every share"))
        elif result.share_id:
            seen[result.share_id] = f"results[{result.index}]"
    return found


def _positive(results: list[Result], name: str) -> list[Number]:
    amounts = [result.consumed.get(name, 0) for result in results if result.consumed is not None]
    return [amount for amount in amounts if amount > 0]


def _consumed(device: Device, charge: BookedCharge) -> Mapping[str, Number]:
    """What a charge that follows a capacity says that is consumed of it."""
    return {
        cost.capacity_key: Fraction(charge.amount) / cost.multiplier
        for cost in device.effective_costs
        if cost.resource == charge.resource and cost.capacity_key is not None and cost.multiplier
    }


def _capacity_problems(
    device: Device, results: list[Result], others: list[tuple[Claim, Result]], coming: list[BookedCharge]
) -> list[Finding]:
    found: list[Finding] = []
    promised: dict[str, dict[tuple[str, str], Number]] = {}
    for charge in coming:
        for name, amount in _consumed(device, charge).items():
            # Several resources may follow one capacity, which a share consumes once.
            promised.setdefault(name, {})[charge.claim_uid, charge.share_id] = amount
    for name in device.capacity:
        value = device.capacity_value(name)
        mine = _positive(results, name)
        # A negative amount of another claim must not make room: it counts as nothing.
        held = _positive([result for _, result in others], name)
        held += [amount for amount in promised.get(name, {}).values() if amount > 0]
        total = sum(mine) + sum(held)
        if value is None or not mine or total <= value:
            continue
        binary = "i" in str(mapping(device.capacity.get(name)).get("value"))
        terms = [canonical(amount, binary) for amount in (*held, *mine)]
        shown = (
            " + ".join(terms)
            if len(terms) <= 6
            else f"{canonical(sum(held), binary)} + {' + '.join(terms[-len(mine) :])}"
        )
        has = f"{shown} = {canonical(total, binary)} of {name} on device {device.name}"
        fix = f"{canonical(max(value - sum(held), 0), binary)} are free; release a claim or ask for less"
        poisoned = next((c.key for c, r in others if any(a < 0 for a in (r.consumed or {}).values())), "")
        if poisoned:
            fix += f" (the negative amount of {poisoned} counts as nothing)"
        path = f"{_RESULTS}[{results[0].index}].consumedCapacity[{name}]"
        found.append(Finding("device-overcommit", path, has, f"at most {canonical(value, binary)}", fix))
    return found


def _consumption(device: Device) -> Iterator[tuple[str, str, Number]]:
    for row in device.counters:
        for counter, raw in mapping(row.get("counters")).items():
            amount = try_parse(mapping(raw).get("value"))
            if amount is not None and amount > 0:
                yield text(row.get("counterSet")), str(counter), amount


def _counter_problems(
    claim: Claim,
    pool: tuple[str, str],
    mine: Mapping[str, tuple[int, Device]],
    snapshot: Snapshot,
    node: str,
    coming: list[BookedCharge],
) -> list[Finding]:
    """Counters are consumed once by a device, however many shares of it there are (k/k#140433, k/k#139034)."""
    seen = view(snapshot, *pool, node or None)
    offered = survey(seen.kept)
    before = {device.name: device for item in (*seen.elsewhere, *seen.older) for device in item.devices}
    first = min(index for index, _ in mine.values())
    held: dict[str, Device] = {name: device for name, (_, device) in mine.items()}
    for other in snapshot.pool_claims.get(pool, ()):
        if other.id == claim.id or other.allocation is None:
            continue
        for result in other.allocation.results:
            if (result.driver, result.pool) != pool or result.admin or result.device in held:
                continue
            known = offered.devices.get(result.device)
            device = known[1] if known is not None else before.get(result.device)
            if device is None:
                has = f"device {result.device}, which claim {other.key} holds, no longer published"
                needs = "to know what it takes of the pool's counters"
                fix = f"publish {result.device} again, or release {other.key}"
                return [Finding("counters-overcommit", f"{_RESULTS}[{first}].device", has, needs, fix)]
            held[result.device] = device
    for row in coming:
        if row.device not in held and row.device in offered.devices:
            held[row.device] = offered.devices[row.device][1]
    used: dict[tuple[str, str], dict[str, Number]] = {}
    for name, device in held.items():
        for counter_set, counter, amount in _consumption(device):
            parts = used.setdefault((counter_set, counter), {})
            parts[name] = parts.get(name, 0) + amount
    found: list[Finding] = []
    for (counter_set, counter), parts in used.items():
        value = offered.counter_sets.get(counter_set, {}).get(counter)
        wanted = [name for name in mine if name in parts]
        total = sum(parts.values())
        if value is None or not wanted or total <= value:
            continue
        binary = all(amount % 1024 == 0 for amount in parts.values())
        shown = " + ".join(f"{canonical(amount, binary)} ({name})" for name, amount in list(parts.items())[:6])
        has = f"{shown} = {canonical(total, binary)} of counter {counter} in set {counter_set}"
        path = f"{_RESULTS}[{mine[wanted[0]][0]}].device"
        fix = "devices of one counter set exclude each other; release the claim that holds the other"
        found.append(Finding("counters-overcommit", path, has, f"at most {canonical(value, binary)}", fix))
    return found
