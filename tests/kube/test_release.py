import pytest

from webhook.kube.release import Release, parse_gates, parse_version


@pytest.mark.parametrize(("text", "minor"), [("1.36", 36), ("v1.37.2", 37), (" 1.36.3 ", 36)])
def test_versions_this_guard_knows(text: str, minor: int) -> None:
    assert parse_version(text) == minor


@pytest.mark.parametrize("text", ["1.35", "2.36", "1", "", "1.x", "1.٣٦", "latest"])
def test_other_versions_name_the_known_ones(text: str) -> None:
    with pytest.raises(ValueError, match=r"1\.36 and 1\.37"):
        parse_version(text)


def test_gates_are_merged_over_the_defaults_of_the_release() -> None:
    release = Release(36, parse_gates("DRAListTypeAttributes=true, DRAConsumableCapacity=False"))
    assert release.enabled("DRAListTypeAttributes")
    assert not release.enabled("DRAConsumableCapacity")
    assert release.enabled("DRAPartitionableDevices")


def test_the_gate_of_this_feature_is_on_unless_switched_off() -> None:
    assert Release(36).enabled("DRANodeAllocatableResources")
    assert not Release(37, {"DRANodeAllocatableResources": False}).enabled("DRANodeAllocatableResources")


@pytest.mark.parametrize("text", ["A", "DRADeviceTaints=yes", "DRADeviceTaint=true", "=true"])
def test_bad_gates_are_named(text: str) -> None:
    with pytest.raises(ValueError, match="has feature gate"):
        parse_gates(text)
