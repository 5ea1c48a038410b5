from __future__ import annotations

import pytest

from tests.facts.builders import samples
from webhook.facts.classes import class_problems, is_extended_resource
from webhook.kube.release import Release

R36 = Release(36)


def test_the_sample_classes_are_fine() -> None:
    assert [class_problems(obj, R36) for obj in samples("12")] == [[]] * 6


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"selectors": [{"cel": {"expression": "device.nope"}}]}, "spec.selectors[0].cel.expression"),
        ({"selectors": [{}]}, "spec.selectors[0].cel"),
        ({"config": [{}]}, "spec.config[0].opaque"),
        ({"config": [{"opaque": {"driver": "d.example", "parameters": [1]}}]}, "spec.config[0].opaque.parameters"),
        ({"config": [{}] * 33}, "spec.config"),
        ({"extendedResourceName": "cpu"}, "spec.extendedResourceName"),
    ],
)
def test_what_the_server_refuses(spec: object, path: str) -> None:
    (finding,) = class_problems({"metadata": {"name": "c"}, "spec": spec}, R36)
    assert (finding.path, finding.origin) == (path, "apiserver")


@pytest.mark.parametrize("spec", [None, 7, [], "x", {"selectors": 7, "config": {}, "extendedResourceName": []}])
def test_any_json(spec: object) -> None:
    assert class_problems({"metadata": {"name": "c"}, "spec": spec}, R36) == []


def test_extended_resources_have_a_domain_of_their_own() -> None:
    names = ["vendor.example/gpu", "cpu", "kubernetes.io/x", "requests.a/b", "a/b/c", "Vendor.example/x"]
    assert [is_extended_resource(name) for name in names] == [True, False, False, False, False, False]
