from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.builders import allocated, container, device, new, node, pod, result, slice_of, world
from webhook.ledger.pod_notes import pod_notes

Json = dict[str, Any]

NICS = slice_of(device("nic0", zone=0), device("nic1", zone=1), device("nic"))
ON_0 = allocated("c", result("nic0"), pods=("p1",))
COSTLY = slice_of(device("gpu", new("memory", overhead={"perContainer": "500Mi", "perPod": "1Gi"})))
HELD = allocated("c", result("gpu"), pods=("p1",))
PLAIN = container("main", memory="1Gi")
SETUP = container("setup", claims=("c",))


def notes(*objs: Json) -> list[tuple[str, str]]:
    made = pod_notes("n1", world(node(), *objs, minor=37))
    assert {(each.kind, each.name, each.finding.severity) for each in made} <= {("Node", "n1", "info")}
    return [(each.finding.rule, each.finding.has) for each in made]


def guaranteed(cpu: str = "4", **limits: str) -> Json:
    made = container(cpu=cpu, memory="1Gi", claims=("c",))
    made["resources"]["limits"] = {"cpu": cpu, "memory": "1Gi", **limits}
    return made


def test_cpus_beside_a_device_of_one_zone() -> None:
    note = "CPUs of their own beside devices of one NUMA zone: ns/p1, zone 0"
    assert notes(NICS, ON_0, pod("p1", guaranteed(), claims=("c",))) == [("cpus-apart", note)]


@pytest.mark.parametrize(
    "objs",
    [
        [NICS, ON_0, pod("p1", guaranteed("3500m"), claims=("c",))],
        [NICS, ON_0, pod("p1", guaranteed(memory="2Gi"), claims=("c",))],
        [NICS, ON_0, pod("p1", guaranteed(), PLAIN, claims=("c",))],
        [NICS, ON_0, pod("p1", guaranteed(), claims=("c",), init=(PLAIN,))],
        [NICS, ON_0, pod("p1", guaranteed(), claims=("c",), phase="Failed")],
        [NICS, ON_0, pod("p1", guaranteed())],
        [NICS, allocated("c", result("nic0"), pods=("other",)), pod("p1", guaranteed(), claims=("c",))],
        [NICS, allocated("c", result("nic"), pods=("p1",)), pod("p1", guaranteed(), claims=("c",))],
        [NICS, allocated("c", result("nic0"), result("nic1"), pods=("p1",)), pod("p1", guaranteed(), claims=("c",))],
        [slice_of(device("nic0", zone=0)), ON_0, pod("p1", guaranteed(), claims=("c",))],
    ],
    ids=[
        "parts of a CPU", "not guaranteed", "a container beside it that is not", "nor an init container", "ended",
        "no claim", "another pod's claim", "unknown zone", "devices of both zones", "one zone",
    ],
)  # fmt: skip
def test_what_is_pinned_nowhere_else(objs: list[Json]) -> None:
    assert notes(*objs) == []


def test_a_device_of_no_known_zone_says_nothing_about_the_others() -> None:
    both = allocated("c", result("nic0"), result("nic"), pods=("p1",))
    assert [rule for rule, _ in notes(NICS, both, pod("p1", guaranteed(), claims=("c",)))] == ["cpus-apart"]


def test_overhead_of_a_claim_that_only_init_containers_use() -> None:
    note = "1524Mi memory of overhead for claims that init containers alone use: ns/p1"
    assert notes(COSTLY, HELD, pod("p1", PLAIN, claims=("c",), init=(SETUP,))) == [("init-only-overhead", note)]


@pytest.mark.parametrize(
    "made",
    [
        pod("p1", container(claims=("c",)), claims=("c",), init=(SETUP,)),
        pod("p1", container(claims=("c",)), claims=("c",)),
        pod("p1", PLAIN, claims=("c",)),
        pod("p1", PLAIN, claims=("c",), init=({**SETUP, "restartPolicy": "Always"},)),
        pod("p1", PLAIN, claims=("c",), init=(SETUP,), phase="Succeeded"),
    ],
    ids=["a container too", "a container alone", "nobody", "a sidecar", "ended"],
)
def test_overhead_that_is_there_for_somebody(made: Json) -> None:
    assert notes(COSTLY, HELD, made) == []


def test_many_are_one_note_with_their_sum() -> None:
    claims = [allocated(f"c{n}", result("gpu"), pods=(f"p{n}",)) for n in range(5)]
    pods = [
        pod(f"p{n}", PLAIN, claims=(f"c{n}",), init=(container("setup", claims=(f"c{n}",)),)) for n in range(5)
    ]  # fmt: skip
    ((_, note),) = notes(COSTLY, *claims, *pods)
    assert note.startswith("7620Mi memory of overhead")
    assert note.endswith("alone use: ns/p0; ns/p1; ns/p2 and 2 more")
