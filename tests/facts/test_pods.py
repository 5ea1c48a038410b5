from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ledger.builders import allocated, container, device, entry, old, pod, pod_in, result, slice_of, world
from webhook.facts.pods import budget_problems, containers_request, counted, pod_claims, pod_id, pod_request
from webhook.kube.core import Pod, read_pod

Json = dict[str, Any]


def made(*containers: Json, **more: Any) -> Pod:
    return read_pod(pod("p1", *containers, **more))


@pytest.mark.parametrize(
    ("init", "cpu"),
    [
        ((), 1),
        ((container("i", "3"),), 3),
        ((container("s", "2", restartPolicy="Always"),), 3),
        ((container("i", "3"), container("s", "2", restartPolicy="Always")), 3),
        ((container("s", "2", restartPolicy="Always"), container("i", "3")), 5),
        ((container("s", "2", restartPolicy="Always"), container("t", "4", restartPolicy="Always")), 7),
    ],
)
def test_the_largest_moment_of_the_initialisation(init: tuple[Json, ...], cpu: int) -> None:
    assert containers_request(made(container("x", "1"), init=init)) == {"cpu": cpu}


def test_a_limit_is_a_request_where_none_is_given() -> None:
    assert containers_request(made({"name": "x", "resources": {"limits": {"cpu": "2"}}})) == {"cpu": 2}


def test_a_resize_in_flight_counts_the_larger_size() -> None:
    raw = pod("p1", container("x", "2"), container("y", "4"))
    raw["status"]["containerStatuses"] = [
        {"name": "x", "resources": {"requests": {"cpu": "3"}}},
        {"name": "y", "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "1"}}},
    ]
    assert containers_request(read_pod(raw)) == {"cpu": 7}


def test_a_pod_level_resize_in_flight_counts_the_larger_size() -> None:
    """A kubelet writes what it has allocated for the pod, and what is in force, both with the pod's own overhead."""
    raw = pod("p1", container("x", "1"), resources={"requests": {"cpu": "2"}}, overhead={"cpu": "1"})
    assert pod_request(read_pod(raw)).total() == {"cpu": 3}
    raw["status"]["resources"] = {"requests": {"cpu": "8", "memory": "1Gi"}}
    assert pod_request(read_pod(raw)).total() == {"cpu": 8}
    raw["status"]["allocatedResources"] = {"cpu": "9"}
    assert pod_request(read_pod(raw)).total() == {"cpu": 9}
    raw["spec"]["resources"]["requests"]["cpu"] = "10"
    assert pod_request(read_pod(raw)).total() == {"cpu": 11}
    # Without a pod-level request that is a sum, from before the containers were resized.
    del raw["spec"]["resources"]
    assert pod_request(read_pod(raw)).total() == {"cpu": 2}


@pytest.mark.parametrize(("condition", "cpu"), [("Infeasible", 5), ("Deferred", 150)])
def test_a_resize_that_the_kubelet_refused_counts_what_is_held(condition: str, cpu: int) -> None:
    pending = [{"type": "PodResizePending", "status": "True", "reason": condition}]
    raw = pod("p1", container("x", "100"), container("y", "50"))
    raw["status"]["conditions"] = pending
    raw["status"]["containerStatuses"] = [
        {"name": name, "resources": {"requests": {"cpu": held}}} for name, held in (("x", "2"), ("y", "3"))
    ]
    assert containers_request(read_pod(raw)) == {"cpu": cpu}
    level = pod("p2", container("x", "1"), resources={"requests": {"cpu": "150"}})
    level["status"] |= {"conditions": pending, "resources": {"requests": {"cpu": "5"}}}
    assert pod_request(read_pod(level)).total() == {"cpu": cpu}


def test_other_resources_are_left_out() -> None:
    odd = {"name": "x", "resources": {"requests": {"cpu": "1", "example.com/gpu": "1", "hugepages-2Mi": "4Mi"}}}
    assert pod_request(made(odd)).total() == {"cpu": 1, "hugepages-2Mi": 4 * 2**20}


def test_the_pods_overhead_comes_on_top_of_a_pod_level_request() -> None:
    level = made(container("x", "2"), resources={"requests": {"cpu": "4"}}, overhead={"cpu": "1"})
    request = pod_request(level, {"cpu": 2})
    assert (request.total(), request.spec(), budget_problems(request)) == ({"cpu": 5}, {"cpu": 3}, [])


WHOLE = st.integers(0, 5)


@given(WHOLE, WHOLE, WHOLE, WHOLE, st.none() | st.integers(0, 12))
def test_the_parts_of_a_request_are_its_total(
    spec: int, claims: int, overhead: int, fixed: int, level: int | None
) -> None:
    more: Json = {"resources": {"requests": {"cpu": str(level)}}} if level is not None else {}
    share = pod_request(
        made(container("x", str(spec)), overhead={"cpu": str(fixed)}, **more), {"cpu": claims}, {"cpu": overhead}
    ).resources["cpu"]
    assert share.needed == spec + claims + overhead + fixed
    assert share.total == (share.needed if level is None else level + fixed)
    assert share.spec >= 0
    if share.total >= claims + overhead:
        assert share.spec + share.claims + share.overhead == share.total


def test_entries_are_counted_once_whatever_they_say() -> None:
    used = ("c",)
    odd = {"resourceClaimName": "c", "containers": ["main", "main"], "overhead": [{"name": "cpu", "perContainer": "1"}]}
    negative = entry("d", cpu="-3")
    snapshot = world(
        slice_of(device("grp", old("4"))),
        allocated("c", result()),
        pod("p1", container(claims=used), claims=used, entries=[odd, negative]),
    )
    shares = counted(pod_in(snapshot), snapshot)
    assert (shares.claims, shares.overhead, shares.unknown, shares.uncounted) == (
        {"cpu": 0},
        {"cpu": 1},
        {"cpu": 0},
        (),
    )


def test_a_claim_that_another_pod_owns_is_not_this_pods() -> None:
    owned = allocated("c", result())
    owned["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": "p1", "uid": "before"}]
    snapshot = world(owned, pod("p1", container(claims=("c",)), claims=("c",)))
    assert pod_claims(pod_in(snapshot), snapshot) == []
    owned["metadata"]["ownerReferences"][0]["uid"] = "uid-p1"
    snapshot = world(owned, pod("p1", container(claims=("c",)), claims=("c",)))
    assert [local for local, _ in pod_claims(pod_in(snapshot), snapshot)] == ["c"]


def test_a_pod_without_uid_is_known_by_its_name() -> None:
    raw = pod("p1")
    del raw["metadata"]["uid"]
    assert [pod_id(read_pod(raw)), pod_id(made())] == ["ns/p1", "uid-p1"]


def test_each_pod_is_rounded_up_for_itself() -> None:
    """The scheduler adds up whole millicores and bytes; what rounding adds is the pod's own part."""
    request = pod_request(made(), {"cpu": Fraction(1, 10000), "memory": Fraction(3, 2)}).resources
    assert (request["cpu"].total, request["cpu"].spec) == (Fraction(1, 1000), Fraction(9, 10000))
    assert (request["memory"].total, request["memory"].spec) == (2, Fraction(1, 2))
