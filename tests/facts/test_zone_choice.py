"""For which pods somebody has to choose the zone: those whose devices can ask more of one than it has."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.facts.builders import as_pod
from tests.ledger.builders import allocated, container, device, new, node, old, pod, result, slice_of, world
from webhook.facts.zone_choice import MOST_NODES, must_choose, tight_zones
from webhook.kube.snapshot import Snapshot

Json = dict[str, Any]

CPUS, GPUS = "cpu.example", "gpu.example"


def of_class(driver: str, expression: str = "") -> Json:
    selector = {"cel": {"expression": expression or f'device.driver == "{driver}"'}}
    spec = {"selectors": [selector]}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": driver}, "spec": spec}


def claim(name: str, driver: str) -> Json:
    made = allocated(name)
    made["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = driver
    made["status"] = {}
    return made


def cpus(per_zone: str = "8", where: str = "n1") -> Json:
    """A driver that describes a node of two zones."""
    devices = [device(f"g{zone}", old("1", "cpus"), capacity={"cpus": per_zone}, zone=zone) for zone in (0, 1)]
    return slice_of(*devices, name=f"cpus-{where}", driver=CPUS, pool=where, nodeName=where)


def gpus(cost: Json, where: str = "n1", zone: int | None = 0, **more: Any) -> Json:
    return slice_of(
        device("gpu0", cost, zone=zone, **more), name=f"gpus-{where}", driver=GPUS, pool=where, nodeName=where
    )


def cluster(*objs: Json) -> Snapshot:
    return world(node(cpu="16"), of_class(CPUS), of_class(GPUS), claim("c", CPUS), claim("g", GPUS), *objs)


def chosen(snapshot: Snapshot, *claims: str) -> str:
    """What is said of a new pod with ``claims``; empty when nothing has to be chosen for it."""
    reason = must_choose(as_pod(pod("p", container(claims=claims), claims=claims, node_name="")), snapshot)
    return "" if reason is None else reason.text


def test_the_one_driver_that_describes_the_node_bounds_its_zones_itself() -> None:
    snapshot = cluster(cpus())
    assert (chosen(snapshot, "c"), tight_zones("n1", snapshot)) == ("", ())


def test_a_second_driver_in_the_zone_can_ask_for_more_than_it_has() -> None:
    snapshot = cluster(cpus(), gpus(old("4")))
    said = (
        "zone-to-choose: has devices of cpu.example and gpu.example in zone 0 of node n1, which has 8 cpu and can be "
        "asked for 12, needs a node where they fit their zones whichever of them the scheduler takes, since it knows "
        "no zones; wait: the guard chooses the node, once one has room"
    )
    assert chosen(snapshot, "g") == said
    # Of the two drivers neither knows what the other has given.
    assert chosen(snapshot, "c") == said
    assert chosen(snapshot) == ""


def test_in_the_words_of_1_37_too() -> None:
    cost = new(mapping={"deviceMultiplier": "4"})
    assert "can be asked for 12" in chosen(cluster(cpus(), gpus(cost)), "g")


@pytest.mark.parametrize(
    ("gpu", "why"),
    [
        (gpus(old("4", resource="example.org/x")), "nobody counts it by zone"),
        (gpus(old("4"), zone=None), "of no known zone"),
        (gpus(old("4"), zone=2), "of a zone that nobody describes"),
        (gpus({}), "costs nothing"),
        (gpus(old("0")), "costs nothing"),
    ],
)
def test_devices_that_make_no_zone_short(gpu: Json, why: str) -> None:
    assert chosen(cluster(cpus(), gpu), "g") == "", why


def test_where_nobody_tells_what_zones_hold_nothing_is_chosen() -> None:
    assert chosen(cluster(cpus("7"), gpus(old("4"))), "g") == ""


def test_a_topology_that_has_less_than_the_devices() -> None:
    topology = {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "n1"},
        "zones": [{"name": "node-1", "type": "Node", "resources": [{"name": "cpu", "allocatable": "7"}]}],
    }
    assert "zone 1 of node n1, which has 7 cpu and can be asked for 8" in chosen(cluster(cpus(), topology), "c")


def test_a_shared_device_without_a_bound_can_ask_for_any_amount() -> None:
    shared = gpus(old("1"), allowMultipleAllocations=True)
    assert "has 8 cpu and can be asked for any amount" in chosen(cluster(cpus(), shared), "g")


def test_claims_that_have_their_devices_need_no_choice() -> None:
    given = claim("g", GPUS)
    given["status"] = allocated("g", {**result("gpu0"), "driver": GPUS})["status"]
    snapshot = cluster(cpus(), gpus(old("4"))).put(given)
    assert (chosen(snapshot, "g"), chosen(snapshot, "g", "c") != "") == ("", True)


def test_a_claim_that_is_to_be_made_from_a_template_counts() -> None:
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "t", "namespace": "ns"},
        "spec": {"spec": claim("g", GPUS)["spec"]},
    }
    wanted = pod("p", container(claims=("x",)), node_name="")
    wanted["spec"]["resourceClaims"] = [{"name": "x", "resourceClaimTemplateName": "t"}]
    assert must_choose(as_pod(wanted), cluster(cpus(), gpus(old("4")), template)) is not None
    assert must_choose(as_pod(wanted), cluster(cpus(), gpus(old("4")))) is None


def test_a_class_that_names_no_driver_may_give_devices_of_any() -> None:
    loose = of_class(GPUS, "device.attributes['x'].y == 1")
    assert chosen(cluster(cpus(), gpus(old("4")), loose), "g") != ""
    assert chosen(cluster(cpus(), loose), "g") == ""


def test_one_of_several_nodes_is_enough() -> None:
    snapshot = cluster(cpus(), gpus(old("4"), zone=None), node("n2", uid="u2", cpu="16"), cpus(where="n2"))
    assert chosen(snapshot, "c") == ""
    assert "zone 0 of node n2" in chosen(snapshot.put(gpus(old("4"), "n2")), "c")


def test_a_change_of_a_slice_is_seen() -> None:
    """Answers are remembered by what they were made from."""
    snapshot = cluster(cpus(), gpus(old("4")))
    assert "asked for 12" in chosen(snapshot, "g")
    assert "asked for 13" in chosen(snapshot.put(gpus(old("5"))), "g")
    assert chosen(snapshot.remove(gpus(old("4"))), "c") == ""
    assert "asked for 12" in chosen(snapshot, "g")


def test_a_review_looks_at_few_nodes() -> None:
    nodes = [node(f"n{n}", uid=f"u{n}", cpu="16") for n in range(MOST_NODES * 3)]
    slices = [cpus(where=f"n{n}") for n in range(MOST_NODES * 3)]
    looked: list[str] = []

    class Slices(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            looked.append(name)
            return super().__getitem__(name)

    snapshot = cluster(*nodes, *slices)
    counted = replace(snapshot, slices=Slices(snapshot.slices))
    assert chosen(counted, "c") == ""
    assert len(looked) == MOST_NODES
