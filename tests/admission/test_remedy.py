from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.bench import fleet
from tests.ledger.builders import allocated, container, device, node, old, pod, result, slice_of, world
from webhook.admission.action import apply
from webhook.admission.decide import decide
from webhook.admission.decode import read_review
from webhook.admission.remedy import remedy
from webhook.kube.admission import raw_request, read_request
from webhook.kube.release import Release
from webhook.kube.snapshot import Snapshot, build
from webhook.ledger.book import Book
from webhook.store import policies

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
REVISION = policies.read([policies.shipped()])
Json = dict[str, Any]
CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "d.example"},
    "spec": {"selectors": [{"cel": {"expression": 'device.driver == "d.example"'}}]},
}


def slices(name: str) -> Json:
    grp = device("grp", old("1", key="cpus"), capacity={"cpus": "64"})
    return slice_of(grp, name=f"s-{name}", pool=name, nodeName=name)


def claim(name: str, cpus: str, on: str, user: str) -> Json:
    made = allocated(
        name, result("grp", consumed={"cpus": cpus}, pool=on, shareID=f"share-{name}"), pods=(user,), node_name=on
    )
    made["spec"]["devices"]["requests"][0]["exactly"]["capacity"] = {"requests": {"cpus": cpus}}
    return made


def cluster(*objects: Json, **sizes: str) -> Snapshot:
    nodes = [node(name, uid=f"u-{name}", cpu=cpu) for name, cpu in sizes.items()]
    return world(CLASS, *nodes, *(slices(name) for name in sizes), *objects)


def remedy_of(snapshot: Snapshot, made: Json) -> Json | None:
    request = read_request(raw_request("UPDATE", made, {**made, "status": {}}, sub_resource="status"))
    verdict = decide(request, "validate", REVISION, snapshot, Book(), NOW)
    return remedy(verdict, apply(verdict))


ME = pod("me", container(cpu="1", claims=("mine",)), claims=("mine",), node_name="", phase="Pending")
OTHER = (
    claim("other", "8", "n1", "p1"),
    pod("p1", container(cpu="1", claims=("other",)), claims=("other",)),
)


def test_where_no_node_takes_it_the_smallest_change_of_each_kind_is_told() -> None:
    told = remedy_of(cluster(*OTHER, ME, n1="16", n2="4"), claim("mine", "8", "n1", "me"))
    assert told is not None
    assert (told["looked"], told["nodes"], told["fits"], told["fit"]) == (2, 2, 0, [])
    assert told["why"] == {"node-overcommit": 2}
    assert told["smallestChange"] == [
        {"kind": "node-grow", "node": "n1", "claim": "", "resource": "cpu", "amount": "2"},
        {"kind": "shrink", "node": "n1", "claim": "ns/mine", "resource": "cpu", "amount": "2"},
        {"kind": "release", "node": "n1", "claim": "ns/other", "resource": "cpu", "amount": "8"},
    ]


def test_each_change_helps_when_it_is_made() -> None:
    smaller = claim("mine", "6", "n1", "me")
    assert remedy_of(cluster(*OTHER, ME, n1="16", n2="4"), smaller) is None
    mine = claim("mine", "8", "n1", "me")
    assert remedy_of(cluster(*OTHER, ME, n1="18", n2="4"), mine) is None
    assert remedy_of(cluster(OTHER[1], ME, n1="16", n2="4"), mine) is None


def test_nodes_that_take_it_are_named_and_what_would_help_on_its_own() -> None:
    told = remedy_of(cluster(*OTHER, ME, n1="16", n2="32"), claim("mine", "8", "n1", "me"))
    assert told is not None
    assert (told["fits"], told["fit"], told["here"], told["why"]) == (1, ["n2"], False, {"node-overcommit": 1})
    assert {each["node"] for each in told["smallestChange"]} == {"n1"}


def test_only_what_refuses_a_claim_for_its_place_has_a_remedy() -> None:
    assert remedy_of(cluster(*OTHER, ME, n1="64"), claim("mine", "8", "n1", "me")) is None
    verdict = decide(read_review(fleet.slice_review()), "validate", REVISION, Snapshot(), Book(), NOW)
    assert remedy(verdict, apply(verdict)) is None


def test_a_template_that_fits_nowhere_is_told_how_much_less_would_do() -> None:
    spec = claim("x", "80", "n1", "me")["spec"]
    made = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "spec": {"spec": spec}}
    request = read_request(raw_request("CREATE", {**made, "metadata": {"name": "t", "namespace": "ns"}}))
    verdict = decide(request, "validate", REVISION, cluster(n1="128", n2="128"), Book(), NOW)
    told = remedy(verdict, apply(verdict))
    assert told is not None
    (change,) = told["smallestChange"]
    assert (change["kind"], change["amount"]) == ("shrink", "16")


def test_a_pod_that_has_to_wait_is_told_what_keeps_each_node_from_its_claims() -> None:
    spec = {"stage": "General", "hold": {"reason": "books half", "by": "x", "since": "2026-11-29T00:00:00Z"}}
    rollout = {
        "apiVersion": "allocguard.dev/v1alpha1",
        "kind": "DriverRollout",
        "metadata": {"name": "cpu.bench.example"},
    }
    snapshot = build([*fleet.cluster(4), fleet.claim(900), {**rollout, "spec": spec}], Release(36))
    verdict = decide(read_review(fleet.pod_review(900)), "mutate", REVISION, snapshot, Book(), NOW)
    told = remedy(verdict, apply(verdict))
    assert told is not None
    assert (told["looked"], told["fits"], told["why"], told["smallestChange"]) == (4, 0, {"driver-held": 4}, [])


def test_what_is_tried_is_bounded_and_says_so() -> None:
    sizes = {f"n{number}": "16" for number in range(1, 201)}
    told = remedy_of(cluster(*OTHER, ME, **sizes), claim("mine", "8", "n1", "me"))
    assert told is not None
    assert (told["looked"], told["nodes"], told["fits"], len(told["fit"])) == (128, 200, 127, 8)
