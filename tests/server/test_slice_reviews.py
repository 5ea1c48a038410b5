from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.facts.builders import DRIVER, gpu, grp, node, slice_of, world
from webhook.admission.decide import decide
from webhook.kube.admission import raw_request, read_request
from webhook.kube.raw import Json
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book
from webhook.server.slice_reviews import COUNTS, GONE, SETTLED, SliceReviews
from webhook.store.policies import PolicyStore, shipped
from webhook.telemetry.metrics import Metrics

REVISION = PolicyStore([shipped()]).revision
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


class Seen:
    """The slices that one server saw, on a clock of its own."""

    def __init__(self) -> None:
        self.at = 0.0
        self.metrics = Metrics()
        self.reviews = SliceReviews(self.metrics, lambda: self.at)

    def send(self, obj: Json, old: Json | None = None, endpoint: str = "mutate", *known: Json, **more: Any) -> None:
        """A review of ``obj`` comes, while the view has ``known``."""
        operation = "CREATE" if old is None else "UPDATE"
        request = read_request(raw_request(operation, obj, old, **more))
        self.reviews.judged(decide(request, endpoint, REVISION, world(node(), *known), Book(), NOW))

    def later(self, snapshot: Snapshot, seconds: float = SETTLED) -> dict[str, str]:
        self.at += seconds
        return dict(self.reviews.dropped(snapshot))

    @property
    def counted(self) -> float:
        rows = b"".join(self.metrics.pieces()).decode().splitlines()
        name = f'allocguard_mappings_dropped_total{{driver="{DRIVER}"}} '
        return next((float(row.removeprefix(name)) for row in rows if row.startswith(name)), 0.0)


def stored(obj: Json, kept: bool, name: str = "s1", version: str = "7") -> Snapshot:
    made = copy.deepcopy(obj)
    made["metadata"] |= {"name": name, "resourceVersion": version}
    for device in made["spec"]["devices"]:
        if not kept:
            device.pop("nodeAllocatableResourceMappings", None)
    return world(node(), made)


@pytest.mark.parametrize("name", ["s1", ""], ids=["named", "named by the API server"])
def test_a_slice_that_is_stored_without_its_costs_is_told_and_counted_once(name: str) -> None:
    seen, sent = Seen(), slice_of(gpu("bare"), grp(), name=name)
    seen.send(sent)
    assert seen.later(stored(sent, False), SETTLED / 2) == {}
    assert seen.later(stored(sent, False)) == {DRIVER: "s1"}
    assert seen.later(stored(sent, False)) == {}
    assert (seen.counted, seen.reviews.carried()) == (1, (False, "s1"))
    seen.send(sent)
    assert seen.later(stored(sent, False, version="8")) == {DRIVER: "s1"}
    assert seen.counted == 2


def test_a_slice_that_is_stored_as_it_was_sent_shows_it_for_a_while() -> None:
    seen = Seen()
    assert seen.reviews.carried() == (None, "")
    seen.send(slice_of(grp()))
    assert seen.later(stored(slice_of(grp()), True)) == {}
    assert (seen.counted, seen.reviews.carried()) == (0, (True, "s1"))
    seen.at += COUNTS + 1
    assert seen.reviews.carried() == (None, "")


def test_an_update_is_told_by_what_came_after_it() -> None:
    bare = slice_of(gpu("grp"), metadata={"resourceVersion": "5"})
    seen = Seen()
    seen.send(slice_of(grp()), bare, "mutate", bare)
    assert seen.later(world(node(), bare)) == {}
    assert seen.later(stored(slice_of(grp()), False, version="6")) == {DRIVER: "s1"}


def test_what_was_refused_is_not_waited_for_for_ever() -> None:
    seen = Seen()
    seen.send(slice_of(grp()))
    assert seen.later(world(node()), GONE + 1) == {}
    assert seen.later(stored(slice_of(grp()), False)) == {}


def test_what_shows_nothing() -> None:
    seen = Seen()
    seen.send(slice_of(gpu("bare")))
    seen.send(slice_of(grp()), endpoint="validate")
    seen.send(slice_of(grp()), dry_run=True)
    # Costs that are stored stay on an update, whatever the gate.
    seen.send(slice_of(grp(size="9")), slice_of(grp()))
    assert seen.later(stored(slice_of(grp()), False)) == {}
    assert seen.reviews.carried() == (None, "")
