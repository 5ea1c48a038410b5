"""Which drivers a request names."""

import pytest

from tests.facts.builders import as_claim, claim, device_class, samples, world
from webhook.facts.drivers import claim_drivers


def drivers(*expressions, request=()):
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    obj = device_class()
    obj["spec"]["selectors"] = selectors
    own = [{"cel": {"expression": expression}} for expression in request]
    wanted = [{"name": "r", "exactly": {"deviceClassName": "d", "selectors": own}}]
    return claim_drivers(as_claim(claim(requests=wanted)), world(obj))


@pytest.mark.parametrize(
    ("expressions", "expected"),
    [
        (['device.driver == "a.example"'], ("a.example",)),
        (["device.driver=='a.example'"], ("a.example",)),
        (['device.driver == "a.example" && device.attributes["a.example"].x == 1'], ("a.example",)),
        (['device.driver == "a.example" || device.driver == "b.example"'], ("a.example", "b.example")),
        (['device.driver == "a.example" || true'], ()),
        (['!(device.driver == "a.example")'], ()),
        (['device.driver != "a.example"'], ()),
        (['device.attributes["a.example"].x == 1'], ()),
        (['device.driver == "a.example"', 'device.driver == "b.example"'], ()),
        (["true", 'device.driver == "b.example"'], ("b.example",)),
        ([], ()),
        (["'a.example' == device.driver"], ("a.example",)),
        (['device.driver in ["b.example", "a.example"]'], ("a.example", "b.example")),
        (['device.driver in ["a.example", "b" + ".example"]'], ()),
        (
            ['device.driver == "a.example" && (device.attributes["a"].x == 1 || device.attributes["a"].y)'],
            ("a.example",),
        ),
        (['device.driver == "a.example" && device.attributes["a"].x || device.attributes["b"].y'], ()),
        (['device.driver == "a.example" ? device.attributes["a.example"].x == 1 : true'], ()),
        (['device.driver == "a.example" ? device.attributes["a.example"].x == 1 : false'], ("a.example",)),
        (['device.driver == "a.example" && false'], ("a.example",)),
        (['true && device.driver == "a.example"'], ("a.example",)),
        (['(device.driver == "a.example") == false'], ()),
        (['["device.driver == \\"a.example\\""].size() == 1'], ()),
        (['["a.example"].exists(device, device == "a.example")'], ()),
        (['device.driver == "a.example" &&'], ()),
        (['device.driver == "a.example" && device.allowMultipleAllocations'], ("a.example",)),
    ],
)
def test_drivers_are_those_named_by_the_selectors(expressions, expected):
    assert drivers(*expressions) == expected
    assert drivers(request=expressions) == expected


def test_the_samples():
    snapshot = world(*samples("12"))
    names = {obj["metadata"]["name"]: claim_drivers(as_claim(obj), snapshot) for obj in samples("13")[:5]}
    assert names["dpdk-bundle"] == ("cpu.granite.example", "mem.granite.example")
    assert names["gpu-or-cpus"] == ("cpu.granite.example", "gpu.basalt.example")
