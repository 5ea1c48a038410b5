import pytest

from tests.ledger.builders import DRIVER
from tests.ledger.history import History
from webhook.kube.release import Release
from webhook.kube.snapshot import Snapshot
from webhook.ledger.events import Event
from webhook.ledger.touched import touched

NOBODY: frozenset[str] = frozenset()


def after(history: History) -> Snapshot:
    snapshot = Snapshot(Release(36))
    for event in history.events:
        assert event.object is not None
        snapshot = snapshot.remove(event.bare()) if event.type == "gone" else snapshot.put(event.object)
    return snapshot


def by_last(history: History, published: frozenset[str] = NOBODY) -> set[str]:
    """The nodes that the last event of the history touches."""
    now = after(history)
    last = history.events.pop()
    before = after(history)
    history.events.append(last)
    return touched(last, before, now, published)


def started() -> History:
    made = History()
    for name in ("n1", "n2"):
        made.node(name)
        made.slice(name=f"s-{name}", node_name=name)
    made.claim()
    made.pod()
    made.allocate(pod_name="p1")
    return made


def test_a_claim_touches_its_node() -> None:
    history = started()
    assert by_last(history) == {"n1"}
    history.deallocate()
    assert by_last(history) == {"n1"}
    history.allocate(node_name="n2")
    assert by_last(history) == {"n2"}
    history.delete("ResourceClaim", "c")
    assert by_last(history) == {"n2"}


def test_a_claim_whose_allocation_stays_touches_published_ledgers_only() -> None:
    history = started()
    history.put(history.get("ResourceClaim", "c"))
    assert by_last(history) == set()
    assert by_last(history, frozenset({"n1"})) == {"n1"}


def test_a_slice_touches_the_nodes_of_its_claims() -> None:
    history = started()
    history.slice("2", name="s-n1", node_name="n1")
    assert by_last(history) == {"n1"}
    history.slice("2", name="s-n2", node_name="n2")
    assert by_last(history) == set()
    history.delete("ResourceSlice", "s-n1")
    assert by_last(history) == {"n1"}


def test_a_slice_that_comes_late_touches_them_too() -> None:
    history = started()
    late = history.events[1]
    history.delete("ResourceSlice", "s-n1")
    now = after(history)
    assert touched(late, now, now, NOBODY) == set()
    assert touched(late, now, now, NOBODY, pools=[(DRIVER, "n1")]) == {"n1"}


def test_a_claim_that_comes_late_touches_its_node() -> None:
    history = started()
    now = after(history)
    assert touched(history.events[-1], now, now, NOBODY) == {"n1"}


@pytest.mark.parametrize(("boot", "nodes"), [("boot-1", set()), ("boot-2", {"n1"})])
def test_a_heartbeat_touches_nothing_a_restart_its_node(boot: str, nodes: set[str]) -> None:
    history = started()
    history.node("n1", boot, cpu="3")
    assert by_last(history) == nodes


def test_a_pod_touches_the_nodes_of_its_claims_when_it_is_placed_or_over() -> None:
    history = started()
    history.put(history.get("Pod", "p1"))
    assert by_last(history) == set()
    history.bind()
    assert by_last(history) == {"n1"}
    history.end()
    assert by_last(history) == {"n1"}
    history.pod("other", claim="none")
    assert by_last(history) == set()


def test_a_rollout_touches_where_its_drivers_devices_are_held() -> None:
    history = started()
    history.put({"apiVersion": "allocguard.dev/v1alpha1", "kind": "DriverRollout", "metadata": {"name": "d.example"}})
    assert by_last(history) == {"n1"}
    history.put({"apiVersion": "allocguard.dev/v1alpha1", "kind": "DriverRollout", "metadata": {"name": "other"}})
    assert by_last(history) == set()
    history.delete("ResourceSlice", "s-n1")
    history.delete("DriverRollout", "d.example")
    assert by_last(history) == {"n1"}


def test_a_claim_and_a_pod_touch_the_nodes_whose_ledgers_name_them() -> None:
    history = started()
    history.deallocate()
    history.delete("ResourceClaim", "c")
    claim, now = history.events[-1], after(history)
    before = after(started())
    named = {claim.uid: {"n2"}, "p1-6": {"n3"}}
    assert touched(claim, before, now, NOBODY, named) == {"n1", "n2"}
    history.delete("Pod", "p1")
    assert history.events[-1].uid == "p1-6"
    assert touched(history.events[-1], now, after(history), NOBODY, named) == {"n3"}


def test_a_ledger_touches_its_node() -> None:
    history = started()
    history.put({"apiVersion": "allocguard.dev/v1alpha1", "kind": "NodeLedger", "metadata": {"name": "n7"}})
    event: Event = history.events[-1]
    assert touched(event, Snapshot(), Snapshot(), NOBODY) == {"n7"}
