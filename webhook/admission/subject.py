"""What a write is about: whose it is, a claim, its pods, a node, and the devices that are asked for or given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from webhook.admission.decide import Verdict
from webhook.kube.admission import Request
from webhook.kube.claims import DeviceRequest, Result
from webhook.kube.quantity import canonical
from webhook.kube.raw import mapping, text
from webhook.kube.resource import Slice
from webhook.kube.trace import trace_id
from webhook.policy.claim_fact import ClaimFact

Tree = dict[str, Any]

# Nobody reads further to see what a write was about.
_MOST = 32


class Ref(Struct, frozen=True):
    """A claim or a pod. ``uid`` is empty where it is not known: the API server gives it after the mutating webhooks."""

    namespace: str
    name: str
    uid: str

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


def claim_of(verdict: Verdict) -> Ref | None:
    """The claim of the write; None for writes of anything else, templates too."""
    return _ref(verdict.request) if verdict.request.kind.name == "ResourceClaim" else None


def pods_of(verdict: Verdict) -> tuple[Ref, ...]:
    """The pod of the write, of its status or binding too, or the pods that it adds to the consumers of a claim."""
    pod, fact = verdict.evaluation.facts.pod, claim_fact(verdict)
    if pod is not None:
        return (Ref(verdict.request.namespace, verdict.request.name or pod.model.name, pod.model.uid),)
    if fact is None:
        return ()
    before = fact.old.reserved_for if fact.old is not None else ()
    added = [each for each in fact.model.reserved_for if each.is_pod and each not in before]
    return tuple([Ref(fact.model.namespace, each.name, each.uid) for each in added])


def claim_trace(verdict: Verdict) -> str:
    """The trace of the claim of the write; empty where it is of none, or its UID is not known yet."""
    claim = claim_of(verdict)
    return trace_id(claim.uid) if claim is not None and claim.uid else ""


def trace_of(verdict: Verdict) -> str:
    """The trace that the write belongs to: the claim's, or that of the pod of the write. Empty where there is neither,
    or its UID is not known yet.
    """
    subject = claim_of(verdict) or next(iter(pods_of(verdict)), None)
    return trace_id(subject.uid) if subject is not None and subject.uid else ""


def claim_fact(verdict: Verdict) -> ClaimFact | None:
    """What is known of the claim of the write; None for writes of anything else, templates too."""
    return verdict.evaluation.facts.claim if verdict.request.kind.name == "ResourceClaim" else None


def asked(verdict: Verdict) -> Tree:
    """What was asked, JSON values: ``claim`` and ``slice`` are None where the write is of none, ``requests`` what a
    claim or template asks for, ``devices`` what a claim has or is given, ``claims`` those of a pod by the names that it
    has for them. ``more`` counts those that each of the lists has no room for.
    """
    facts = verdict.evaluation.facts
    claim, pod = facts.claim, facts.pod
    model = claim.model if claim is not None else None
    ref = claim_of(verdict)
    pods = pods_of(verdict)
    requests = [each for group in model.groups for each in group.alternatives] if model is not None else []
    devices = model.allocation.results if model is not None and model.allocation else ()
    claims = pod.model.claims if pod is not None else ()
    names = pod.model.claim_names if pod is not None else {}
    lists: dict[str, Sequence[object]] = {"pods": pods, "requests": requests, "devices": devices, "claims": claims}
    return {
        "claim": _ref_json(ref) if ref is not None else None,
        "pods": [_ref_json(each) for each in pods[:_MOST]],
        "node": facts.node_name,
        "trace": trace_of(verdict),
        "requests": [_request(each) for each in requests[:_MOST]],
        "devices": [_device(each) for each in devices[:_MOST]],
        "claims": [
            {"name": each.name, "claim": names.get(each.name, each.claim_name), "template": each.template_name}
            for each in claims[:_MOST]
        ],
        "more": {name: len(found) - _MOST for name, found in lists.items() if len(found) > _MOST},
        "slice": _slice(facts.slice.model) if facts.slice is not None else None,
    }


def _request(each: DeviceRequest) -> Tree:
    return {
        "request": each.name,
        "class": each.class_name,
        "count": "All" if each.mode == "All" else each.count,
        "capacity": {str(name): str(amount) for name, amount in each.capacity.items()},
        "selectors": [" ".join(selector.split()) for selector in each.selectors],
    }


def _device(result: Result) -> Tree:
    return {
        "request": result.request,
        "driver": result.driver,
        "pool": result.pool,
        "device": result.device,
        "shareID": result.share_id,
        "consumed": {name: canonical(amount) for name, amount in (result.consumed or {}).items()},
    }


def _slice(item: Slice) -> Tree:
    return {
        "name": item.name,
        "driver": item.driver,
        "pool": item.pool,
        "generation": item.generation,
        "node": item.node,
        "devices": len(item.devices),
    }


def _ref(request: Request) -> Ref:
    metadata = mapping(request.target.get("metadata"))
    return Ref(request.namespace, request.name or text(metadata.get("name")), text(metadata.get("uid")))


def _ref_json(ref: Ref) -> Tree:
    return {"namespace": ref.namespace, "name": ref.name, "uid": ref.uid}
