"""The metrics of the server, Prometheus names and labels: the one place where they stand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from webhook.kube.snapshot import KINDS

PREFIX = "allocguard_"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

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
OTHER = "other"
# What the journal counts by: the kinds of objects that it keeps, the release, and itself.
_JOURNALED = KINDS | {"Release", "journal"}


class Metrics:
    """Counters of what the server did, and gauges read when somebody scrapes.

    ``gauges`` is called at each scrape and gives the metric families that are computed from the present state.
    """

    def __init__(self, gauges: Callable[[], Iterable[Metric]] = tuple) -> None:
        # A series more for each counter, which nobody asked for.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no types for it
        self._registry = CollectorRegistry()
        self._reviews = Counter(
            f"{PREFIX}admission_reviews_total",
            "Reviews answered",
            ["endpoint", "resource", "operation", "outcome"],
            registry=self._registry,
        )
        self._duration = Histogram(
            f"{PREFIX}admission_duration_seconds",
            "From the first byte read to the answer made",
            ["endpoint", "resource"],
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._findings = Counter(
            f"{PREFIX}findings_total",
            "Findings, by what their policy does with them",
            ["policy", "rule", "action"],
            registry=self._registry,
        )
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
        self._placements = Counter(
            f"{PREFIX}numa_placement_checks_total",
            "Allocations judged, by how they lie in the NUMA zones of their node",
            ["driver", "outcome"],
            registry=self._registry,
        )
        self._duplicates = Counter(
            f"{PREFIX}duplicate_charges_refused_total",
            "Devices of allocations that were refused as charges a second time",
            ["driver"],
            registry=self._registry,
        )
        self._released = Counter(
            f"{PREFIX}pods_released_total", "Pods whose scheduling gate was lifted", registry=self._registry
        )
        self._dropped = Counter(
            f"{PREFIX}mappings_dropped_total",
            "Slices that the API server stored without the costs that were sent, its gate being off",
            ["driver"],
            registry=self._registry,
        )
        self._write_failures = Counter(
            f"{PREFIX}status_write_failures_total",
            "Writes of claim status that the API server refused, by who wrote and why",
            ["writer", "reason"],
            registry=self._registry,
        )
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
        self._registry.register(_AtScrape(gauges))
        self._role_findings: Mapping[tuple[str, str], int] = {}
        self._scan: Mapping[tuple[str, str, str], int] = {}
        self._scanned: datetime | None = None
        self._expiries: dict[str, datetime] = {}
        self._registry.register(_AtScrape(self._told))
        self._children: dict[tuple[str, ...], Counter] = {}
        self._timers: dict[tuple[str, str], Histogram] = {}

    def review(self, endpoint: str, resource: str, operation: str, outcome: str, seconds: float) -> None:
        """Count one review and the seconds it took."""
        resource = resource if resource in RESOURCES else OTHER
        key = (endpoint, resource, operation, outcome)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = self._reviews.labels(*key)
        child.inc()
        timer = self._timers.get((endpoint, resource))
        if timer is None:
            timer = self._timers[(endpoint, resource)] = self._duration.labels(endpoint, resource)
        timer.observe(seconds)

    def finding(self, policy: str, rule: str, action: str) -> None:
        """Count one finding."""
        key = (policy, rule, action)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = self._findings.labels(*key)
        child.inc()

    def reload(self, outcome: str) -> None:
        """Count one policy edit: ``loaded`` or ``refused``."""
        self._reloads.labels(outcome).inc()

    def reservation(self, outcome: str, seconds: float) -> None:
        """Count one reservation, ``taken`` or ``failed``, and the seconds that it took."""
        self._reservations.labels(outcome).inc()
        self._reserving.observe(seconds)

    def stale(self, kind: str) -> None:
        """Count one event of ``kind`` that came too late to be taken."""
        self._stale.labels(kind).inc()

    def conflict(self) -> None:
        """Count one write of a reservation that had to be made again."""
        self._conflicts.inc()

    def journal_failure(self, kind: str, count: int) -> None:
        """Count what the journal could not write of objects of ``kind``."""
        self._unwritten.labels(kind if kind in _JOURNALED else OTHER).inc(count)

    def placement(self, driver: str, outcome: str) -> None:
        """Count one allocation of devices of ``driver``: ``fit``, ``unfit`` or ``unknown``."""
        self._placements.labels(driver, outcome).inc()

    def duplicate(self, driver: str) -> None:
        """Count one device of ``driver`` whose charge was refused as a second one."""
        self._duplicates.labels(driver).inc()

    def released(self) -> None:
        """Count one pod that need not wait for its claims any more."""
        self._released.inc()

    def dropped(self, driver: str) -> None:
        """Count one slice of ``driver`` that is stored without its costs."""
        self._dropped.labels(driver).inc()

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

    def certificate_expiry(self, use: str, at: datetime) -> None:
        """Take in when the certificate for ``use`` (``serving`` or ``ca``) ends to be valid."""
        self._expiries[use] = at

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
        ends = [([use], end.timestamp()) for use, end in sorted(self._expiries.items())]
        yield gauge("certificate_expiry_timestamp_seconds", "When the certificate ends to be valid", ["use"], ends)

    def write_failure(self, writer: str, reason: str) -> None:
        """Count one refused write of a claim's status; ``writer`` and ``reason`` are from bounded sets."""
        self._write_failures.labels(writer, reason).inc()

    def audit_events(self, outcome: str, count: int) -> None:
        """Count audit events of which the same became, one of ``AUDIT_OUTCOMES``."""
        self._audit_events.labels(outcome).inc(count)

    def text(self) -> bytes:
        """The exposition text of everything."""
        return generate_latest(self._registry)


class _AtScrape(Collector):
    def __init__(self, gauges: Callable[[], Iterable[Metric]]) -> None:
        self._gauges = gauges

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        return self._gauges()


def gauge(name: str, text: str, labels: list[str], rows: Iterable[tuple[list[str], float]]) -> GaugeMetricFamily:
    """A gauge family ``allocguard_<name>`` with one sample for each row of (label values, value)."""
    family = GaugeMetricFamily(f"{PREFIX}{name}", text, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family
