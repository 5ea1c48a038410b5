from __future__ import annotations

from typing import Any

from tests.facts.builders import CLUSTER, claim, gpu, grp, node, result, samples, slice_of
from webhook.facts.slice_sets import set_problems
from webhook.kube.finding import Finding
from webhook.kube.release import Release
from webhook.kube.resource import read_slice
from webhook.kube.snapshot import build


def judged(obj: Any, *others: Any) -> list[Finding]:
    return set_problems(read_slice(obj), build(others, Release(36)))


def rules(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.rule, finding.severity) for finding in findings]


def test_an_ordinary_publication_is_silent_whether_it_is_seen_already_or_not() -> None:
    obj = slice_of(grp(), owner="u1")
    assert judged(obj, node()) == judged(obj, node(), obj) == []


def test_the_slices_of_the_sample_cluster_are_silent() -> None:
    cluster = samples(*CLUSTER)
    snapshot = build(cluster, Release(36))
    for obj in cluster:
        if obj["kind"] == "ResourceSlice":
            assert set_problems(read_slice(obj), snapshot) == []


def test_b15_more_cpus_than_allocatable() -> None:
    (finding,) = judged(slice_of(grp(size="9")), node())
    assert (finding.rule, finding.severity) == ("sum-exceeds-node", "warning")
    assert "9" in finding.has
    assert judged(slice_of(grp(size="8")), node()) == []


def test_c8_reserved_cpus_in_the_slice_are_told_with_both_numbers() -> None:
    host = node(allocatable={"cpu": "62"}, capacity={"cpu": "64"})
    (finding,) = judged(slice_of(grp(size="64")), host)
    assert "allocatable 62 and capacity 64" in finding.needs
    assert "64 of cpu" in finding.has


def test_a_fixed_cost_counts_once_a_device_and_over_the_slices_of_the_pool() -> None:
    one = slice_of(gpu("a", {"memory": {"allocationMultiplier": "20Gi"}}), name="s1", count=2)
    two = slice_of(gpu("b", {"memory": {"allocationMultiplier": "20Gi"}}), name="s2", count=2)
    assert rules(judged(two, node(), one)) == [("sum-exceeds-node", "warning")]
    other = slice_of(gpu("b", {"memory": {"allocationMultiplier": "20Gi"}}), name="s2", pool="other")
    assert judged(other, node(), one) == []


def test_a_page_size_that_the_node_does_not_have() -> None:
    (finding,) = judged(slice_of(gpu("a", {"hugepages-1Gi": {"allocationMultiplier": "1Gi"}})), node())
    assert "allocatable 0" in finding.needs
    assert judged(slice_of(gpu("a", {"ephemeral-storage": {"allocationMultiplier": "1Gi"}})), node()) == []


def test_device_names_are_unique_in_the_pool() -> None:
    one, two = slice_of(gpu("a"), gpu("b"), count=2), slice_of(gpu("x"), gpu("b"), name="s2", count=2)
    (finding,) = judged(two, one)
    assert (finding.rule, finding.severity) == ("device-name-dup-in-pool", "error")
    assert finding.path == "spec.devices[1].name"
    # What an older generation offers nobody uses.
    old = slice_of(gpu("a"), gpu("b"), count=2, generation=0)
    assert rules(judged(two, old)) == [("pool-incomplete", "info")]


def test_b10_one_identity_on_two_nodes() -> None:
    one = slice_of(gpu("eth1"), pool="lan")
    two = slice_of(gpu("eth1"), pool="lan", name="s2", where="n2")
    assert rules(judged(two, one)) == [("device-identity-two-nodes", "warning")]
    apart = slice_of(gpu("eth2"), pool="lan", name="s2", where="n2")
    assert judged(apart, one) == []


def test_b1_counts_that_disagree_are_told_in_both_orders() -> None:
    one = slice_of(gpu("a"), generation=2, count=1)
    two = slice_of(gpu("b"), generation=2, count=2, name="s2")
    assert rules(judged(one, two)) == rules(judged(two, one)) == [("pool-counts-disagree", "warning")]


def test_b1_more_slices_than_counted() -> None:
    one, two = slice_of(gpu("a")), slice_of(gpu("b"), name="s2")
    assert rules(judged(two, one)) == [("pool-counts-disagree", "warning")]


def test_a_first_part_of_a_pool_may_be_written() -> None:
    first = slice_of(gpu("a"), generation=2, count=2)
    assert rules(judged(first)) == [("pool-incomplete", "info")]
    assert rules(judged(first, slice_of(gpu("z"), name="s0"))) == [("pool-incomplete", "info")]
    assert judged(slice_of(gpu("b"), generation=2, count=2, name="s2"), first) == []


def test_a_lower_generation_than_the_pool_has() -> None:
    assert rules(judged(slice_of(gpu("a")), slice_of(gpu("b"), name="s2", generation=2))) == [
        ("pool-lower-generation", "warning")
    ]


def test_a_generation_may_begin_again_after_a_wipe() -> None:
    held = claim(results=[result()])
    again = slice_of(grp(), metadata={"creationTimestamp": "2026-11-20T09:10:00Z"})
    assert rules(judged(again, node(), held)) == [("generation-reset-ok", "info")]
    before = slice_of(grp(), metadata={"creationTimestamp": "2026-11-20T08:00:00Z"})
    assert judged(before, node(), held, before) == []


def test_an_owner_that_is_another_node_of_that_name() -> None:
    assert rules(judged(slice_of(grp(), owner="u0"), node())) == [("slice-owner-gone", "warning")]
    assert judged(slice_of(grp(), owner="u1"), node()) == []
    assert judged(slice_of(grp(), owner="u0")) == []


def test_a_slice_without_a_name_yet_is_judged_with_all_others() -> None:
    nameless = slice_of(gpu("a"), name="")
    assert rules(judged(nameless, slice_of(gpu("a"), name="s2"))) == [
        ("device-name-dup-in-pool", "error"),
        ("pool-counts-disagree", "warning"),
    ]
