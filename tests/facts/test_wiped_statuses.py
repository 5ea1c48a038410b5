"""Device statuses that go with their allocation."""

from copy import deepcopy

from tests.facts.builders import DRIVER, claim, result, world
from tests.facts.writing import user
from webhook.facts.wiped_statuses import wiped, wiped_problems

OTHER = "other.example"


def told(*drivers):
    obj = claim(results=[result(cpus=None, driver=driver) for driver in drivers])
    obj["status"]["devices"] = [{"driver": driver, "pool": "n1", "device": "grp"} for driver in drivers]
    return obj


def without(obj, *fields):
    obj = deepcopy(obj)
    for field in fields:
        obj["status"].pop(field, None)
    return obj


def judge(old, new):
    return wiped_problems(user(world(), "allocator"), old, new)


def test_every_drivers_statuses_go():
    old = told(OTHER, DRIVER)
    (problem,) = judge(old, without(old, "allocation", "devices"))
    assert (problem.rule, problem.severity, problem.path) == ("device-statuses-wiped", "info", "status.devices")
    assert problem.has == (
        "2 device statuses of d.example, other.example, which go with the allocation that allocator cleared"
    )
    assert wiped(old, without(old, "allocation", "devices")) == (DRIVER, OTHER)


def test_one_status_goes():
    (problem,) = judge(told(DRIVER), without(told(DRIVER), "allocation", "devices"))
    assert problem.has.startswith("1 device status of d.example, which goes with")


def test_nothing_goes():
    old = told(DRIVER)
    assert judge(old, without(old, "devices")) == [], "the driver itself takes its status back"
    assert judge(old, without(old, "reservedFor")) == []
    assert judge(without(old, "devices"), without(old, "devices", "allocation")) == []
    assert judge({}, old) == []
