"""What ``allocguard check`` says by the API server's rules against the API server, for objects changed at random.

A difference fails unless differences.yaml lists it with its reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.e2e.fidelity import objects, size
from tests.e2e.fidelity.compare import Comparison, Difference, excerpt
from tests.e2e.fidelity.conftest import ApiServer
from tests.e2e.fidelity.mutate import mutated
from tests.e2e.fidelity.objects import Object
from tests.e2e.fidelity.ours import Ours
from tests.e2e.fidelity.server import ask, path_of
from tests.e2e.fidelity.shrink import shrunk

CREATES, STORED, UPDATES = 250, 12, 60
# Enough to see what it is; each costs some hundred requests.
SHOWN = 5
IDENTITY = ("name", "uid", "resourceVersion", "creationTimestamp")


@pytest.fixture(scope="module")
def comparison(api_server: ApiServer) -> Comparison:
    return Comparison(api_server.client, Ours(api_server.minor, api_server.gates, api_server.client), api_server.minor)


Record = Callable[[str, object], None]


def tell(record: Record, what: str, api_server: ApiServer, comparison: Comparison, count: int) -> None:
    outcomes = ", ".join(f"{number} {name}" for name, number in comparison.outcomes.most_common())
    listed = sum(comparison.listed.values())
    where = f"{api_server.release}, gates {api_server.name}"
    text = f"{what}, {where}: {count}: {outcomes}; listed differences {listed}"
    record("fidelity", json.dumps({"text": text, "listed": comparison.listed}))
    comparison.outcomes.clear()
    comparison.listed.clear()


def shown(found: frozenset[Difference], obj: Object, ask_again: Callable[[Object], frozenset[Difference]]) -> str:
    """A difference with the smallest object that has it."""
    (wanted, *_) = sorted(found, key=str)
    small = shrunk(obj, lambda each: any((d.side, d.cause) == (wanted.side, wanted.cause) for d in ask_again(each)))
    return f"{wanted}\n  {json.dumps(excerpt(small), ensure_ascii=False)}"


def test_what_is_created(api_server: ApiServer, comparison: Comparison, record_property: Record) -> None:
    """Accept or refuse, and the set of (field path, type of error), are those of the API server."""
    rng = size.source("create", api_server.release, api_server.name)
    wrong: list[str] = []
    for _ in range(CREATES * size.FACTOR):
        obj = mutated(objects.draw(rng, api_server.minor), api_server.minor, rng)
        if (found := comparison.create(obj)) and len(wrong) < SHOWN:
            wrong.append(shown(found, obj, comparison.create))
    tell(record_property, "create", api_server, comparison, CREATES * size.FACTOR)
    assert not wrong, "\n".join([size.repeat("create"), *wrong])


def test_what_is_changed(api_server: ApiServer, comparison: Comparison, record_property: Record) -> None:
    """The same of updates of slices: what is immutable, what a gate that is off still lets pass."""
    rng = size.source("update", api_server.release, api_server.name)
    stored: list[Object] = []
    while len(stored) < STORED:
        obj = objects.draw(rng, api_server.minor, ("ResourceSlice",))
        if ask(api_server.client, obj, path_of(obj)).outcome == "taken":
            stored.append(api_server.client.create(path_of(obj), obj))
    wrong: list[str] = []
    for _ in range(UPDATES * size.FACTOR):
        old = rng.choice(stored)
        obj = mutated(old, api_server.minor, rng)
        # Which object it is, and which version of it, is not what is changed here.
        metadata = obj["metadata"] if isinstance(obj.get("metadata"), dict) else {}
        obj["metadata"] = {**metadata, **{name: old["metadata"][name] for name in IDENTITY}}
        if (found := comparison.update(obj, old)) and len(wrong) < SHOWN:
            wrong.append(shown(found, obj, lambda each, old=old: comparison.update(each, old)))
    tell(record_property, "update", api_server, comparison, UPDATES * size.FACTOR)
    assert not wrong, "\n".join([size.repeat("update"), *wrong])
