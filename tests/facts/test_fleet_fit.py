from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from tests.facts.test_interval import CLASS, GRP, asking, cpus
from tests.ledger.builders import Json, allocated, container, device, node, old, pod, pod_in, result, slice_of, world
from webhook.facts.account import Account
from webhook.facts.fleet_fit import Placed, UnknownClaimError, Wanted, place, wanted_of
from webhook.kube.claims import Claim
from webhook.kube.core import read_pod
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def group(name: str, cpu: str = "16", size: str = "64") -> list[Json]:
    """A node of that many cpus with one shared device that costs one cpu each."""
    shared = device("grp", old("1", "cpus"), capacity={"cpus": size})
    return [node(name, uid=f"uid-{name}", cpu=cpu), slice_of(shared, name=name, pool=name, nodeName=name)]


def user(name: str, claims: tuple[str, ...] = (), cpu: str = "", **more: object) -> Json:
    return pod(name, container(cpu=cpu, claims=claims), claims=claims, node_name="", **more)


def places(placed: Sequence[Placed]) -> dict[str, str]:
    """Node by pod, or by claim where there is no pod; empty where there is no room."""
    return {
        each.wanted.pod.name if each.wanted.pod else each.wanted.claims[0].name: each.fit.node if each.fit else ""
        for each in placed
    }


def fitted(snapshot: Snapshot, users: Sequence[str], claims: Sequence[Claim]) -> tuple[list[Placed], Snapshot]:
    wanted = wanted_of([pod_in(snapshot, name) for name in users], claims, (), snapshot)
    return place(wanted, claims, snapshot, Book().account, NOW)


def account(snapshot: Snapshot, name: str) -> Account:
    found = Book().account(snapshot, name)
    assert found is not None
    return found


def test_claims_that_fit_no_node_together_fit_two() -> None:
    snapshot = world(CLASS, *group("n1"), *group("n2"), user("p1", ("a",)), user("p2", ("b",)))
    placed, after = fitted(snapshot, ["p1", "p2"], [asking(cpus("12"), name="a"), asking(cpus("12"), name="b")])
    assert sorted(places(placed).values()) == ["n1", "n2"]
    assert [account(after, name).resources["cpu"].free for name in ("n1", "n2")] == [4, 4]


def test_what_one_takes_the_next_does_not_have() -> None:
    snapshot = world(CLASS, *group("n1", size="20"), user("p1", ("a",), "1"), user("p2", ("b",), "2"))
    claims = [asking(cpus("8"), name="a"), asking(cpus("8"), name="b")]
    placed, after = fitted(snapshot, ["p1", "p2"], claims)
    assert sorted(places(placed).values()) == ["", "n1"]
    left = next(each for each in placed if each.fit is None)
    assert left.open
    assert [reason.rule for fit in left.nodes for reason in fit.reasons] == ["node-overcommit"]
    assert account(after, "n1").resources["cpu"].free < 8


def test_exclusive_devices_are_given_once() -> None:
    gpus = [device(name, old("1")) for name in ("g1", "g2")]
    snapshot = world(CLASS, node(), slice_of(*gpus), user("p1", ("a",)), user("p2", ("b",)), user("p3", ("c",)))
    placed, after = fitted(snapshot, ["p1", "p2", "p3"], [asking(name=name) for name in "abc"])
    assert sorted(places(placed).values()) == ["", "n1", "n1"]
    taken = [claim.allocation.results[0].device for claim in after.claims.values() if claim.allocation]
    assert sorted(taken) == ["g1", "g2"]


def test_who_can_go_to_one_node_only_goes_first() -> None:
    """The small pod could go to either node and is put where it leaves the large one its room."""
    snapshot = world(CLASS, *group("n1", "8"), *group("n2", "16"), user("small", ("a",)), user("large", ("b",)))
    placed, _ = fitted(snapshot, ["small", "large"], [asking(cpus("6"), name="a"), asking(cpus("14"), name="b")])
    assert places(placed) == {"large": "n2", "small": "n1"}


def test_another_order_is_tried() -> None:
    """By the fewest nodes and the largest pod first, 6 and 5 go together and 4, 4, 3 find no room on the other."""
    sizes = {"a": "6", "b": "5", "c": "4", "d": "4", "e": "3"}
    users = [user(f"p-{name}", (name,)) for name in sizes]
    snapshot = world(CLASS, *group("n1", "11"), *group("n2", "11"), *users)
    placed, _ = fitted(snapshot, [f"p-{n}" for n in sizes], [asking(cpus(size), name=n) for n, size in sizes.items()])
    assert "" not in places(placed).values()


@pytest.mark.parametrize(("level", "fits"), [("12", True), ("17", False)])
def test_a_request_for_the_whole_pod_covers_its_claims(level: str, fits: bool) -> None:
    budget = {"resources": {"requests": {"cpu": level}}}
    snapshot = world(CLASS, *group("n1"), user("p1", ("a",), **budget), user("p2", cpu="4"))
    placed, after = fitted(snapshot, ["p1", "p2"], [asking(cpus("10"), name="a")])
    assert places(placed) == {"p1": "n1" if fits else "", "p2": "n1"}
    assert account(after, "n1").resources["cpu"].free == (0 if fits else 12)


def test_pods_of_one_claim() -> None:
    """A claim that costs its node something is one pod's; one that costs nothing is shared, on its node."""
    free = device("free", capacity={"cpus": "8"})
    for shown, expected in ((GRP, ""), (free, "n1")):
        other = [node("n2", uid="u2"), slice_of(shown, name="s2", pool="n2", nodeName="n2")]
        snapshot = world(CLASS, node(), slice_of(shown), *other, user("p1", ("a",)), user("p2", ("a",)))
        placed, _ = fitted(snapshot, ["p1", "p2"], [asking(cpus("2"), name="a")])
        found = places(placed)
        assert found.pop("p1") == "n1"
        assert found == {"p2": expected}
        rules = [reason.rule for each in placed if each.fit is None for fit in each.nodes for reason in fit.reasons]
        assert rules == ([] if expected else ["shared-mapped-claim"])


def test_a_pod_goes_where_its_claim_is() -> None:
    held = allocated("held", result(consumed={"cpus": "2"}))
    snapshot = world(CLASS, *group("n2", "32"), node(), slice_of(GRP), held, user("p1", ("held", "a")))
    placed, _ = fitted(snapshot, ["p1"], [asking(cpus("2"), name="a")])
    assert places(placed) == {"p1": "n1"}


def test_given_claims_and_pods_that_are_there_already_are_judged_as_if_they_were_not() -> None:
    held = allocated("a", result(consumed={"cpus": "8"}))
    bound = pod("p1", container(cpu="8", claims=("a",)), claims=("a",))
    snapshot = world(CLASS, *group("n1"), held, bound, user("p2", cpu="1"))
    placed, _ = fitted(snapshot, ["p1", "p2"], [asking(cpus("8"), name="a")])
    assert places(placed) == {"p1": "n1", "p2": ""}


def test_each_pod_of_a_template_has_a_claim_of_its_own_and_what_no_pod_names_is_placed_alone() -> None:
    snapshot = world(CLASS, *group("n1"))
    template = asking(cpus("4"), name="cores")
    pods = [
        pod(
            name,
            container(claims=("c",)),
            node_name="",
            resourceClaims=[{"name": "c", "resourceClaimTemplateName": "cores"}],
        )
        for name in ("p1", "p2")
    ]
    alone = asking(cpus("1"), name="alone")
    users = [pod_in(world(each), each["metadata"]["name"]) for each in pods]
    wanted = wanted_of(users, [alone], [template], snapshot)
    assert [[claim.name for claim in each.claims] for each in wanted] == [["p1-c"], ["p2-c"], ["alone"]]
    placed, after = place(wanted, [alone], snapshot, Book().account, NOW)
    assert set(places(placed).values()) == {"n1"}
    assert account(after, "n1").resources["cpu"].free == 7


def templated(name: str, template: str = "cores", local: str = "c") -> Json:
    claims = [{"name": local, "resourceClaimTemplateName": template}]
    return pod(name, container(claims=(local,)), node_name="", resourceClaims=claims)


def test_pods_without_a_name_are_as_many_as_are_given() -> None:
    """A name for two would put one in place of the other, and there would be room for both."""
    users = [read_pod(templated("")) for _ in range(2)]
    snapshot = world(CLASS, *group("n1"))
    wanted = wanted_of(users, (), [asking(cpus("10"), name="cores")], snapshot)
    assert [each.claims[0].name for each in wanted] == ["<pod 1>-c", "<pod 2>-c"]
    assert sorted(places(place(wanted, (), snapshot, Book().account, NOW)[0]).values()) == ["", "n1"]


def test_a_claim_of_a_template_is_nobody_elses() -> None:
    """Pod a-b with claim c and pod a with claim b-c are two, and so is a claim that is called like it."""
    snapshot = world(CLASS, *group("n1"), allocated("p-c", result(consumed={"cpus": "1"})))
    users = [read_pod(each) for each in (templated("a-b"), templated("a", local="b-c"), templated("p"))]
    wanted = wanted_of(users, (), [asking(cpus("4"), name="cores"), asking(name="a-b-c")], snapshot)
    assert [[claim.name for claim in each.claims] for each in wanted] == [
        ["a-b-c"],
        ["a-b-c-2"],
        ["p-c-2"],
        ["a-b-c-3"],
    ]


@pytest.mark.parametrize("size", ["8", "2"])
def test_a_pod_that_is_there_has_no_second_claim_of_a_template(size: str) -> None:
    """Its manifest does not name the claim that it has. Of a given template that is judged anew, else it stays."""
    held = allocated("p1-c-x", result(consumed={"cpus": "10"}), pods=("p1",))
    there = templated("p1")
    there["spec"]["nodeName"] = "n1"
    there["status"]["resourceClaimStatuses"] = [{"name": "c", "resourceClaimName": "p1-c-x"}]
    snapshot = world(CLASS, *group("n1"), held, there)
    template = asking(cpus(size), name="cores")
    wanted = wanted_of([read_pod(templated(name)) for name in ("p1", "p2")], (), [template], snapshot)
    assert [claim.name for each in wanted for claim in each.claims] == ["p1-c-x", "p2-c"]
    placed, after = place(wanted, (), snapshot, Book().account, NOW)
    assert places(placed) == {"p1": "n1", "p2": "n1"}
    assert account(after, "n1").resources["cpu"].free == 16 - 2 * int(size)
    (kept,) = wanted_of([read_pod(templated("p1"))], (), (), snapshot)
    assert [claim.allocation for claim in kept.claims] == [snapshot.claims["ns", "p1-c-x"].allocation]


def test_pods_that_have_run_are_judged_as_new_ones() -> None:
    """What is exported of a cluster has ended, is bound, and has a UID that another copy has, too."""
    users = [{**user(name, cpu="10"), "status": {"phase": "Succeeded"}} for name in ("p1", "p2")]
    for each in users:
        each["metadata"]["uid"] = "copied"
        each["spec"]["nodeName"] = "n1"
    snapshot = world(CLASS, *group("n1"))
    wanted = wanted_of([read_pod(each) for each in users], (), (), snapshot)
    assert sorted(places(place(wanted, (), snapshot, Book().account, NOW)[0]).values()) == ["", "n1"]


def test_a_claim_that_a_pod_has_two_names_for_is_taken_once() -> None:
    raw = user("p1", ("a",))
    raw["spec"]["resourceClaims"].append({"name": "again", "resourceClaimName": "a"})
    raw["spec"]["containers"].append(container("other", claims=("again",)))
    snapshot = world(CLASS, *group("n1"))
    claims = [asking(cpus("10"), name="a")]
    wanted = wanted_of([read_pod(raw)], claims, (), snapshot)
    placed, after = place(wanted, claims, snapshot, Book().account, NOW)
    assert places(placed) == {"p1": "n1"}
    assert account(after, "n1").resources["cpu"].free == 6
    assert [entry.containers for entry in after.pods["ns", "p1"].entries] == [("main", "other")]


LABELS = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1", "n2"]}
SOME = {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [LABELS]}]}}


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize(("where", "count"), [({"allNodes": True}, 3), (SOME, 2)])
def test_pods_of_a_claim_that_no_node_has_for_itself_go_where_it_can_be_used(
    where: Json, count: int, held: bool
) -> None:
    """One pod on each of the three nodes of four cpus, as far as the pool of the claim is for them."""
    net = slice_of(device("net", allowMultipleAllocations=True), name="net", pool="net", **where)
    claim = allocated("net", {**result("net"), "pool": "net"}, node_name="")
    claim["status"]["allocation"] |= {} if where != SOME else SOME
    nodes = [node(name, uid=name, cpu="4") for name in ("n1", "n2", "n3")]
    users = [user(name, ("net",), "3") for name in ("p1", "p2", "p3")]
    snapshot = world(CLASS, *nodes, net, *users, *([claim] if held else []))
    placed, _ = fitted(snapshot, ["p1", "p2", "p3"], [] if held else [asking(name="net")])
    assert sorted(filter(None, places(placed).values())) == ["n1", "n2", "n3"][:count]


def test_claims_that_no_node_can_use_together() -> None:
    here, there = allocated("here", result()), allocated("there", result(), node_name="n9")
    snapshot = world(CLASS, node(), slice_of(GRP), here, there, user("p1", ("here", "there")), user("p2", ("there",)))
    placed, _ = fitted(snapshot, ["p1", "p2"], [])
    told = [(fit.node, reason.rule) for each in placed for fit in each.nodes for reason in fit.reasons]
    assert sorted(told) == [("n1", "claims-apart"), ("n9", "claims-apart")]


def test_beside_what_nobody_knows_nothing_is_sure() -> None:
    """Claims that no search came to an end for, or whose selector fails, may take other devices than those they got."""
    asks = {"selectors": [{"cel": {"expression": 'device.attributes["x"].y == 1'}}]}
    users = [user("large", ("a",), "8"), user("small", cpu="1"), user("far", cpu="16")]
    snapshot = world(CLASS, *group("n1", "12"), node("n2", uid="u2"), *users)
    placed, _ = fitted(snapshot, ["large", "small", "far"], [asking(cpus("2", **asks), name="a")])
    found = {each.wanted.pod.name: each.fit for each in placed if each.wanted.pod}
    assert {name: (fit.node, fit.sure) for name, fit in found.items() if fit} == {
        "large": ("n1", False),
        "small": ("n1", False),
        "far": ("n2", True),
    }


def test_nodes_that_are_as_they_were_are_not_asked_again() -> None:
    """Pods that are alike are asked about once, and what is placed changes one node; else 60 pods on 300 nodes would be
    18,000 questions for each order.
    """
    names = [f"p{number}" for number in range(60)]
    nodes = [each for number in range(300) for each in group(f"n{number}")]
    snapshot = world(CLASS, *nodes, *(user(name, (f"c-{name}",), "1") for name in names))
    asked: list[str] = []

    def accounts(seen: Snapshot, name: str) -> Account | None:
        asked.append(name)
        return Book().account(seen, name)

    claims = [asking(cpus("8"), name=f"c-{name}") for name in names]
    wanted = wanted_of([pod_in(snapshot, name) for name in names], claims, (), snapshot)
    placed, after = place(wanted, claims, snapshot, accounts, NOW)
    assert all(each.fit for each in placed)
    assert {account(after, each.fit.node).resources["cpu"].free for each in placed if each.fit} == {7}
    assert len(asked) < 6_000


def test_a_claim_that_nobody_has() -> None:
    snapshot = world(CLASS, *group("n1"), user("p1", ("a",)))
    with pytest.raises(UnknownClaimError, match="pod ns/p1: has claim ns/a, which is neither given nor in the cluster"):
        wanted_of([pod_in(snapshot, "p1")], (), (), snapshot)
    bare = read_pod(pod(resourceClaims=[{"name": "c"}]))
    with pytest.raises(UnknownClaimError, match="pod ns/p1: has claim c of no name and no template, needs one of them"):
        wanted_of([bare], (), (), snapshot)


def test_nothing_wanted() -> None:
    assert place([], (), world(*group("n1")), Book().account, NOW)[0] == []
    assert Wanted(None, ()).claims == ()
