from __future__ import annotations

import json
from base64 import b64decode

from webhook.admission.action import Answer, Cause
from webhook.admission.respond import respond


def test_an_allow_says_no_more_than_it_must() -> None:
    assert json.loads(respond(Answer("u-1", True, annotations={"revision": "abc"}))) == {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "response": {"uid": "u-1", "allowed": True, "auditAnnotations": {"revision": "abc"}},
    }


def test_a_refusal_is_403_forbidden_with_causes_and_never_asks_to_try_again() -> None:
    answer = Answer("u-1", False, "p/r: has a", (Cause("FieldValueInvalid", "p/r: has a", "spec"),), ("w",), {"a": "b"})
    assert json.loads(respond(answer))["response"] == {
        "uid": "u-1",
        "allowed": False,
        "status": {
            "metadata": {},
            "status": "Failure",
            "message": "p/r: has a",
            "reason": "Forbidden",
            "details": {"causes": [{"reason": "FieldValueInvalid", "message": "p/r: has a", "field": "spec"}]},
            "code": 403,
        },
        "warnings": ["w"],
        "auditAnnotations": {"a": "b"},
    }


def test_a_patch_is_base64_of_its_operations() -> None:
    patch = ({"op": "add", "path": "/spec/x", "value": "ä"},)
    response = json.loads(respond(Answer("u-1", True, patch=patch)))["response"]
    assert response["patchType"] == "JSONPatch"
    assert json.loads(b64decode(response["patch"])) == list(patch)
