import pytest

from tests.facts.builders import NOW, claim, pod, pod_ref, result, world
from webhook.facts.times import instant
from webhook.facts.waits import delay, waited, waiting_for


def born(at):
    return {"creationTimestamp": f"2026-11-20T{at}Z"}


def finished(claim_at="08:00:00", pod_at="08:59:00", stamp="2026-11-20T09:00:00Z"):
    made = claim(results=[result()], reserved=[pod_ref()], stamp=stamp, metadata=born(claim_at))
    return world(made, pod(where="n1", metadata=born(pod_at)))


@pytest.mark.parametrize(
    ("claim_at", "pod_at", "seconds"),
    [("08:00:00", "08:59:00", 60), ("08:59:50", "08:59:00", 10), ("09:00:05", "08:00:00", 0)],
    ids=["from the pod on", "from the claim on", "clocks differ"],
)
def test_how_long_an_allocation_was_waited_for(claim_at, pod_at, seconds):
    snapshot = finished(claim_at, pod_at)
    assert waited(snapshot.claims["ns", "c1"], snapshot) == seconds


def test_what_tells_nothing():
    unstamped = finished(stamp="")
    assert waited(unstamped.claims["ns", "c1"], unstamped) is None
    ahead = world(claim(results=[result()], metadata=born("08:00:00")))
    assert waited(ahead.claims["ns", "c1"], ahead) is None
    new = world(claim(metadata=born("08:00:00")))
    assert waited(new.claims["ns", "c1"], new) is None
    assert waiting_for(new.claims["ns", "c1"], new, NOW) is None


def test_how_long_a_claim_waits_already():
    first, second = (pod(name, metadata=born(at)) for name, at in (("p1", "09:29:00"), ("p2", "09:20:00")))
    snapshot = world(claim(metadata=born("08:00:00")), first, second)
    assert waiting_for(snapshot.claims["ns", "c1"], snapshot, NOW) == 600
    bound = snapshot.put(pod("p2", where="n1", metadata=born("09:20:00")))
    assert waiting_for(bound.claims["ns", "c1"], bound, NOW) == 60
    done = finished()
    assert waiting_for(done.claims["ns", "c1"], done, NOW) is None


@pytest.mark.parametrize(
    ("claim_at", "allocated", "seconds"),
    [
        ("08:00:00", "2026-11-20T09:00:00Z", 3600),
        ("09:00:05", "2026-11-20T09:00:00Z", 0),
        ("08:00:00", "a digest", 0),
    ],
    ids=["from the claim on", "clocks differ", "no time"],
)
def test_how_late_an_allocation_came(claim_at, allocated, seconds):
    made = finished(claim_at).claims["ns", "c1"]
    assert delay(made, instant(allocated)).total_seconds() == seconds
