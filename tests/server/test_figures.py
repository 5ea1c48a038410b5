from __future__ import annotations

import random
from collections import Counter
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from immutables import Map
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from tests.bench import fleet
from webhook.facts.times import stamp
from webhook.kube.node_ledger import NodeLedger
from webhook.kube.release import Release
from webhook.kube.snapshot import Snapshot, build
from webhook.ledger.booking import advance
from webhook.server import figures as subject
from webhook.server.figures import Figures

Json = dict[str, Any]
NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)
CPU = f"cpu.{fleet.DOMAIN}"


def shown(figures: Figures, now: datetime = NOW) -> tuple[dict[str, list[tuple[dict[str, str], float]]], Counter[str]]:
    """The samples by family, as a scraper reads them, and what was left out."""
    left_out: Counter[str] = Counter()
    text = b"".join(figures.lines(now, lambda name, count: left_out.update({name: count}))).decode()
    families = list(text_string_to_metric_families(text))
    assert all(family.type == "gauge" and family.documentation for family in families)
    found = {
        family.name.removeprefix("allocguard_"): [(sample.labels, sample.value) for sample in family.samples]
        for family in families
    }
    return found, left_out


def figures_of(*objs: Json) -> Figures:
    figures = Figures()
    figures.refresh(build(objs, Release(36)), NOW)
    return figures


def test_nothing_at_all_has_its_families() -> None:
    found, left_out = shown(figures_of())
    assert found == {"ledger_capacity": [], "ledger_used": [], "pool_phase": [], "mapping_age_seconds": []}
    assert not left_out


HOSTILE = ['a"b', "a\nb", "a\\", '"} 1\nallocguard_faked 7\n#', "\u2028\u202e\x1b[2J\r", "\N{SNOWMAN}" * 60]


def named(name: str) -> list[Json]:
    """A node, a pool and a resource of this name."""
    node, item = fleet.node(1), fleet.slices(1)[0]
    for place in (node["metadata"], item["metadata"], item["spec"]["pool"]):
        place["name"] = name
    item["spec"]["nodeName"] = name
    for device in item["spec"]["devices"]:
        device["nodeAllocatableResourceMappings"] = {name: {"allocationMultiplier": "1"}}
    return [node, item]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_of_others_stay_names(name: str) -> None:
    found, left_out = shown(figures_of(*named(name)))
    assert {labels["node"] for labels, _ in found["ledger_capacity"]} == {name}
    assert [labels for labels, _ in found["pool_phase"]] == [{"driver": CPU, "pool": name, "phase": "Fresh"}]
    assert set(found) == {"ledger_capacity", "ledger_used", "pool_phase", "mapping_age_seconds"}
    assert not left_out


@pytest.mark.parametrize("name", ["x" * 300, "\ud800"])
def test_names_that_cannot_be_shown_are_counted(name: str) -> None:
    node, item = fleet.node(1), fleet.slices(1)[0]
    item["spec"]["pool"]["name"] = name
    found, left_out = shown(figures_of(node, item, *fleet.slices(1)[1:]))
    assert [labels["driver"] for labels, _ in found["pool_phase"]] == [
        f"{each}.{fleet.DOMAIN}" for each in ("gpu", "mem")
    ]
    assert left_out == {"pool_phase": 1, "mapping_age_seconds": 1}


def test_pools_of_one_driver_leave_room_for_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "MAX_POOLS", 100)
    pools: list[Json] = []
    for number in range(10_000):
        item = deepcopy(fleet.slices(1)[0])
        item["metadata"]["name"] = item["spec"]["pool"]["name"] = item["spec"]["nodeName"] = f"made-up-{number}"
        item["spec"]["driver"] = "aaa.example"
        pools.append(item)
    found, left_out = shown(figures_of(fleet.node(1), *pools, *fleet.slices(1)))
    drivers = Counter(labels["driver"] for labels, _ in found["pool_phase"])
    assert drivers == {"aaa.example": 100, CPU: 1, f"mem.{fleet.DOMAIN}": 1, f"gpu.{fleet.DOMAIN}": 1}
    assert left_out == {"pool_phase": 9_900, "mapping_age_seconds": 9_900}


def test_zones_of_one_node_leave_room_for_other_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "MAX_OF_NODE", 20)
    wide = fleet.slices(0)[0]
    wide["spec"]["devices"] = [
        {**deepcopy(wide["spec"]["devices"][0]), "name": f"z{zone}", "attributes": fleet._numa(zone)}
        for zone in range(100)
    ]
    found, left_out = shown(figures_of(fleet.node(0), wide, fleet.node(1), *fleet.slices(1)))
    nodes = Counter(labels["node"] for labels, _ in found["ledger_capacity"])
    assert nodes == {fleet.name(0): 20, fleet.name(1): 6}
    # The node's own resources come first.
    own = [labels for labels, _ in found["ledger_capacity"] if labels["node"] == fleet.name(0) and not labels["zone"]]
    assert {labels["resource"] for labels in own} == {"cpu", "memory", "hugepages-1Gi", "ephemeral-storage"}
    assert left_out["ledger_capacity"] == 4 + 100 - 20


def test_a_family_ends_somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "MAX_SERIES", 20)
    found, left_out = shown(figures_of(*fleet.cluster(10)))
    lengths = {name: len(samples) for name, samples in found.items()}
    # Those of a node are there or not.
    assert lengths == {"ledger_capacity": 18, "ledger_used": 20, "pool_phase": 20, "mapping_age_seconds": 20}
    assert left_out["ledger_capacity"] == 10 * 6 - 18
    assert left_out["pool_phase"] == left_out["mapping_age_seconds"] == 10


def _change(choose: random.Random, snapshot: Snapshot, now: datetime) -> Snapshot:
    """Something that a cluster does, on one of two nodes."""
    number = choose.randrange(2)
    name, node, item = fleet.name(number), fleet.node(number), choose.choice(fleet.slices(number)[::2])
    spec, uids = item["spec"], [node["metadata"]["uid"], "another"]
    match choose.randrange(10):
        case 0:
            node["status"]["conditions"][0]["status"] = choose.choice(["True", "False"])
            return snapshot.put(node)
        case 1:
            node["metadata"]["uid"] = choose.choice(uids)
            return snapshot.put(node)
        case 2:
            spec["pool"] |= {"generation": choose.randrange(1, 3), "resourceSliceCount": choose.randrange(1, 3)}
            return snapshot.put(item)
        case 3:
            # As it was, with other costs, without any, without its first device, or written just now.
            kind = choose.randrange(5)
            for device in spec["devices"]:
                for mapping in device["nodeAllocatableResourceMappings"].values() if kind == 0 else ():
                    mapping["allocationMultiplier"] = "2"
                if kind == 1:
                    del device["nodeAllocatableResourceMappings"]
            del spec["devices"][: kind == 2]
            if kind == 3:
                written = {"fieldsV1": {"f:spec": {}}, "operation": "Update", "time": stamp(now)}
                item["metadata"]["managedFields"] = [written]
            return snapshot.put(item)
        case 4:
            claim = fleet.claim(number, number if choose.random() < 0.8 else None)
            return snapshot.put(claim) if choose.random() < 0.9 else snapshot.remove(claim)
        case 5:
            pod = fleet.pod(number, f"claim-{number}")
            pod["spec"]["nodeName"] = name if choose.random() < 0.8 else ""
            if choose.random() < 0.7:
                amounts = {
                    "resourceClaimName": f"claim-{number}",
                    "containers": ["worker-0"],
                    "resources": {"cpu": "2"},
                }
                pod["status"]["nodeAllocatableResourceClaimStatuses"] = [amounts]
            return snapshot.put(pod) if choose.random() < 0.9 else snapshot.remove(pod)
        case 6 | 7 if name in snapshot.nodes:
            ledger = advance(snapshot.ledgers.get(name), snapshot, name)
            return snapshot.with_ledger(ledger if choose.random() < 0.8 else NodeLedger(name))
        case 8:
            rollout = fleet.rollout()
            wanted = choose.choice([[], ["NodeReady"], ["OwnerCurrent", "NodeReady"]])
            rollout["spec"]["freshness"]["evidence"] = wanted
            if choose.random() < 0.5:
                rollout["spec"]["freshness"]["heartbeat"] = "90s"
            return snapshot.put(rollout) if choose.random() < 0.8 else snapshot.remove(rollout)
        case _:
            return snapshot.remove(item) if choose.random() < 0.2 else snapshot.put(item)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_shown_does_not_depend_on_what_was_shown_before(seed: int) -> None:
    choose = random.Random(seed)
    snapshot, now, kept = build(fleet.cluster(2), Release(36)), NOW, Figures()
    phases: set[str] = set()
    for _ in range(100):
        snapshot = _change(choose, snapshot, now)
        now += timedelta(seconds=choose.choice([0, 1, 60]))
        kept.refresh(snapshot, now)
        again = Figures()
        again.refresh(snapshot, now)
        assert shown(kept, now) == shown(again, now)
        assert kept.differences == again.differences
        phases |= {labels["phase"] for labels, _ in shown(kept, now)[0]["pool_phase"]}
    assert {"Fresh", "Rebuilding"} <= phases


def test_a_view_that_is_behind_says_so_of_every_pool_until_it_is_not() -> None:
    figures, snapshot = Figures(), build(fleet.cluster(2), Release(36))
    for seen, phases in ((NOW, {"Fresh"}), (NOW - timedelta(hours=1), {"Unknown"}), (NOW, {"Fresh"})):
        figures.refresh(replace(snapshot, seen=Map({"Pod": seen})), NOW)
        assert {labels["phase"] for labels, _ in shown(figures)[0]["pool_phase"]} == phases


def test_a_node_or_pool_at_which_we_fail_is_told_and_the_others_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    page, state = subject.Book.page, subject.pool_state

    def book_page(book: Any, snapshot: Snapshot, node: str) -> Any:
        if node == fleet.node(2)["metadata"]["name"]:
            raise KeyError("odd")
        return page(book, snapshot, node)

    def pool_state(snapshot: Snapshot, driver: str, pool: str, *rest: Any) -> Any:
        if driver == CPU:
            raise RecursionError("too deep")
        return state(snapshot, driver, pool, *rest)

    monkeypatch.setattr(subject.Book, "page", book_page)
    monkeypatch.setattr(subject, "pool_state", pool_state)
    objs = [obj for number in (1, 2) for obj in (fleet.node(number), *fleet.slices(number))]
    figures = figures_of(*objs)
    found, left_out = shown(figures)
    assert {labels["node"] for labels, _ in found["ledger_capacity"]} == {fleet.node(1)["metadata"]["name"]}
    assert {labels["driver"] for labels, _ in found["pool_phase"]} == {f"{n}.{fleet.DOMAIN}" for n in ("gpu", "mem")}
    assert left_out == {"ledger_capacity": 1, "ledger_used": 1, "pool_phase": 2, "mapping_age_seconds": 2}
    assert figures.problem == f"node {fleet.node(2)['metadata']['name']}: KeyError: 'odd'"
    monkeypatch.undo()
    figures.refresh(build(objs, Release(36)), NOW)
    assert figures.problem == ""
    assert not shown(figures)[1]
