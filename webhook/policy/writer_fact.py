"""``writer``: who writes, and what they may not write. Judged by the params of the policy that asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.cel import BOOL, STRING, list_of, map_of
from webhook.facts.canonical_json import blob_problems
from webhook.facts.claim_writers import claim_writer_problems
from webhook.facts.pod_writers import binding_writer_problems, entry_writer_problems
from webhook.facts.pool_takeover import takeover_problems
from webhook.facts.slice_writers import slice_writer_problems
from webhook.facts.token_writers import impersonation_hints, token_writer_problems
from webhook.facts.wiped_statuses import wiped, wiped_problems
from webhook.facts.writers import Writer, WriterParams, writer_of
from webhook.kube.finding import Finding
from webhook.kube.raw import Json, mapping, text
from webhook.policy.fact import Once, fact, struct
from webhook.policy.types import FINDINGS

if TYPE_CHECKING:
    from webhook.policy.facts import Facts


class WriterFact:
    """The user of the review, by the `params` of the policy: `schedulers`, `allocators`, `breakGlass` and `drivers`."""

    def __init__(self, facts: Facts, params: WriterParams) -> None:
        self._facts = facts
        self.params = params

    @fact(STRING)
    def kind(self) -> str:
        """`Administrator`, `BreakGlass`, `Scheduler`, `Allocator`, `ClaimController`, `GarbageCollector`,
        `NamespaceController`, `ControllerManager` (stands for each of its controllers), `ApiServer`, `Kubelet`,
        `Driver`, `Unknown`, or `Nobody` for an object that is not being written.
        """
        return self.model.kind

    @fact(STRING)
    def user(self) -> str:
        """The user's name."""
        return self.model.user

    @fact(STRING)
    def namespace(self) -> str:
        """The namespace of a ServiceAccount; empty for others."""
        return self.model.namespace

    @fact(STRING)
    def service_account(self) -> str:
        """The name of a ServiceAccount; empty for others."""
        return self.model.service_account

    @fact(STRING)
    def node(self) -> str:
        """The node of a kubelet, or the one that a ServiceAccount's token names; empty where there is none."""
        return self.model.node

    @fact(STRING)
    def node_problem(self) -> str:
        """Why a ServiceAccount or kubelet has no node: what its token or name is like; empty where it has one."""
        return self.model.node_problem

    @fact(map_of(STRING, STRING))
    def profiles(self) -> dict[str, str]:
        """What a ServiceAccount may write for each driver: `NodeLocal`, `MultiNode`, `AnyNode` or `Allocator`."""
        return dict(self.model.profiles)

    @fact(STRING)
    def evidence(self) -> str:
        """How all this is known, on one line."""
        return self.model.evidence

    @fact(FINDINGS)
    def slice_problems(self) -> list[Finding]:
        """Why a ResourceSlice is not this writer's to write or delete, as it was and as it is to be."""
        facts = self._facts
        if facts.slice is None:
            return []
        deleted = facts.request.operation == "DELETE"
        new, old = (None, facts.slice.model) if deleted else (facts.slice.model, facts.slice.old)
        return slice_writer_problems(self.model, old, new, not facts.slice.changed, facts.snapshot)

    @fact(FINDINGS)
    def claim_problems(self) -> list[Finding]:
        """What a write changes in the status of a ResourceClaim and is not this writer's to change."""
        return claim_writer_problems(self.model, *self._claims, self._facts.snapshot)

    @fact(FINDINGS)
    def takeover_problems(self) -> list[Finding]:
        """`pool-taken-over`: a ResourceSlice that makes slices of its pool obsolete or too many, or has their devices,
        where those are not this writer's to write.
        """
        facts = self._facts
        if facts.slice is None or not facts.slice.changed:
            return []
        return takeover_problems(self.model, facts.slice.model, facts.snapshot)

    @fact(FINDINGS)
    def pod_problems(self) -> list[Finding]:
        """Who but a scheduler changes `status.nodeAllocatableResourceClaimStatuses` of a pod."""
        pod = self._facts.pod
        if pod is None or pod.old is None:
            return []
        return entry_writer_problems(self.model, pod.old, pod.model, self._facts.snapshot)

    @fact(FINDINGS)
    def binding_problems(self) -> list[Finding]:
        """`binding-by-stranger`: who but a scheduler binds a pod whose claims cost its node something."""
        pod = self._facts.pod
        if pod is None or self._facts.request.kind.name != "Binding":
            return []
        return binding_writer_problems(self.model, pod.model, self._facts.snapshot)

    @fact(BOOL)
    def driver_token(self) -> bool:
        """Whether the write asks for a token of an account that writes for a driver."""
        request = self._facts.request
        if request.kind.name != "TokenRequest":
            return False
        account = (request.namespace, request.name)
        return account in self._facts.snapshot.writers or account in self.params.accounts

    @fact(FINDINGS)
    def token_problems(self) -> list[Finding]:
        """Who asks for a token of an account that writes for a driver, and what that token is bound to."""
        request = self._facts.request
        if not self.driver_token:
            return []
        account = (request.namespace, request.name)
        return token_writer_problems(self.model, account, request.target, self._facts.snapshot)

    @fact(FINDINGS)
    def blob_problems(self) -> list[Finding]:
        """`blob-not-canonical`: opaque parameters and device data that are stored in another form than Go's, for which
        whoever patches the object next is refused. Nothing in reviews that were recorded or put together.
        """
        return blob_problems(self._facts.request.sent)

    @fact(list_of(STRING))
    def wiped(self) -> list[str]:
        """The drivers whose device statuses go with an allocation that the write clears, sorted."""
        return list(wiped(*self._claims))

    @fact(FINDINGS)
    def wiped_problems(self) -> list[Finding]:
        """`device-statuses-wiped` (info): an allocation is cleared, and the statuses of its devices with it."""
        return wiped_problems(self.model, *self._claims)

    @fact(FINDINGS)
    def impersonation_hints(self) -> list[Finding]:
        """`writer-may-be-impersonated` (info): a driver's account that is said to be on a node, without what a token
        gives.
        """
        request = self._facts.request
        uid = text(mapping(request.raw.get("userInfo")).get("uid"))
        return impersonation_hints(self.model, uid, request.extra)

    @property
    def _claims(self) -> tuple[Json, Json]:
        """The raw claim before and after a write to its status; empty for other writes."""
        request = self._facts.request
        if request.kind.name != "ResourceClaim" or request.sub_resource != "status":
            return {}, {}
        return request.old_object or {}, request.target

    @Once
    def model(self) -> Writer:
        """Who writes."""
        request = self._facts.request
        return writer_of(request.user, request.groups, request.extra, self._facts.snapshot, self.params)


WRITER = struct("Writer", WriterFact)
