"""The sums of a decision: what a policy that asked whether something fits has counted."""

from __future__ import annotations

from collections.abc import Iterable

from webhook.facts.fit import FitRow
from webhook.policy.facts import Facts


def fit_rows(facts: Facts) -> tuple[FitRow, ...]:
    """The rows of the fit of the claim or pod of the write, none where no policy asked for it: nothing is computed."""
    for each in (vars(facts).get("claim"), vars(facts).get("pod")):
        if each is not None and "fitted" in vars(each):
            rows: tuple[FitRow, ...] = each.fitted.rows
            return rows
    return ()


def told(rows: Iterable[FitRow]) -> list[str]:
    """The rows as people read them, each with what it is about: ``cpu in zone 1: 15 in the zone - 4 this claim = 11``.
    Those that do not fit come first.
    """
    ordered = sorted(rows, key=lambda row: row.fits)
    return [f"{row.resource}{'' if row.zone is None else f' in zone {row.zone}'}: {row.equation()}" for row in ordered]
