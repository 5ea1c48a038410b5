"""``pod``: the pod of a write (of pods, their status, size or binding), and what is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.cel import BOOL, STRING, list_of
from webhook.facts.fit import Fit, fit_problems
from webhook.facts.pod_entries import entry_problems
from webhook.facts.pods_lint import pod_problems
from webhook.facts.podstatus import status_problems
from webhook.facts.pool_survey import Reason
from webhook.facts.resize import resize_problems
from webhook.facts.steering import affinity_patch, canary_problems, canary_terms
from webhook.facts.waiting import waiting
from webhook.facts.zone_choice import must_choose
from webhook.kube.core import MIRROR, Pod, read_pod
from webhook.kube.finding import Finding
from webhook.kube.raw import Json, child, mapping, text
from webhook.policy.fact import Once, fact, struct
from webhook.policy.match import SYSTEM_NAMESPACES
from webhook.policy.types import FINDINGS, PATCH

if TYPE_CHECKING:
    from webhook.policy.facts import Facts

# Pools of a driver that a review of one pod looks at; the controller that lets pods go looks at all.
_MOST_POOLS = 64


class PodFact:
    """A pod: the object of the write, or the known pod that a Binding names."""

    def __init__(self, facts: Facts, model: Pod) -> None:
        self._facts = facts
        self.model = model

    @fact(STRING)
    def namespace(self) -> str:
        """The pod's namespace."""
        return self.model.namespace

    @fact(STRING)
    def name(self) -> str:
        """The pod's name; empty where the server has not made one up yet."""
        return self.model.name

    @fact(STRING)
    def uid(self) -> str:
        """The pod's UID."""
        return self.model.uid

    @fact(STRING)
    def node(self) -> str:
        """The node that the pod is bound to, or that the Binding names; may be empty."""
        return self._facts.node_name

    @fact(list_of(STRING))
    def claims(self) -> list[str]:
        """Names of the pod's ResourceClaims, as far as they are made."""
        return sorted(set(self.model.claim_names.values()))

    @fact(BOOL)
    def has_claims(self) -> bool:
        """Whether the pod has any entry in `spec.resourceClaims`."""
        return bool(self.model.claims)

    @fact(FINDINGS)
    def spec_problems(self) -> list[Finding]:
        """How the pod's requests and claims go together: mirrored requests, a pod-level budget that is too small, a
        shared mapped claim, a claim that nobody uses.
        """
        return pod_problems(self._facts.request.target, self.model, self._facts.snapshot)

    @fact(FINDINGS)
    def status_problems(self) -> list[Finding]:
        """Entries of `status.nodeAllocatableResourceClaimStatuses` that the footprint of the claims does not give."""
        return status_problems(self.model, self.old, self._facts.snapshot, self._facts.snapshot.release)

    @fact(FINDINGS)
    def entry_problems(self) -> list[Finding]:
        """What the API server refuses in these entries: names, containers, amounts."""
        return entry_problems(self._facts.request.target, self._facts.snapshot.release)

    @fact(FINDINGS)
    def fit_problems(self) -> list[Finding]:
        """Whether the pod, with all its claims, fits the node it is bound to."""
        return list(self.fitted.findings) if self._facts.account is not None else []

    @fact(FINDINGS)
    def resize_problems(self) -> list[Finding]:
        """What a resize asks for more than its node has left beside what claims cost there (`node-overcommit`), and
        pod-level requests that it leaves further below what they must cover (`pod-budget-too-small`).
        """
        if self.old is None or self._facts.account is None:
            return []
        return resize_problems(self.model, self.old, self._facts.account, self._facts.snapshot)

    @fact(PATCH)
    def canary_patch(self) -> list[Json]:
        """The operations that join the canary nodes which the claims need to the required node affinity. None where
        they need none, and for a pod that cannot be steered: one that is not new, has a node, is a mirror pod or in
        kube-system.
        """
        if not self._steerable:
            return []
        return affinity_patch(self._facts.request.target, canary_terms(self.model, self._facts.snapshot))

    @fact(FINDINGS)
    def canary_problems(self) -> list[Finding]:
        """`canary-terms` (warning): the claims need too many combinations of canary nodes, and `pod.canaryPatch` has
        none.
        """
        return canary_problems(self.model, self._facts.snapshot) if self._steerable else []

    @fact(FINDINGS)
    def waiting_problems(self) -> list[Finding]:
        """Why the claims have to wait: all that one of their requests could use is held, off or not to be relied on
        now. Nothing for a pod that cannot be steered.
        """
        if not self._steerable:
            return []
        return _as_findings(waiting(self.model, self._facts.snapshot, self._facts.now, _MOST_POOLS))

    @fact(FINDINGS)
    def zone_choice_problems(self) -> list[Finding]:
        """`zone-to-choose`: the claims may get devices of a NUMA zone that cannot bear all of them, and the scheduler
        knows no zones. Nothing where no zone's capacity is known, and for a pod that cannot be steered.
        """
        return _as_findings(must_choose(self.model, self._facts.snapshot)) if self._steerable else []

    @Once
    def fitted(self) -> Fit:
        """The fit of the pod, with all its claims."""
        return fit_problems(None, self.model, self._facts.account, self._facts.snapshot)

    @Once
    def _steerable(self) -> bool:
        """Whether a scheduler is going to choose a node for this new pod, and we may have a say in it."""
        request, raw = self._facts.request, self._facts.request.target
        if request.operation != "CREATE" or request.kind.name != "Pod" or request.namespace in SYSTEM_NAMESPACES:
            return False
        return not self.model.node and MIRROR not in mapping(child(raw, "metadata", "annotations"))

    @Once
    def old(self) -> Pod | None:
        """The stored pod, where the write is of the pod itself, its status or size."""
        old = self._facts.request.old_object
        return None if old is None else read_pod(old)


def _as_findings(reason: Reason | None) -> list[Finding]:
    if reason is None:
        return []
    return [Finding(reason.rule, "spec.resourceClaims", reason.has, reason.needs, reason.fix, passing=True)]


POD = struct("Pod", PodFact)


def binding_node(target: object) -> str:
    """The node that a Binding names."""
    return text(mapping(mapping(target).get("target")).get("name"))
