from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from tests.ledger.builders import allocated, container, device, entry, node, old, pod, result, slice_of
from webhook.kube.node_ledger import NodeLedger, node_ledger_object
from webhook.kube.release import Release
from webhook.kube.snapshot import build
from webhook.ledger.book import Book
from webhook.ledger.events import event_of
from webhook.ledger.export import Export, kept_objects
from webhook.ledger.fold import fold
from webhook.ledger.recorded import recorded
from webhook.ledger.replay import edited, replay
from webhook.ledger.statement import statement

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
SLICE = slice_of(
    device("grp", old(key="cpus"), capacity={"cpus": "16"}, zone=0),
    device("other", old(key="cpus"), capacity={"cpus": "16"}, zone=1),
)


def at(obj, version):
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}


def waiting(name="c"):
    made = allocated(name)
    del made["status"]
    return made


def history():
    """A claim that is allocated, used, released and allocated anew in the other zone."""
    first = allocated("c", result("grp", consumed={"cpus": "3"}), pods=("p1",))
    second = allocated("c", result("other", consumed={"cpus": "4"}), pods=("p2",), at="2026-01-02T00:00:00Z")
    one = pod("p1", container(cpu="2", claims=("c",)), claims=("c",), entries=[entry("c", cpu="3")])
    two = pod("p2", container(cpu="1", claims=("c",)), claims=("c",), entries=[entry("c", cpu="4")])
    steps = [waiting(), first, one, (one, "gone"), waiting(), second, two]
    for number, step in enumerate(steps):
        obj, gone = step if isinstance(step, tuple) else (step, "")
        yield event_of(recorded(at(obj, 10 + number)), NOW + timedelta(seconds=number), bool(gone))


def made(**changes):
    objects = kept_objects([node("n1", cpu="16"), at(SLICE, 2)])
    export = Export(NOW, Release(36), NOW - timedelta(hours=1), objects, tuple(history()), {})
    said = statement(Book(), fold(export.history(), export.release).snapshot)
    return replace(export, **{"statement": said, **changes})


def test_the_same_accounts_and_pod_statuses_come_out():
    export = made()
    n1 = export.statement["nodes"][0]
    assert n1["resources"]["cpu"]["claims"] == "4"
    assert [zone["resources"]["cpu"]["claims"] for zone in n1["zones"]] == ["0", "4"]
    assert [each["name"] for each in export.statement["pods"]] == ["p2"]
    done = replay(export)
    assert (done.events, done.differences) == (9, ())


def test_an_event_less_is_a_difference():
    export = made()
    done = replay(replace(export, events=export.events[:-2]))
    rules = {each.finding.rule for each in done.differences}
    assert rules == {"node-account-differs", "zone-account-differs", "charge-missing", "pod-status-missing"}


@pytest.mark.parametrize("order", [lambda events: events[::-1], lambda events: (*events, *events)])
def test_the_order_of_events_and_how_often_they_come_are_no_difference(order):
    export = made()
    assert replay(replace(export, events=tuple(order(export.events)))).differences == ()


def test_of_objects_from_no_journal_every_slice_was_there_when_a_claim_was_allocated():
    claim = at(allocated("c", result("grp", consumed={"cpus": "3"})), 5)
    older, newer = (
        slice_of(device("grp", old(each, "cpus"), capacity={"cpus": "8"}), name=f"s{each}", generation=int(each))
        for each in ("1", "2")
    )
    objects = kept_objects([node("n1", cpu="16"), at(older, 2), at(newer, 9), claim])
    snapshot = build(objects, Release(36))
    export = Export(NOW, Release(36), NOW, objects, (), statement(Book(), snapshot))
    assert export.statement["nodes"][0]["resources"]["cpu"]["claims"] == "6"
    assert replay(export).differences == ()
    # A journal begins with what was there, and its statement may be what the events give.
    assert replay(replace(export, journal="sha256:0")).differences != ()


def test_the_device_of_another_node_in_the_same_pool_is_another_device():
    here = at(slice_of(device("grp", old("1")), name="here", pool="p", nodeName="n1"), 1)
    there = at(slice_of(device("grp", old("9")), name="there", pool="p", nodeName="n2"), 2)
    claim = at(allocated("c", {**result("grp"), "pool": "p"}), 3)
    objects = kept_objects([node("n1", cpu="16"), node("n2", cpu="16"), here, there, claim])
    export = Export(NOW, Release(36), NOW, objects, (), statement(Book(), build(objects, Release(36))))
    assert export.statement["nodes"][0]["resources"]["cpu"]["claims"] == "1"
    assert replay(export).differences == ()


def test_an_edited_slice_gives_what_its_mapping_would_have_cost():
    export = made()
    dearer = slice_of(
        device("grp", old("2", key="cpus"), capacity={"cpus": "16"}, zone=0),
        device("other", old("2", key="cpus"), capacity={"cpus": "16"}, zone=1),
        generation=99,
    )
    done = replay(export, edited(export, [dearer]))
    n1 = statement(Book(), done.ledger.snapshot)["nodes"][0]
    assert n1["resources"]["cpu"]["claims"] == "8"
    (item,) = done.ledger.snapshot.slices.values()
    assert (item.resource_version, item.generation) == ("2", 1)
    assert "node-account-differs" in {each.finding.rule for each in done.differences}


def test_what_a_ledger_booked_by_the_mapping_of_then_does_not_hide_an_edit():
    export = made()
    held = fold(export.history(), export.release).snapshot.ledgers["n1"]
    published = event_of(at(node_ledger_object(held), 50), NOW)
    export = replace(export, events=(*export.events, published))
    assert replay(export).differences == ()
    dearer = slice_of(*SLICE["spec"]["devices"][:1], device("other", old("2", key="cpus"), capacity={"cpus": "16"}))
    done = replay(export, edited(export, [dearer]))
    assert statement(Book(), done.ledger.snapshot)["nodes"][0]["resources"]["cpu"]["claims"] == "8"


def test_an_edited_object_that_was_never_there_is_there_from_the_beginning():
    export = made()
    events = edited(export, [node("n2")])
    assert [event.name for event in events][:2] == ["n2", "n1"]
    assert events[0].observed == export.begins
    done = replay(export, events)
    assert [each.finding.rule for each in done.differences] == ["node-account-surplus"]


def test_of_edited_claims_and_pods_only_what_was_asked_for_counts():
    export = made()
    edit = pod("p2", container(cpu="6", claims=("c",)), claims=("c",), entries=[entry("c", cpu="99")])
    done = replay(export, edited(export, [edit]))
    n1 = statement(Book(), done.ledger.snapshot)
    assert n1["nodes"][0]["resources"]["cpu"]["pods"] == "6"
    assert n1["pods"] == export.statement["pods"]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}, "kind: has Secret, needs one of"),
        ({"apiVersion": "v1", "kind": "Node"}, "metadata.name: has nothing, needs a name"),
    ],
)
def test_an_edit_that_no_account_depends_on_is_refused(edit, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        edited(made(), [edit])


def test_an_empty_history_is_equal_to_itself():
    export = Export(NOW, Release(37), NOW, (), (), statement(Book(), fold([], Release(37)).snapshot))
    assert replay(export).differences == ()
    assert replay(export).events == 0
    assert edited(export, []) == []


def test_reservations_and_charges_that_were_published_before_it_begins_count():
    held = NodeLedger("n1", "u1")
    export = made()
    objects = (*export.objects, recorded(node_ledger_object(held)))
    assert replay(replace(export, objects=objects)).differences == ()


@pytest.mark.parametrize(("multiplier", "consumed"), [("1n", "100m"), ("9223372036854775807", "9223372036854775807")])
def test_amounts_that_no_quantity_can_have_come_out_as_they_were_recorded(multiplier, consumed):
    offered = slice_of(device("grp", old(multiplier, "cpus"), capacity={"cpus": "8"}, zone=0))
    objs = [node(cpu="10"), offered, allocated("c", result(consumed={"cpus": consumed}))]
    said = statement(Book(), build(objs, Release(36)))
    assert replay(Export(NOW, Release(36), NOW, kept_objects(objs), (), said)).differences == ()
