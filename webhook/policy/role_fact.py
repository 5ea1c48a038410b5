"""``role``: the role or binding of a write, whom it is for, and what is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.cel import STRING, list_of
from webhook.facts.rbac import bound_role
from webhook.facts.rbac_lint import binding_problems, role_problems
from webhook.facts.rbac_profile import Holder, account_holder, annotated, bound_accounts, holders
from webhook.kube.finding import Finding
from webhook.kube.rbac import ROLES, Role, RoleBinding, read_binding, read_role
from webhook.kube.rollout import PROFILES
from webhook.policy.fact import Once, fact, struct
from webhook.policy.types import FINDINGS

if TYPE_CHECKING:
    from webhook.policy.facts import Facts


class RoleFact:
    """A Role, ClusterRole, RoleBinding or ClusterRoleBinding."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        kind = facts.request.kind.name
        obj = {**facts.request.target, "kind": kind}
        self.model: Role | RoleBinding = read_role(obj) if kind in ROLES else read_binding(obj)

    @fact(STRING)
    def kind(self) -> str:
        """`Role`, `ClusterRole`, `RoleBinding` or `ClusterRoleBinding`."""
        return self.model.kind

    @fact(STRING)
    def name(self) -> str:
        """The object's name."""
        return self.model.name

    @fact(STRING)
    def namespace(self) -> str:
        """The object's namespace; empty for a ClusterRole and a ClusterRoleBinding."""
        return self.model.namespace

    @fact(STRING)
    def profile(self) -> str:
        """What those whom it is for may do, by annotations and DriverRollouts: `NodeLocal`, `MultiNode`, `AnyNode` or
        `Allocator`, the first of these where it is for several; empty for a role that has nothing to do with drivers.
        """
        profiles = {each for holder in self._whom for each in holder.all_profiles}
        return next((each for each in PROFILES if each in profiles), "")

    @fact(list_of(STRING))
    def drivers(self) -> list[str]:
        """The drivers that they write for, sorted."""
        return sorted({name for holder in self._whom for name in holder.profiles})

    @fact(FINDINGS)
    def problems(self) -> list[Finding]:
        """What is wider than it has to be, grants nothing or is missing, for writers of DRA objects. Looks at bindings
        of this role, 256 at most, and at nothing else of the cluster.
        """
        model, snapshot = self.model, self._facts.snapshot
        return role_problems(model, snapshot) if isinstance(model, Role) else binding_problems(model, snapshot)

    @Once
    def _whom(self) -> tuple[Holder, ...]:
        model, snapshot = self.model, self._facts.snapshot
        if isinstance(model, Role):
            return holders(model, snapshot)
        role = bound_role(model, snapshot)
        said = annotated(role) if role is not None else None
        named = [account_holder(each, snapshot) for each in bound_accounts([model], every=True)]
        return tuple(each for each in (said, *named) if each is not None)


ROLE = struct("Role", RoleFact)
