"""Roles and bindings of those who write for drivers: what is wider than it has to be, grants nothing, or is missing."""

from __future__ import annotations

from collections.abc import Mapping

from webhook.facts.rbac import DRA, DRIVER, NODE_VERBS, covers, grants, role_rules
from webhook.kube.finding import Finding
from webhook.kube.rbac import Role, RoleBinding
from webhook.kube.snapshot import Snapshot


def role_problems(
    role: Role, snapshot: Snapshot, guarded: bool | None = None, reports: Mapping[str, bool] | None = None
) -> list[Finding]:
    """What is wrong with ``role``, which may be another one than ``snapshot`` has, for all it is known to be for.

    ``guarded`` tells whether something limits which slices its holders write (None: not known), ``reports`` by driver
    whether a claim in use carries a report of it (:func:`webhook.facts.reporting.reporting_drivers`).
    """
    return _unnamed(role, snapshot)


def binding_problems(binding: RoleBinding, snapshot: Snapshot, guarded: bool | None = None) -> list[Finding]:
    """What is wrong with ``binding``, which may be another one than ``snapshot`` has: whom it binds, and what the role
    then gives them. Arguments as in :func:`role_problems`.
    """
    return []


def account_problems(
    namespace: str,
    name: str,
    snapshot: Snapshot,
    guarded: bool | None = None,
    reports: Mapping[str, bool] | None = None,
) -> list[Finding]:
    """What is wrong with all that the ServiceAccount has, over all bindings, groups and collected roles; paths begin
    with the role (``ClusterRole NAME: rules[0]``). Arguments as in :func:`role_problems`.
    """
    found = {id(grant.role): grant.role for grant in grants((namespace, name), snapshot)}
    return [problem for role in found.values() for problem in _unnamed(role, snapshot)]


def _unnamed(role: Role, snapshot: Snapshot) -> list[Finding]:
    return [
        Finding(
            "rbac-driver-without-names", f"rules[{index}]", f"{DRIVER} of all drivers", "the driver in resourceNames"
        )
        for index, (rule, _) in enumerate(role_rules(role, snapshot))
        if not rule.resource_names and any(covers(rule, DRA, DRIVER, verb) for verb in NODE_VERBS)
    ]
