"""How an allocation lies in the NUMA zones of its node, by driver: what is counted about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from webhook.facts.fit import FitRow
from webhook.facts.footprint import Footprint

Outcome = Literal["fit", "unfit", "unknown"]


def zone_checks(cost: Footprint, rows: Iterable[FitRow], broken: bool) -> Mapping[str, Outcome]:
    """The outcome for each driver with a device in ``cost`` that is charged for anything. ``rows`` are the sums of the
    fit; ``broken`` says that devices which had to be of one zone are not.

    ``unfit``: a zone has no room, or the constraint is broken. ``unknown``: the zone of a device, or what it holds, is
    not known. ``fit``: neither.
    """
    zones = {(row.zone, row.resource): row for row in rows}
    outcomes: dict[str, Outcome] = {}
    for charge in cost.charges:
        if charge.amount:
            driver = charge.slice.driver
            row = zones.get((charge.zone, charge.resource)) if charge.zone is not None else None
            if broken or (row is not None and not row.fits):
                outcomes[driver] = "unfit"
            elif row is None or row.has is None:
                outcomes[driver] = "unfit" if outcomes.get(driver) == "unfit" else "unknown"
            else:
                outcomes.setdefault(driver, "fit")
    return outcomes
