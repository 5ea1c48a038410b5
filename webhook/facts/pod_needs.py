"""The claims that a pod asks for, whether they are made yet or not."""

from __future__ import annotations

from msgspec.structs import replace

from webhook.facts.pods import pod_claims
from webhook.kube.claims import Claim
from webhook.kube.core import Pod
from webhook.kube.snapshot import Snapshot


def wanted_claims(pod: Pod, snapshot: Snapshot) -> tuple[Claim, ...]:
    """The claims of ``pod`` in the order of its spec, each once: those that are stored, and for a template whose claim
    is not there yet the claim that it would give, not allocated, in the pod's namespace. Claims and templates that
    nobody knows are left out.

    A claim that is to be made is called ``POD/ENTRY``, which is no name that a stored one can have (``pod/ENTRY`` for a
    pod that has no name yet), and has no UID.
    """
    stored = dict(pod_claims(pod, snapshot))
    found: dict[str, Claim] = {}
    for entry in pod.claims:
        claim = stored.get(entry.name)
        if claim is None and entry.template_name:
            template = snapshot.templates.get((pod.namespace, entry.template_name))
            if template is not None:
                claim = replace(template, name=f"{pod.name or 'pod'}/{entry.name}", uid="")
        if claim is not None:
            found.setdefault(claim.id, claim)
    return tuple(found.values())


def unseen(pod: Pod, snapshot: Snapshot) -> bool:
    """Whether ``pod`` names a claim or a template, or one of these a class, that ``snapshot`` does not have: one that
    is not there, or was made a moment ago.
    """
    for entry in pod.claims:
        stored, name = snapshot.claims, entry.claim_name
        if entry.template_name:
            stored, name = snapshot.templates, entry.template_name
        if name and (pod.namespace, name) not in stored:
            return True
    groups = [group for claim in wanted_claims(pod, snapshot) if claim.allocation is None for group in claim.groups]
    names = {alternative.class_name for group in groups for alternative in group.alternatives}
    return any(name and name not in snapshot.classes for name in names)
