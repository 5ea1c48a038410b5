"""What a pod asks for more, on a node of 16 cpu whose claims cost some."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.builders import allocated, container, device, new, node, old, pod, pod_in, result, slice_of, world
from webhook.facts.resize import resize_problems
from webhook.kube.core import read_pod
from webhook.kube.finding import Finding
from webhook.ledger.book import Book

Json = dict[str, Any]

# A device that costs 10 cpu, and the claim on it that p1 uses.
COSTS = (slice_of(device("grp", old("10"))), allocated("c", result(), pods=("p1",)))


def sized(cpu: str, **more: Any) -> Json:
    """p1 with its claim, asking for ``cpu`` itself."""
    return pod("p1", container(cpu=cpu, claims=("c",)), claims=("c",), **more)


def resized(before: Json, after: Json, *others: Json, minor: int = 36, cpu: str = "16") -> list[Finding]:
    """The findings of a resize in the world of ``before`` and ``others``."""
    snapshot = world(node(cpu=cpu), *others, before, minor=minor)
    account = Book().account(snapshot, "n1")
    assert account is not None
    return resize_problems(read_pod(after), pod_in(snapshot, before["metadata"]["name"]), account, snapshot)


def rules(*arguments: Any, **options: Any) -> list[str]:
    return [finding.rule for finding in resized(*arguments, **options)]


@pytest.mark.parametrize(("cpu", "refused"), [("6", []), ("6001m", ["node-overcommit"])])
def test_an_exact_fit_fits(cpu: str, refused: list[str]) -> None:
    assert rules(sized("1"), sized(cpu), *COSTS) == refused


def test_the_message_has_the_equation() -> None:
    (finding,) = resized(sized("1"), sized("7"), *COSTS)
    assert (finding.path, finding.severity) == ("spec", "error")
    assert finding.message == (
        "has cpu 7 for pod ns/p1 on node n1 (16 allocatable - 10 claims - 7 this pod = -1), "
        "needs at most 6, which is what is free there"
    )


def test_a_pod_without_claims_may_not_take_what_claims_cost() -> None:
    plain = [pod("p2", container(cpu=cpu)) for cpu in ("1", "5", "6")]
    assert rules(plain[0], plain[1], *COSTS, sized("1")) == []
    assert rules(plain[0], plain[2], *COSTS, sized("1")) == ["node-overcommit"]


def test_where_claims_cost_nothing_the_kubelet_judges() -> None:
    assert rules(pod("p2", container(cpu="1")), pod("p2", container(cpu="99"))) == []
    before, after = (pod("p2", container(memory=memory)) for memory in ("1Gi", "99Gi"))
    assert rules(before, after, *COSTS) == []


@pytest.mark.parametrize("cpu", ["9", "8", "1"])
def test_what_shrinks_or_stays_passes_on_a_node_that_owes_more_than_it_has(cpu: str) -> None:
    assert rules(sized("9"), sized(cpu), *COSTS) == []
    assert rules(sized("9"), sized("9001m"), *COSTS) == ["node-overcommit"]


def test_one_resource_may_grow_while_there_is_none_left_of_another() -> None:
    before, after = (
        pod("p1", container(cpu="9", memory=memory, claims=("c",)), claims=("c",)) for memory in ("1Gi", "2Gi")
    )
    assert rules(before, after, *COSTS) == []


def test_a_resize_that_is_taken_back_while_it_is_in_flight() -> None:
    """The node holds 5 for the pod until its kubelet has given them back."""
    before, less, more = sized("2"), sized("3"), sized("7")
    for each in (before, less, more):
        each["status"]["containerStatuses"] = [{"name": "main", "allocatedResources": {"cpu": "5"}}]
    assert rules(before, less, *COSTS) == []
    assert rules(before, more, *COSTS) == ["node-overcommit"]


def test_a_refused_resize_is_followed_by_another() -> None:
    """The one that the kubelet found infeasible counts for nothing, and the next is judged by what it asks for."""
    before, less, more = sized("100"), sized("6"), sized("7")
    for each in (before, less, more):
        each["status"]["containerStatuses"] = [{"name": "main", "allocatedResources": {"cpu": "5"}}]
        each["status"]["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
    assert rules(before, less, *COSTS) == []
    assert rules(before, more, *COSTS) == ["node-overcommit"]


def test_a_pod_level_resize_is_judged_by_what_it_asks_for() -> None:
    """The kubelet writes what the pod holds, all the time; a budget that is left too small is told nevertheless."""
    held, less, more = (sized("1", resources={"requests": {"cpu": cpu}}) for cpu in ("12", "10", "17"))
    for each in (held, less, more):
        each["status"]["resources"] = {"requests": {"cpu": "12"}}
    assert rules(held, less, *COSTS) == ["pod-budget-too-small"]
    assert rules(less, less, *COSTS) == []
    assert rules(less, held, *COSTS) == []
    assert rules(held, more, *COSTS) == ["node-overcommit"]


def test_a_pod_level_request_has_the_claims_within() -> None:
    before, after, too_much = (sized("1", resources={"requests": {"cpu": cpu}}) for cpu in ("11", "16", "17"))
    assert rules(before, after, *COSTS) == []
    assert rules(before, too_much, *COSTS) == ["node-overcommit"]


def test_a_pod_level_request_is_not_left_below_its_claims() -> None:
    enough, little, less = (sized("1", resources={"requests": {"cpu": cpu}}) for cpu in ("11", "10", "9"))
    assert rules(enough, little, *COSTS) == ["pod-budget-too-small"]
    assert rules(little, less, *COSTS) == ["pod-budget-too-small"]
    assert rules(less, little, *COSTS) == []


def test_overhead_of_137_is_what_claims_cost_too() -> None:
    offered = slice_of(device("grp", new("cpu", overhead={"perPod": "2"})))
    claim = allocated("c", result(), pods=("p1",))
    assert rules(sized("1"), sized("14"), offered, claim, minor=37) == []
    assert rules(sized("1"), sized("15"), offered, claim, minor=37) == ["node-overcommit"]
