"""The metrics of the server, Prometheus names and labels: the one place where they stand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, exposition
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from webhook.kube.snapshot import KINDS
from webhook.telemetry.bounded import OTHER, Bounded
from webhook.telemetry.lines import PREFIX, showable

CONTENT_TYPE = exposition.CONTENT_TYPE_PLAIN_0_0_4
OPENMETRICS = openmetrics.CONTENT_TYPE_LATEST

# Of one family that is made as objects; larger ones are lines.
MAX_SAMPLES = 10_000

# The buckets of apiserver_admission_webhook_admission_duration_seconds, so that both sides can be compared.
BUCKETS = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0)

OUTCOMES = ("allowed", "denied", "error", "shed")
AUDIT_OUTCOMES = ("failed", "written", "ignored", "repeated", "old", "unreadable", "error")
# Who may send requests may invent resources; a label must not grow with that.
RESOURCES = frozenset(
    f"{name}{sub}"
    for name, subs in {
        "resourceslices": ("",),
        "resourceclaims": ("", "/status"),
        "resourceclaimtemplates": ("",),
        "deviceclasses": ("",),
        "pods": ("", "/status", "/binding", "/resize", "/eviction", "/ephemeralcontainers"),
        "nodes": ("", "/status"),
        "clusterroles": ("",),
        "clusterrolebindings": ("",),
        "roles": ("",),
        "rolebindings": ("",),
        "serviceaccounts": ("", "/token"),
    }.items()
    for sub in subs
)
# What the journal counts by: the kinds of objects that it keeps, the release, and itself.
_JOURNALED = KINDS | {"Release", "journal"}


Lines = Callable[[Callable[[str, int], object]], Iterable[bytes]]


class Metrics:
    """Counters of what the server did, and gauges read when somebody scrapes.

    ``gauges`` is called at each scrape and gives the metric families that are computed from the present state; then
    ``lines``, which gives the lines of those that are large, and calls what it is given with the name of a family and
    how many of its lines were left out. Where something concerns one claim, ``trace`` is the trace of that, and an
    exemplar unless ``traced`` says that nothing of it is kept.
    """

    def __init__(self, gauges: Callable[[], Iterable[Metric]] = tuple, lines: Lines = lambda dropped: ()) -> None:
        # A series more for each counter, which nobody asked for.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no types for it
        self._registry = CollectorRegistry()
        self._lines = lines
        self.traced: Callable[[str], bool] = lambda trace: True
        self._left_out = Counter(
            f"{PREFIX}series_dropped_total",
            "Samples without a series of their own, since the family had too many or their names cannot be shown",
            ["metric"],
            registry=self._registry,
        )
        self._reviews = self._bounded(
            "admission_reviews_total", "Reviews answered", ["endpoint", "resource", "operation", "outcome"], 1
        )
        duration = Histogram(
            f"{PREFIX}admission_duration_seconds",
            "From the first byte read to the answer made",
            ["endpoint", "resource"],
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._duration = Bounded(duration, 1, partial(self.series_dropped, "admission_duration_seconds", 1))
        text = "Findings, by what their policy does with them"
        self._findings = self._bounded("findings_total", text, ["policy", "rule", "action"], 2)
        self._reloads = Counter(
            f"{PREFIX}policy_reloads_total", "Policy edits seen", ["outcome"], registry=self._registry
        )
        for outcome in ("loaded", "refused"):
            self._reloads.labels(outcome)
        self._unwritten = Counter(
            f"{PREFIX}journal_write_failures_total",
            "Events that the journal could not take, and tries to write it that failed",
            ["kind"],
            registry=self._registry,
        )
        self._unwritten.labels("journal")
        self._stale = Counter(
            f"{PREFIX}stale_events_total",
            "Events that were older than what was known of their objects, and changed nothing",
            ["kind"],
            registry=self._registry,
        )
        for kind in KINDS:
            self._stale.labels(kind)
        self._reservations = Counter(
            f"{PREFIX}reservations_total", "Reservations that decisions needed", ["outcome"], registry=self._registry
        )
        for outcome in ("taken", "failed"):
            self._reservations.labels(outcome)
        self._conflicts = Counter(
            f"{PREFIX}reservation_conflicts_total",
            "Writes of a reservation that another writer of the NodeLedger was faster than",
            registry=self._registry,
        )
        self._reserving = Histogram(
            f"{PREFIX}reservation_duration_seconds",
            "From a decision that needs a reservation to its answer",
            buckets=BUCKETS,
            registry=self._registry,
        )
        text = "Allocations judged, by how they lie in the NUMA zones of their node"
        self._placements = self._bounded("numa_placement_checks_total", text, ["driver", "outcome"], 1)
        text = "Devices of allocations that were refused as charges a second time"
        self._duplicates = self._bounded("duplicate_charges_refused_total", text, ["driver"], 1)
        self._released = Counter(
            f"{PREFIX}pods_released_total", "Pods whose scheduling gate was lifted", registry=self._registry
        )
        text = "Slices that the API server stored without the costs that were sent, its gate being off"
        self._dropped = self._bounded("mappings_dropped_total", text, ["driver"], 1)
        text = "Writes of claim status that the API server refused, by who wrote and why"
        self._write_failures = self._bounded("status_write_failures_total", text, ["writer", "reason"], 2)
        self._audit_events = Counter(
            f"{PREFIX}audit_events_total",
            "Audit events that came, by what became of them",
            ["outcome"],
            registry=self._registry,
        )
        for outcome in AUDIT_OUTCOMES:
            self._audit_events.labels(outcome)
        self._spans_dropped = Counter(
            f"{PREFIX}spans_dropped_total", "Spans that no receiver of traces took", registry=self._registry
        )
        self._events_dropped = Counter(
            f"{PREFIX}events_dropped_total",
            "Events about objects that were not written, for the API server or for want of room",
            registry=self._registry,
        )
        self._unrecorded = Counter(
            f"{PREFIX}recording_failures_total",
            "Reviews that the recording could not take, and tries to write it that failed",
            registry=self._registry,
        )
        self._registry.register(_AtScrape(gauges, self.series_dropped))
        self._role_findings: Mapping[tuple[str, str], int] = {}
        self._scan: Mapping[tuple[str, str, str], int] = {}
        self._scanned: datetime | None = None
        self._ends: Mapping[str, datetime] = {}
        self._registry.register(_AtScrape(self._told, self.series_dropped))

    def _bounded(self, name: str, text: str, labels: list[str], theirs: int) -> Bounded[Counter]:
        family = Counter(f"{PREFIX}{name}", text, labels, registry=self._registry)
        return Bounded(family, theirs, partial(self.series_dropped, name, 1))

    def series_dropped(self, metric: str, count: int) -> None:
        """Count samples of the family ``metric`` that have no series of their own."""
        self._left_out.labels(metric).inc(count)

    def _exemplar(self, trace: str) -> dict[str, str] | None:
        return {"trace_id": trace} if trace and self.traced(trace) else None

    def review(
        self, endpoint: str, resource: str, operation: str, outcome: str, seconds: float, trace: str = ""
    ) -> None:
        """Count one review and the seconds it took."""
        resource, exemplar = resource if resource in RESOURCES else OTHER, self._exemplar(trace)
        self._reviews.of(endpoint, resource, operation, outcome).inc(1, exemplar)
        self._duration.of(endpoint, resource).observe(seconds, exemplar)

    def finding(self, policy: str, rule: str, action: str, trace: str = "") -> None:
        """Count one finding."""
        self._findings.of(policy, rule, action).inc(1, self._exemplar(trace))

    def reload(self, outcome: str) -> None:
        """Count one policy edit: ``loaded`` or ``refused``."""
        self._reloads.labels(outcome).inc()

    def reservation(self, outcome: str, seconds: float, trace: str = "") -> None:
        """Count one reservation, ``taken`` or ``failed``, and the seconds that it took."""
        exemplar = self._exemplar(trace)
        self._reservations.labels(outcome).inc(1, exemplar)
        self._reserving.observe(seconds, exemplar)

    def stale(self, kind: str) -> None:
        """Count one event of ``kind`` that came too late to be taken."""
        self._stale.labels(kind).inc()

    def conflict(self) -> None:
        """Count one write of a reservation that had to be made again."""
        self._conflicts.inc()

    def journal_failure(self, kind: str, count: int) -> None:
        """Count what the journal could not write of objects of ``kind``."""
        self._unwritten.labels(kind if kind in _JOURNALED else OTHER).inc(count)

    def placement(self, driver: str, outcome: str, trace: str = "") -> None:
        """Count one allocation of devices of ``driver``: ``fit``, ``unfit`` or ``unknown``."""
        self._placements.of(driver, outcome).inc(1, self._exemplar(trace))

    def duplicate(self, driver: str, trace: str = "") -> None:
        """Count one device of ``driver`` whose charge was refused as a second one."""
        self._duplicates.of(driver).inc(1, self._exemplar(trace))

    def released(self) -> None:
        """Count one pod that need not wait for its claims any more."""
        self._released.inc()

    def dropped(self, driver: str) -> None:
        """Count one slice of ``driver`` that is stored without its costs."""
        self._dropped.of(driver).inc()

    def role_findings(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Take in how many findings about roles and bindings there are now, by rule and severity."""
        self._role_findings = counts

    def spans_dropped(self, count: int) -> None:
        """Count spans that were not taken; from any thread."""
        self._spans_dropped.inc(count)

    def events_dropped(self, count: int) -> None:
        """Count events about objects that were not written; from any thread."""
        self._events_dropped.inc(count)

    def recording_failure(self, count: int) -> None:
        """Count reviews that the recording could not take; from any thread."""
        self._unrecorded.inc(count)

    def audit_scan(self, counts: Mapping[tuple[str, str, str], int], at: datetime) -> None:
        """Take in what the last scan of everything stored found, by policy, rule and severity, and when it ended."""
        self._scan, self._scanned = counts, at

    def certificates(self, ends: Mapping[str, datetime]) -> None:
        """Take in when the certificates end to be valid, by use (``serving``, ``ca``)."""
        self._ends = ends

    def _told(self) -> Iterable[Metric]:
        """What was told last of what others look at from time to time."""
        rows = [([*labels], count) for labels, count in sorted(self._role_findings.items())]
        yield gauge("rbac_findings", "What is wrong with roles and bindings", ["rule", "severity"], rows)
        found = [([*labels], count) for labels, count in sorted(self._scan.items())]
        text = "What is stored and would be refused today"
        yield gauge("audit_scan_findings", text, ["policy", "rule", "severity"], found)
        if self._scanned is not None:
            at = self._scanned.timestamp()
            yield gauge("audit_scan_timestamp_seconds", "When the last scan of what is stored ended", [], [([], at)])
        ends = [([use], end.timestamp()) for use, end in sorted(self._ends.items())]
        yield gauge("certificate_expiry_timestamp_seconds", "When the certificate ends to be valid", ["use"], ends)

    def write_failure(self, writer: str, reason: str, trace: str = "") -> None:
        """Count one refused write of a claim's status."""
        self._write_failures.of(writer, reason).inc(1, self._exemplar(trace))

    def audit_events(self, outcome: str, count: int) -> None:
        """Count audit events of which the same became, one of ``AUDIT_OUTCOMES``."""
        self._audit_events.labels(outcome).inc(count)

    def pieces(self, exemplars: bool = False) -> list[bytes]:
        """The exposition of everything, in pieces; as OpenMetrics with exemplars, which ``CONTENT_TYPE`` has none of.
        Takes too long for an event loop.
        """
        made = (openmetrics if exemplars else exposition).generate_latest(self._registry)
        end = b"# EOF\n" if exemplars else b""
        return [made.removesuffix(end), *self._lines(self.series_dropped), end]


class _AtScrape(Collector):
    def __init__(self, gauges: Callable[[], Iterable[Metric]], dropped: Callable[[str, int], object]) -> None:
        self._gauges, self._dropped = gauges, dropped

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        for family in self._gauges():
            kept = [sample for sample in family.samples if all(map(showable, sample.labels.values()))][:MAX_SAMPLES]
            if len(kept) < len(family.samples):
                self._dropped(family.name.removeprefix(PREFIX), len(family.samples) - len(kept))
                family.samples = kept
            yield family


def gauge(name: str, text: str, labels: list[str], rows: Iterable[tuple[list[str], float]]) -> GaugeMetricFamily:
    """A gauge family ``allocguard_<name>`` with one sample for each row of (label values, value)."""
    family = GaugeMetricFamily(f"{PREFIX}{name}", text, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family
