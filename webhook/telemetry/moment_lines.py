"""What log and trace say of a moment in the life of a claim: a line and a span each, of the same content."""

from __future__ import annotations

from collections.abc import Sequence

from webhook.facts.times import stamp
from webhook.kube.node_ledger import BookedCharge, quantity
from webhook.kube.trace import trace_id
from webhook.ledger.moments import Moment
from webhook.telemetry.log import Level, Log
from webhook.telemetry.sampling import waited
from webhook.telemetry.spans import (
    ALLOCATION_KEY,
    AMOUNTS_KEY,
    BIND,
    CHARGE,
    CHARGES_KEY,
    CLAIM_KEY,
    CLAIM_UID_KEY,
    DEVICE_KEY,
    DIGEST_KEY,
    DRIVER_KEY,
    FORMULA_KEY,
    MESSAGE_KEY,
    MOST_ITEMS,
    NAMESPACE_KEY,
    OVER_KEY,
    PENDING,
    PODS_KEY,
    POOL_KEY,
    REASON_KEY,
    RELEASE,
    RULE_KEY,
    VERDICT_KEY,
    Attributes,
    anchor,
    on_node,
    one_or_all,
)
from webhook.telemetry.tracing import Tracing

_SPANS = {
    "charged": CHARGE,
    "bound": BIND,
    "released": RELEASE,
    "lapsed": RELEASE,
    "pending": PENDING,
    "settled": PENDING,
}


class MomentLines:
    """Tells moments to ``log``, and to ``tracing`` as far as that keeps what happens to their claims."""

    def __init__(self, log: Log, tracing: Tracing) -> None:
        self._log = log
        self._tracing = tracing

    def tell(self, moments: Sequence[Moment]) -> None:
        """Write a line and a span of each; never blocks. A claim that got its devices at once waited in no line."""
        for each in moments:
            if each.notable:
                level: Level = "warning" if each.kind in ("pending", "lapsed") else "info"
                self._log.write(level, each.kind, **log_fields(each))
            if self._tracing.sends:
                links = [anchor(uid) for uid in each.pod_uids[:MOST_ITEMS]]
                always = each.kind in ("pending", "lapsed") or (each.kind == "settled" and each.notable)
                always = always or waited(each.delay)
                self._tracing.tell(each.uid, _SPANS[each.kind], each.begun, each.at, attributes(each), links, always)


def log_fields(moment: Moment) -> dict[str, object]:
    """What the log says of a moment, by field: names and trace are those of the lines about decisions, ``charges`` are
    one map for each device and resource, with the version of the mapping that it was computed by.
    """
    fields: dict[str, object] = {
        "namespace": moment.namespace,
        "name": moment.name,
        "claim": moment.key,
        "claimUID": moment.uid,
        "pods": list(moment.pods[:MOST_ITEMS]),
        "trace": trace_id(moment.uid),
        "node": moment.node,
        "reason": moment.reason,
        "message": moment.text,
        "since": stamp(moment.begun, "milliseconds"),
        "seconds": round((moment.at - moment.begun).total_seconds(), 3),
        "drivers": list(moment.drivers),
    }
    if moment.charges:
        fields |= {
            "allocation": moment.allocation,
            "amounts": moment.amounts,
            "charges": [_charge_json(row) for row in moment.charges[:MOST_ITEMS]],
        }
    return fields


def attributes(moment: Moment) -> Attributes:
    """What a span says of a moment. Its verdict is the moment's kind, its rule the reason."""
    told: dict[str, str | bool | tuple[str, ...]] = {
        NAMESPACE_KEY: moment.namespace,
        CLAIM_KEY: moment.name,
        CLAIM_UID_KEY: moment.uid,
        VERDICT_KEY: moment.kind,
        MESSAGE_KEY: moment.text,
    }
    if moment.reason:
        told[RULE_KEY] = moment.reason
    if moment.pods:
        told[PODS_KEY] = one_or_all(moment.pods)
    if moment.drivers:
        told[DRIVER_KEY] = one_or_all(moment.drivers)
    if moment.kind in ("pending", "settled"):
        told |= {REASON_KEY: moment.reason, OVER_KEY: moment.kind == "settled"}
    if moment.allocation:
        told[ALLOCATION_KEY] = moment.allocation
    if rows := moment.charges:
        told |= {
            POOL_KEY: one_or_all([row.pool for row in rows]),
            DEVICE_KEY: one_or_all([row.device for row in rows]),
            AMOUNTS_KEY: tuple([f"{resource} {amount}" for resource, amount in moment.amounts.items()]),
            CHARGES_KEY: tuple([_line(row) for row in rows[:MOST_ITEMS]]),
            FORMULA_KEY: one_or_all([row.formula for row in rows]),
        }
        if digests := [row.digest for row in rows if row.digest]:
            told[DIGEST_KEY] = one_or_all(digests)
    return {**told, **on_node(moment.node)}


def _line(row: BookedCharge) -> str:
    """A charge on one line: where from, what, why, and by which version of the mapping."""
    amount = quantity(row.resource, row.amount)
    version = f"{row.slice}@{row.generation}/{row.resource_version} {row.digest}" if row.slice else "no mapping"
    return f"{row.driver}/{row.pool}/{row.device} {row.resource} {amount} = {row.formula} by {version}"


def _charge_json(row: BookedCharge) -> dict[str, object]:
    return {
        "driver": row.driver,
        "pool": row.pool,
        "device": row.device,
        "request": row.request,
        "shareID": row.share_id,
        "resource": row.resource,
        "amount": quantity(row.resource, row.amount),
        "zone": row.zone,
        "formula": row.formula,
        "mapping": {
            "slice": row.slice,
            "sliceUID": row.slice_uid,
            "generation": row.generation,
            "resourceVersion": row.resource_version,
            "digest": row.digest,
        },
    }
