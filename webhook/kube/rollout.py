"""DriverRollout (``allocguard.dev/v1alpha1``): what the operator tells the guard about one driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from webhook.kube.raw import Json, mapping, objects, sequence, text

GROUP = "allocguard.dev"
API_VERSION = f"{GROUP}/v1alpha1"
STAGES = ("Off", "Canary", "Expanding", "General")
EVIDENCE = ("PoolComplete", "OwnerCurrent", "NodeReady", "DriverPodReady")
PROFILES = ("NodeLocal", "MultiNode")
STANDARD_NUMA = "resource.kubernetes.io/numaNode"
DEFAULT_WINDOW = 90


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
    """A ServiceAccount that may write for the driver."""

    namespace: str
    service_account: str
    profile: str


@dataclass(frozen=True, slots=True)
class DriverRollout:
    """How far a driver's mappings are rolled out. ``window`` and ``heartbeat`` are seconds (heartbeat 0: none)."""

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


def _strings(raw: object) -> tuple[str, ...]:
    return tuple(item for item in sequence(raw) if isinstance(item, str))


def read_rollout(obj: object) -> DriverRollout:
    """The model of a DriverRollout document. A value that cannot be read keeps the safe side: an unknown stage
    counts as ``Off``; :func:`webhook.facts.rollout.document_problems` reports it.
    """
    spec = mapping(mapping(obj).get("spec"))
    freshness = mapping(spec.get("freshness"))
    pods = mapping(freshness.get("driverPods"))
    stage = spec.get("stage", "General")
    raw_hold = spec.get("hold")
    hold = mapping(raw_hold)
    evidence = _strings(freshness.get("evidence"))
    window = seconds(freshness.get("window"))
    selector = mapping(pods.get("selector"))
    return DriverRollout(
        driver=text(mapping(mapping(obj).get("metadata")).get("name")),
        stage=stage if stage in STAGES else "Off",
        canary_selector=spec["canaryNodeSelector"] if isinstance(spec.get("canaryNodeSelector"), dict) else None,
        writers=tuple(
            Writer(text(w.get("namespace")), text(w.get("serviceAccount")), text(w.get("profile")) or "NodeLocal")
            for _, w in objects(spec.get("writers"))
        ),
        evidence=evidence or ("PoolComplete",),
        window=DEFAULT_WINDOW if window is None else window,
        heartbeat=seconds(freshness.get("heartbeat")) or 0,
        driver_pods_namespace=text(pods.get("namespace")),
        driver_pods_selector={
            str(k): v for k, v in mapping(selector.get("matchLabels", selector)).items() if isinstance(v, str)
        },
        numa_attributes=_strings(spec.get("numaAttributes")) or (STANDARD_NUMA,),
        hold=Hold(
            reason=text(hold.get("reason")),
            by=text(hold.get("by")),
            since=text(hold.get("since")),
            until=text(hold.get("until")),
            bad_mappings=frozenset(_strings(hold.get("badMappings"))),
        )
        if isinstance(raw_hold, dict)
        else None,
        resume_digests=frozenset(_strings(mapping(spec.get("resumeAt")).get("mappingDigests"))),
    )
