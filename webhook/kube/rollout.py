"""DriverRollout (``allocguard.dev/v1alpha1``): what the operator tells the guard about one driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from webhook.kube.raw import Json, flag, integer, mapping, members, sequence, text

GROUP = "allocguard.dev"
API_VERSION = f"{GROUP}/v1alpha1"
STAGES = ("Off", "Canary", "Expanding", "General")
EVIDENCE = ("PoolComplete", "OwnerCurrent", "NodeReady", "DriverPodReady")
PROFILES = ("NodeLocal", "MultiNode", "AnyNode", "Allocator")
# Those that are of no node, and tell about claims on any.
SEVERAL_NODES = frozenset({"MultiNode", "AnyNode"})
STANDARD_NUMA = "resource.kubernetes.io/numaNode"
DEFAULT_WINDOW = 90
ADMINISTRATORS = "system:masters"
KUBELET = "system:node:"
KUBELETS = "system:nodes"
DRILLS = ("Rollback", "NodeRestart", "DriverUpgrade")


@dataclass(frozen=True, slots=True)
class Hold:
    """A standing hold: no new claims; with ``bad_mappings`` only on pools that have one of these digests."""

    reason: str
    by: str
    since: str
    until: str
    bad_mappings: frozenset[str]


@dataclass(frozen=True, slots=True)
class Writer:
    """A ServiceAccount that may write for the driver: NodeLocal what belongs to the node of its token, MultiNode what
    belongs to no single node, AnyNode what belongs to any node or none, Allocator the allocations of the driver's
    devices.
    """

    namespace: str
    service_account: str
    profile: str


@dataclass(frozen=True, slots=True)
class Editors:
    """Who may change the labels that a canary selector reads, by name and by group."""

    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset({ADMINISTRATORS})


@dataclass(frozen=True, slots=True)
class Promotion:
    """What has to be reached before the next stage; None where nothing is asked. ``min_coverage`` is a percentage,
    ``pending_p99`` seconds; ``unread`` are the fields, by name, of which nobody can tell what they ask for.
    """

    min_coverage: int | None
    quiet_days: int | None
    drills: tuple[str, ...]
    pending_p99: int | None
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Override:
    """Somebody's word for moving on from ``stage`` though its gates have not passed; ``at`` (RFC 3339, empty where it
    is not said) tells it from one with the same words.
    """

    by: str
    reason: str
    stage: str
    at: str


@dataclass(frozen=True, slots=True)
class Drill:
    """A drill that was run: what, when (RFC 3339), how it ended, and who ran it."""

    name: str
    at: str
    passed: bool
    by: str
    message: str


@dataclass(frozen=True, slots=True)
class RolloutStatus:
    """What the guard has seen of the driver, as the next leader goes on from it.

    ``observed_since`` is when it began to look, ``quiet_since`` when the last difference was gone (RFC 3339, empty:
    not known). ``pending_p99``: 99 of 100 of the ``pending_count`` claims that were allocated waited no longer, seconds
    (``status.pending.p99`` is a duration, as ``12s``). ``duplicates`` and ``zone_failures`` count refusals; ``digests``
    are the mapping digests published, sorted.
    """

    quiet_since: str = ""
    observed_since: str = ""
    pending_p99: int | None = None
    pending_count: int = 0
    drills: tuple[Drill, ...] = ()
    duplicates: int = 0
    zone_failures: int = 0
    digests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DriverRollout:
    """How far a driver's mappings are rolled out. ``window`` and ``heartbeat`` are seconds (heartbeat 0: none);
    ``canary_keys`` are the label keys that ``canary_selector`` reads.
    """

    driver: str
    stage: str = "General"
    canary_selector: Json | None = None
    writers: tuple[Writer, ...] = ()
    evidence: tuple[str, ...] = ("PoolComplete",)
    window: int = DEFAULT_WINDOW
    heartbeat: int = 0
    driver_pods_namespace: str = ""
    driver_pods_selector: Mapping[str, str] = field(default_factory=dict)
    numa_attributes: tuple[str, ...] = (STANDARD_NUMA,)
    hold: Hold | None = None
    resume_digests: frozenset[str] = frozenset()
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    editors: Editors = field(default_factory=Editors)
    canary_keys: frozenset[str] = frozenset()
    promotion: Promotion | None = None
    override: Override | None = None
    status: RolloutStatus = field(default_factory=RolloutStatus)

    def without_status(self) -> DriverRollout:
        """What the operator says alone: equal for as long as only the guard writes to the object."""
        return replace(self, status=RolloutStatus(), resource_version="")


def seconds(value: object) -> int | None:
    """Whole seconds of a Go duration as operators write it (``90s``, ``2m``, ``1h30m``); None when it is none."""
    if not isinstance(value, str) or not value:
        return None
    total, number = 0, ""
    units = {"h": 3600, "m": 60, "s": 1}
    for char in value:
        if char.isascii() and char.isdigit():
            number += char
        elif char in units and number:
            total, number = total + int(number) * units[char], ""
        else:
            return None
    return None if number else total


def _profile(raw: object) -> str:
    """A profile; the narrowest for what is none."""
    return raw if isinstance(raw, str) and raw in PROFILES else PROFILES[0]


def _strings(raw: object) -> tuple[str, ...]:
    return tuple(item for item in sequence(raw) if isinstance(item, str))


def selector_keys(selector: Json) -> frozenset[str]:
    """The label keys that a raw label selector reads."""
    keys = [row.get("key") for row in members(selector.get("matchExpressions"))]
    return frozenset(key for key in (*mapping(selector.get("matchLabels")), *keys) if isinstance(key, str) and key)


def _editors(raw: object) -> Editors:
    if not isinstance(raw, dict):
        return Editors()
    return Editors(frozenset(_strings(raw.get("users"))), frozenset(_strings(raw.get("groups"))))


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _promotion(raw: object) -> Promotion | None:
    if raw is None:
        return None
    if not isinstance(raw, dict):
        return Promotion(None, None, (), None, ("promotion",))
    coverage, quiet, pending = _whole(raw.get("minCoverage")), _whole(raw.get("quietDays")), raw.get("pendingP99")
    drills = raw.get("drills")
    read = {
        "minCoverage": coverage,
        "quietDays": quiet,
        "drills": drills if isinstance(drills, list) and len(_strings(drills)) == len(drills) else None,
        "pendingP99": seconds(pending),
    }
    unread = tuple(name for name, value in read.items() if value is None and raw.get(name) is not None)
    return Promotion(coverage, quiet, _strings(drills), seconds(pending), unread)


def _hold(raw: object) -> Hold | None:
    """A hold that cannot be read is one without a reason, and for every pool."""
    if raw is None:
        return None
    hold = mapping(raw)
    return Hold(
        reason=text(hold.get("reason")),
        by=text(hold.get("by")),
        since=text(hold.get("since")),
        until=text(hold.get("until")),
        bad_mappings=frozenset(_strings(hold.get("badMappings"))),
    )


def _writers(raw: object) -> tuple[Writer, ...]:
    """The accounts; an entry that cannot be read is that of nobody, so that the driver is as guarded as it was meant to
    be.
    """
    entries = raw if isinstance(raw, list) else [raw] if raw is not None else []
    return tuple(
        Writer(text(each.get("namespace")), text(each.get("serviceAccount")), _profile(each.get("profile")))
        for each in map(mapping, entries)
    )


def _override(raw: object) -> Override | None:
    if not isinstance(raw, dict):
        return None
    return Override(text(raw.get("by")), text(raw.get("reason")), text(raw.get("stage")), text(raw.get("at")))


def _status(raw: Json) -> RolloutStatus:
    pending = mapping(raw.get("pending"))
    return RolloutStatus(
        quiet_since=text(raw.get("quietSince")),
        observed_since=text(raw.get("observedSince")),
        pending_p99=seconds(pending.get("p99")),
        pending_count=integer(pending.get("count")),
        drills=tuple(
            Drill(
                text(d.get("name")), text(d.get("at")), flag(d.get("passed")), text(d.get("by")), text(d.get("message"))
            )
            for d in members(raw.get("drills"))
        ),
        duplicates=integer(raw.get("duplicates")),
        zone_failures=integer(raw.get("zoneFailures")),
        digests=_strings(raw.get("digests")),
    )


def read_rollout(obj: object) -> DriverRollout:
    """The model of a DriverRollout document. A value that cannot be read keeps the safe side: an unknown stage
    counts as ``Off``, a hold holds, a gate is asked for, a writer is nobody; of freshness the default counts.
    :func:`webhook.facts.rollout_document.document_problems` reports it.
    """
    metadata = mapping(mapping(obj).get("metadata"))
    spec = mapping(mapping(obj).get("spec"))
    freshness = mapping(spec.get("freshness"))
    pods = mapping(freshness.get("driverPods"))
    stage = spec.get("stage", "General")
    evidence = _strings(freshness.get("evidence"))
    window = seconds(freshness.get("window"))
    selector = mapping(pods.get("selector"))
    return DriverRollout(
        driver=text(metadata.get("name")),
        stage=stage if stage in STAGES else "Off",
        canary_selector=spec["canaryNodeSelector"] if isinstance(spec.get("canaryNodeSelector"), dict) else None,
        writers=_writers(spec.get("writers")),
        evidence=evidence or ("PoolComplete",),
        window=DEFAULT_WINDOW if window is None else window,
        heartbeat=seconds(freshness.get("heartbeat")) or 0,
        driver_pods_namespace=text(pods.get("namespace")),
        driver_pods_selector={
            str(k): v for k, v in mapping(selector.get("matchLabels", selector)).items() if isinstance(v, str)
        },
        numa_attributes=_strings(spec.get("numaAttributes")) or (STANDARD_NUMA,),
        hold=_hold(spec.get("hold")),
        resume_digests=frozenset(_strings(mapping(spec.get("resumeAt")).get("mappingDigests"))),
        uid=text(metadata.get("uid")),
        generation=integer(metadata.get("generation")),
        resource_version=text(metadata.get("resourceVersion")),
        editors=_editors(spec.get("canaryLabelEditors")),
        canary_keys=selector_keys(mapping(spec.get("canaryNodeSelector"))),
        promotion=_promotion(spec.get("promotion")),
        override=_override(mapping(spec.get("promotion")).get("override")),
        status=_status(mapping(mapping(obj).get("status"))),
    )
