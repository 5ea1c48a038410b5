"""Which drivers report on the devices of claims (``status.devices``)."""

from __future__ import annotations

from webhook.kube.snapshot import Snapshot


def reporting_drivers(snapshot: Snapshot) -> dict[str, bool]:
    """By driver, of those with devices in a claim that is in use: whether any claim carries a report of it.

    Looks at every claim: for sweeps, never for a review.
    """
    found: dict[str, bool] = {}
    for claim in snapshot.claims.values():
        if claim.allocation is not None and claim.reserved_for:
            for result in claim.allocation.results:
                found.setdefault(result.driver, False)
        for driver in claim.reported:
            found[driver] = True
    return found
