from tests.facts.builders import DRIVER, claim, entry, grp, node, pod, pod_ref, result, slice_of, world
from webhook.ledger.book import Book
from webhook.ledger.by_driver import disagreement

OTHER = "other.example"


def found(*objs):
    made = disagreement(world(*objs), Book())
    return dict(made.differences), {driver: count for driver, count in made.overcommitted.items() if count}


def bound(cpus="4", status=None, driver=DRIVER, name="c1"):
    owner = f"p-{name}"
    row = {**result(cpus=cpus, share=f"share-{name}"), "driver": driver}
    return claim(name, [row], [pod_ref(owner)]), pod(owner, {"c": name}, where="n1", status=status)


BASE = (node(), slice_of(grp(size="32")), slice_of(grp(size="32"), name="s2", driver=OTHER))


def test_nothing_disagrees():
    assert found(*BASE, *bound(status=entry(cpu="4"))) == ({}, {})


def test_a_pod_without_its_entry_counts_for_the_driver_of_its_claim():
    assert found(*BASE, *bound(), *bound(status=entry("c2", cpu="1"), cpus="1", driver=OTHER, name="c2")) == (
        {DRIVER: 1},
        {},
    )


def test_an_overcommitted_node_counts_for_every_driver_that_is_charged_there():
    mine = bound("6", entry(cpu="6"))
    theirs = bound("4", entry("c2", cpu="4"), OTHER, "c2")
    assert found(*BASE, *mine, *theirs) == ({DRIVER: 1, OTHER: 1}, {DRIVER: 1, OTHER: 1})


def test_a_node_that_is_overcommitted_in_two_resources_is_one_node():
    busy = pod("p9", {}, {"cpu": "8", "memory": "64Gi"}, where="n1")
    assert found(*BASE, *bound(status=entry(cpu="4")), busy) == ({DRIVER: 2}, {DRIVER: 1})


def test_a_claim_on_no_known_node_counts_for_its_driver():
    made, owner = bound(status=entry(cpu="4"))
    assert found(slice_of(grp()), made, owner)[0] == {DRIVER: 1}


def test_an_entry_for_a_claim_that_is_gone_counts_for_whoever_is_charged_on_the_node():
    left = pod("p9", {"c": "c9"}, where="n1", status=entry("c9", cpu="1"))
    assert found(*BASE, *bound(status=entry(cpu="4")), left)[0] == {DRIVER: 1}
