"""What the scheduler counts for a claim, where that is not what one would think."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.client import ApiError, Json
from tests.e2e.cluster import Cluster
from tests.e2e.driver import each, per
from tests.e2e.kinds import path
from tests.e2e.scenes import CPU_DRIVER, cpu_claim, cpu_class, entry, shared_cpus
from tests.e2e.waiting import eventually, steady


def test_the_entry_of_a_claim(cluster: Cluster) -> None:
    """The entry of a claim on 3 of a device's cpus, with 1Gi for the device, as each release writes it."""
    shared_cpus(cluster)
    cpu_claim(cluster, "c1", 3)
    cluster.pod("p1", claims=["c1"])
    [found] = cluster.scheduled("p1")["status"]["nodeAllocatableResourceClaimStatuses"]
    amounts: Json = {"resources": {"cpu": "3", "memory": "1Gi"}}
    if cluster.minor >= 37:
        amounts = {"mapping": [{"name": "cpu", "quantity": "3"}, {"name": "memory", "quantity": "1Gi"}]}
    assert found == {"resourceClaimName": "c1", "containers": ["main"], **amounts}


def test_a_multiplier_left_out(cluster: Cluster) -> None:
    """1.36 stores the multiplier "1" where there is none, also beside a capacity key; 1.37 asks for one."""
    driver = cluster.driver(CPU_DRIVER, cluster.node("n1"))
    device = driver.device("d0", {"cpus": "8"}, {"cpu": per("cpus"), "memory": each("1Gi")})
    if cluster.minor >= 37:
        for mapping in (named["mapping"] for named in device["nodeAllocatableResources"].values()):
            for multiplier in ("capacityMultiplier", "deviceMultiplier"):
                mapping.pop(multiplier, None)
        with pytest.raises(ApiError) as raised:
            driver.publish([device])
        base = "spec.devices[0].nodeAllocatableResources"
        assert {(cause["field"], cause["reason"]) for cause in raised.value.causes} >= {
            (f"{base}[cpu].mapping.capacityMultiplier", "FieldValueRequired"),
            (f"{base}[memory].mapping", "FieldValueInvalid"),
        }
        return
    for mapping in device["nodeAllocatableResourceMappings"].values():
        del mapping["allocationMultiplier"]
    [stored] = driver.publish([device])["spec"]["devices"]
    mappings = stored["nodeAllocatableResourceMappings"]
    assert {name: mapping["allocationMultiplier"] for name, mapping in mappings.items()} == {"cpu": "1", "memory": "1"}


@pytest.mark.parametrize(("multiplier", "taken"), [("9E", 2), ("4E", 3)])
def test_more_than_64_bits_counts_as_nothing(cluster: Cluster, multiplier: str, taken: int) -> None:
    """A product beyond int64 is booked and counts as zero: the node still takes pods that need all of its memory."""
    driver = cluster.driver(CPU_DRIVER, cluster.node("n1", memory="64Gi"))
    driver.publish([driver.device("d0", {"cpus": "8"}, {"memory": per("cpus", multiplier)})])
    cpu_class(cluster)
    cpu_claim(cluster, "c1", taken)
    cluster.pod("p1", claims=["c1"])
    assert "memory" in entry(cluster, cluster.scheduled("p1"))["c1"]
    cluster.pod("p2", memory="64Gi")
    cluster.scheduled("p2")


def test_just_inside_64_bits_counts(cluster: Cluster) -> None:
    """What fits 64 bits is counted, and is too much."""
    driver = cluster.driver(CPU_DRIVER, cluster.node("n1", memory="64Gi"))
    driver.publish([driver.device("d0", {"cpus": "8"}, {"memory": per("cpus", "4E")})])
    cpu_class(cluster)
    cpu_claim(cluster, "c1", 1)
    cluster.pod("p1", claims=["c1"])
    assert "Insufficient memory" in eventually(lambda: cluster.events("p1", "FailedScheduling"))[0]


def test_a_capacity_key_of_a_device_that_is_not_shared(cluster: Cluster) -> None:
    """Without consumed capacity a capacity key spoils the attempt as an error: allocguard refuses the slice."""
    driver = cluster.driver(CPU_DRIVER, cluster.node("n1"))
    device = driver.device("d0", {"cpus": "8"}, {"cpu": per("cpus")})
    del device["allowMultipleAllocations"]
    driver.publish([device])
    cpu_class(cluster)
    cluster.claim("c1", "cpus")
    cluster.pod("p1", claims=["c1"])
    eventually(lambda: cluster.events("p1", "FailedScheduling"))
    condition = eventually(lambda: next(iter(cluster.get("Pod", "p1")["status"].get("conditions", [])), None))
    assert condition is not None
    assert condition["reason"] == "SchedulerError"


@pytest.mark.parametrize("stamped", [True, False])
def test_a_claim_allocated_before_its_pod(cluster: Cluster, stamped: bool) -> None:
    """1.36 does not count a claim that was allocated before its pod came, 1.37 does; neither binds the pod when the
    allocation has no time: settles 1.37 without the time.
    """
    driver = shared_cpus(cluster)
    cpu_claim(cluster, "c1", 3)
    cluster.allocate("c1", driver, "group-0", stamped=stamped, cpus="3")
    cluster.pod("p1", claims=["c1"])
    if not stamped:
        message = eventually(lambda: cluster.events("p1", "FailedScheduling"))[0]
        assert ("immutable" if cluster.minor == 36 else "cannot be modified once set") in message
        return
    counted = {"c1": {"cpu": "3", "memory": "1Gi"}} if cluster.minor >= 37 else {}
    assert entry(cluster, cluster.scheduled("p1")) == counted


def test_a_mapped_claim_is_for_one_pod(cluster: Cluster) -> None:
    """A second pod does not get a mapped claim; allocguard says so when the pod is created."""
    shared_cpus(cluster)
    cpu_claim(cluster, "c1", 3)
    cluster.pod("p1", claims=["c1"])
    cluster.scheduled("p1")
    cluster.pod("p2", claims=["c1"])
    [message] = eventually(lambda: cluster.events("p2", "FailedScheduling"))
    assert "shared" in message or "already used by another pod" in message


def test_a_claim_that_no_container_uses(cluster: Cluster) -> None:
    """1.36 refuses a mapped claim that no container uses, 1.37 counts it."""
    shared_cpus(cluster)
    cpu_claim(cluster, "c1", 3)
    cluster.pod("p1", claims=["c1"], spec={"containers": [{"name": "main", "image": "registry.invalid/pause:1"}]})
    if cluster.minor == 36:
        assert "not referenced" in eventually(lambda: cluster.events("p1", "FailedScheduling"))[0]
    else:
        assert entry(cluster, cluster.scheduled("p1")) == {"c1": {"cpu": "3", "memory": "1Gi"}}


def booked_by_turns(cluster: Cluster, tries: int) -> Iterator[str | None]:
    """What the scheduler books for the cpu of one pod after the other, each with a claim on one cpu."""
    for name in (f"p{n}" for n in range(tries)):
        cpu_claim(cluster, name, 1)
        cluster.pod(name, claims=[name])
        yield entry(cluster, cluster.scheduled(name)).get(name, {}).get("cpu")


def test_the_cost_of_an_older_generation(cluster: Cluster) -> None:
    """While slices of two generations of a pool are there, a device is allocated from the newer one, and what it costs
    may be read from the older one, by chance: settles that 1.37 does it too. allocguard lets claims on it wait.
    """
    driver = cluster.driver(CPU_DRIVER, cluster.node("n1"))
    for generation, multiplier in ((1, "3m"), (2, "2m")):
        device = driver.device("d0", {"cpus": "64"}, {"cpu": per("cpus", multiplier)})
        driver.publish([device], generation=generation, index=generation)
    cpu_class(cluster)
    assert "3m" in booked_by_turns(cluster, 40)


def test_two_drivers_with_pools_and_devices_of_one_name(cluster: Cluster) -> None:
    """1.36 may take what a device costs from another driver's device of the same pool and name; 1.37 does not."""
    node = cluster.node("n1")
    for name, multiplier in (("cpu.example.org", "1m"), ("gpu.example.org", "2m")):
        driver = cluster.driver(name, node)
        driver.publish([driver.device("d0", {"cpus": "64"}, {"cpu": per("cpus", multiplier)})])
    cpu_class(cluster)
    if cluster.minor == 36:
        # The other's capacity key is not among what was consumed, so that nothing is booked.
        assert None in booked_by_turns(cluster, 40)
    else:
        assert set(booked_by_turns(cluster, 8)) == {"1m"}


def test_a_pod_waits_although_the_node_is_free_again(cluster: Cluster) -> None:
    """A pod that found too little because of its claim is not tried again when the pod that was in its way is deleted,
    but when the node or a claim changes.
    """
    driver = cluster.driver(CPU_DRIVER, cluster.node("n1", cpu="8"))
    driver.publish([driver.device("d0", {"cpus": "64"}, {"cpu": per("cpus")})])
    cpu_class(cluster)
    assert any(_waits(cluster, turn) for turn in range(4))


def _waits(cluster: Cluster, turn: int) -> bool:
    """Whether the pod of this turn waited until the node changed. It does not where something else changes just while
    it is being looked at: a claim of a pod that ended, in any namespace, or a node that a controller labels.
    """
    blocker, claim, waiting = f"blocker-{turn}", f"c{turn}", f"p{turn}"
    cluster.pod(blocker, cpu="6")
    cluster.scheduled(blocker)
    cpu_claim(cluster, claim, 6)
    _quiet(cluster)
    cluster.pod(waiting, claims=[claim])
    assert "Insufficient cpu" in eventually(lambda: cluster.events(waiting, "FailedScheduling"))[0]
    cluster.delete("Pod", blocker)
    try:
        steady(lambda: not cluster.get("Pod", waiting)["spec"].get("nodeName"), during=3)
        waited = True
    except AssertionError:
        waited = False
    cluster.as_admin.patch(path("Node", cluster.name("n1")), {"metadata": {"labels": {"touched": f"{turn}"}}})
    cluster.scheduled(waiting)
    cluster.delete("Pod", waiting)
    cluster.delete("ResourceClaim", claim)
    return waited


def _quiet(cluster: Cluster) -> None:
    """Wait until nothing that wakes pods changes any longer. The controller that ends claims makes 20 writes a second,
    and tests before this one may have left it a hundred.
    """

    def versions() -> set[tuple[str, str]]:
        lists = (cluster.as_admin.items(path(kind)) for kind in ("ResourceClaim", "ResourceSlice", "Node", "Pod"))
        return {(each["metadata"]["uid"], each["metadata"]["resourceVersion"]) for items in lists for each in items}

    def unchanged() -> bool:
        seen = versions()
        return steady(lambda: versions() == seen, during=1)

    eventually(unchanged, within=60)


def test_preemption_gives_back_what_claims_cost(cluster: Cluster) -> None:
    """A victim's entries count among what preempting it frees: settles preemption over claims' costs."""
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    high = cluster.name("high")
    cluster.as_admin.create(classes, {"metadata": {"name": high}, "value": 1000})
    driver = cluster.driver(CPU_DRIVER, cluster.node("n1", cpu="8"))
    driver.publish([driver.device("d0", {"cpus": "64"}, {"cpu": per("cpus")})])
    cpu_class(cluster)
    cpu_claim(cluster, "c1", 6)
    cluster.pod("victim", claims=["c1"], cpu="1")
    assert entry(cluster, cluster.scheduled("victim")) == {"c1": {"cpu": "6"}}
    cluster.pod("p1", cpu="7500m", spec={"priorityClassName": high})
    cluster.scheduled("p1")
    assert cluster.as_admin.find(cluster.path("Pod", "victim")) is None


def test_alternatives_under_a_pods_own_budget(cluster: Cluster) -> None:
    """Of a prioritized list only the chosen alternative counts, and a pod-level request takes the place of the sum:
    settles both together.
    """
    driver = shared_cpus(cluster, cpus="8")
    key = driver.key("cpus")
    none = cluster.device_class("none", cel="false")
    alternatives = [
        {"name": "many", "deviceClassName": none, "count": 1},
        {"name": "few", "deviceClassName": cluster.name("cpus"), "capacity": {"requests": {key: "4"}}},
    ]
    cluster.claim("c1", requests=[{"name": "r", "firstAvailable": alternatives}])
    cluster.pod("p1", claims=["c1"], spec={"resources": {"requests": {"cpu": "5"}}})
    pod = cluster.scheduled("p1")
    assert entry(cluster, pod) == {"c1": {"cpu": "4", "memory": "1Gi"}}
    [result] = cluster.get("ResourceClaim", "c1")["status"]["allocation"]["devices"]["results"]
    assert result["request"] == "r/few"
    # Of 16 the pod has 5, not 9.
    cluster.pod("p2", cpu="11")
    cluster.scheduled("p2")
    cluster.pod("p3", cpu="1m")
    assert "Insufficient cpu" in eventually(lambda: cluster.events("p3", "FailedScheduling"))[0]


def test_shared_counters_beside_costs(cluster: Cluster) -> None:
    """Partitions of one device cost what each of them says, and their counters limit how many there are: settles both
    together.
    """
    driver = cluster.driver("gpu.example.org", cluster.node("n1"))
    counters = {"memory": {"value": "40Gi"}}
    partitions = [
        driver.device(
            f"part-{n}",
            costs={"cpu": each("2")},
            consumesCounters=[{"counterSet": "card", "counters": {"memory": {"value": "20Gi"}}}],
        )
        for n in range(3)
    ]
    shared = driver.slice([], count=2, index=0)
    del shared["spec"]["devices"]
    shared["spec"]["sharedCounters"] = [{"name": "card", "counters": counters}]
    driver.client.create(path("ResourceSlice"), shared)
    driver.publish(partitions, count=2, index=1)
    cluster.device_class("parts", "gpu.example.org")
    for name in ("p1", "p2", "p3"):
        cluster.claim(name, "parts")
        cluster.pod(name, claims=[name])

    def bound() -> list[str]:
        return [name for name in ("p1", "p2", "p3") if cluster.get("Pod", name)["spec"].get("nodeName")]

    eventually(lambda: len(bound()) == 2)
    for name in bound():
        assert entry(cluster, cluster.scheduled(name)) == {name: {"cpu": "2"}}
    [waiting] = {"p1", "p2", "p3"} - set(bound())
    assert "cannot allocate all claims" in eventually(lambda: cluster.events(waiting, "FailedScheduling"))[0]
