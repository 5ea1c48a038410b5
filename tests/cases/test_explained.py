"""Every recorded review is explained: the verdict that it got, and sums whose terms come to what stands in them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.cases.test_reviews import GATES, cases, clock, cluster_paths
from webhook.admission.action import apply
from webhook.admission.decide import decide
from webhook.admission.decode import read_review
from webhook.admission.explain import explain
from webhook.admission.record import Record, log_fields
from webhook.admission.remedy import remedy
from webhook.cli.explain_text import render
from webhook.cluster.files import Cluster
from webhook.kube.quantity import Number, parse
from webhook.ledger.book import Book
from webhook.store import policies

REVISION = policies.read([policies.shipped()])
Json = dict[str, Any]


JUNK = (None, 0, -1, "", [], {}, True, "x\n\x1b[31m", 1e30, ["a"], {"a": 1}, "9999999999999999999", "1Ki", 10**30)


@pytest.mark.parametrize(("step", "file", "wanted"), list(cases()))
def test_a_recorded_review_is_explained(step: Path, file: str, wanted: Json) -> None:
    request = read_review(json.loads((step / file).read_text()))
    snapshot = Cluster(cluster_paths(step), None, GATES).snapshot_for(request.object)
    verdict = decide(request, wanted["endpoint"], REVISION, snapshot, Book(), clock(step))
    answer = apply(verdict)
    tree = {**explain(verdict, answer), "remedy": remedy(verdict, answer)}
    assert tree["verdict"]["allowed"] is wanted.get("allowed", answer.allowed)
    assert json.loads(json.dumps(tree)) == tree
    for row in tree["sums"]:
        for term in row["terms"]:
            assert summed(term) == parse(term["amount"])
    for each in (tree["remedy"] or {}).get("smallestChange", []):
        assert each["amount"] != "0"
    lines = render(tree).splitlines()
    assert lines[0].partition(":")[0].partition(",")[0] == ("allowed" if answer.allowed else "denied")
    assert all(line.isprintable() for line in lines)


def summed(term: Json) -> Number:
    rest = term["rest"]
    assert rest is None or rest["count"] > 0
    parts = [part["amount"] for part in term["of"]] + ([rest["amount"]] if rest else [])
    return sum(map(parse, parts))


def test_whatever_is_in_an_object_its_review_is_explained() -> None:
    luck = random.Random(7)
    found = [each.values for each in cases()]
    worlds: dict[Path, Cluster] = {}
    for _ in range(300):
        step, file, wanted = luck.choice(found)
        review = json.loads((step / file).read_text())
        spoil(review["request"], luck)
        request = read_review(review)
        world = worlds.setdefault(step, Cluster(cluster_paths(step), None, GATES))
        verdict = decide(request, wanted["endpoint"], REVISION, world.snapshot_for(request.object), Book(), clock(step))
        answer = apply(verdict)
        tree = {**explain(verdict, answer), "remedy": remedy(verdict, answer)}
        json.dumps([tree, log_fields(Record(verdict, answer, clock(step), 0.1))])
        assert all(line.isprintable() for line in render(tree).split("\n"))


def spoil(request: Json, luck: random.Random) -> None:
    """Take out a few parts of the objects, or put something else in their place."""
    for _ in range(luck.randint(1, 4)):
        places = [place for part in ("object", "oldObject") for place in parts(request.get(part))]
        if places:
            whole, key = luck.choice(places)
            if luck.random() < 0.3:
                del whole[key]
            else:
                whole[key] = deepcopy(luck.choice(JUNK))


def parts(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each part of ``value``, as what it is in and its key there."""
    if isinstance(value, (dict, list)):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from parts(value[key])
