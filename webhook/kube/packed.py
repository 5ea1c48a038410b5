"""How the API server keeps the rows of a NodeLedger: a text for each claim, not a map for each amount.

For a node of 640 devices the maps are 0.8 MB, of which the API server looks at every field at every write: it takes a
third of a second, and allocations wait for it. Texts that say once what is common are a fifth, and nobody looks inside.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

import orjson

from webhook.kube.raw import Json

# What the charges of one claim have in common, those of one slice, and those of one device.
_CLAIM = ("claimUID", "allocation", "namespace", "name", "since", "claimVersion")
_MAPPING = ("driver", "pool", "slice", "sliceUID", "generation", "resourceVersion", "digest")
_DEVICE = ("request", "device", "shareID", "zone")


def packed_status(status: Json) -> Json:
    """The status of a NodeLedger, as :func:`webhook.kube.node_ledger.node_ledger_object` makes it, with texts in place
    of the rows of ``charges`` and ``reservations``.
    """
    reservations = [{**each, "charges": list(_packed(each["charges"]))} for each in status["reservations"]]
    return {
        **status,
        "charges": [_text(each) for each in _packed(status["charges"])],
        "reservations": [_text(each) for each in reservations],
    }


def _text(value: Json) -> str:
    return orjson.dumps(value).decode()


def _part(row: Json, members: Iterable[str]) -> Json:
    return {name: row[name] for name in members if name in row}


def _packed(rows: Iterable[Json]) -> Iterable[Json]:
    """One map for all charges of a claim that follow each other."""
    for claim, charges in groupby(rows, lambda row: _part(row, _CLAIM)):
        mappings: list[Json] = []
        devices: list[Json] = []
        for (device, mapping), amounts in groupby(charges, lambda row: (_part(row, _DEVICE), _part(row, _MAPPING))):
            if mapping not in mappings:
                mappings.append(mapping)
            costs = [[row["resource"], row["amount"], row.get("formula", "")] for row in amounts]
            devices.append({**device, "mapping": mappings.index(mapping), "costs": costs})
        yield {**claim, "mappings": mappings, "devices": devices}


def unpacked(row: object) -> list[object]:
    """The rows that ``row`` stands for, in order: itself, unless it is a text or has ``devices``. Raises ValueError for
    a text or a map that :func:`packed_status` does not make.
    """
    if isinstance(row, str):
        try:
            row = orjson.loads(row)
        except ValueError:
            raise ValueError("has a text that is no JSON, needs the charges of a claim, or a reservation") from None
    if not isinstance(row, dict) or "devices" not in row:
        return [row]
    claim = _part(row, _CLAIM)
    try:
        return [
            {
                **claim,
                **_part(row["mappings"][device["mapping"]], _MAPPING),
                **_part(device, _DEVICE),
                "resource": resource,
                "amount": amount,
                "formula": formula,
            }
            for device in row["devices"]
            for resource, amount, formula in device["costs"]
        ]
    except (TypeError, KeyError, IndexError, ValueError, AttributeError):
        raise ValueError("has not the shape of a claim's charges") from None
