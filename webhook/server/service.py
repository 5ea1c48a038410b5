"""What one server holds and does: policies, cluster, book, and the way from the bytes of a review to those of the
answer, counted and logged.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Protocol

from msgspec import Struct

from webhook.admission.action import Answer, apply
from webhook.admission.decide import Verdict, decide
from webhook.admission.decode import decode
from webhook.admission.record import Record, Reserved, log_fields, of_interest
from webhook.admission.respond import respond
from webhook.admission.subject import claim_trace
from webhook.cluster.files import Cluster
from webhook.facts.gates_found import GateEvidence
from webhook.facts.pod_needs import unseen
from webhook.kube.admission import Request
from webhook.kube.core import Pod, read_pod
from webhook.kube.raw import Json
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book
from webhook.server.allocations import Allocations
from webhook.server.audit import AuditSink
from webhook.server.gauges import Gauges
from webhook.server.reserving import Reserving, Wanted
from webhook.server.slice_reviews import SliceReviews
from webhook.store.policies import PolicyStore
from webhook.telemetry.log import Log
from webhook.telemetry.metrics import Metrics

# Kinds whose age is told of a cluster in files; all of them are as old as the last look.
KINDS = ("Node", "ResourceSlice", "ResourceClaim", "Pod", "DeviceClass", "DriverRollout")

# How often a review looks whether the view has seen what it waits for, seconds.
_LOOK_AGAIN = 0.005
# Reviews that may wait so at once: few enough that no other review is shed for them.
_MOST_WAITING = 32

Check = tuple[str, bool, str]


class World(Protocol):
    """A cluster to judge by, in files or live."""

    @property
    def snapshot(self) -> Snapshot:
        """What is known at this moment."""

    @property
    def synced(self) -> bool:
        """Whether everything was seen once: nothing can be judged before."""

    def snapshot_for(self, obj: Json | None) -> Snapshot:
        """What to judge ``obj`` by."""

    def checks(self) -> list[Check]:
        """(check, whether it is fine, what to know) for ``/readyz``."""


class NotReady(Exception):  # noqa: N818 - an HTTP answer, no mistake
    """Nothing can be judged yet."""


class Reply(Struct, frozen=True):
    """The bytes of an answer, with what is counted about it; ``tell``, to be called once it is sent, with the seconds
    that it took, counts and tells what was decided; ``trace`` is that of the claim that it is about, if any.
    """

    body: bytes
    resource: str
    operation: str
    allowed: bool
    tell: Callable[[float], None]
    trace: str = ""


class Service:
    """Judges reviews. ``clock`` gives the time that decisions are made for, ``ages`` how old the view of each kind is,
    seconds, where the cluster is none of files; ``checks`` are more of them for ``/readyz``. ``reserving`` holds what
    is allowed, where the cluster is live; ``may_hold`` tells whether somebody would let go the pods that are held,
    ``gate_evidence`` what is known of feature gates beside the view. ``patience`` is how long, seconds, a new pod's
    review waits for claims and classes that the view has not seen: made with the pod, they decide where it may go.
    ``on_record`` is called with the record of each decision of interest, once it is answered, on the event loop: who
    is called is quick and never raises.
    """

    def __init__(
        self,
        policies: PolicyStore,
        cluster: World,
        log: Log,
        clock: Callable[[], datetime],
        ages: Callable[[], Mapping[str, float]] | None = None,
        checks: Callable[[], Iterable[Check]] = tuple,
    ) -> None:
        self.policies = policies
        self.cluster = cluster
        self.log = log
        self.clock = clock
        self.book = Book()
        self.reserving: Reserving | None = None
        self.may_hold: Callable[[], bool] = lambda: True
        self.patience = 0.0
        self._waiting = 0
        self.stopping = False
        self.certificate_problem = ""
        self.audit: AuditSink | None = None
        self.checks = checks
        self._looked = time.monotonic()
        self.gauges = Gauges(
            policies,
            lambda: cluster.snapshot,
            clock,
            ages or (lambda: dict.fromkeys(KINDS, time.monotonic() - self._looked)),
            lambda: self.allocations.refused,
            lambda: self.gate_evidence(),
        )
        self.metrics = Metrics(self.gauges.families, self.gauges.lines)
        self.allocations = Allocations(self.metrics)
        self.slice_reviews = SliceReviews(self.metrics)
        self.gate_evidence: Callable[[], GateEvidence] = GateEvidence
        self.on_record: list[Callable[[Record], None]] = [self._count, self._log]

    def answer(self, endpoint: str, data: bytes, until: float, parent: str = "") -> Reply | Coroutine[Any, Any, Reply]:
        """The reply to the review in ``data`` at ``endpoint`` (``validate`` or ``mutate``), for which there is time
        ``until`` (perf_counter); to be waited for where a reservation is written first. ``parent`` is the
        ``traceparent`` that it came with.

        Raises BadReview, and NotReady before everything was seen once.
        """
        if not self.cluster.synced:
            raise NotReady("the guard has not seen the whole cluster yet; try again")
        request = decode(data)
        created = request.operation == "CREATE" and request.kind.name == "Pod" and request.object is not None
        if self.patience and endpoint == "mutate" and created and self._waiting < _MOST_WAITING:
            pod = read_pod(request.target)
            if unseen(pod, self.cluster.snapshot):
                return self._patient(pod, request, endpoint, until, parent)
        return self._settled(request, endpoint, until, parent)

    async def _patient(self, pod: Pod, request: Request, endpoint: str, until: float, parent: str) -> Reply:
        end = min(until, time.perf_counter() + self.patience)
        self._waiting += 1
        try:
            while time.perf_counter() < end and unseen(pod, self.cluster.snapshot):
                await asyncio.sleep(_LOOK_AGAIN)
        finally:
            self._waiting -= 1
        reply = self._settled(request, endpoint, until, parent)
        return reply if isinstance(reply, Reply) else await reply

    def _settled(
        self, request: Request, endpoint: str, until: float, parent: str
    ) -> Reply | Coroutine[Any, Any, Reply]:
        judge = partial(self._judged, request, endpoint, lambda: time.perf_counter() > until)
        verdict = judge()
        wanted = None if self.reserving is None else self.reserving.wanted(verdict)
        if wanted is None:
            return self._reply(verdict, None, parent)
        return self._reserved(verdict, wanted, judge, until, parent)

    def _judged(self, request: Request, endpoint: str, expired: Callable[[], bool]) -> Verdict:
        held = self.reserving
        snapshot = self.cluster.snapshot_for(request.object) if held is None else held.view()
        revision, now = self.policies.revision, self.clock()
        return decide(request, endpoint, revision, snapshot, self.book, now, expired, self.may_hold())

    async def _reserved(
        self, verdict: Verdict, wanted: Wanted, judge: Callable[[], Verdict], until: float, parent: str
    ) -> Reply:
        assert self.reserving is not None
        return self._reply(*await self.reserving.settle(verdict, wanted, judge, until), parent)

    def _reply(self, verdict: Verdict, reserved: Reserved | None, parent: str) -> Reply:
        request, answer = verdict.request, apply(verdict)
        sub = request.sub_resource
        resource = f"{request.resource.name}/{sub}" if sub else request.resource.name
        tell = partial(self._tell, verdict, answer, reserved, parent)
        return Reply(respond(answer), resource, request.operation, answer.allowed, tell, claim_trace(verdict))

    def refresh(self) -> bool:
        """Take in what changed in the files; whether anything did. Raises OSError for a folder that cannot be read."""
        outcome = self.policies.refresh()
        self._tell_policies(outcome)
        files = self.cluster.refresh() if isinstance(self.cluster, Cluster) else []
        if files:
            self.tell_cluster(files)
        self._looked = time.monotonic()
        return bool(outcome or files)

    def take_policies(self, objs: Mapping[str, Json]) -> None:
        """Make ``objs``, by name, the AdmissionPolicy objects that the cluster has."""
        self._tell_policies(self.policies.set_objects(objs))

    def _tell_policies(self, outcome: str) -> None:
        if not outcome:
            return
        self.metrics.reload(outcome)
        self.log.write(
            "error" if outcome == "refused" else "info",
            f"policies {outcome}",
            revision=self.policies.revision.hash,
            problems=[problem.text for problem in self.policies.problems[:20]],
        )

    def tell_cluster(self, files: Sequence[str] = ()) -> None:
        """Log what the cluster's files hold and what in them is wrong; ``files`` are those just read."""
        if not isinstance(self.cluster, Cluster):
            return
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

    def _tell(self, verdict: Verdict, answer: Answer, reserved: Reserved | None, parent: str, seconds: float) -> None:
        try:
            if of_interest(verdict):
                record = Record(verdict, answer, self.clock(), seconds, reserved, parent)
                for told in self.on_record:
                    told(record)
        finally:
            # What was decided counts, however it is told.
            self.allocations.judged(verdict, answer.allowed)
            self.slice_reviews.judged(verdict)
            verdict.evaluation.facts.release()

    def _count(self, record: Record) -> None:
        trace = claim_trace(record.verdict)
        for judged in record.judged:
            self.metrics.finding(judged.policy, judged.finding.rule, record.done(judged), trace)
        if (reserved := record.reserved) is not None:
            self.metrics.reservation("failed" if reserved.problem else "taken", reserved.seconds, trace)

    def _log(self, record: Record) -> None:
        if record.outcome == "allowed" and not record.allocates:
            return
        event = "evaluation failed" if record.outcome == "failed" else record.outcome
        self.log.write("info" if record.answer.allowed else "warning", event, **log_fields(record))
