from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from tests.ledger.builders import DRIVER, allocated, container, device, entry, new, node, old, pod, result, slice_of
from webhook.kube.finding import Finding
from webhook.kube.raw import Json
from webhook.kube.release import Release
from webhook.kube.resource import read_device
from webhook.kube.rollout import DRILLS
from webhook.ledger import drill_scene
from webhook.ledger.drills import drill

NOW = datetime(2026, 1, 5, tzinfo=UTC)
CANARY = {"stage": "Canary", "canaryNodeSelector": {"matchLabels": {"canary": "yes"}}}


def mapping(minor: int, multiplier: str = "1") -> Json:
    if minor < 37:
        return old(multiplier, "cpus")
    return new("cpu", {"capacityKey": "cpus", "capacityMultiplier": multiplier})


def part(number: int, minor: int = 36, node_name: str = "n1", count: int = 1, **more: object) -> Json:
    """One slice of a pool of the node: a zone of it, as a shared device."""
    shared = device(f"zone{number}", mapping(minor), capacity={"cpus": "8"}, zone=number)
    name = f"{node_name}-{number}"
    return slice_of(shared, name=name, pool=node_name, nodeName=node_name, count=count, **more)


def whole(node_name: str = "n1", minor: int = 36, **more: object) -> list[Json]:
    return [part(number, minor, node_name, 2, **more) for number in (0, 1)]


def used(name: str = "c", node_name: str = "n1", zone: int = 0, cpus: str = "3", minor: int = 36) -> list[Json]:
    """A claim and the pod that uses it, as a scheduler leaves them."""
    row = entry(name, cpu=cpus)
    if minor > 36:
        row["mapping"] = [{"name": "cpu", "quantity": row.pop("resources")["cpu"]}]
    held = result(f"zone{zone}", {"cpus": cpus}, pool=node_name)
    return [
        allocated(name, held, pods=(f"p-{name}",), node_name=node_name),
        pod(f"p-{name}", container(cpu="1", claims=(name,)), claims=(name,), entries=[row], node_name=node_name),
    ]


def rollout(**spec: object) -> Json:
    document = {"apiVersion": "allocguard.dev/v1alpha1", "kind": "DriverRollout"}
    return {**document, "metadata": {"name": DRIVER}, "spec": {"stage": "General", **spec}}


def fleet(minor: int = 36) -> list[Json]:
    """Three nodes with a pool of two slices each, one of which is in use."""
    names = ("n1", "n2", "n3")
    return [
        *(node(name, uid=f"uid-{name}", cpu="16") for name in names),
        *(obj for name in names for obj in whole(name, minor)),
        *used(minor=minor),
    ]


def ran(name: str, *objects: Json, minor: int = 36):
    return drill(name, DRIVER, objects, Release(minor), NOW)


@pytest.mark.parametrize("minor", [36, 37])
@pytest.mark.parametrize("name", DRILLS)
@pytest.mark.parametrize("more", [[], [rollout(hold={"reason": "now"})]], ids=["open", "held"])
def test_a_fleet_passes_every_drill_held_or_not(name, minor, more):
    done = ran(name, *fleet(minor), *more, minor=minor)
    assert [step for step in done.steps if not step.passed] == []
    assert (done.name, done.driver, done.passed) == (name, DRIVER, True)
    assert done.message == "3 claims on 3 of 3 pools, 2 made for the drill"


@pytest.mark.parametrize("name", DRILLS)
def test_pods_that_no_scheduler_counted_pass_every_drill(name):
    """They have no entry in their status, as under an older version of the driver, and are bound all the same."""
    objects = fleet()
    for obj in objects:
        if obj["kind"] == "Pod":
            del obj["status"]["nodeAllocatableResourceClaimStatuses"]
    done = ran(name, *objects)
    assert done.passed, details(done)


def test_a_node_whose_file_leaves_out_when_it_was_made_is_the_same_after_its_restart():
    """Otherwise what was allocated there would be on an earlier node of the name."""
    objects = [*fleet(), allocated("early", result("zone1", {"cpus": "1"}, pool="n1"))]
    assert not any("creationTimestamp" in obj["metadata"] for obj in objects if obj["kind"] == "Node")
    done = ran("NodeRestart", *objects)
    assert done.passed, details(done)


def details(done):
    return {step.what.partition(":")[0]: step.detail for step in done.steps}


def test_rollback_tells_what_refuses_and_what_goes_on():
    found = ran("Rollback", *fleet()).steps
    assert [(step.what.partition(":")[0], step.detail) for step in found] == [
        ("claims are bound to pools that take new ones", "3 claims on 3 of 3 pools, 2 made for the drill"),
        ("a hold", "3 of 3 refuse (driver-held)"),
        ("bound claims stay, and stay charged", "no difference"),
        ("a changed mapping", "1 of 1 refuse (mapping-changed)"),
        ("what is bound is charged by the mapping it was booked with", "no difference"),
        ("resumed at the mapping of before", "3 of 3 as they should (driver-held)"),
        ("resumed at the changed mapping", "3 of 3 as they should (driver-held)"),
        ("releases go on", "claim allocguard-drill/drill-2 is released; of 3 charges 2 are left"),
        ("everything comes out again of its export", "no difference"),
        ("resumed", "3 of 3 take claims"),
    ]


def test_node_restart_and_driver_upgrade_see_the_pool_rebuild():
    found = details(ran("NodeRestart", *fleet()))
    assert found["a node restarts, its slices are wiped"] == "3 of 3 wait (pool-gone)"
    assert found["its driver has published a part"] == "3 of 3 wait (pool-incomplete)"
    assert found["its driver has published everything, from generation 1"] == "3 of 3 take claims"
    found = details(ran("DriverUpgrade", *fleet()))
    assert found["a pool that is published anew takes no new claims"].startswith("6 of 6 wait (pool-incomplete")
    assert found["the others take claims meanwhile"] == "6 of 6 take claims"


def test_a_pool_of_one_slice_on_one_node_is_enough():
    for name in DRILLS:
        done = ran(name, node(cpu="16"), part(0), *used())
        assert done.passed, done
        assert done.message == "1 claim on 1 of 1 pool"


def test_generations_that_begin_anew_and_devices_of_v1beta1():
    spec = {"devices": [{"name": each["name"], "basic": each} for each in part(0)["spec"]["devices"]]}
    beta = part(0, generation=7)
    beta = {**beta, "apiVersion": "resource.k8s.io/v1beta1", "spec": {**beta["spec"], **spec}}
    assert read_device(spec["devices"][0]).costs
    for name in DRILLS:
        assert ran(name, node(cpu="16"), beta, *used()).passed


@pytest.mark.parametrize(
    ("objects", "detail"),
    [
        ([node()], f"has none of {DRIVER}, needs a pool with node costs"),
        ([node(), slice_of(device("plain"))], f"has none of {DRIVER}, needs a pool with node costs"),
        ([part(0)], f"has none of {DRIVER}, needs a pool with node costs"),
        ([node(), rollout(**CANARY), part(0)], "0 of 1 pool take claims: has node n1, outside the canary nodes"),
        ([node(), part(0, count=2)], "0 of 1 pool take claims: has pool n1 of d.example: 1 of 2 slices"),
    ],
)
@pytest.mark.parametrize("name", DRILLS)
def test_where_nothing_can_go_wrong_nothing_has_passed(name, objects, detail):
    done = ran(name, *objects)
    assert (done.passed, len(done.steps)) == (False, 1)
    assert done.steps[0].detail.startswith(detail)
    assert done.message.startswith(f"claims are bound to pools that take new ones: {detail}")


def test_a_device_that_is_taken_by_a_claim_without_a_charge_leaves_nothing_to_drill():
    plain = device("gpu", old("1"))
    holder = allocated("c", {"request": "r", "driver": DRIVER, "pool": "n1", "device": "gpu", "adminAccess": True})
    taint = {"key": "k", "effect": "NoSchedule"}
    assert ran("Rollback", node(cpu="16"), slice_of({**plain, "taints": [taint]}), holder).passed
    # What no allocator can compute costs nothing that could be charged.
    broken = device("gpu", old("many"))
    assert not ran("Rollback", node(cpu="16"), slice_of(broken)).passed


def test_a_pool_that_no_node_owns_is_drilled_where_it_is_used_and_does_not_restart_with_a_node():
    free = slice_of(device("net", old("1")), pool="fabric", name="fabric", allNodes=True)
    for name in ("Rollback", "DriverUpgrade"):
        assert ran(name, node(cpu="16"), free).passed
    done = ran("NodeRestart", node(cpu="16"), free)
    assert done.message.endswith("needs a pool with node costs that belongs to a known node")


def blind(monkeypatch: pytest.MonkeyPatch, check: str, *rules: str) -> None:
    """Let a check overlook findings of these rules (all of them)."""
    real = getattr(drill_scene, check)

    def found(*arguments: object) -> list[Finding]:
        return [each for each in real(*arguments) if rules and each.rule not in rules]

    monkeypatch.setattr(drill_scene, check, found)


@pytest.mark.parametrize(
    ("name", "check", "rules", "failed"),
    [
        ("Rollback", "allocation_rollout_problems", (), "a hold"),
        ("Rollback", "allocation_pool_problems", ("mapping-changed",), "a changed mapping"),
        ("NodeRestart", "allocation_pool_problems", ("pool-gone",), "a node restarts, its slices are wiped"),
        ("NodeRestart", "allocation_pool_problems", ("pool-incomplete",), "its driver has published a part"),
        ("DriverUpgrade", "allocation_pool_problems", ("pool-rebuilding",), "a pool that is published anew"),
    ],
)
def test_a_guard_that_overlooks_something_fails_the_drill(monkeypatch, name, check, rules, failed):
    blind(monkeypatch, check, *rules)
    done = ran(name, *fleet())
    assert not done.passed
    assert next(step.what for step in done.steps if not step.passed).startswith(failed)
    assert "takes claims" in done.message or "refuses by driver-held" in done.message


def test_charges_that_follow_the_slices_fail_the_drill(monkeypatch):
    real = drill_scene.apply

    def forgetting(ledger, event):
        after, effects = real(ledger, event)
        if event.kind != "ResourceSlice" or event.type != "gone":
            return after, effects
        snapshot = after.snapshot
        for name in snapshot.ledgers:
            bare = {"apiVersion": "allocguard.dev/v1alpha1", "kind": "NodeLedger", "metadata": {"name": name}}
            snapshot = snapshot.remove(bare)
        return replace(after, snapshot=snapshot), effects

    monkeypatch.setattr(drill_scene, "apply", forgetting)
    done = ran("NodeRestart", *fleet())
    assert not done.passed
    assert any("differences: " in step.detail for step in done.steps)
