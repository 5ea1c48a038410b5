from datetime import timedelta

import pytest
from msgspec.structs import replace

from tests.facts.builders import DRIVER, NOW, grp, node, slice_of, world
from webhook.facts.promotion import Evidence, latest, next_stage, promotion, recorded
from webhook.facts.times import stamp
from webhook.kube.rollout import Drill, RolloutStatus, read_rollout

ASKED = {"minCoverage": 75, "quietDays": 7, "drills": ["Rollback", "NodeRestart"], "pendingP99": "30s"}
DAY = timedelta(days=1)


def drill(name, passed=True, at="2026-11-10T09:00:00Z", message=""):
    return Drill(name, at, passed, "on-call", message)


GOOD = Evidence(
    quiet_since=stamp(NOW - 8 * DAY),
    observed_since=stamp(NOW - 9 * DAY),
    pending_p99=30,
    pending_count=40,
    drills=(drill("Rollback"), drill("NodeRestart")),
    duplicates=0,
    zone_failures=0,
    replays_equal=True,
    overcommitted=0,
)


def rollout(stage="Canary", promotion=ASKED, **spec):
    spec = {"stage": stage, "promotion": promotion, **spec}
    spec.setdefault("canaryNodeSelector", {"matchLabels": {"example.org/canary": "yes"}})
    return read_rollout({"metadata": {"name": DRIVER}, "spec": spec})


def fleet(fresh=4, nodes=4):
    """Canary nodes, the first of which have a mapped pool, and one that is none."""
    named = [f"n{number}" for number in range(nodes)]
    slices = [slice_of(grp(), name=f"s-{each}", where=each) for each in named[:fresh]]
    return world(*(node(each, uid=each) for each in named), node("other", uid="other", labels={}), *slices)


def judged(evidence=GOOD, snapshot=None, **spec):
    report = promotion(rollout(**spec), fleet() if snapshot is None else snapshot, evidence, NOW)
    return report, {gate.name: gate for gate in report.gates}


def test_everything_that_was_asked_for_is_there():
    report, gates = judged()
    assert (report.driver, report.stage, report.next_stage, report.passed) == (DRIVER, "Canary", "Expanding", True)
    assert {name: gate.passed for name, gate in gates.items()} == dict.fromkeys(
        (
            "coverage",
            "hold",
            "drill-rollback",
            "drill-node-restart",
            "replays",
            "quiet",
            "capacity",
            "pending",
            "duplicates",
            "zones",
        ),
        True,
    )
    assert gates["coverage"].has == "4 of 4 nodes with a Fresh mapped pool (100%)"
    assert gates["pending"].has == "99 of 100 claims allocated within 30s, of 40 claims"
    assert gates["quiet"].has == "no difference for 8d, since 2026-11-12T09:30:00Z"


@pytest.mark.parametrize(
    ("gate", "changes", "has"),
    [
        ("drill-rollback", {"drills": (drill("NodeRestart"),)}, "never done"),
        (
            "drill-rollback",
            {"drills": (*GOOD.drills, drill("Rollback", False, "2026-11-11T09:00:00Z", "2 of 3 pools refuse"))},
            "failed at 2026-11-11T09:00:00Z by on-call: 2 of 3 pools refuse",
        ),
        (
            "drill-rollback",
            {"drills": (drill("Rollback", at="2027-06-01T00:00:00Z"), drill("NodeRestart"))},
            "a time of 2027-06-01T00:00:00Z, and it is 2026-11-20T09:30:00Z",
        ),
        (
            "drill-rollback",
            {"drills": (drill("Rollback", at="yesterday"), drill("NodeRestart"))},
            "a time of yesterday, and it is 2026-11-20T09:30:00Z",
        ),
        ("replays", {"replays_equal": False}, "other accounts than were recorded after a replay"),
        ("quiet", {"quiet_since": ""}, "a difference now, looked at since 2026-11-11T09:30:00Z"),
        ("quiet", {"observed_since": ""}, "nobody who looked for differences"),
        ("quiet", {"observed_since": stamp(NOW - DAY)}, "no difference for 1d, since 2026-11-19T09:30:00Z"),
        ("quiet", {"observed_until": stamp(NOW - 5 * DAY)}, "no difference for 3d, since 2026-11-12T09:30:00Z"),
        ("quiet", {"quiet_since": stamp(NOW + DAY)}, "no difference for 0s, since 2026-11-21T09:30:00Z"),
        ("capacity", {"overcommitted": 1}, "1 overcommitted node"),
        ("pending", {"pending_p99": 31}, "99 of 100 claims allocated within 31s, of 40 claims"),
        ("pending", {"pending_p99": None, "pending_count": 0}, "no claim whose waiting was seen"),
        ("duplicates", {"duplicates": 2}, "2 duplicate charges"),
        ("zones", {"zone_failures": 1}, "1 zone failure"),
    ],
)
def test_one_gate_that_fails_is_enough_and_no_other_fails_with_it(gate, changes, has):
    report, gates = judged(replace(GOOD, **changes))
    assert not report.passed
    assert [name for name, each in gates.items() if each.passed is False] == [gate]
    assert gates[gate].has == has


def test_coverage_counts_nodes_of_the_stage_exactly():
    _, gates = judged(snapshot=fleet(fresh=3))
    assert gates["coverage"].passed is True
    assert gates["coverage"].has == "3 of 4 nodes with a Fresh mapped pool (75%), not n3"
    report, gates = judged(snapshot=fleet(fresh=2, nodes=3), promotion={**ASKED, "minCoverage": 67})
    # Two thirds are less than 67 percent, and more than 66.
    assert (report.passed, gates["coverage"].passed) == (False, False)
    _, gates = judged(snapshot=fleet(fresh=2, nodes=3), promotion={**ASKED, "minCoverage": 66})
    assert gates["coverage"].passed is True


@pytest.mark.parametrize("promotion", [ASKED, {"minCoverage": 0}, None])
def test_a_selector_that_matches_no_node_proves_nothing(promotion):
    report, gates = judged(promotion=promotion, canaryNodeSelector={"matchLabels": {"example.org/canary": "never"}})
    assert (report.passed, gates["coverage"].passed) == (False, False)
    assert gates["coverage"].has == "0 of 0 nodes with a Fresh mapped pool (0%)"
    assert gates["coverage"].needs == "a node that canaryNodeSelector chooses"


def test_a_hold_stands_in_the_way_until_it_ends():
    hold = {"reason": "books half", "by": "on-call", "since": "2026-11-20T08:30:00Z"}
    report, gates = judged(hold=hold)
    assert (report.passed, gates["hold"].passed) == (False, False)
    assert gates["hold"].has == (f"driver {DRIVER} held: books half, by on-call, since 2026-11-20T08:30:00Z (1h ago)")
    assert judged(hold={**hold, "until": stamp(NOW)})[0].passed
    bad = judged(hold={**hold, "badMappings": ["sha256:" + "0" * 64]}, resumeAt={"mappingDigests": []})
    assert bad[1]["hold"].passed is False


def test_what_nobody_asked_for_is_told_and_decides_nothing():
    report, gates = judged(Evidence(), promotion=None)
    assert report.passed
    assert {name: gate.passed for name, gate in gates.items()} == {
        "coverage": None,
        "hold": True,
        "replays": None,
        "quiet": None,
        "capacity": None,
        "pending": None,
        "duplicates": None,
        "zones": None,
    }
    assert judged(GOOD, promotion=None)[1]["zones"].passed is True
    assert not judged(Evidence(), promotion={"quietDays": 0})[0].passed
    assert judged(GOOD, promotion={"quietDays": 0})[0].passed


@pytest.mark.parametrize(
    ("promotion", "has"),
    [
        ({"quietDays": "7", "pendingP99": "5 minutes"}, "spec.promotion.quietDays, spec.promotion.pendingP99"),
        ("all of them", "spec.promotion"),
    ],
)
@pytest.mark.parametrize("stage", ["Off", "Canary", "General"])
def test_what_is_asked_for_and_cannot_be_read_has_not_passed(promotion, has, stage):
    report, gates = judged(GOOD, promotion=promotion, stage=stage)
    assert [name for name, each in gates.items() if each.passed is False] == ["asked"]
    assert not report.passed
    assert gates["asked"].has == f"{has}, which cannot be read"


def test_stage_off_needs_canary_nodes_and_measures_nothing():
    report, gates = judged(Evidence(), stage="Off")
    assert (report.next_stage, report.passed) == ("Canary", True)
    assert (gates["coverage"].has, gates["coverage"].passed) == ("4 canary nodes", True)
    assert {gate.passed for name, gate in gates.items() if name not in ("coverage", "hold")} == {None}
    for selector in ({"matchLabels": {"example.org/canary": "never"}}, None):
        report, gates = judged(Evidence(), stage="Off", canaryNodeSelector=selector)
        assert (report.passed, gates["coverage"].has) == (False, "0 canary nodes")


def test_general_is_the_last_stage_and_is_about_the_nodes_with_slices():
    report, gates = judged(snapshot=fleet(fresh=3), stage="General")
    assert (report.next_stage, report.passed) == ("", True)
    assert gates["coverage"].has == "3 of 3 nodes with a Fresh mapped pool (100%)"
    assert [next_stage(each) for each in ("Off", "Canary", "Expanding", "General")] == [
        "Canary",
        "Expanding",
        "General",
        "",
    ]


def test_of_a_drill_the_last_time_counts_wherever_it_stands():
    old, new = drill("Rollback", False, "2026-11-10T11:00:00+02:00"), drill("Rollback", True, "2026-11-10T09:30:00Z")
    assert [*latest((new, old))] == [*latest((old, new))] == [new]
    assert [each.name for each in latest((drill("Rollback"), drill("DriverUpgrade"), drill("Rollback")))] == [
        "DriverUpgrade",
        "Rollback",
    ]


def test_a_drill_that_is_to_come_neither_counts_nor_hides_one_that_was_done():
    ahead = stamp(NOW + timedelta(seconds=1))
    for passed in (True, False):
        _, gates = judged(replace(GOOD, drills=(*GOOD.drills, drill("Rollback", passed, ahead))))
        assert gates["drill-rollback"].passed is True
    _, gates = judged(replace(GOOD, drills=(drill("Rollback", False), drill("Rollback", at=ahead))))
    assert gates["drill-rollback"].has == "failed at 2026-11-10T09:00:00Z by on-call"
    _, gates = judged(replace(GOOD, drills=(drill("Rollback", at=stamp(NOW)),)))
    assert gates["drill-rollback"].passed is True


def test_evidence_of_a_status():
    status = RolloutStatus("a", "b", 3, 4, (drill("Rollback"),), 5, 6, ("sha256:x",))
    assert recorded(status, True, 0) == Evidence("a", "b", 3, 4, (drill("Rollback"),), 5, 6, True, 0)
    assert recorded(RolloutStatus()) == Evidence()
