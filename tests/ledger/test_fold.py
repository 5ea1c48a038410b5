from __future__ import annotations

import random
from datetime import timedelta
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from msgspec.structs import replace

from tests.ledger.builders import DRIVER, allocated, device, old, result, slice_of
from tests.ledger.history import SAYS, START, History
from webhook.kube.node_ledger import BookedCharge, NodeLedger, Reservation, node_ledger_object
from webhook.kube.quantity import of_resource
from webhook.kube.release import Release
from webhook.kube.snapshot import Snapshot, build
from webhook.ledger.book import Book
from webhook.ledger.booking import advance
from webhook.ledger.events import Event
from webhook.ledger.fold import Effect, Ledger, apply, fold, news
from webhook.ledger.views import node_json

RELEASE = Release(36)


def applied(events: list[Event]) -> Ledger:
    ledger = Ledger(Snapshot(RELEASE))
    for event in events:
        ledger, _ = apply(ledger, event)
    return ledger


def effects(events: list[Event]) -> list[tuple[str, str, str, str]]:
    ledger, found = Ledger(Snapshot(RELEASE)), []
    for event in events:
        ledger, made = apply(ledger, event)
        found += [_told(each) for each in made]
    return found


def _told(effect: Effect) -> tuple[str, str, str, str]:
    amount = of_resource("cpu", effect.charge.amount) if effect.charge is not None else ""
    return effect.kind, effect.name, effect.node, amount


def booked(ledger: Ledger, node: str = "n1") -> list[tuple[str, str, str, int | None, str]]:
    held = ledger.snapshot.ledgers.get(node, NodeLedger(node))
    return [
        (row.claim_uid, row.device, of_resource(row.resource, row.amount), row.zone, row.resource_version)
        for row in held.charges
    ]


def told(ledger: Ledger) -> dict[str, Any]:
    """All that anyone can ask of the ledger."""
    snapshot, now = ledger.snapshot, _NOW
    return {
        "pages": {name: node_json(Book(), snapshot, name, now) for name in sorted(snapshot.nodes)},
        "ledgers": dict(snapshot.ledgers),
        "seen": dict(ledger.seen),
    }


_NOW = History()._at() + timedelta(days=1)


def same_in_any_order(history: History, seed: int = 1) -> Ledger:
    """The ledger of the history, which is that of any order of its events, some of them twice."""
    wanted = fold(history.events, RELEASE)
    shuffle = random.Random(seed)
    for _ in range(4):
        events = [*history.events, *(event for event in history.events if shuffle.random() < 0.3)]
        shuffle.shuffle(events)
        assert told(applied(events)) == told(wanted)
        assert told(fold(events, RELEASE)) == told(wanted)
    assert told(applied(history.events)) == told(wanted)
    return wanted


def started() -> History:
    made = History()
    made.node()
    made.slice()
    made.claim()
    made.pod()
    return made


def test_from_request_to_release() -> None:
    history = started()
    history.allocate("c", (0, "2"), pod_name="p1")
    history.bind(cpu="2")
    history.end()
    history.deallocate()
    history.delete("ResourceClaim", "c")
    assert effects(history.events) == [("charged", "c", "n1", "2"), ("released", "c", "n1", "2")]
    assert booked(same_in_any_order(history)) == []


def test_an_event_twice_changes_nothing_and_is_counted() -> None:
    history = started()
    history.allocate()
    ledger = applied(history.events)
    again, made = apply(ledger, history.events[-1])
    assert [_told(each) for each in made] == [("duplicate", "c", "", "")]
    assert replace(again, duplicates=ledger.duplicates) == ledger
    assert dict(again.duplicates) == {"ResourceClaim": 1}


def test_an_older_event_changes_nothing_and_is_counted() -> None:
    history = started()
    history.allocate()
    history.deallocate()
    events = history.events
    ledger = applied([*events[:-2], events[-1]])
    again, made = apply(ledger, events[-2])
    assert [_told(each) for each in made] == [("stale", "c", "", "")]
    assert again.snapshot == ledger.snapshot
    assert dict(again.stale) == {"ResourceClaim": 1}
    assert booked(same_in_any_order(history)) == []


def test_news_are_the_events_that_are_neither_old_nor_known() -> None:
    history = started()
    history.allocate()
    history.deallocate()
    history.delete("ResourceClaim", "c")
    *first, allocated, freed, gone = history.events
    assert list(news([*first, freed, allocated, freed, gone, freed])) == [*first, freed, gone]
    assert list(news(history.events)) == history.events


def test_events_that_never_came_are_made_up_for_by_the_next_state() -> None:
    history = started()
    history.allocate("c", (0, "2"))
    history.deallocate()
    history.delete("ResourceClaim", "c")
    history.claim()
    history.allocate("c", (1, "3"))
    last = history.events[-1]
    for missing in range(4, len(history.events) - 1):
        events = [event for index, event in enumerate(history.events) if index != missing]
        assert booked(applied(events)) == booked(applied(history.events)) == [(last.uid, "zone1", "3", 1, "102")]
    assert booked(applied([*history.events[:3], last])) == [(last.uid, "zone1", "3", 1, "102")]


def test_a_list_after_a_gap_is_every_object_once_more() -> None:
    history = started()
    history.allocate()
    history.bind(cpu="2")
    ledger = applied(history.events)
    again = applied([*history.events, *(event for event in history.events if event.type == "put")])
    assert told(again) == told(ledger)


def test_gone_without_a_version_of_its_own_ends_the_last_state_that_was_seen() -> None:
    history = started()
    history.allocate()
    last = history.events[-1]
    gone = replace(last, type="gone", object=None)
    assert booked(applied([*history.events, gone])) == []
    assert booked(applied([gone, *history.events])) == []
    history.allocate()
    assert len(booked(applied([gone, *history.events]))) == 1


def test_of_objects_with_and_without_a_version_one_is_the_newest_in_any_order() -> None:
    history = History()
    history.claim()
    first = history.events[-1]
    events = [
        replace(first, resource_version=version, observed=first.observed + timedelta(seconds=seconds))
        for version, seconds in (("5", 1), ("", 2), ("3", 3), ("", 0))
    ]
    for order in permutations(events):
        seen = fold(order, RELEASE).seen[first.place]
        assert seen.version == 5
        assert applied([*order]).seen[first.place] == seen


def test_a_claim_made_again_under_its_name_owes_nothing_of_the_one_before() -> None:
    history = started()
    history.allocate("c", (0, "2"))
    first = history.events[-1].uid
    history.delete("ResourceClaim", "c")
    history.claim()
    history.allocate("c", (1, "3"))
    second = history.events[-1].uid
    assert first != second
    assert [row[0] for row in booked(same_in_any_order(history))] == [second]
    assert effects(history.events) == [
        ("charged", "c", "n1", "2"),
        ("released", "c", "n1", "2"),
        ("charged", "c", "n1", "3"),
    ]


def test_another_allocation_is_a_release_and_a_new_charge() -> None:
    history = started()
    history.allocate("c", (0, "2"))
    history.deallocate()
    history.allocate("c", (0, "2"))
    skipped = [event for index, event in enumerate(history.events) if index != len(history.events) - 2]
    assert sorted(effects(skipped)) == [
        ("charged", "c", "n1", "2"),
        ("charged", "c", "n1", "2"),
        ("released", "c", "n1", "2"),
    ]
    assert len(booked(same_in_any_order(history))) == 1


def test_a_driver_that_restarts_changes_no_charge() -> None:
    history = started()
    history.allocate("c", (0, "2"))
    before = booked(applied(history.events))
    history.delete("ResourceSlice", "s1")
    assert booked(same_in_any_order(history)) == before
    history.slice("1", name="s2", generation=1)
    assert booked(same_in_any_order(history)) == before
    history.slice("3", name="s2", generation=1)
    assert booked(same_in_any_order(history)) == before
    assert effects(history.events) == [("charged", "c", "n1", "2")]


def test_of_two_generations_at_once_the_higher_one_counts_as_it_does_for_the_scheduler() -> None:
    history = started()
    history.slice("2", name="s2", generation=2)
    history.slice("3", name="s1", generation=1)
    history.allocate("c", (0, "2"))
    history.delete("ResourceSlice", "s1")
    ledger = same_in_any_order(history)
    assert [row[2:] for row in booked(ledger)] == [("4", 0, "105")]


def test_a_slice_that_was_gone_before_an_allocation_is_not_what_it_is_charged_by() -> None:
    history = started()
    history.slice("2", name="s2")
    history.slice("3", name="s2")
    history.delete("ResourceSlice", "s2")
    history.allocate("c", (0, "2"))
    history.slice("4", name="s2", generation=2)
    history.delete("ResourceSlice", "s2")
    ledger = same_in_any_order(history)
    assert [row[2:] for row in booked(ledger)] == [("2", 0, "102")]
    # The journal tells of what is gone without its last state.
    bare = [replace(event, object=None) if event.type == "gone" else event for event in history.events]
    first, last = (event for event in bare if event.type == "gone")
    others = [event for event in bare if event.type == "put"]
    for events in ([*others, last, first], [*others, first, last], [first, last, *others], [last, *others, first]):
        assert told(applied(events)) == told(fold(events, RELEASE)) == told(ledger)


def test_where_nothing_was_there_the_newest_before_counts() -> None:
    history = started()
    history.slice("2")
    history.delete("ResourceSlice", "s1")
    history.allocate("c", (0, "2"))
    history.slice("3")
    assert [row[2:] for row in booked(same_in_any_order(history))] == [("4", 0, "105")]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("slice"), st.sampled_from("123"), st.sampled_from(["s1", "s2"]), st.integers(1, 2)),
            st.tuples(st.just("gone"), st.sampled_from(["s1", "s2"])),
            st.tuples(st.just("allocate"), st.integers(0, 1)),
        ),
        max_size=14,
    )
)
def test_a_replay_books_what_was_booked_as_it_happened(steps: list[tuple[Any, ...]]) -> None:
    history = History()
    history.node()
    history.claim()
    live: NodeLedger | None = None
    for kind, *values in steps:
        slices = [name for name in ("s1", "s2") if history.has("ResourceSlice", name)]
        if kind == "slice":
            multiplier, name, generation = values
            history.slice(multiplier, name, generation=generation)
        elif kind == "gone" and values[0] in slices:
            history.delete("ResourceSlice", values[0])
        # Of nothing that is offered the scheduler gives nothing.
        elif kind == "allocate" and slices:
            if history.get("ResourceClaim", "c")["status"]:
                history.deallocate()
                live = advance(live, build(list(history.objects.values()), RELEASE), "n1")
            history.allocate("c", (values[0], "2"))
        live = advance(live, build(list(history.objects.values()), RELEASE), "n1")
    rows = [(row.device, row.amount, row.slice, row.resource_version) for row in live.charges] if live else []
    held = fold(history.events, RELEASE).snapshot.ledgers.get("n1", NodeLedger("n1"))
    assert [(row.device, row.amount, row.slice, row.resource_version) for row in held.charges] == rows


def test_an_allocation_is_charged_by_the_mapping_that_was_there_however_late_it_is_heard_of() -> None:
    history = started()
    history.slice("2")
    history.allocate("c", (0, "2"))
    history.slice("5")
    ledger = same_in_any_order(history)
    assert [row[2:] for row in booked(ledger)] == [("4", 0, "105")]
    first, second, third = (event for event in history.events if event.kind == "ResourceSlice")
    others = [event for event in history.events if event.kind != "ResourceSlice"]
    late = [*others, third, first, second]
    assert effects(late)[:1] == [("charged", "c", "n1", "10")]
    assert ("changed", "c", "n1", "4") in effects(late)
    assert told(applied(late)) == told(ledger)


def test_another_way_to_tell_zones_is_heard_of_in_any_order_and_moves_nothing_that_a_ledger_has() -> None:
    history = started()
    history.allocate("c", (0, "2"))
    history.delete("ResourceSlice", "s1")
    history.rollout(SAYS)
    ledger = same_in_any_order(history)
    *first, gone, rollout = history.events
    assert told(applied([*first, rollout, gone])) == told(applied(history.events)) == told(ledger)
    assert [row[3] for row in booked(ledger)] == [1]
    history = started()
    history.allocate("c", (0, "2"))
    history.put(node_ledger_object(applied(history.events).snapshot.ledgers["n1"]))
    history.rollout(SAYS)
    assert [row[3] for row in booked(same_in_any_order(history))] == [0]


def test_a_restarted_node_changes_no_charge() -> None:
    history = started()
    history.allocate("c", (0, "2"), pod_name="p1")
    history.bind(cpu="2")
    before = booked(applied(history.events))
    history.node(boot="boot-2")
    history.delete("ResourceSlice", "s1")
    history.slice(name="s2")
    ledger = same_in_any_order(history)
    assert booked(ledger) == before
    assert ledger.snapshot.ledgers["n1"].boot_id == "boot-2"


def test_a_node_made_again_under_its_name_is_another_node() -> None:
    history = started()
    history.allocate("c", (0, "2"))
    history.delete("Node", "n1")
    history.node()
    history.claim("d")
    history.allocate("d", (1, "3"))
    ledger = same_in_any_order(history)
    assert [row[1:] for row in booked(ledger)] == [("zone1", "3", 1, "102")]
    assert ledger.snapshot.ledgers["n1"].node_uid == history.objects["Node", "n1"]["metadata"]["uid"]


def test_a_pod_deleted_by_force_and_made_again_keeps_the_claim_charged_once() -> None:
    history = started()
    history.allocate("c", (0, "2"), pod_name="p1")
    history.bind(cpu="2")
    history.delete("Pod", "p1")
    history.pod("p1")
    account = Book().account(same_in_any_order(history).snapshot, "n1")
    assert account is not None
    amount = account.resources["cpu"]
    assert (amount.claims, amount.pods, amount.reserved) == (2, 0, 0)
    claim = history.get("ResourceClaim", "c")
    history.reserve(claim, "p1")
    history.put(claim)
    history.bind(cpu="2")
    account = Book().account(same_in_any_order(history).snapshot, "n1")
    assert account is not None
    amount = account.resources["cpu"]
    assert (amount.claims, amount.pods, amount.reserved) == (2, 1, 0)


def test_a_published_ledger_brings_its_reservations() -> None:
    history = started()
    claim, pod = (history.objects[key]["metadata"]["uid"] for key in (("ResourceClaim", "c"), ("Pod", "p1")))
    plain = started()
    plain.allocate("c", (0, "2"), pod_name="p1")
    (row,) = applied(plain.events).snapshot.ledgers["n1"].charges
    held = Reservation(
        claim, row.allocation, "ns", "c", pod, "ns", "p1", (row,), {"cpu": 1}, {}, history.now, "a", row.claim_version
    )
    history.put(node_ledger_object(NodeLedger("n1", reservations=(held,))))
    history.version = plain.version - 1
    ledger = same_in_any_order(history)
    assert [(each.claim_uid, each.seen) for each in ledger.snapshot.ledgers["n1"].reservations] == [(claim, False)]
    history.allocate("c", (0, "2"), pod_name="p1")
    ledger = same_in_any_order(history)
    assert [(each.claim_uid, each.seen) for each in ledger.snapshot.ledgers["n1"].reservations] == [(claim, True)]
    history.bind(cpu="2")
    ledger = same_in_any_order(history)
    assert ledger.snapshot.ledgers["n1"].reservations == ()
    assert [row[1:3] for row in booked(ledger)] == [("zone0", "2")]
    kinds = [kind for kind, *_ in effects(history.events)]
    assert kinds == ["reserved", "charged", "unreserved"]


def test_what_a_published_ledger_has_of_a_claim_goes_with_the_claim_however_late_the_view_of_it_is() -> None:
    history = started()
    history.allocate("c", (0, "2"))
    held = applied(history.events).snapshot.ledgers["n1"]
    history.put(node_ledger_object(held))
    history.delete("ResourceClaim", "c")
    *others, ledger, gone = history.events
    created, allocated = (event for event in others if event.kind == "ResourceClaim")
    others = [event for event in others if event.kind != "ResourceClaim"]
    for late in ([*others, created, ledger, gone], [*others, ledger, created, gone], [*others, gone, ledger, created]):
        assert booked(applied(late)) == booked(fold(late, RELEASE)) == []
    assert (
        len(booked(applied([*others, ledger, created]))) == len(booked(fold([*others, ledger, created], RELEASE))) == 1
    )
    assert len(booked(applied([*others, allocated, ledger]))) == 1


def test_a_pod_that_does_not_name_the_claim_takes_no_charge_from_the_node_of_the_one_that_does() -> None:
    history = History()
    for name in ("n1", "n2"):
        history.node(name)
    history.put(slice_of(device("zone0", old("1", "cpus"), capacity={"cpus": "8"}), pool="net", allNodes=True))
    history.claim()
    history.pod("p1")
    history.pod("p2", claim="another")
    history.bind("p1", "n1")
    claim = allocated("c", result("zone0", {"cpus": "2"}, pool="net"), node_name="")
    claim["status"]["reservedFor"] = [
        {"resource": "pods", "name": name, "uid": history.objects["Pod", name]["metadata"]["uid"]}
        for name in ("p2", "p1")
    ]
    history.put(claim)
    history.bind("p2", "n2")
    ledger = same_in_any_order(history)
    assert [row[1:3] for row in booked(ledger, "n1")] == [("zone0", "2")]
    assert booked(ledger, "n2") == []


@pytest.mark.parametrize("kind", ["DeviceClass", "Namespace", "ResourceClaimTemplate"])
def test_what_no_charge_depends_on_touches_no_node(kind: str) -> None:
    history = started()
    history.allocate()
    before = applied(history.events)
    group = "v1" if kind == "Namespace" else "resource.k8s.io/v1"
    history.put({"apiVersion": group, "kind": kind, "metadata": {"name": "x", "namespace": "ns"}})
    after, made = apply(before, history.events[-1])
    assert made == ()
    assert after.snapshot.ledgers is before.snapshot.ledgers


NAMES = st.sampled_from(["a", "b"])
NODES = st.sampled_from(["n1", "n2"])


class Cluster(RuleBasedStateMachine):
    """Whatever a cluster does, in whatever order it is heard of: one book."""

    def __init__(self) -> None:
        super().__init__()
        self.history = History()
        for node in ("n1", "n2"):
            self.history.node(node)
            self.history.slice("1", f"{node}-0", node)
        for name in ("a", "b"):
            self.history.claim(name)
            self.history.pod(name, name)

    @rule(name=NODES, boot=st.sampled_from(["x", "y"]))
    def restart(self, name: str, boot: str) -> None:
        self.history.node(name, boot)

    @rule(name=NODES, multiplier=st.sampled_from([None, "1", "2", "3"]), index=st.sampled_from([0, 0, 1]))
    def publish(self, name: str, multiplier: str | None, index: int) -> None:
        self.history.slice(multiplier, f"{name}-{index}", name, generation=1 + index)

    @rule(attributes=st.sampled_from([(), (SAYS,)]))
    def roll_out(self, attributes: tuple[str, ...]) -> None:
        self.history.rollout(*attributes)

    @rule(
        name=NAMES,
        node=NODES,
        zones=st.lists(st.tuples(st.integers(0, 1), st.sampled_from(["1", "2"])), min_size=1, max_size=2),
        named=st.booleans(),
        held=st.booleans(),
    )
    def allocate(self, name: str, node: str, zones: list[tuple[int, str]], named: bool, held: bool) -> None:
        if not self.history.has("ResourceClaim", name):
            self.history.claim(name)
        if self.history.get("ResourceClaim", name)["status"]:
            self.history.deallocate(name)
        if held:
            self.reserve(name, node)
        self.history.allocate(name, *zones, pod_name=name, node_name=node, named=named)

    def reserve(self, name: str, node: str) -> None:
        """What admission holds for the very allocation that is written next."""
        claim, pod = (self.history.objects.get((kind, name)) for kind in ("ResourceClaim", "Pod"))
        assert claim is not None
        version = self.history.version + 1
        uid, pod_uid = claim["metadata"]["uid"], pod["metadata"]["uid"] if pod is not None else ""
        identity = (START + timedelta(seconds=version)).strftime("%Y-%m-%dT%H:%M:%SZ")
        charge = BookedCharge(
            uid,
            identity,
            "r0",
            DRIVER,
            node,
            "zone0",
            "",
            "cpu",
            "ns",
            name,
            "s",
            "u",
            1,
            "1",
            "d",
            1,
            0,
            "1",
            identity,
        )
        held = Reservation(
            uid, identity, "ns", name, pod_uid, "ns", name, (charge,), {"cpu": 1}, {}, identity, "a", str(version + 1)
        )
        self.history.put(node_ledger_object(NodeLedger(node, reservations=(held,))))

    @rule(name=NAMES)
    def rewrite(self, name: str) -> None:
        if self.history.has("ResourceClaim", name):
            self.history.put(self.history.get("ResourceClaim", name))

    @rule(name=NAMES)
    def deallocate(self, name: str) -> None:
        if self.history.has("ResourceClaim", name):
            self.history.deallocate(name)

    @rule(name=NAMES, node=NODES, counted=st.booleans())
    def bind(self, name: str, node: str, counted: bool) -> None:
        if not self.history.has("Pod", name):
            self.history.pod(name, name)
        if not self.history.get("Pod", name)["spec"].get("nodeName"):
            self.history.bind(name, node, **({"cpu": "2"} if counted else {}))

    @rule(name=NAMES)
    def end(self, name: str) -> None:
        if self.history.has("Pod", name):
            self.history.end(name)

    @precondition(lambda self: self.history.objects)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        self.history.delete(*data.draw(st.sampled_from(sorted(self.history.objects))))

    @rule(node=NODES)
    def publish_ledger(self, node: str) -> None:
        held = applied(self.history.events).snapshot.ledgers.get(node)
        if held is not None:
            self.history.put(node_ledger_object(held))

    def teardown(self) -> None:
        same_in_any_order(self.history, len(self.history.events))


Cluster.TestCase.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
TestCluster = Cluster.TestCase
