"""Versioned objects for the tests of what is booked: a shared device of 8 cpus in zone 1, and claims on it."""

from __future__ import annotations

from typing import Any

from tests.ledger.builders import allocated, device, old, result, slice_of, world
from webhook.kube.node_ledger import BookedCharge, NodeLedger, Reservation
from webhook.kube.quantity import of_resource
from webhook.ledger.booking import advance
from webhook.ledger.formulas import Formulas

Json = dict[str, Any]
AT, LATER = "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"


def at(version: int, obj: Json, **metadata: Any) -> Json:
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version), **metadata}}


def grp(multiplier: str = "1", version: int = 10, **more: Any) -> Json:
    return at(version, slice_of(device("grp", old(multiplier, "cpus"), capacity={"cpus": "8"}, zone=1), **more))


def claim(name: str = "c", consumed: str = "4", version: int = 20, **more: Any) -> Json:
    return at(version, allocated(name, result(consumed={"cpus": consumed}), **more))


def unallocated(name: str = "c", version: int = 30) -> Json:
    made = claim(name, version=version)
    made["status"] = {}
    return made


def amounts(ledger: NodeLedger) -> list[tuple[str, str, str]]:
    return [(row.name, row.device, of_resource(row.resource, row.amount)) for row in ledger.charges]


def book(*objs: Json, held: NodeLedger | None = None, formulas: Formulas | None = None) -> NodeLedger:
    return advance(held, world(*objs), "n1", formulas)


def reserved(row: BookedCharge, pod_name: str = "p1", **more: Any) -> Reservation:
    fields: dict[str, Any] = {
        "claim_uid": row.claim_uid,
        "allocation": row.allocation,
        "namespace": row.namespace,
        "name": row.name,
        "pod_uid": f"uid-{pod_name}",
        "pod_namespace": "ns",
        "pod_name": pod_name,
        "charges": (row,),
        "pod_request": {"cpu": 1},
        "siblings": {},
        "taken": AT,
        "holder": "a",
    }
    return Reservation(**{**fields, **more})
