"""What others hold: exclusive devices, shares, capacities, counters."""

from itertools import permutations

import pytest

from tests.facts.builders import as_claim, claim, gpu, grp, node, pod_ref, result, rules, samples, slice_of, world
from webhook.facts.devices import device_problems

SET = "set"


def judge(write, *objs):
    return device_problems(as_claim(write), world(node(), *objs))


def test_an_exclusive_device_is_held_by_one_claim():
    held = claim(results=[result("a", None)])
    (problem,) = judge(claim("c2", results=[result("a", None)]), slice_of(gpu("a")), held)
    assert problem.rule == "exclusive-device-taken"
    assert "ns/c1" in problem.has


def test_d13_a_claim_that_is_being_deleted_keeps_its_device():
    meta = {"deletionTimestamp": "2026-11-20T09:00:00Z"}
    for reserved in ([pod_ref()], []):
        held = claim(results=[result("a", None)], reserved=reserved, metadata=meta)
        (problem,) = judge(claim("c2", results=[result("a", None)]), slice_of(gpu("a")), held)
        assert problem.rule == "exclusive-device-taken"
        assert "until" in problem.has
    assert judge(claim("c2", results=[result("a", None)]), slice_of(gpu("a")), claim(metadata=meta)) == []


def test_d5_a_full_device_says_nothing_of_the_next():
    held = claim(results=[result("dev1", "8")])
    write = claim("c2", results=[result("dev2", "2")])
    assert judge(write, slice_of(grp("dev1"), grp("dev2")), held) == []


def test_the_same_claim_in_the_snapshot_is_not_another_one():
    write = claim(results=[result("a", None)])
    assert judge(write, slice_of(gpu("a")), write) == []
    shared = claim(results=[result(cpus="8")])
    assert judge(shared, slice_of(grp()), shared) == []


def test_an_exclusive_device_twice_in_a_claim():
    write = claim(results=[result("a", None), result("a", None)])
    assert "exclusive-device-taken" in rules(judge(write, slice_of(gpu("a"))))


ADMIN = [{"name": "r", "exactly": {"adminAccess": True, "allocationMode": "All"}}]


def test_f13_admin_access_takes_nothing_and_may_take_what_is_taken():
    admin = claim("adm", results=[result("a", None, adminAccess=True)], requests=ADMIN)
    plain = claim(results=[result("a", None)])
    assert judge(plain, slice_of(gpu("a")), admin) == []
    assert judge(admin, slice_of(gpu("a")), plain) == []
    assert judge(admin, slice_of(gpu("a")), {**admin, "metadata": {"namespace": "ns", "name": "a2", "uid": "u"}}) == []


@pytest.mark.parametrize(("asked", "fits"), [("3", True), ("3500m", False), ("4", False)])
def test_a_shared_device_holds_its_capacity(asked, fits):
    others = [claim(f"o{i}", results=[result(cpus=c, share=f"o{i}")]) for i, c in enumerate(("4", "1"))]
    problems = judge(claim("new", results=[result(cpus=asked)]), slice_of(grp()), *others)
    assert rules(problems) == ([] if fits else ["device-overcommit"])


def test_an_overcommit_shows_its_sum():
    held = claim(results=[result(cpus="6", share="x")])
    (problem,) = judge(claim("c2", results=[result(cpus="4")]), slice_of(grp()), held)
    assert "6 + 4 = 10 of cpus on device grp" in problem.has
    assert problem.needs == "at most 8"
    assert "2 are free" in problem.fix


def test_shares_of_one_claim_add_up():
    rows = [result(cpus="5", share="a"), result(cpus="4", share="b")]
    assert rules(judge(claim(results=rows), slice_of(grp()))) == ["device-overcommit"]


def test_d1_a_poisoned_claim_makes_no_room():
    poison = claim("bad", results=[result(cpus="-4", share="x")])
    (problem,) = judge(claim("c2", results=[result(cpus="9")]), slice_of(grp()), poison)
    assert problem.rule == "device-overcommit"
    assert "ns/bad" in problem.fix


def test_a_share_id_belongs_to_one_share_of_a_device():
    held = claim(results=[result(cpus="1", share="x")])
    assert rules(judge(claim("c2", results=[result(cpus="1", share="x")]), slice_of(grp()), held)) == [
        "shareid-duplicate"
    ]
    elsewhere = claim("c2", results=[result("grp2", cpus="1", share="x")])
    assert judge(elsewhere, slice_of(grp(), grp("grp2")), held) == []


def counted(name, amount, **fields):
    return gpu(name, consumesCounters=[{"counterSet": SET, "counters": {"mem": {"value": amount}}}], **fields)


def pool(*devices, value="4", generation=1):
    sets = [{"name": SET, "counters": {"mem": {"value": value}}}]
    counters = slice_of(name="counters", generation=generation, count=2, sharedCounters=sets)
    return counters, slice_of(*devices, name="devices", generation=generation, count=2)


def test_d8_devices_of_one_counter_set_exclude_each_other():
    objs = pool(counted("full", "4"), counted("half-a", "2"), counted("half-b", "2"))
    half = claim(results=[result("half-a", None)])
    (problem,) = judge(claim("c2", results=[result("full", None)]), *objs, half)
    assert problem.rule == "counters-overcommit"
    assert "4 (full) + 2 (half-a) = 6" in problem.has
    assert judge(claim("c2", results=[result("half-b", None)]), *objs, half) == []


def test_d8_all_of_a_pool_at_once_is_a_conflict_and_no_crash():
    objs = pool(counted("full", "4"), counted("half-a", "2"), counted("half-b", "2"))
    rows = [result(name, None) for name in ("full", "half-a", "half-b")]
    for order in permutations(rows):
        every = [{"name": "r", "exactly": {"allocationMode": "All"}}]
        assert rules(judge(claim(results=list(order), requests=every), *objs)) == ["counters-overcommit"]


def test_b18_b19_d6_shares_of_a_device_consume_its_counters_once():
    shared = counted("grp", "3", **{k: v for k, v in grp().items() if k != "name"})
    objs = pool(shared, counted("one", "1"), counted("two", "2"))
    first = claim(results=[result(cpus="1", share="a")])
    assert judge(claim("c2", results=[result(cpus="1", share="b")]), *objs, first) == []
    assert judge(claim("c2", results=[result("one", None)]), *objs, first) == []
    assert rules(judge(claim("c2", results=[result("two", None)]), *objs, first)) == ["counters-overcommit"]


def test_b17_a_device_that_vanished_under_its_claim_still_takes_its_part():
    held = claim(results=[result("half-a", None)])
    (problem,) = judge(claim("c2", results=[result("full", None)]), *pool(counted("full", "4")), held)
    assert problem.rule == "counters-overcommit"
    assert "half-a" in problem.has


def test_b17_an_earlier_generation_still_tells_what_a_vanished_device_takes():
    _, old = pool(counted("half-a", "2"), generation=1)
    old["metadata"]["name"] = "old"
    held = claim(results=[result("half-a", None)])
    objs = [*pool(counted("full", "4"), counted("half-b", "2"), generation=2), old, held]
    assert rules(judge(claim("c2", results=[result("full", None)]), *objs)) == ["counters-overcommit"]
    assert judge(claim("c2", results=[result("half-b", None)]), *objs) == []


def test_the_partitionable_device_of_the_samples():
    snapshot = world(*samples("01", "07"))
    parts = {"driver": "part.basalt.example", "pool": "forge-01"}

    def write(name, *devices):
        return claim(name, results=[result(d, None, **parts) for d in devices], where="forge-01")

    assert device_problems(as_claim(write("x", "gpu-0-half-a", "gpu-0-half-b")), snapshot) == []
    assert "counters-overcommit" in rules(device_problems(as_claim(write("x", "gpu-0-full", "gpu-0-half-b")), snapshot))


def reserving(device, amount, resource="cpu", claim_name="c9", share="s9"):
    """A ledger that holds this of a device for a claim whose allocation nobody has seen."""
    name = {
        "claimUID": f"uid-{claim_name}",
        "allocation": "2026-11-20T09:29:00Z",
        "namespace": "ns",
        "name": claim_name,
    }
    charge = {**name, "driver": "d.example", "pool": "n1", "device": device, "resource": resource, "amount": amount}
    charges = [{**charge, "shareID": share} if share else charge]
    return {
        "apiVersion": "allocguard.dev/v1alpha1",
        "kind": "NodeLedger",
        "metadata": {"name": "n1"},
        "status": {"reservations": [{**name, "charges": charges}]},
    }


def used(write, *objs):
    return rules(judge(write, *objs))


def test_an_exclusive_device_that_is_reserved_is_taken():
    device, write = (
        slice_of(gpu("gpu-0", {"cpu": {"allocationMultiplier": "2"}})),
        claim(results=[result("gpu-0", None)]),
    )
    assert used(write, device, reserving("gpu-0", "2", share="")) == ["exclusive-device-taken"]
    assert used(write, device, reserving("gpu-1", "2", share="")) == []
    own = reserving("gpu-0", "2", claim_name="c1", share="")
    assert used(write, device, own) == []
    seen = claim("c9", results=[result("gpu-1", None)], stamp="2026-11-20T09:29:00Z")
    assert used(write, device, seen, reserving("gpu-0", "2", share="")) == []


@pytest.mark.parametrize(
    ("multiplier", "held", "over"), [("1", "4", False), ("1", "5", True), ("500m", "2", False), ("500m", "2500m", True)]
)
def test_capacity_that_is_reserved_is_not_given_away(multiplier, held, over):
    costs = {
        "cpu": {"capacityKey": "cpus", "allocationMultiplier": multiplier},
        "memory": {"allocationMultiplier": "1Gi"},
    }
    device = slice_of(grp(nodeAllocatableResourceMappings=costs))
    found = used(claim(results=[result(cpus="4")]), device, reserving("grp", held))
    assert found == (["device-overcommit"] if over else [])


def test_a_cost_that_follows_no_capacity_says_nothing_of_it():
    costs = {"cpu": {"capacityKey": "cpus", "allocationMultiplier": "1"}, "memory": {"allocationMultiplier": "1Gi"}}
    device = slice_of(grp(nodeAllocatableResourceMappings=costs))
    assert used(claim(results=[result(cpus="8")]), device, reserving("grp", "1Gi", "memory")) == []


def booked(device, version="20", **more):
    """The same, of which the leader has seen the allocation at that version of the claim."""
    ledger = reserving(device, "2", share="", **more)
    [held] = ledger["status"].pop("reservations")
    return {**ledger, "status": {"charges": [{**row, "claimVersion": version} for row in held["charges"]]}}


@pytest.mark.parametrize(("seen_at", "taken"), [("19", True), ("20", False), ("21", False), (None, True)])
def test_a_device_that_the_leader_has_booked_is_taken_until_its_release_is_seen(seen_at, taken):
    device = slice_of(gpu("gpu-0", {"cpu": {"allocationMultiplier": "2"}}))
    seen = []
    if seen_at is not None:
        other = claim("c9", results=[])
        other["metadata"]["resourceVersion"] = seen_at
        other["status"] = {}
        seen = [other]
    write = claim(results=[result("gpu-0", None)])
    assert used(write, device, booked("gpu-0"), *seen) == (["exclusive-device-taken"] if taken else [])


def test_counters_of_a_device_that_is_reserved_are_not_given_away():
    costs = {"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "1"}}}
    objs = pool(counted("full", "4", **costs), counted("half", "2", **costs))
    write = claim(results=[result("half", None)])
    assert used(write, *objs, reserving("full", "1", share="")) == ["counters-overcommit"]
    assert used(write, *objs, reserving("half", "1", share="")) == ["exclusive-device-taken"]
