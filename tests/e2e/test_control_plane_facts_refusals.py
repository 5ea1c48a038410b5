"""What the scheduler does when a write of its own is refused: why allocguard refuses where it does, and how."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from tests.e2e.client import Json
from tests.e2e.cluster import Cluster
from tests.e2e.recorder import Recorder, Seen, refuse
from tests.e2e.scenes import WRITES, cpu_claim, entry, shared_cpus
from tests.e2e.waiting import eventually, steady

ALLOCATION = "resourceclaims/status UPDATE"
ENTRIES = "nodeAllocatableResourceClaimStatuses"


def allocates(request: Json) -> bool:
    """Whether a write allocates its claim."""
    claim, before = request.get("object") or {}, request.get("oldObject") or {}
    return bool(
        request.get("subResource") == "status"
        and (claim.get("status") or {}).get("allocation")
        and not (before.get("status") or {}).get("allocation")
    )


def books(request: Json) -> bool:
    """Whether a write sets entries of what a pod's claims cost."""
    return bool(request.get("subResource") == "status" and (request["object"].get("status") or {}).get(ENTRIES))


def binds(request: Json) -> bool:
    """Whether a write binds a pod."""
    return request.get("subResource") == "binding"


def failed(request: Json, pod: str) -> bool:
    """Whether a write says that an attempt to schedule ``pod`` has failed."""
    conditions = request["object"].get("status", {}).get("conditions", [])
    return request["name"] == pod and any(each["reason"] == "SchedulerError" for each in conditions)


class While:
    """Gives ``answer`` to the writes that ``fits``, until it is lifted; what it answered is in ``refused``. An answer
    that is different for each object is given by its name.
    """

    def __init__(self, fits: Callable[[Json], bool], answer: Json | None = None, **by_name: Json) -> None:
        self._fits, self._answer, self._by_name = fits, answer or refuse(), by_name
        self.refused: list[tuple[float, Json]] = []
        self.lifted = threading.Event()

    def __call__(self, request: Json) -> Json | None:
        if self.lifted.is_set() or not self._fits(request):
            return None
        self.refused.append((time.monotonic(), request))
        return self._by_name.get(request["name"], self._answer)

    def writes(self, recorder: Recorder, name: str) -> int:
        """How many writes to the claim, or pod, ``name`` were refused in the first attempt to schedule this pod."""
        ended = eventually(lambda: [seen for seen in recorder.of("pods/status UPDATE") if failed(seen.request, name)])
        return sum(at < ended[0].at for at, request in self.refused if request["name"] == name)


def watched(cluster: Cluster, answer: Callable[[Json], Json | None] | None = None) -> Recorder:
    return cluster.recorder(resources=WRITES, answer=answer)


def test_refused_with_403_is_one_write_an_attempt_and_the_pod_tells_why(cluster: Cluster) -> None:
    """A claim-status write that is refused with 403 Forbidden is written once an attempt, the pod's event and condition
    have the whole message, and nothing is lost once it is allowed.
    """
    shared_cpus(cluster)
    message = "claim-allocation/node-overcommit: status.allocation: has cpu 12, needs at most 10; " + "release " * 60
    held = While(allocates, refuse(message=message))
    recorder = watched(cluster, held)
    cpu_claim(cluster, "p1", 3)
    cluster.pod("p1", claims=["p1"])
    assert held.writes(recorder, "p1") == 1
    assert message.strip() in eventually(lambda: cluster.events("p1", "FailedScheduling"))[0]
    condition = eventually(lambda: next(iter(cluster.get("Pod", "p1")["status"].get("conditions", [])), None))
    assert condition is not None
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "SchedulerError")
    assert message.strip() in condition["message"]
    claim = cluster.get("ResourceClaim", "p1")
    assert "allocation" not in claim.get("status", {})
    assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    assert entry(cluster, cluster.get("Pod", "p1")) == {}
    assert not recorder.of("pods/binding CREATE")
    held.lifted.set()
    assert entry(cluster, cluster.scheduled("p1")) == {"p1": {"cpu": "3", "memory": "1Gi"}}


def test_a_refusal_does_not_steer(cluster: Cluster) -> None:
    """After a refusal the scheduler tries the best node again, and takes another one only among equals, by chance."""
    shared_cpus(cluster, "n1", cpu="64", memory="256Gi")
    for node in ("n2", "n3"):
        shared_cpus(cluster, node, cpu="4", memory="4Gi")
    held = While(allocates)
    watched(cluster, held)
    cpu_claim(cluster, "c1", 3)
    cluster.pod("p1", claims=["c1"])
    eventually(lambda: len(held.refused) >= 4)
    results = [request["object"]["status"]["allocation"]["devices"]["results"] for _, request in held.refused]
    assert {(result["pool"], result["device"]) for [result] in results} == {(cluster.name("n1"), "group-0")}


def test_codes_at_a_claim_status(cluster: Cluster) -> None:
    """A conflict, by code or by reason, makes the scheduler repeat its claim-status write five times at once; other
    codes do not.
    """
    shared_cpus(cluster)
    answers = {
        "c400": refuse(400, "BadRequest"),
        "c403": refuse(403, "Forbidden"),
        "c422": refuse(422, "Invalid"),
        "c429": refuse(429, "TooManyRequests"),
        "c500": refuse(500, "InternalError"),
        "c503": refuse(503, "ServiceUnavailable"),
        "c409": refuse(409, "Conflict"),
        "reason": refuse(403, "Conflict"),
    }
    held = While(allocates, **answers)
    recorder = watched(cluster, held)
    for name in answers:
        cpu_claim(cluster, name, 1)
        cluster.pod(name, claims=[name])
    writes = {name: held.writes(recorder, name) for name in answers}
    assert writes == {name: 5 if name in ("c409", "reason") else 1 for name in answers}
    held.lifted.set()
    for name in answers:
        assert entry(cluster, cluster.scheduled(name)) == {name: {"cpu": "1", "memory": "1Gi"}}


def test_codes_at_a_pod_status(cluster: Cluster) -> None:
    """A pod-status write that is refused with 409, 500 or 503 is repeated three times at once, others are not."""
    shared_cpus(cluster)
    answers = {
        "c403": refuse(403, "Forbidden"),
        "c422": refuse(422, "Invalid"),
        "c429": refuse(429, "TooManyRequests"),
        "c409": refuse(409, "Conflict"),
        "c500": refuse(500, "InternalError"),
        "c503": refuse(503, "ServiceUnavailable"),
    }
    held = While(books, **answers)
    recorder = watched(cluster, held)
    for name in answers:
        cpu_claim(cluster, name, 1)
        cluster.pod(name, claims=[name])
    writes = {name: held.writes(recorder, name) for name in answers}
    assert writes == {name: 4 if name in ("c409", "c500", "c503") else 1 for name in answers}


def test_retry_after_keeps_one_attempt_writing(cluster: Cluster) -> None:
    """With retryAfterSeconds the client inside the scheduler repeats the write ten times, that many seconds apart, and
    only then does the attempt end.
    """
    shared_cpus(cluster)
    held = While(allocates, refuse(429, "TooManyRequests", retryAfterSeconds=1))
    watched(cluster, held)
    cpu_claim(cluster, "c1", 3)
    cluster.pod("p1", claims=["c1"])
    # The last one ends the attempt, and the event comes with it.
    eventually(lambda: len(held.refused) >= 10)
    assert cluster.events("p1", "FailedScheduling") == []
    eventually(lambda: cluster.events("p1", "FailedScheduling"))
    gaps = [later[0] - sooner[0] for sooner, later in zip(held.refused[:10], held.refused[1:11], strict=True)]
    assert all(gap > 0.9 for gap in gaps), gaps


@pytest.mark.parametrize("fits", [books, binds], ids=["pods/status", "pods/binding"])
def test_refused_after_the_allocation(cluster: Cluster, fits: Callable[[Json], bool]) -> None:
    """After a refused pod status or binding the claim stays allocated, and 1.36 then binds the pod without an entry:
    nobody counts the claim. 1.37 binds no pod whose entry is refused, however often it tries, and counts it in the end.
    """
    shared_cpus(cluster)
    held = While(fits, refuse())
    watched(cluster, held)
    cpu_claim(cluster, "c1", 3)
    cluster.pod("p1", claims=["c1"])
    eventually(lambda: held.refused)
    allocation = eventually(lambda: cluster.get("ResourceClaim", "c1")["status"].get("allocation"))
    if cluster.minor == 36 and fits is books:
        # The next attempt writes no entry that could be refused.
        assert entry(cluster, cluster.scheduled("p1")) == {}
    else:
        eventually(lambda: len(held.refused) > 2)
        assert "nodeName" not in cluster.get("Pod", "p1")["spec"]
    held.lifted.set()
    pod = cluster.scheduled("p1")
    assert cluster.get("ResourceClaim", "c1")["status"]["allocation"] == allocation
    assert entry(cluster, pod) == ({} if cluster.minor == 36 else {"c1": {"cpu": "3", "memory": "1Gi"}})


def test_a_pod_bound_without_its_entry_stays_uncounted(cluster: Cluster) -> None:
    """Nothing mends a missing entry, not even a restart of the scheduler, and the same cpu is given away again."""
    driver = shared_cpus(cluster, cpus="16", cpu="8")
    cpu_claim(cluster, "c1", 6)
    # Bound without the scheduler: the shortest way there, in both releases.
    cluster.pod("p1", claims=["c1"], node="n1")
    cluster.allocate("c1", driver, "group-0", pod="p1", cpus="6")
    cpu_claim(cluster, "c2", 6)
    cluster.pod("p2", claims=["c2"])
    assert entry(cluster, cluster.scheduled("p2")) == {"c2": {"cpu": "6", "memory": "1Gi"}}
    cluster.plane.processes["kube-scheduler"].restart()
    cluster.pod("p3", cpu="1")
    cluster.scheduled("p3")
    steady(lambda: entry(cluster, cluster.get("Pod", "p1")) == {}, during=1)


def test_two_mapped_claims_of_which_the_second_is_refused(cluster: Cluster) -> None:
    """Of two claims the first stays allocated when the second is refused, and later attempts only add a consumer to it;
    1.36 binds the pod with an entry for the second alone, 1.37 with both.
    """
    shared_cpus(cluster)
    first: list[str] = []

    def second(request: Json) -> bool:
        if allocates(request) and not first:
            first.append(request["name"])
        return allocates(request) and request["name"] != first[0]

    held = While(second, refuse())
    recorder = watched(cluster, held)
    cpu_claim(cluster, "c1", 1)
    cpu_claim(cluster, "c2", 2)
    cluster.pod("p1", claims=["c1", "c2"])

    def rewrites() -> list[Seen]:
        """The writes that add a consumer to the claim that was allocated before."""
        return [
            seen
            for seen in recorder.of(ALLOCATION)
            if seen.request["name"] == first[0]
            and (seen.request["oldObject"].get("status") or {}).get("allocation")
            and not seen.request["oldObject"]["status"].get("reservedFor")
            and seen.request["object"]["status"].get("reservedFor")
        ]

    assert eventually(rewrites)
    held.lifted.set()
    booked = entry(cluster, cluster.scheduled("p1"))
    amounts = {"c1": {"cpu": "1", "memory": "1Gi"}, "c2": {"cpu": "2", "memory": "1Gi"}}
    if cluster.minor == 36:
        del amounts[first[0]]
    assert booked == amounts
