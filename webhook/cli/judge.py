"""Judges documents: objects at rest, recorded reviews, and the guard's own documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from msgspec.structs import replace

from webhook.admission.at_rest import GUARD, SCHEMA, at_rest, judged
from webhook.admission.decode import KIND as REVIEW
from webhook.admission.decode import BadReview, read_review
from webhook.cli.report import Found, Judgement, judgement
from webhook.cli.sources import beside
from webhook.kube.documents import Document
from webhook.kube.finding import Finding
from webhook.kube.raw import Json, text
from webhook.kube.rollout import GROUP
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book
from webhook.ledger.stored import not_judged
from webhook.policy.compile import TEST_KIND, PolicyErrors, compile_files
from webhook.policy.document import KIND as POLICY
from webhook.policy.problem import Problem
from webhook.policy.revision import Revision
from webhook.policy.suite_document import read_suite

# Names that stand where a policy's name would, for what no policy judges.
REVIEWS, POLICIES = "review", "policy"


class Judge:
    """Judges documents against ``snapshot``, each as if the object itself were not there yet."""

    def __init__(self, revision: Revision, snapshot: Snapshot, now: datetime) -> None:
        self._revision = revision
        self._snapshot = snapshot
        self._book = Book()
        self._now = now

    def judge(self, document: Document) -> Judgement:
        """Everything that is wrong with ``document``; that it cannot be judged, where the guard fails at it."""
        try:
            return self._judge(document)
        except Exception as error:  # noqa: BLE001 - a mistake of ours about one document must not keep the others
            return judgement(document, [(GUARD, not_judged(error))])

    def _judge(self, document: Document) -> Judgement:
        obj = document.value
        if obj.get("kind") == REVIEW:
            return judgement(document, list(self._review(obj)))
        if text(obj.get("apiVersion")).partition("/")[0] == GROUP and obj.get("kind") != "DriverRollout":
            return _own(document)
        return judgement(document, at_rest(obj, self._revision, self._snapshot, self._book, self._now))

    def _review(self, obj: Json) -> Iterator[tuple[str, Finding]]:
        try:
            request = read_review(obj)
        except BadReview as error:
            path, _, message = str(error).rpartition(": ")
            yield REVIEWS, Finding("review-invalid", path, message, "", "send it as the API server does")
            return
        prefix = "request.object" if request.object is not None else "request.oldObject"
        found = judged(request, "validate", self._revision, self._snapshot, self._book, self._now)
        for policy, finding in found:
            yield policy, replace(finding, path=f"{prefix}.{finding.path}" if finding.path else prefix)


def _own(document: Document) -> Judgement:
    """A document of our own group that no cluster judges anything by."""
    match document.value.get("kind"):
        case kind if kind == POLICY:
            return _policy(document)
        case kind if kind == TEST_KIND:
            return _own_problems(document, read_suite(document, beside)[1])
        case kind:
            fix = f"use DriverRollout, {POLICY} or {TEST_KIND}"
            unknown = Finding("kind-unknown", "kind", f"{kind!r}", f"a kind of {GROUP}", fix)
            return judgement(document, [(SCHEMA, unknown)])


def _policy(document: Document) -> Judgement:
    """What the compiler says about a policy, at the compiler's own places."""
    positions = document.positions
    before = "\n" * (positions.first_line - 1)
    try:
        compile_files({document.file: f"{before}{positions.text}".encode()})
    except PolicyErrors as errors:
        return _own_problems(document, errors.problems)
    return Judgement(document)


def _own_problems(document: Document, problems: Iterable[Problem]) -> Judgement:
    found = (
        Found(POLICIES, Finding("policy-invalid", each.path, each.message, "", each.fix), each.line, each.column)
        for each in problems
    )
    return Judgement(document, tuple(found))
