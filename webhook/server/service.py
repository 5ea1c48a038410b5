"""What one server holds and does: policies, cluster, book, and the way from the bytes of a review to those of the
answer, counted and logged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from webhook.admission.action import Answer, apply, denies, warns
from webhook.admission.decide import Judged, Verdict, decide
from webhook.admission.decode import decode
from webhook.admission.respond import respond
from webhook.cluster.files import Cluster
from webhook.ledger.book import Book
from webhook.server.gauges import gauges
from webhook.store.policies import PolicyStore
from webhook.telemetry.log import Log
from webhook.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Reply:
    """The bytes of an answer, with what is counted about it."""

    body: bytes
    resource: str
    operation: str
    allowed: bool


class Service:
    """Judges reviews. ``clock`` gives the time that decisions are made for."""

    def __init__(self, policies: PolicyStore, cluster: Cluster, log: Log, clock: Callable[[], datetime]) -> None:
        self.policies = policies
        self.cluster = cluster
        self.log = log
        self.clock = clock
        self.book = Book()
        self.stopping = False
        self.certificate_problem = ""
        self._looked = time.monotonic()
        # Scrapes run in a thread of their own; a book is one thread's.
        scraped = Book()
        self.metrics = Metrics(
            lambda: gauges(policies.revision.hash, cluster.snapshot, scraped, clock(), time.monotonic() - self._looked)
        )

    def answer(self, endpoint: str, data: bytes, expired: Callable[[], bool]) -> Reply:
        """The reply to the review in ``data`` at ``endpoint`` (``validate`` or ``mutate``). Raises BadReview."""
        request = decode(data)
        snapshot = self.cluster.snapshot_for(request.object)
        verdict = decide(request, endpoint, self.policies.revision, snapshot, self.book, self.clock(), expired)
        answer = apply(verdict)
        if verdict.judged or verdict.errors:
            self._record(verdict, answer)
        verdict.evaluation.facts.release()
        sub = request.sub_resource
        resource = f"{request.resource.name}/{sub}" if sub else request.resource.name
        return Reply(respond(answer), resource, request.operation, answer.allowed)

    def refresh(self) -> bool:
        """Take in what changed in the files; whether anything did. Raises OSError for a folder that cannot be read."""
        outcome = self.policies.refresh()
        if outcome:
            self.metrics.reload(outcome)
            self.log.write(
                "error" if outcome == "refused" else "info",
                f"policies {outcome}",
                revision=self.policies.revision.hash,
                problems=[problem.text for problem in self.policies.problems],
            )
        files = self.cluster.refresh()
        if files:
            self.tell_cluster(files)
        self._looked = time.monotonic()
        return bool(outcome or files)

    def tell_cluster(self, files: Sequence[str]) -> None:
        """Log what the cluster's files hold and what in them is wrong; ``files`` are those just read."""
        problems = [problem.text for problem in self.cluster.problems]
        self.log.write(
            "warning" if problems else "info",
            "cluster read",
            release=str(self.cluster.snapshot.release),
            nodes=len(self.cluster.snapshot.nodes),
            slices=len(self.cluster.snapshot.slices),
            claims=len(self.cluster.snapshot.claims),
            pods=len(self.cluster.snapshot.pods),
            files=list(files[:20]),
            problems=problems,
            notes=self.cluster.notes[:20],
        )

    def _record(self, verdict: Verdict, answer: Answer) -> None:
        for judged in verdict.judged:
            self.metrics.finding(judged.policy, judged.finding.rule, _done(judged))
        if answer.allowed and not answer.warnings and not verdict.errors:
            return
        request = verdict.request
        self.log.write(
            "info" if answer.allowed else "warning",
            "denied" if not answer.allowed else "warned" if answer.warnings else "evaluation failed",
            endpoint=verdict.endpoint,
            uid=request.uid,
            resource=request.resource.name,
            subResource=request.sub_resource,
            operation=request.operation,
            namespace=request.namespace,
            name=request.name,
            user=request.user,
            dryRun=request.dry_run,
            revision=verdict.revision,
            message=answer.message,
            warnings=answer.warnings,
            errors=verdict.errors,
            findings=answer.annotations.get("findings", ""),
        )


def _done(judged: Judged) -> str:
    return "Deny" if denies(judged) else "Warn" if warns(judged) else "Audit"
