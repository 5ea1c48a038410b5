"""The kinds that are watched: those that a fact reads, and no other. A line here is all that one more of them takes."""

from __future__ import annotations

from dataclasses import dataclass

from webhook.kube.rbac import BINDING, CLUSTER_BINDING, CLUSTER_ROLE, ROLE
from webhook.kube.rbac import GROUP as RBAC
from webhook.kube.rollout import GROUP

POLICY = "AdmissionPolicy"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind and how it is listed. ``fields`` is a field selector; ``optional`` kinds may be unknown to the API
    server, which then has no objects of them; ``page`` is how many objects one answer to a list holds: few of those
    that can be large, since taking an answer apart holds up everything else.
    """

    name: str
    group: str
    version: str
    plural: str
    fields: str | None = None
    optional: bool = False
    page: int = 250

    @property
    def api_version(self) -> str:
        """``v1``, ``resource.k8s.io/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def path(self) -> str:
        """The URL path of all objects of the kind."""
        return f"{'/apis' if self.group else '/api'}/{self.api_version}/{self.plural}"


KINDS = (
    Kind("Node", "", "v1", "nodes"),
    Kind("Namespace", "", "v1", "namespaces"),
    # Of pods that have ended the scheduler counts nothing; one that ends is deleted, as this view has it.
    Kind("Pod", "", "v1", "pods", "status.phase!=Succeeded,status.phase!=Failed"),
    Kind("ResourceSlice", "resource.k8s.io", "v1", "resourceslices", page=50),
    Kind("ResourceClaim", "resource.k8s.io", "v1", "resourceclaims"),
    Kind("ResourceClaimTemplate", "resource.k8s.io", "v1", "resourceclaimtemplates"),
    Kind("DeviceClass", "resource.k8s.io", "v1", "deviceclasses"),
    Kind("DriverRollout", GROUP, "v1alpha1", "driverrollouts", optional=True),
    Kind("NodeLedger", GROUP, "v1alpha1", "nodeledgers", optional=True, page=50),
    Kind(POLICY, GROUP, "v1alpha1", "admissionpolicies", optional=True),
    # Who may write for drivers is judged by these; a cluster may do without RBAC.
    Kind(CLUSTER_ROLE, RBAC, "v1", "clusterroles", optional=True, page=50),
    Kind(ROLE, RBAC, "v1", "roles", optional=True, page=50),
    Kind(CLUSTER_BINDING, RBAC, "v1", "clusterrolebindings", optional=True),
    Kind(BINDING, RBAC, "v1", "rolebindings", optional=True),
    Kind("NodeResourceTopology", "topology.node.k8s.io", "v1alpha2", "noderesourcetopologies", optional=True),
)
