"""All roles, bindings and accounts of a cluster, or of some manifests, with what is wrong with each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct

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
    nothing is wrong too; ``reports`` as :func:`role_problems` has it.
    """
    # By rule and place, or by rule and words for what is about a role as a whole.
    told: set[tuple[str, str]] = set()
    for role in roles:
        found = role_problems(role, snapshot, reports=reports)
        told |= {(each.rule, f"{role.kind} {'/'.join(filter(None, role.key))}: {each.path}") for each in found}
        told |= {(each.rule, each.message) for each in found if each.path == "rules"}
        yield Surveyed(role.kind, role.namespace, role.name, tuple(found))
    for binding in bindings:
        found = binding_problems(binding, snapshot, _kept(binding, snapshot, guarded))
        yield Surveyed(binding.kind, binding.namespace, binding.name, tuple(found))
    for account in accounts:
        found = account_problems(*account, snapshot, guarded(account), reports)
        rest = tuple(each for each in found if (each.rule, each.path or each.message) not in told)
        yield Surveyed(ACCOUNT, *account, rest)


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
