from __future__ import annotations

from typing import Any

import pytest

from tests.facts.builders import as_claim, claim, gpu, node, result, slice_of, world
from webhook.facts.fit import fit_problems
from webhook.facts.footprint import footprint
from webhook.facts.zone_checks import zone_checks
from webhook.ledger.book import Book

Json = dict[str, Any]


def core(name: str, zone: int | None, **cost: str) -> Json:
    attributes = {} if zone is None else {"resource.kubernetes.io/numaNode": {"int": zone}}
    mapping = {resource: {"allocationMultiplier": amount} for resource, amount in (cost or {"cpu": "4"}).items()}
    return gpu(name, mapping, attributes=attributes)


# Two zones of 4 cpu each, which together are the node's.
NODE = [core("a", 0), core("b", 1)]


def outcomes(devices: list[Json], *names: str, broken: bool = False, others: tuple[Json, ...] = ()) -> dict[str, str]:
    write = claim(results=[result(name, cpus=None) for name in names])
    snapshot = world(node(), slice_of(*devices), *others)
    made = as_claim(write)
    cost = footprint(made, snapshot)
    fit = fit_problems(made, None, Book().account(snapshot, "n1"), snapshot, cost)
    return dict(zone_checks(cost, fit.rows, broken))


@pytest.mark.parametrize(
    ("devices", "names", "outcome"),
    [
        (NODE, ("a",), "fit"),
        (NODE, ("a", "b"), "fit"),
        ([*NODE, core("c", None, cpu="1")], ("c",), "unknown"),
        ([*NODE, core("c", None, cpu="1")], ("a", "c"), "unknown"),
        ([*NODE, core("c", 0, memory="1Gi")], ("c",), "unknown"),
        # A device that shares a zone with another costs more than is left there.
        ([core("a", 0), core("b", 1), core("c", 0, cpu="1", memory="1Gi")], ("a", "c"), "unknown"),
    ],
)
def test_fit_and_unknown(devices: list[Json], names: tuple[str, ...], outcome: str) -> None:
    assert outcomes(devices, *names) == {"d.example": outcome}


def topology(**zones: str) -> Json:
    rows = [
        {"name": f"node-{zone[1:]}", "type": "Node", "resources": [{"name": "cpu", "capacity": cpus}]}
        for zone, cpus in zones.items()
    ]
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "n1"},
        "zones": rows,
    }


def test_a_zone_without_room_is_unfit_whatever_else_is_unknown() -> None:
    held = claim("c2", results=[result("a", cpus=None)], reserved=[])
    devices = [*NODE, core("second", 0), core("somewhere", None)]
    full, roomy = (held, topology(z0="7", z1="4")), (held, topology(z0="8", z1="4"))
    assert outcomes(devices, "second", others=full) == {"d.example": "unfit"}
    assert outcomes(devices, "second", others=roomy) == {"d.example": "fit"}
    for names in (("second", "somewhere"), ("somewhere", "second")):
        assert outcomes(devices, *names, others=full) == {"d.example": "unfit"}
        assert outcomes(devices, *names, others=roomy) == {"d.example": "unknown"}


def test_a_broken_constraint_is_unfit() -> None:
    assert outcomes(NODE, "a", broken=True) == {"d.example": "unfit"}


def test_nothing_is_said_of_what_costs_nothing() -> None:
    assert outcomes([*NODE, gpu("free")], "free", broken=True) == {}
