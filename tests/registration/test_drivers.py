from webhook.kube.release import Release
from webhook.kube.snapshot import build
from webhook.registration.drivers import listed_drivers, registered_drivers


def slice_of(driver, **device):
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": "n1", "pool": pool, "devices": [{"name": "d", **device}]}
    metadata = {"name": f"n1-{driver}"}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": metadata, "spec": spec}


def claim_of(driver):
    status = {"allocation": {"devices": {"results": [{"driver": driver, "pool": "n1", "device": "d"}]}}}
    metadata = {"namespace": "ns", "name": "c", "uid": "u"}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "status": status}


MAPPED = {"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "1"}}}


def listed(*objects, registered=()):
    return set(listed_drivers(build(objects, Release()), frozenset(registered)))


def test_drivers_with_a_mapping_or_a_rollout():
    rollout = {"apiVersion": "allocguard.dev/v1alpha1", "kind": "DriverRollout", "metadata": {"name": "r.example"}}
    assert listed(slice_of("a.example", **MAPPED), slice_of("b.example"), rollout) == {"a.example", "r.example"}


def test_a_driver_that_lost_its_mappings_stays_listed():
    assert listed(slice_of("b.example"), registered=["b.example", "gone.example"]) == {"b.example"}
    assert listed(claim_of("b.example"), registered=["b.example", "gone.example"]) == {"b.example"}


def test_what_is_written_in_the_configuration():
    given = {"metadata": {"annotations": {"allocguard.dev/drivers": "a.example,b.example"}}}
    assert registered_drivers(given) == {"a.example", "b.example"}
    for other in (None, {}, {"metadata": None}, {"metadata": {"annotations": {"allocguard.dev/drivers": 7}}}):
        assert registered_drivers(other) == frozenset()


def test_nobody_gets_text_into_the_conditions_by_the_annotation():
    assert listed(slice_of("b.example"), registered=["b.example", "x'] || true || x in ['"]) == {"b.example"}
