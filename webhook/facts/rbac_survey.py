"""All roles, bindings and accounts of a cluster, or of some manifests, with what is wrong with each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from webhook.facts.rbac import bound_role
from webhook.facts.rbac_lint import account_problems, binding_problems, role_problems
from webhook.facts.rbac_profile import annotated
from webhook.kube.finding import Finding
from webhook.kube.rbac import ACCOUNT, Role, RoleBinding
from webhook.kube.snapshot import Key, Snapshot

# Whether a ServiceAccount is kept to slices of its own; None where that is not known.
Guarded = Callable[[Key], bool | None]


class Surveyed(Struct, frozen=True):
    """An object, and what is wrong with it. Of a ServiceAccount it is what its roles and bindings do not show alone."""

    kind: str
    namespace: str
    name: str
    findings: tuple[Finding, ...] = ()


def survey(
    snapshot: Snapshot,
    roles: Iterable[Role],
    bindings: Iterable[RoleBinding],
    accounts: Iterable[Key],
    guarded: Guarded,
    reports: Mapping[str, bool] | None = None,
) -> Iterator[Surveyed]:
    """``roles``, ``bindings`` and ``accounts`` (namespace, name) one after the other, in their order, those with which
    nothing is wrong too; what is told of one of them is not told of another again. ``reports`` as
    :func:`role_problems` has it.
    """
    told: set[tuple[str, str]] = set()
    bound: list[Surveyed] = []
    for binding in bindings:
        found = binding_problems(binding, snapshot, _kept(binding, snapshot, guarded))
        told |= {_in_words(each, binding) for each in found}
        bound.append(Surveyed(binding.kind, binding.namespace, binding.name, tuple(found)))
    for role in roles:
        found = _untold(role_problems(role, snapshot, reports=reports), told)
        told |= {(each.rule, f"{role.kind} {'/'.join(filter(None, role.key))}: {each.path}") for each in found}
        told |= {(each.rule, each.message) for each in found if each.path == "rules"}
        yield Surveyed(role.kind, role.namespace, role.name, tuple(found))
    yield from bound
    for account in accounts:
        found = _untold(account_problems(*account, snapshot, guarded(account), reports), told)
        yield Surveyed(ACCOUNT, *account, tuple(found))


def _untold(found: Iterable[Finding], told: Collection[tuple[str, str]]) -> list[Finding]:
    """Those of ``found`` that were not told at their place, or, of what has none, in these words."""
    return [each for each in found if (each.rule, each.path or each.message) not in told]


def _in_words(finding: Finding, binding: RoleBinding) -> tuple[str, str]:
    """Rule and message of a finding about ``binding`` as they are told of the role or the account that it binds."""
    name = "/".join(filter(None, binding.key))
    return finding.rule, replace(finding, has=f"{finding.has} by {binding.kind} {name}").message


def whole_survey(snapshot: Snapshot, guarded: Guarded, reports: Mapping[str, bool] | None = None) -> Iterator[Surveyed]:
    """Everything in ``snapshot``: all roles, all bindings, and the accounts that DriverRollouts name."""
    roles = (snapshot.roles[key] for key in sorted(snapshot.roles))
    bindings = (snapshot.bindings[key] for key in sorted(snapshot.bindings))
    yield from survey(snapshot, roles, bindings, sorted(snapshot.writers), guarded, reports)


def _kept(binding: RoleBinding, snapshot: Snapshot, guarded: Guarded) -> bool | None:
    """Whether all accounts that ``binding`` makes writers of a driver are kept to their own slices."""
    role = bound_role(binding, snapshot)
    if role is None:
        return None
    accounts = [(each.namespace, each.name) for each in binding.subjects if each.kind == ACCOUNT]
    answers = {guarded(each) for each in accounts if each in snapshot.writers or annotated(role) is not None}
    return False if False in answers else None if None in answers or not answers else True
