from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.ledger.builders import device, node, old, slice_of, world
from webhook.kube.finding import Finding
from webhook.ledger.book import Book
from webhook.ledger.fleet import waiting_pools
from webhook.ledger.views import node_json, show

Json = dict[str, Any]

NOW = datetime(2026, 1, 1, 10, tzinfo=UTC)


def published(number: int, count: int = 1, driver: str = "d.example") -> Json:
    name = f"n{number}"
    parts = {"pool": name, "nodeName": name, "count": count, "driver": driver}
    return slice_of(device("grp", old("1", "cpus"), capacity={"cpus": "8"}), name=f"{driver}-{name}", **parts)


def notes(*slices: Json) -> list[tuple[str, Finding]]:
    snapshot = world(*(node(f"n{number}", f"u{number}") for number in range(8)), *slices)
    rows = [row for name in sorted(snapshot.nodes) if (row := node_json(Book(), snapshot, name, NOW)) is not None]
    return [(each.name, each.finding) for each in waiting_pools(rows)]


def test_many_are_one_note_with_the_most_frequent_reason() -> None:
    halves = [published(number, 2) for number in range(4)]
    ((driver, note),) = notes(*halves, published(4, 3), published(5))
    assert (driver, note.severity) == ("d.example", "info")
    assert note.has == "5 of 6 pools that are not Fresh: 5 Rebuilding (on n0, n1, n2 and 2 more)"
    assert note.fix.startswith("4 of them: has 1 of 2 slices of generation 1, needs ")


def test_each_driver_has_its_own() -> None:
    found = notes(*(published(number, 2, driver) for number in range(2) for driver in ("b.example", "a.example")))
    assert [(driver, note.has.partition(" pools")[0]) for driver, note in found] == [
        ("a.example", "2 of 2"), ("b.example", "2 of 2")
    ]  # fmt: skip


def test_one_pool_is_told_at_its_node_alone() -> None:
    assert notes(published(0, 2), published(1)) == []
    assert notes(*map(published, range(8))) == []


def test_the_nodes_that_are_asked_for_are_not_the_fleet() -> None:
    snapshot = world(node("n0"), node("n1"), published(0, 2), published(1, 2))
    assert [each["rule"] for each in show(Book(), snapshot, NOW)["differences"]] == ["pools-waiting"]
    assert show(Book(), snapshot, NOW, ["n0", "n1"])["differences"] == []
