"""Metrics about allocations, from reviews that a server answers."""

from __future__ import annotations

import io
import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.facts.builders import claim, device_class, gpu, node, pod, pod_ref, result, slice_of
from tests.facts.test_verification import charge, digest, ledger
from webhook.cluster.files import Cluster
from webhook.kube.release import Release
from webhook.kube.snapshot import build
from webhook.kube.trace import trace_id
from webhook.server import allocations
from webhook.server.service import Reply, Service
from webhook.store.policies import PolicyStore, shipped
from webhook.telemetry.log import Log

Json = dict[str, Any]

NOW = datetime(2026, 11, 20, 9, 0, tzinfo=UTC)
POLICIES = PolicyStore([shipped()])


def core(name: str, zone: int | None = 0, cpus: str = "4") -> Json:
    attributes = {} if zone is None else {"resource.kubernetes.io/numaNode": {"int": zone}}
    return gpu(name, {"cpu": {"allocationMultiplier": cpus}}, attributes=attributes)


CORES = slice_of(core("a"), core("b", 1), core("somewhere", None, "1"))


def service(folder: Path, *objs: Json) -> Service:
    file = folder / "cluster.json"
    items = [node(), device_class(), pod(), claim(), *objs]
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return Service(POLICIES, Cluster([str(file)]), Log(io.StringIO()), lambda: NOW)


def allocation(*devices: str, name: str = "c1", **fields: Any) -> Json:
    results = [result(device, cpus=None) for device in devices]
    return claim(name, results=results, reserved=[pod_ref()], **fields)


def allowed(judge: Service, obj: Json, old: Json | None = None, dry_run: bool = False) -> bool:
    request = {
        "uid": "r1",
        "kind": {"group": "resource.k8s.io", "version": "v1", "kind": "ResourceClaim"},
        "resource": {"group": "resource.k8s.io", "version": "v1", "resource": "resourceclaims"},
        "subResource": "status",
        "name": obj["metadata"]["name"],
        "namespace": "ns",
        "operation": "UPDATE",
        "userInfo": {"username": "system:kube-scheduler"},
        "object": obj,
        "oldObject": claim(obj["metadata"]["name"]) if old is None else old,
        "dryRun": dry_run,
        "options": {"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    reply = judge.answer("validate", json.dumps(body).encode(), math.inf)
    assert isinstance(reply, Reply)
    reply.tell(0.0)
    return reply.allowed


def value(judge: Service, name: str) -> str:
    rows = b"".join(judge.metrics.pieces()).decode().splitlines()
    return next((row.rpartition(" ")[2] for row in rows if row.startswith(f"allocguard_{name}")), "")


@pytest.mark.parametrize(("device", "outcome"), [("a", "fit"), ("somewhere", "unknown")])
def test_how_an_allocation_lies_in_its_zones(tmp_path: Path, device: str, outcome: str) -> None:
    judge = service(tmp_path, CORES)
    assert allowed(judge, allocation(device))
    assert value(judge, f'numa_placement_checks_total{{driver="d.example",outcome="{outcome}"}}') == "1.0"


def test_devices_that_had_to_be_of_one_zone_and_are_not(tmp_path: Path) -> None:
    judge = service(tmp_path, CORES)
    match = [{"matchAttribute": "resource.kubernetes.io/numaNode"}]
    assert not allowed(judge, allocation("a", "b", constraints=match))
    assert value(judge, 'numa_placement_checks_total{driver="d.example",outcome="unfit"}') == "1.0"
    assert judge.allocations.refusals() == {"d.example": (0, 1)}


def test_a_claim_waits_for_what_refused_it_until_it_is_allocated(tmp_path: Path) -> None:
    judge = service(tmp_path, slice_of(core("a", cpus="9")))
    assert not allowed(judge, allocation("a"))
    assert value(judge, 'claims_pending{driver="d.example",reason="node-overcommit"}') == "1.0"
    small = service(tmp_path, CORES)
    assert value(small, 'claims_pending{driver="d.example",reason="unscheduled"}') == "1.0"
    assert allowed(small, allocation("a"))
    assert value(small, 'claims_pending{driver="d.example",reason="unscheduled"}') == "1.0"


def test_what_refused_a_claim_is_forgotten_once_it_is_allocated_through_another_replica(tmp_path: Path) -> None:
    judge = service(tmp_path, slice_of(core("a", cpus="9")), claim("c2"))
    assert not allowed(judge, allocation("a"))
    assert not allowed(judge, allocation("a", name="c2"))
    empty, waiting, bound = (build(objs, Release(36)) for objs in ([], [claim()], [allocation("a")]))
    changes = [("Pod", waiting, bound), ("ResourceClaim", empty, waiting), ("ResourceClaim", waiting, empty)]
    for kind, before, after in changes:
        judge.allocations.hear(kind, ("ns", "c1"), before, after)
    assert set(judge.allocations.refused) == {"uid-c1", "uid-c2"}
    judge.allocations.hear("ResourceClaim", ("ns", "c1"), waiting, bound)
    assert set(judge.allocations.refused) == {"uid-c2"}
    assert value(judge, 'claims_pending{driver="d.example",reason="unscheduled"}') == "1.0"


def test_what_clears_an_allocation_is_no_placement(tmp_path: Path) -> None:
    judge = service(tmp_path, CORES)
    assert allowed(judge, claim(), old=allocation("a"))
    assert value(judge, "numa_placement_checks_total{") == ""


def test_a_charge_that_would_be_made_twice(tmp_path: Path) -> None:
    other = charge("a", amount="3", of=digest(core("a"))) | {"shareID": ""}
    judge = service(tmp_path, CORES, ledger(other))
    assert not allowed(judge, allocation("a"))
    assert value(judge, 'duplicate_charges_refused_total{driver="d.example"}') == "1.0"
    assert judge.allocations.refusals() == {"d.example": (1, 0)}


def test_a_dry_run_is_judged_and_not_counted(tmp_path: Path) -> None:
    match = [{"matchAttribute": "resource.kubernetes.io/numaNode"}]
    broken = allocation("a", "b", constraints=match)
    for objs in ([], [ledger(charge("a", amount="3", of=digest(core("a"))) | {"shareID": ""})]):
        judge = service(tmp_path, CORES, *objs)
        assert not allowed(judge, broken, dry_run=True)
        assert judge.allocations.refusals() == {}
        assert judge.allocations.refused == {}
        assert value(judge, "numa_placement_checks_total{") == ""
        assert value(judge, "duplicate_charges_refused_total{") == ""
        assert value(judge, 'claims_pending{driver="d.example",reason="unscheduled"}') == "1.0"


def test_a_dry_run_ends_no_wait(tmp_path: Path) -> None:
    judge = service(tmp_path, slice_of(core("a"), core("big", cpus="9")))
    assert not allowed(judge, allocation("big"))
    assert allowed(judge, allocation("a"), dry_run=True)
    assert set(judge.allocations.refused) == {"uid-c1"}


def test_only_so_many_refusals_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocations, "_MOST_REFUSED", 2)
    judge = service(tmp_path, slice_of(core("a", cpus="9")), claim("c2"), claim("c3"))
    for name in ("c1", "c2", "c3"):
        assert not allowed(judge, allocation("a", name=name))
    assert set(judge.allocations.refused) == {"uid-c2", "uid-c3"}


def test_what_is_counted_of_an_allocation_shows_the_trace_of_its_claim(tmp_path: Path) -> None:
    judge = service(tmp_path, CORES)
    match = [{"matchAttribute": "resource.kubernetes.io/numaNode"}]
    assert not allowed(judge, allocation("a", "b", constraints=match))
    text = b"".join(judge.metrics.pieces(exemplars=True)).decode()
    shown = {line.partition("{")[0] for line in text.splitlines() if f'# {{trace_id="{trace_id("uid-c1")}"}}' in line}
    assert shown == {"allocguard_numa_placement_checks_total", "allocguard_findings_total"}
