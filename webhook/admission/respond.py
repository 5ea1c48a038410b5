"""Third step of three: the bytes of an answer, exactly as the API server wants them (admission.k8s.io/v1)."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import orjson

from webhook.admission.action import Answer
from webhook.admission.decode import API_VERSION, KIND


def respond(answer: Answer) -> bytes:
    """The AdmissionReview response: the uid of the request, a patch where there is one, a refusal always 403 Forbidden.

    Any other code makes kube-scheduler write again within the same attempt, up to eleven times.
    """
    response: dict[str, Any] = {"uid": answer.uid, "allowed": answer.allowed}
    if not answer.allowed:
        causes = [{"reason": c.reason, "message": c.message, "field": c.field} for c in answer.causes]
        response["status"] = {
            "metadata": {},
            "status": "Failure",
            "message": answer.message,
            "reason": "Forbidden",
            "details": {"causes": causes},
            "code": 403,
        }
    if answer.patch:
        response |= {"patchType": "JSONPatch", "patch": b64encode(orjson.dumps(answer.patch)).decode()}
    if answer.warnings:
        response["warnings"] = answer.warnings
    response["auditAnnotations"] = answer.annotations
    return orjson.dumps({"kind": KIND, "apiVersion": API_VERSION, "response": response})
