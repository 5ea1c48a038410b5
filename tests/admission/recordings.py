"""A guard that records: it sees events one after the other, decides on its view, and writes what it decided down."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from tests.ledger.builders import DRIVER, allocated, container, device, node, old, pod, result, slice_of
from webhook.admission.action import apply
from webhook.admission.decide import decide
from webhook.admission.record import Record, Reserved
from webhook.admission.recorded_line import line, take
from webhook.kube.admission import raw_request, read_request
from webhook.kube.release import Release
from webhook.kube.rollout import API_VERSION
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book
from webhook.ledger.events import Event, event_of
from webhook.ledger.recorded import encoded, recorded
from webhook.policy.revision import Revision
from webhook.store import policies

Json = dict[str, Any]
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
KEY = b"k" * 32
REVISION = policies.read([policies.shipped()])
WORLD = (
    node("n1", cpu="16"),
    slice_of(device("grp", old(key="cpus"), capacity={"cpus": "64"}, zone=0)),
)


def waiting(name: str) -> Json:
    made: Json = allocated(name)
    del made["status"]
    return made


def taken(name: str, cpus: str, *pods: str) -> Json:
    made: Json = allocated(name, result("grp", consumed={"cpus": cpus}), pods=pods)
    return made


def coming(name: str, claim: str) -> Json:
    made: Json = pod(name, container(cpu="2", claims=(claim,)), claims=(claim,), node_name="", phase="Pending")
    return made


def off() -> list[Json]:
    """The driver is off, and there is its class: pods with claims for its devices wait."""
    selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    metadata = {"name": DRIVER}
    return [
        {"apiVersion": API_VERSION, "kind": "DriverRollout", "metadata": metadata, "spec": {"stage": "Off"}},
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": metadata,
            "spec": {"selectors": [selector]},
        },
    ]


class RecordingGuard:
    """``lines`` are those of its recording, ``events`` those of its journal. Every event comes a second later."""

    def __init__(self, revision: Revision = REVISION) -> None:
        self.revision = revision
        self.events: list[Event] = []
        self.lines: list[Json] = []
        self.snapshot = Snapshot(Release(36))
        self.now = NOW
        self.version = 0
        for obj in WORLD:
            self.sees(obj)

    def sees(self, obj: Json, gone: bool = False, late: float = 0.0, unseen: bool = False) -> Json:
        """The view, unless ``unseen``, and the journal take in ``obj``, the journal so many seconds later."""
        self.version += 1
        self.now += timedelta(seconds=1)
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        if not unseen:
            self.snapshot = self.snapshot.remove(obj) if gone else self.snapshot.put(obj)
        kept = recorded(obj)
        assert kept is not None
        self.events.append(event_of(kept, self.now + timedelta(seconds=late), gone))
        return obj

    def decides(
        self,
        obj: Json,
        before: Json | None = None,
        endpoint: str = "validate",
        reserved: Reserved | None = None,
        may_hold: bool = True,
        **options: Any,
    ) -> Record:
        """It is asked about a write, to the status where there was something ``before``."""
        if before is not None:
            options = {"user": "system:kube-scheduler", "sub_resource": "status", **options}
        raw = raw_request("UPDATE" if before is not None else "CREATE", obj, before, **options)
        verdict = decide(read_request(raw), endpoint, self.revision, self.snapshot, Book(), self.now, may_hold=may_hold)
        record = Record(verdict, apply(verdict), self.now, 0.001, reserved)
        held = take(record)
        verdict.evaluation.facts.release()
        # As it is read again, from the bytes of a file.
        self.lines.append(orjson.loads(encoded(line(held, KEY))))
        return record

    def allocates(self, name: str, cpus: str, *pods: str, **options: Any) -> Record:
        """A claim that waits, its pods, and the write that gives it devices."""
        for each in pods:
            self.sees(coming(each, name))
        before = self.sees(waiting(name))
        return self.decides(taken(name, cpus, *pods), before, **options)
