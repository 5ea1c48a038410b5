"""Judges an object at rest: as if it were created now and its status written now, by the policies of admission."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from msgspec.structs import replace

from webhook.admission.decide import decide
from webhook.admission.decode import KIND as REVIEW
from webhook.admission.decode import BadReview, read_review
from webhook.cli.report import Found, Judgement, judgement, softened
from webhook.cli.sources import beside
from webhook.kube.admission import Request, raw_request, read_request
from webhook.kube.documents import Document
from webhook.kube.finding import Finding
from webhook.kube.raw import Json, text
from webhook.kube.rollout import GROUP
from webhook.kube.schema import problems as schema_problems
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book
from webhook.policy.compile import TEST_KIND, PolicyErrors, compile_files
from webhook.policy.document import ENDPOINTS
from webhook.policy.document import KIND as POLICY
from webhook.policy.problem import Problem
from webhook.policy.revision import Revision
from webhook.policy.suite_document import read_suite

# Names that stand where a policy's name would, for what no policy judges.
SCHEMA, ROLLOUT, REVIEWS, POLICIES = "schema", "rollout", "review", "policy"


class Judge:
    """Judges documents against ``snapshot``, each as if the object itself were not there yet."""

    def __init__(self, revision: Revision, snapshot: Snapshot, now: datetime) -> None:
        self._revision = revision
        self._snapshot = snapshot
        self._book = Book()
        self._now = now

    def judge(self, document: Document) -> Judgement:
        """Everything that is wrong with ``document``."""
        obj = document.value
        if obj.get("kind") == REVIEW:
            return judgement(document, list(self._review(obj)))
        if text(obj.get("apiVersion")).partition("/")[0] == GROUP:
            return self._own(document)
        refused = schema_problems(obj, self._snapshot.release)
        told = {(finding.rule, _unified(finding.path)) for finding in refused}
        found = [(SCHEMA, finding) for finding in refused]
        for request, endpoint in _writes(obj):
            for policy, finding in self._findings(request, endpoint):
                # What the decoder and a policy both see is told once, as the decoder tells it.
                if (finding.rule, _unified(finding.path)) not in told:
                    found.append((policy, finding))
        return judgement(document, found)

    def _findings(self, request: Request, endpoint: str) -> Iterator[tuple[str, Finding]]:
        snapshot = self._snapshot.remove(request.target)
        verdict = decide(request, endpoint, self._revision, snapshot, self._book, self._now)
        for judged in verdict.judged:
            yield judged.policy, softened(judged.finding, "Audit" if judged.exception else judged.action)

    def _review(self, obj: Json) -> Iterator[tuple[str, Finding]]:
        try:
            request = read_review(obj)
        except BadReview as error:
            path, _, message = str(error).rpartition(": ")
            yield REVIEWS, Finding("review-invalid", path, message, "", "send it as the API server does")
            return
        prefix = "request.object" if request.object is not None else "request.oldObject"
        for policy, finding in self._findings(request, "validate"):
            yield policy, replace(finding, path=f"{prefix}.{finding.path}" if finding.path else prefix)

    def _own(self, document: Document) -> Judgement:
        """A document of our own group."""
        from webhook.facts.rollout_document import document_problems

        match document.value.get("kind"):
            case "DriverRollout":
                return judgement(document, [(ROLLOUT, each) for each in document_problems(document.value)])
            case kind if kind == POLICY:
                return _policy(document)
            case kind if kind == TEST_KIND:
                return _own_problems(document, read_suite(document, beside)[1])
            case kind:
                fix = f"use DriverRollout, {POLICY} or {TEST_KIND}"
                unknown = Finding("kind-unknown", "kind", f"{kind!r}", f"a kind of {GROUP}", fix)
                return judgement(document, [(SCHEMA, unknown)])


def _unified(path: str) -> str:
    """The path as v1 has it: policies do not tell the ``basic`` of v1beta1, as the server's own errors do not."""
    return path.replace("].basic.", "].", 1)


def _writes(obj: Json) -> Iterator[tuple[Request, str]]:
    """The writes that would bring ``obj`` into a cluster, with the endpoints that see them."""
    bare = {name: value for name, value in obj.items() if name != "status"}
    # What is wrong with a pod's spec depends on whether it has ended, and on the claims made for it.
    created = read_request(raw_request("CREATE", obj if obj.get("kind") == "Pod" else bare))
    for endpoint in ENDPOINTS:
        yield created, endpoint
    if isinstance(obj.get("status"), dict):
        written = read_request(raw_request("UPDATE", obj, bare, sub_resource="status"))
        for endpoint in ENDPOINTS:
            yield written, endpoint


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
