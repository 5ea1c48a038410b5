import pytest

from webhook.kube.rollout import read_rollout, seconds


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
    assert read_rollout({"metadata": 7, "spec": {"freshness": [], "writers": {}, "hold": "x"}}).hold is None
