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
