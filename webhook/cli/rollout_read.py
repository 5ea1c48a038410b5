"""What every ``allocguard rollout`` command begins with: the cluster, the driver in it, and the promotion report."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from webhook.cli import sources
from webhook.cli.console import Unusable, note, problems

if TYPE_CHECKING:
    from webhook.cli.options import Where
    from webhook.cli.rollout_evidence import Day
    from webhook.cluster.recorder import Kept
    from webhook.facts.promotion import Report
    from webhook.kube.raw import Json
    from webhook.kube.snapshot import Snapshot


def read(where: Where, driver: str) -> tuple[Snapshot, Kept]:
    """The cluster, and its objects as they came. Raises Unusable where nothing in it is about the driver, and for files
    some of which cannot be read: the DriverRollout may be in these, and another would be made.
    """
    from webhook.cluster.recorder import Kept

    kept = Kept()
    snapshot = sources.cluster(where, kept).snapshot
    if where.clusters and problems():
        raise Unusable(f"{driver}: has part of its cluster unread, needs all of it; repair what is named above")
    check_known(driver, snapshot)
    return snapshot, kept


def document_of(driver: str, kept: Kept) -> Json | None:
    """The raw DriverRollout of the driver, None where it has none."""
    from webhook.kube.raw import mapping, text
    from webhook.kube.rollout import API_VERSION

    for obj in kept.objects:
        name = text(mapping(obj.get("metadata")).get("name"))
        if (obj.get("apiVersion"), obj.get("kind"), name) == (API_VERSION, "DriverRollout", driver):
            return obj
    return None


def check_known(driver: str, snapshot: Snapshot) -> None:
    """Raise Unusable for a driver of which the cluster has no slice, no claim and no DriverRollout."""
    known = {*snapshot.rollouts, *snapshot.driver_slices, *(name for name, _ in snapshot.pool_claims)}
    if driver in known:
        return
    near = difflib.get_close_matches(driver, known, 1)
    fix = f"did you mean {near[0]}?" if near else f"its drivers are {', '.join(sorted(known))}" if known else ""
    told = f"{driver}: the cluster has no slice, no claim and no DriverRollout of such a driver"
    raise Unusable(f"{told}; {fix or 'name another cluster'}")


def tell_unheld(driver: str, bad: Sequence[str], snapshot: Snapshot) -> None:
    """Tell of bad mappings that no pool has now."""
    from webhook.cli.rollout_edit import pool_digests

    there = frozenset[str]().union(*pool_digests(driver, snapshot).values())
    for digest in bad:
        if digest not in there:
            have = f"its pools have {', '.join(sorted(there))}" if there else "its pools have no mappings"
            note(f"--bad-mapping {digest}: no pool of {driver} has it, so it holds nothing yet; {have}")


def report(
    driver: str, snapshot: Snapshot, kept: Kept, now: datetime, history: str | None
) -> tuple[Report, tuple[Day, ...] | None]:
    """The promotion report, and the days of the history where one is given."""
    from msgspec import structs

    from webhook.cli.ledger_history import of_snapshot, read
    from webhook.cli.rollout_edit import new
    from webhook.cli.rollout_evidence import of_history, of_status
    from webhook.facts.promotion import promotion
    from webhook.kube.rollout import read_rollout

    document = document_of(driver, kept) or new(driver)
    model = read_rollout(document)
    snapshot = structs.replace(snapshot, rollouts=snapshot.rollouts.set(driver, model))
    days: tuple[Day, ...] | None = None
    if history is None:
        evidence = of_status(model, document, of_snapshot(snapshot, kept, now), snapshot, now)
    else:
        evidence, days = of_history(model, read(history), snapshot)
    return promotion(model, snapshot, evidence, now), days
