from tests.facts.builders import DRIVER, claim, pod_ref, result, world
from webhook.facts.reporting import reporting_drivers

REPORT = {"driver": DRIVER, "pool": "n1", "device": "grp", "conditions": []}


def with_reports(name, *reports, reserved=True):
    made = claim(name, [result()], [pod_ref()] if reserved else [])
    return {**made, "status": {**made["status"], "devices": list(reports)}}


def test_drivers_with_claims_in_use_and_whether_they_report() -> None:
    assert reporting_drivers(world(with_reports("c1"))) == {DRIVER: False}
    assert reporting_drivers(world(with_reports("c1"), with_reports("c2", REPORT))) == {DRIVER: True}
    # A claim that nobody uses yet, or that has no devices, has nothing to be reported.
    assert reporting_drivers(world(with_reports("c1", reserved=False), claim("c2"))) == {}
    # Nor is anything known of drivers that somebody else reports for.
    assert reporting_drivers(world(with_reports("c1", {**REPORT, "driver": "other"}))) == {DRIVER: False, "other": True}


def test_what_is_reported_is_read_whatever_it_holds() -> None:
    odd = with_reports("c1", REPORT, REPORT, {"driver": 7}, {"driver": "a"}, "x", None)
    [read] = world(odd).claims.values()
    assert read.reported == ("a", DRIVER)
