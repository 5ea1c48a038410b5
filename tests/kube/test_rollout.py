import pytest

from webhook.kube.rollout import (
    Drill,
    DriverRollout,
    Editors,
    Hold,
    Override,
    Promotion,
    RolloutStatus,
    Writer,
    read_rollout,
    seconds,
)


@pytest.mark.parametrize(("text", "value"), [("90s", 90), ("2m", 120), ("1h30m", 5400), ("0s", 0)])
def test_durations(text: str, value: int) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "90", "s", "1.5m", "-1s", "9٣s", None, 90])
def test_no_durations(text: object) -> None:
    assert seconds(text) is None


def test_defaults_follow_the_design() -> None:
    rollout = read_rollout({"metadata": {"name": "d"}, "spec": {}})
    assert (rollout.stage, rollout.evidence, rollout.window, rollout.hold) == ("General", ("PoolComplete",), 90, None)


def test_a_stage_nobody_knows_is_the_safe_one() -> None:
    assert read_rollout({"spec": {"stage": "Genral"}}).stage == "Off"


def test_an_empty_hold_is_a_hold() -> None:
    rollout = read_rollout({"spec": {"hold": {}}})
    assert rollout.hold is not None
    assert rollout.hold.bad_mappings == frozenset()


def test_any_json_gives_a_rollout() -> None:
    assert read_rollout({"metadata": 7, "spec": {"freshness": [], "writers": 7, "status": "x"}}).hold is None


@pytest.mark.parametrize("hold", [True, "wrong mapping", ["x"], 0, {"badMappings": "sha256:1"}])
def test_a_hold_that_cannot_be_read_holds_every_pool(hold: object) -> None:
    assert read_rollout({"spec": {"hold": hold}}).hold == Hold("", "", "", "", frozenset())
    assert read_rollout({"spec": {"hold": None}}).hold is None


@pytest.mark.parametrize("writers", ["ns/cpu", {}, 7, ["ns/cpu"], [None], [{}]])
def test_writers_that_cannot_be_read_leave_no_driver_open(writers: object) -> None:
    assert read_rollout({"spec": {"writers": writers}}).writers == (Writer("", "", "NodeLocal"),)
    assert read_rollout({"spec": {"writers": None}}).writers == read_rollout({"spec": {"writers": []}}).writers == ()


def test_editors_are_administrators_unless_somebody_is_named() -> None:
    def editors(value: object) -> Editors:
        return read_rollout({"spec": {"canaryLabelEditors": value}}).editors

    assert editors(None) == Editors(frozenset(), frozenset({"system:masters"}))
    assert editors({"users": ["ann"]}) == Editors(frozenset({"ann"}), frozenset())
    assert editors({"groups": ["ops", 7]}) == Editors(frozenset(), frozenset({"ops"}))
    assert editors({}) == Editors(frozenset(), frozenset())


def test_the_keys_that_a_canary_selector_reads() -> None:
    rows = [{"key": "ring", "operator": "Exists"}, {"key": 7}, "x", {}]
    selector = {"matchLabels": {"canary": "yes", 7: "x"}, "matchExpressions": rows}
    assert read_rollout({"spec": {"canaryNodeSelector": selector}}).canary_keys == {"ring", "canary"}
    assert read_rollout({"spec": {"canaryNodeSelector": ["canary"]}}).canary_keys == set()


def test_what_a_promotion_asks_for_and_who_overrides_it() -> None:
    override = {"by": "ann", "reason": "ticket 7", "stage": "Canary", "at": "2026-11-20T09:00:00Z"}
    asked = {"minCoverage": 95, "quietDays": 0, "drills": ["Rollback"], "pendingP99": "1m30s", "override": override}
    rollout = read_rollout({"spec": {"promotion": asked}})
    assert rollout.promotion == Promotion(95, 0, ("Rollback",), 90)
    assert rollout.override == Override("ann", "ticket 7", "Canary", "2026-11-20T09:00:00Z")
    assert read_rollout({"spec": {"promotion": {}}}).promotion == Promotion(None, None, (), None)
    none = {"minCoverage": None, "quietDays": None, "drills": None, "pendingP99": None}
    assert read_rollout({"spec": {"promotion": none}}).promotion == Promotion(None, None, (), None)
    assert read_rollout({"spec": {}}).promotion is None


def test_what_a_promotion_asks_for_and_nobody_can_read_is_still_asked_for() -> None:
    every = ("minCoverage", "quietDays", "drills", "pendingP99")
    asked = {"minCoverage": True, "quietDays": "7", "drills": "Rollback", "pendingP99": 30}
    found = read_rollout({"spec": {"promotion": asked}})
    assert (found.promotion, found.override) == (Promotion(None, None, (), None, every), None)
    asked = {"minCoverage": -1, "quietDays": -1, "drills": ["Rollback", 7], "pendingP99": "5 minutes"}
    assert read_rollout({"spec": {"promotion": asked}}).promotion == Promotion(None, None, ("Rollback",), None, every)
    assert read_rollout({"spec": {"promotion": True}}).promotion == Promotion(None, None, (), None, ("promotion",))


def test_a_status_that_is_written_leaves_what_the_operator_says() -> None:
    def told(version: str, drivers: int, spec: object) -> DriverRollout:
        metadata = {"name": "d", "resourceVersion": version}
        return read_rollout({"metadata": metadata, "spec": spec, "status": {"duplicates": drivers}})

    assert told("1", 0, {}) != told("2", 1, {})
    assert told("1", 0, {}).without_status() == told("2", 1, {}).without_status()
    assert told("1", 0, {}).without_status() != told("2", 1, {"stage": "Off"}).without_status()


def test_the_status_is_what_the_next_leader_goes_on_from() -> None:
    drill = {"name": "Rollback", "at": "2026-11-20T09:00:00Z", "passed": True, "by": "ann", "message": "fine"}
    status = {
        "quietSince": "2026-11-20T08:00:00Z",
        "observedSince": "2026-11-19T08:00:00Z",
        "pending": {"count": 12, "p99": "1m12s"},
        "drills": [drill, {"name": "NodeRestart", "passed": "yes"}],
        "duplicates": 2,
        "zoneFailures": 3,
        "digests": ["sha256:a"],
    }
    found = read_rollout(
        {"metadata": {"name": "d", "uid": "u", "generation": 4, "resourceVersion": "9"}, "status": status}
    )
    assert (found.uid, found.generation, found.resource_version) == ("u", 4, "9")
    assert found.status == RolloutStatus(
        quiet_since="2026-11-20T08:00:00Z",
        observed_since="2026-11-19T08:00:00Z",
        pending_p99=72,
        pending_count=12,
        drills=(
            Drill("Rollback", "2026-11-20T09:00:00Z", True, "ann", "fine"),
            Drill("NodeRestart", "", False, "", ""),
        ),
        duplicates=2,
        zone_failures=3,
        digests=("sha256:a",),
    )
    assert read_rollout({"status": {"pending": 3, "drills": {}, "digests": None}}).status == RolloutStatus()
