"""What is asked of the API server about a writer; its real answers are seen in tests/e2e/test_rbac_cli.py."""

import pytest

from webhook.cli.explain_access import _questions, access_lines
from webhook.kube.admission import raw_request, read_request

DEVICE = {"driver": "gpu.example.com", "pool": "n1", "device": "d0"}
ALLOCATION = {"devices": {"results": [{"request": "r", **DEVICE}]}}


def claim(**status):
    metadata = {"name": "c1", "namespace": "team"}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "status": status}


def asked(*write, **options):
    return [str(each) for each in _questions(read_request(raw_request(*write, **options)))]


def test_a_report_takes_the_status_and_the_drivers_name_by_whichever_verb():
    told = asked(
        "UPDATE", claim(allocation=ALLOCATION, devices=[DEVICE]), claim(allocation=ALLOCATION), sub_resource="status"
    )
    place = "resourceclaims/driver team/gpu.example.com"
    assert sorted(told) == sorted(
        [
            "update resourceclaims/status team/c1",
            "patch resourceclaims/status team/c1",
            *(
                f"{prefix}-node:{verb} {place}"
                for prefix in ("associated", "arbitrary")
                for verb in ("update", "patch")
            ),
        ]
    )


def test_an_allocation_takes_binding_for_the_whole_cluster():
    told = asked("UPDATE", claim(allocation=ALLOCATION), claim(), sub_resource="status")
    assert {"update resourceclaims/binding", "patch resourceclaims/binding"} <= set(told)
    assert not [each for each in told if "driver" in each]


@pytest.mark.parametrize(
    ("operation", "verbs"),
    [("CREATE", ["create"]), ("UPDATE", ["update", "patch"]), ("DELETE", ["delete", "deletecollection"])],
)
def test_other_writes_take_their_own_verb(operation, verbs):
    made = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}}
    new, old = (None if operation == "DELETE" else made), (None if operation == "CREATE" else made)
    assert asked(operation, new, old) == [f"{verb} resourceslices s" for verb in verbs]


def test_answers_are_lines_that_say_why():
    told = [
        {"asked": "patch a", "allowed": True, "reason": "RBAC: x", "problem": ""},
        {"asked": "patch b", "allowed": False, "reason": "", "problem": "role y is gone"},
        {"asked": "patch c", "allowed": False, "reason": "", "problem": ""},
    ]
    assert access_lines(told)[1:] == [
        "  allowed: patch a (RBAC: x)",
        "  denied: patch b (role y is gone)",
        "  denied: patch c",
    ]
    assert access_lines([]) == []
