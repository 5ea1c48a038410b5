"""The claims that a pod asks for."""

from typing import Any

import pytest

from tests.facts.builders import as_pod, claim, device_class, pod, result, world
from webhook.facts.pod_needs import unseen, wanted_claims
from webhook.kube.claims import Claim

Json = dict[str, Any]
CLASS = device_class()


def template(name: str = "t", requests: list[Json] | None = None) -> Json:
    """A template that gives the claim of the builders."""
    made = claim(name, requests=requests)
    metadata = {**made["metadata"], "namespace": "ns"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": metadata,
        "spec": {"spec": made["spec"]},
    }


def wanted(obj: Json, *objs: Json) -> tuple[Claim, ...]:
    return wanted_claims(as_pod(obj), world(*objs))


def from_template(*names: str, **fields: Any) -> Json:
    entries = [{"name": f"e{index}", "resourceClaimTemplateName": name} for index, name in enumerate(names)]
    return pod(claims={}, resourceClaims=entries, **fields)


def test_claims_by_name_are_the_stored_ones() -> None:
    held = claim("c2", results=[result()])
    found = wanted(pod(claims={"a": "c1", "b": "c2", "c": "none"}), claim("c1"), held)
    assert [(each.id, each.allocation is None) for each in found] == [("uid-c1", True), ("uid-c2", False)]


def test_a_claim_that_two_entries_name_counts_once() -> None:
    assert len(wanted(pod(claims={"a": "c1", "b": "c1"}), claim("c1"))) == 1


def test_a_template_stands_for_a_claim_of_the_pods_own() -> None:
    asked = [{"name": "r", "exactly": {"deviceClassName": "d", "count": 3}}]
    found = wanted(from_template("t", "t", "none"), template(requests=asked))
    assert [(each.namespace, each.name, each.uid) for each in found] == [("ns", "p1/e0", ""), ("ns", "p1/e1", "")]
    assert len({each.id for each in found}) == 2
    assert [each.groups[0].alternatives[0].count for each in found] == [3, 3]
    assert all(each.allocation is None for each in found)


def test_a_pod_that_has_no_name_yet_wants_the_same() -> None:
    made = from_template("t", metadata={"name": "", "uid": "", "generateName": "p-"})
    assert [each.key for each in wanted(made, template())] == ["ns/pod/e0"]


def test_a_template_of_another_namespace_is_none() -> None:
    elsewhere = template()
    elsewhere["metadata"]["namespace"] = "other"
    assert wanted(from_template("t"), elsewhere) == ()


def test_the_claim_made_from_a_template_takes_its_place() -> None:
    made = claim("p1-e0-x", results=[result()], metadata={"ownerReferences": [{"kind": "Pod", "uid": "uid-p1"}]})
    told = {"resourceClaimStatuses": [{"name": "e0", "resourceClaimName": "p1-e0-x"}]}
    found = wanted(from_template("t", status=told), template(), made)
    assert [(each.id, each.allocation is None) for each in found] == [("uid-p1-e0-x", False)]
    # Its status may be heard of before the claim is.
    assert [each.key for each in wanted(from_template("t", status=told), template())] == ["ns/p1/e0"]


def test_the_claim_of_another_pod_is_not_this_ones() -> None:
    owned = claim("c1", metadata={"ownerReferences": [{"kind": "Pod", "uid": "uid-p9"}]})
    assert wanted(pod(), owned) == ()


@pytest.mark.parametrize(
    ("obj", "objs", "expected"),
    [
        (pod(claims={}), [], False),
        (pod(claims={"a": "c1"}), [], True),
        (pod(claims={"a": "c1"}), [claim("c1")], True),
        (pod(claims={"a": "c1"}), [claim("c1"), CLASS], False),
        (pod(claims={"a": "c1", "b": "c2"}), [claim("c1"), CLASS], True),
        (pod(claims={"a": "c1"}), [claim("c1", results=[result()])], False),
        (from_template("t"), [CLASS], True),
        (from_template("t"), [template()], True),
        (from_template("t"), [template(), CLASS], False),
        (pod(claims={}, resourceClaims=[{"name": "a"}]), [], False),
    ],
    ids=[
        "no claims",
        "no claim yet",
        "no class yet",
        "all there",
        "one of two",
        "an allocated claim asks for no class",
        "no template yet",
        "a template without its class",
        "a template",
        "an entry that names nothing",
    ],
)
def test_what_a_pod_needs_may_not_be_seen_yet(obj: Json, objs: list[Json], expected: bool) -> None:
    assert unseen(as_pod(obj), world(*objs)) is expected
