from __future__ import annotations

from typing import Any

import pytest

from tests.facts.builders import CLUSTER, claim, grp, rules, samples, slice_of, world
from webhook.facts.requests import request_problems
from webhook.kube.finding import Finding

CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "d"},
    "spec": {"selectors": [{"cel": {"expression": 'device.driver == "d.example"'}}]},
}
SAMPLE = world(*samples(*CLUSTER), gates={"DRAListTypeAttributes": True})


def policy(value: str = "8", **fields: Any) -> dict[str, Any]:
    return {"cpus": {"value": value, "requestPolicy": fields}}


def asks(amount: str, name: str = "cpus", **exactly: Any) -> dict[str, Any]:
    wanted = {"name": "r", "exactly": {"deviceClassName": "d", "capacity": {"requests": {name: amount}}, **exactly}}
    return claim(requests=[wanted])


def judged(obj: Any, *devices: Any, user: str | None = None) -> list[Finding]:
    return request_problems(obj, world(CLASS, slice_of(*devices)), user)


WHOLE = policy(default="1", validRange={"min": "1", "step": "1"})
QUARTERS = policy(default="1", validValues=["250m", "500m", "1"])


def test_the_claims_and_templates_of_the_sample_cluster_are_silent() -> None:
    wanted = {"half-a-cpu": ["capacity-fractional"]}
    for obj in samples("13", "15", "17"):
        if obj["kind"] != "Namespace":
            assert rules(request_problems(obj, SAMPLE)) == wanted.get(obj["metadata"]["name"], [])


@pytest.mark.parametrize(
    ("amount", "capacity", "rule", "severity"),
    [
        ("4", WHOLE, "", ""),
        ("4", {"cpus": {"value": "8"}}, "", ""),
        ("500m", {"cpus": {"value": "8"}}, "", ""),
        ("500m", QUARTERS, "", ""),
        ("-4", WHOLE, "capacity-negative", "error"),
        ("9223372036854775807", WHOLE, "capacity-overflow", "error"),
        ("1e30", WHOLE, "capacity-overflow", "error"),
        ("9", WHOLE, "capacity-exceeds-every-device", "warning"),
        ("7500m", WHOLE, "capacity-fractional", "warning"),
        ("3", policy(default="2", validRange={"min": "2", "step": "2"}), "capacity-rounded-up", "warning"),
        ("300m", QUARTERS, "capacity-rounded-up", "warning"),
    ],
)
def test_amounts(amount: str, capacity: Any, rule: str, severity: str) -> None:
    found = judged(asks(amount), grp(capacity=capacity))
    assert [(f.rule, f.severity) for f in found] == ([(rule, severity)] if rule else [])
    for finding in found:
        assert finding.path == "spec.devices.requests[0].exactly.capacity.requests[cpus]"


def test_c5_half_a_cpu_gets_a_whole_one() -> None:
    (finding,) = judged(asks("500m"), grp(capacity=WHOLE))
    assert (finding.rule, finding.has) == ("capacity-fractional", "500m, which gets 1")


def test_c28_three_mebibytes_of_two_mebibyte_pages() -> None:
    policy_2mi = {"default": "2Mi", "validRange": {"min": "2Mi", "step": "2Mi"}}
    device = grp(capacity={"size": {"value": "8Gi", "requestPolicy": policy_2mi}})
    (finding,) = judged(asks("3Mi", "size"), device)
    assert (finding.rule, finding.severity) == ("capacity-rounded-up", "warning")
    assert "3Mi" in finding.has
    assert "4Mi" in finding.has


def test_d1_negative_amounts_are_refused_without_any_device() -> None:
    for obj in (asks("-4"), asks("-1m")):
        assert rules(request_problems(obj, world(CLASS))) == ["capacity-negative"]


def test_d3_fractions_are_exact() -> None:
    steps = policy(default="250m", validRange={"min": "250m", "step": "250m"})
    found = request_problems(
        asks("300m"),
        world(CLASS, slice_of(grp(capacity=steps)), minor=37, gates={"DRAFractionalCapacityRange": True}),
    )
    assert [(f.rule, f.has) for f in found] == [("capacity-rounded-up", "300m, which is rounded up to 500m")]


def test_d15_a_claim_may_leave_the_amount_out() -> None:
    assert judged(claim(), grp(capacity=WHOLE)) == []


def test_d16_another_name_of_a_capacity_is_told_with_the_name_that_exists() -> None:
    (finding,) = judged(asks("1", "d.example/cpus"), grp())
    assert (finding.rule, finding.severity) == ("capacity-name-unknown", "warning")
    assert finding.needs == "the name as in the slice: cpus"


def test_the_smallest_device_that_can_give_it_counts() -> None:
    devices = [grp("a", capacity=policy("4", default="1", validRange={"min": "1", "step": "1"})), grp("b")]
    assert judged(asks("6"), *devices) == []
    assert judged(asks("500m"), *devices) == []
    assert rules(judged(asks("12"), *devices)) == ["capacity-exceeds-every-device"]


def test_devices_that_the_selectors_leave_out_do_not_count() -> None:
    small = grp("a", size="4", attributes={"numa": {"int": 0}})
    large = grp("b", size="16", attributes={"numa": {"int": 1}})
    near = [{"cel": {"expression": 'device.attributes["d.example"].numa == 0'}}]
    assert judged(asks("8"), small, large) == []
    assert rules(judged(asks("8", selectors=near), small, large)) == ["capacity-exceeds-every-device"]


def test_an_exclusive_device_is_given_whole() -> None:
    device = {"name": "gpu", "capacity": {"cpus": {"value": "8"}}}
    assert judged(asks("3"), device) == []
    assert rules(judged(asks("9"), device)) == ["capacity-exceeds-every-device"]


def test_c23_an_attribute_that_other_drivers_publish() -> None:
    device = grp(attributes={"resource.kubernetes.io/numaNode": {"int": 0}, "numa": {"int": 0}})

    def constrained(name: str) -> list[Finding]:
        return judged(claim(constraints=[{"matchAttribute": name}]), device)

    (finding,) = constrained("dra.net/numaNode")
    assert (finding.rule, finding.severity) == ("constraint-attribute-unknown", "warning")
    assert finding.path == "spec.devices.constraints[0].matchAttribute"
    assert "missing on device grp" in finding.has
    assert constrained("resource.kubernetes.io/numaNode") == []
    assert constrained("d.example/numa") == []


def test_e20_the_shape_of_v1beta1_in_v1() -> None:
    (finding,) = judged(claim(requests=[{"name": "g", "deviceClassName": "d"}]), grp())
    assert (finding.rule, finding.origin, finding.error_type) == ("request-shape", "apiserver", "FieldValueRequired")
    assert finding.path == "spec.devices.requests[0]"
    assert "exactly:" in finding.needs
    flat = claim(requests=[{"name": "g", "deviceClassName": "d"}])
    flat["apiVersion"] = "resource.k8s.io/v1beta1"
    assert judged(flat, grp()) == []


def test_f16_the_annotation_of_the_schedulers_own_claims() -> None:
    obj = claim(metadata={"annotations": {"resource.kubernetes.io/extended-resource-claim": "true"}})
    assert [(f.rule, f.severity) for f in judged(obj, grp())] == [("forged-special-claim", "warning")]
    assert [(f.rule, f.severity) for f in judged(obj, grp(), user="mallory")] == [("forged-special-claim", "error")]
    assert judged(obj, grp(), user="system:kube-scheduler") == []


def test_a_class_that_is_not_there() -> None:
    obj = claim(requests=[{"name": "r", "exactly": {"deviceClassName": "other"}}])
    assert [(f.rule, f.severity) for f in judged(obj, grp())] == [("class-unknown", "warning")]
    assert [(f.rule, f.severity) for f in request_problems(obj, world())] == [("class-unknown", "info")]


def test_admin_access_needs_the_label_of_the_namespace() -> None:
    obj = claim(requests=[{"name": "r", "exactly": {"deviceClassName": "d", "adminAccess": True}}])
    namespace: Any = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}}
    assert [(f.rule, f.path) for f in request_problems(obj, world(CLASS, namespace))] == [
        ("admin-access-namespace", "spec.devices.requests[0].adminAccess")
    ]
    namespace["metadata"]["labels"] = {"resource.kubernetes.io/admin-access": "true"}
    assert request_problems(obj, world(CLASS, namespace)) == []


@pytest.mark.parametrize("where", ["ns", "default"])
def test_admin_access_whatever_else_the_request_asks_for(where: str) -> None:
    """What stands beside ``exactly`` does not matter, nor the version; without a namespace it is ``default``."""
    namespace: Any = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": where}}
    both = {"name": "r", "exactly": {"adminAccess": True}, "firstAvailable": [{"name": "s", "deviceClassName": "d"}]}
    flat = {"name": "r", "deviceClassName": "d", "adminAccess": True}
    for version, request in (("v1", both), ("v1beta1", flat)):
        obj = {**claim(requests=[request]), "apiVersion": f"resource.k8s.io/{version}"}
        obj["metadata"] = {"name": "c1"} if where == "default" else obj["metadata"]
        found = [f.path for f in request_problems(obj, world(CLASS, namespace)) if f.rule == "admin-access-namespace"]
        assert found == ["spec.devices.requests[0].adminAccess"]


def test_more_devices_than_a_claim_can_hold() -> None:
    obj = claim(requests=[{"name": n, "exactly": {"deviceClassName": "d", "count": 20}} for n in ("a", "b")])
    assert rules(judged(obj, grp())) == ["too-many-devices-requested"]


def test_templates_are_judged_at_their_inner_spec() -> None:
    obj = asks("-1")
    template = {**obj, "kind": "ResourceClaimTemplate", "spec": {"spec": obj["spec"]}}
    (finding,) = judged(template, grp())
    assert finding.path == "spec.spec.devices.requests[0].exactly.capacity.requests[cpus]"


@pytest.mark.parametrize("junk", [None, 7, [], {}, "x", [None], {"a": 1}, [[7]]])
def test_anything_may_stand_where_a_spec_should(junk: Any) -> None:
    for obj in (
        junk,
        claim() | {"spec": junk},
        claim() | {"metadata": junk},
        claim(requests=[junk]),
        claim(config=junk),
    ):
        for finding in judged(obj, grp()):
            assert finding.text("p").isprintable()
    assert isinstance(judged(claim(constraints=junk), grp()), list)
