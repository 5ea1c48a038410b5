"""Objects with wrong values anywhere: every fact answers, none fails, every message is one line."""

import random
from copy import deepcopy

import pytest

from tests.facts.builders import CLUSTER, NOW, as_claim, as_pod, samples, world
from webhook.facts.constraints import constraint_problems
from webhook.facts.devices import device_problems
from webhook.facts.gate import slice_gate_problems
from webhook.facts.pod_entries import entry_problems
from webhook.facts.pods_lint import pod_problems
from webhook.facts.podstatus import status_problems
from webhook.facts.pools import allocation_pool_problems
from webhook.facts.rollout import allocation_rollout_problems, request_hold_problems, slice_canary_problems
from webhook.facts.rollout_document import document_problems
from webhook.facts.sharing import sharing_problems
from webhook.facts.siblings import sibling_problems
from webhook.kube.resource import read_slice
from webhook.ledger.book import Book

JUNK = [
    None,
    True,
    0,
    -1,
    2**70,
    1.5,
    "",
    "x",
    "-4",
    "9E",
    "1e400000000",
    "kiln-01",
    [],
    [None],
    {},
    {"a": None},
    "\ud800",
]
OBJECTS = samples(*CLUSTER, "09", "16", "19")


def places(value, path=()):
    if path:
        yield path
    if isinstance(value, dict):
        for name, member in value.items():
            yield from places(member, (*path, name))
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from places(member, (*path, index))


def spoiled(obj, chance):
    obj = deepcopy(obj)
    for _ in range(chance.randint(1, 2)):
        path = chance.choice([path for path in places(obj) if path[0] not in ("kind", "apiVersion")])
        target = obj
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = deepcopy(chance.choice(JUNK))
    return obj


def problems(obj, snapshot):
    match obj["kind"]:
        case "ResourceClaim":
            claim, account = as_claim(obj), Book().account(snapshot, "kiln-01")
            yield from allocation_pool_problems(claim, snapshot, NOW)
            yield from allocation_rollout_problems(claim, snapshot, NOW)
            yield from request_hold_problems(claim, snapshot, NOW)
            yield from device_problems(claim, snapshot)
            yield from constraint_problems(claim, snapshot)
            yield from sharing_problems(claim, None, snapshot, NOW)
            yield from sibling_problems(claim, snapshot, account, NOW)
        case "Pod":
            pod = as_pod(obj)
            yield from pod_problems(obj, pod, snapshot)
            yield from status_problems(pod, None, snapshot, snapshot.release)
            yield from entry_problems(obj, snapshot.release)
        case "ResourceSlice":
            yield from slice_canary_problems(read_slice(obj), snapshot)
            yield from slice_gate_problems(obj, read_slice(obj), snapshot)
        case "DriverRollout":
            yield from document_problems(obj)


@pytest.mark.parametrize("minor", [36, 37])
def test_nothing_fails(minor):
    chance = random.Random(minor)
    for _ in range(15):
        objs = list(OBJECTS)
        changed = chance.sample(range(len(objs)), 5)
        for index in changed:
            objs[index] = spoiled(objs[index], chance)
        snapshot = world(*objs, minor=minor)
        for index in (*changed, *chance.sample(range(len(objs)), 5)):
            for problem in problems(objs[index], snapshot):
                assert problem.text("policy").isprintable() or "\ud800" in problem.text("policy")
