"""Exceptions: writes for which a policy's findings are only audited, for a while and with a ticket."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from webhook import cel
from webhook.policy.revision import CompiledException


def applies(
    exceptions: Iterable[CompiledException], names: Mapping[str, object], now: datetime, budget: cel.Budget
) -> tuple[str, tuple[str, ...], tuple[tuple[str, str], ...]]:
    """The exception that covers the write, with its ticket (empty: none does); notes for the message about expired
    ones that would have; and name and error of those that could not be judged, which cover nothing.
    """
    notes: list[str] = []
    errors: list[tuple[str, str]] = []
    for each in exceptions:
        try:
            covered = each.program.evaluate(names, budget) is True
        except cel.EvaluationError as error:
            errors.append((f"exception {each.name}", str(error)))
            continue
        if covered and now < each.expires:
            return f"{each.name} (ticket {each.ticket})", (), tuple(errors)
        if covered:
            notes.append(f"exception {each.name} expired on {each.expires.isoformat()}, ticket {each.ticket}")
    return "", tuple(notes), tuple(errors)
