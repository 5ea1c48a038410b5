"""Every recorded review is explained: the verdict that it got, and sums whose terms come to what stands in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cases.test_reviews import GATES, cases, clock, cluster_paths
from webhook.admission.action import apply
from webhook.admission.decide import decide
from webhook.admission.decode import read_review
from webhook.admission.explain import explain
from webhook.admission.remedy import remedy
from webhook.cli.explain_text import render
from webhook.cluster.files import Cluster
from webhook.kube.quantity import Number, parse
from webhook.ledger.book import Book
from webhook.store import policies

REVISION = policies.read([policies.shipped()])
Json = dict[str, Any]


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
