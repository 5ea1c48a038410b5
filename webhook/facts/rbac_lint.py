"""Roles and bindings of those who write for drivers: what is wider than it has to be, grants nothing, or is missing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, product

from msgspec.structs import replace

from webhook.facts.rbac import (
    MOST_BINDINGS,
    Grant,
    Placed,
    account_subjects,
    bound_role,
    distinct_grants,
    own_grants,
    reaching,
    role_rules,
)
from webhook.facts.rbac_lint_beyond import Writers, beyond, writers_of
from webhook.facts.rbac_lint_dra import (
    AUTHORITY,
    arbitrary_node,
    binding_of_driver,
    dead_grant,
    driver_without_names,
    everything,
    grants_any,
    has_authority,
    ineffective_binding,
    missing_driver,
    of_dra,
    other_driver,
    slices_inside,
    takes_everything,
)
from webhook.facts.rbac_lint_reach import (
    aggregated,
    annotation_problems,
    several_drivers,
    shared_subjects,
    unguarded,
    unused_status,
)
from webhook.facts.rbac_profile import (
    Holder,
    account_holder,
    annotated,
    bindings_of,
    bound_accounts,
    holders,
)
from webhook.kube.finding import SEVERITY_ORDER, Finding
from webhook.kube.rbac import PolicyRule, Role, RoleBinding, RoleKey
from webhook.kube.snapshot import Snapshot

# Findings of one rule about one role, and different accounts that have it for which it is judged: a role may have
# thousands of rules, and be bound in thousands of namespaces.
MOST_ALIKE, MOST_ACCOUNTS = 8, 16

# What is asked of each rule, by the name of the finding; the first two also of one about all resources.
_ALWAYS = (
    ("rbac-everything", everything),
    ("rbac-dead-grant", dead_grant),
    ("rbac-driver-without-names", driver_without_names),
    ("rbac-binding-ineffective", ineffective_binding),
)
_OF_HOLDER = (
    ("rbac-arbitrary-node", arbitrary_node),
    ("rbac-other-driver", other_driver),
    ("rbac-binding-in-node-plugin", binding_of_driver),
)
_BUILT_IN = frozenset({"cluster-admin", "admin", "edit", "view"})


def role_problems(
    role: Role, snapshot: Snapshot, guarded: bool | None = None, reports: Mapping[str, bool] | None = None
) -> list[Finding]:
    """What is wrong with ``role``, which may be another one than ``snapshot`` has, for all whom it is for.

    ``guarded`` tells whether something limits which slices they write (None: not known), ``reports`` by driver whether
    a claim in use carries a report of it (:func:`webhook.facts.reporting.reporting_drivers`). Nothing about roles that
    have nothing to do with devices, nor about those of Kubernetes itself: what these give to a driver's account,
    :func:`binding_problems` and :func:`account_problems` tell.
    """
    if _exempt(role):
        return []
    snapshot = snapshot.with_role(role)
    whom = holders(role, snapshot)
    if not whom and not role.aggregates and not any(map(of_dra, role.rules)):
        return []
    rules = _placed(role, snapshot, role.namespace, not role.namespace and _cluster_wide(role, snapshot))
    bindings = bindings_of(role, snapshot) if annotated(role) is not None or _any_authority(rules) else ()
    found: list[Iterable[Finding]] = [annotation_problems(role), aggregated(role, rules), shared_subjects(bindings)]
    found.append(_of_rules(rules, whom, snapshot))
    for holder in _alike(whom):
        found += [unguarded(rules, holder, guarded, "rules"), unused_status(rules, holder, reports, "rules")]
    found += [_lacking(rules, each, snapshot, "rules") for each in whom[:MOST_ACCOUNTS]]
    return _limited(chain.from_iterable(found))


def _exempt(role: Role) -> bool:
    return role.name.startswith("system:") or (not role.namespace and role.name in _BUILT_IN)


def binding_problems(binding: RoleBinding, snapshot: Snapshot, guarded: bool | None = None) -> list[Finding]:
    """What is wrong with ``binding``, which may be another one than ``snapshot`` has: whom it binds, and, unless the
    snapshot has it just so, what its role gives them: then that is told of the role. ``guarded`` as in
    :func:`role_problems`.
    """
    new = snapshot.bindings.get(binding.key) != binding
    snapshot = snapshot.with_binding(binding)
    role = bound_role(binding, snapshot)
    accounts = bound_accounts([binding], every=True)
    named = [holder for each in accounts if (holder := account_holder(each, snapshot)) is not None]
    if role is None:
        return _limited(_without_role(binding, named))
    rules = _placed(role, snapshot, binding.namespace, not binding.namespace, "roleRef: ")
    said = annotated(role)
    shared = [binding] if said is not None or _any_authority(rules) else []
    found: list[Iterable[Finding]] = [shared_subjects(shared, inside=True)]
    whom = named if said is None else [*named, *(replace(said, account=each) for each in accounts or [("", "")])]
    # Of the accounts of DriverRollouts that is told with all that they have.
    found += [unguarded(rules, each, guarded, "roleRef") for each in _alike(whom) if new or each not in named]
    if new:
        found += [several_drivers(each, role.drivers, "subjects") for each in named]
        found.append(_of_rules(rules, whom, snapshot))
        found += [_lacking(rules, each, snapshot, "roleRef") for each in whom[:MOST_ACCOUNTS]]
    elif binding.namespace and not role.namespace and not _exempt(role) and _any_authority(rules):
        # Where it is bound in the whole cluster too, the role itself is told to be right.
        inside = _inside(rules, whom[0] if whom else None) if _cluster_wide(role, snapshot) else ()
        found.append(islice(inside, 4 * MOST_ALIKE))
    return _limited(chain.from_iterable(found))


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
    granted = tuple(distinct_grants((namespace, name), snapshot))
    rules = _granted(granted)
    roles = list({grant.role.reference: grant.role for grant in granted}.values())
    named = account_holder((namespace, name), snapshot)
    said = [replace(holder, account=(namespace, name)) for role in roles if (holder := annotated(role)) is not None]
    whom = _alike(said) if named is None else [named]
    shared = {grant.binding.role for grant in granted if of_dra(grant.rule) and has_authority(grant.rule)}
    bindings = (each for each in reaching(account_subjects((namespace, name)), snapshot) if each.role in shared)
    found: list[Iterable[Finding]] = [_of_rules(rules, whom, snapshot), shared_subjects(bindings)]
    listed = {driver for role in roles for driver in role.drivers}
    for holder in whom:
        found += [several_drivers(holder, listed, ""), missing_driver(rules, holder, "")]
        found += [unguarded(rules, holder, guarded, ""), unused_status(rules, holder, reports, "")]
    return _limited(chain.from_iterable(found))


def _placed(role: Role, snapshot: Snapshot, namespace: str, everywhere: bool, before: str = "") -> list[Placed]:
    """The rules of ``role`` at their paths, ``before`` before each; those of other roles that it is still to get at
    that of its selectors.
    """
    found = [Placed(rule, f"{before}rules[{index}]", namespace, everywhere) for index, rule in enumerate(role.rules)]
    if role.aggregates:
        known, place = set(role.rules), _Places()
        found += [
            Placed(rule, f"{before}aggregationRule ({place.of(rule, source)})", namespace, everywhere)
            for rule, source in role_rules(role, snapshot)
            if rule not in known
        ]
    return found


class _Places:
    """Where rules stand in their roles: ``ClusterRole NAME: rules[0]``."""

    def __init__(self) -> None:
        self._known: dict[RoleKey, dict[PolicyRule, int]] = {}

    def of(self, rule: PolicyRule, role: Role) -> str:
        """The place of ``rule``, which is one of ``role``."""
        known = self._known.get(role.reference)
        if known is None:
            known = {each: index for index, each in reversed(list(enumerate(role.rules)))}
            self._known[role.reference] = known
        return f"{role.kind} {'/'.join(filter(None, role.key))}: rules[{known[rule]}]"


def _cluster_wide(role: Role, snapshot: Snapshot) -> bool:
    """Whether a ClusterRole may be bound in the whole cluster."""
    looked = list(bindings_of(role, snapshot))
    return len(looked) in (0, MOST_BINDINGS) or any(not each.namespace for each in looked)


def _granted(granted: Iterable[Grant]) -> list[Placed]:
    place = _Places()
    return [Placed(each.rule, place.of(each.rule, each.role), each.namespace, not each.namespace) for each in granted]


def _alike(whom: Iterable[Holder]) -> list[Holder]:
    """Of all holders with the same profiles one, at most ``MOST_ACCOUNTS``: by itself a rule is as good or bad for each
    of them.
    """
    found: dict[object, Holder] = {}
    for holder in whom:
        found.setdefault((frozenset(holder.profiles.items()), holder.profile), holder)
    return list(found.values())[:MOST_ACCOUNTS]


def _any_authority(rules: Iterable[Placed]) -> bool:
    return any(of_dra(each.rule) and has_authority(each.rule) for each in rules)


def _of_rules(rules: Iterable[Placed], whom: Sequence[Holder], snapshot: Snapshot) -> Iterator[Finding]:
    """What each rule tells by itself; of rules that are not for somebody, those about devices."""
    kinds: list[Holder | None] = [*_alike(whom)] or [None]
    writers = writers_of(snapshot)
    told: dict[str, set[Finding]] = {}
    for placed, holder in product(rules, kinds):
        if holder is None and not of_dra(placed.rule):
            continue
        # Nobody reads the thousandth of a kind, and each of them is some work to write down.
        full = {rule for rule, alike in told.items() if len(alike) > MOST_ALIKE}
        for each in _of_rule(placed, holder, writers, full):
            told.setdefault(each.rule, set()).add(each)
            yield each


def _of_rule(placed: Placed, holder: Holder | None, writers: Writers, full: Collection[str]) -> Iterator[Finding]:
    whole = takes_everything(placed.rule)
    for name, check in _ALWAYS[:2] if whole else _ALWAYS:
        if name not in full:
            yield from check(placed, holder)
    if holder is None or whole:
        return
    for name, judge in _OF_HOLDER:
        if name not in full:
            yield from judge(placed, holder)
    yield from beyond(placed, holder, writers, full)


def _inside(rules: Iterable[Placed], holder: Holder | None) -> Iterator[Finding]:
    """What grants nothing because it is bound within a namespace, and would in the whole cluster."""
    for placed in rules:
        yield from slices_inside(placed)
        if not placed.rule.resource_names:
            yield from ineffective_binding(placed, holder)


def _lacking(rules: Sequence[Placed], holder: Holder, snapshot: Snapshot, path: str) -> Iterator[Finding]:
    """What claim status cannot be written without: of all roles of an account, where one has this role. Nothing of an
    account that has more of them than a review looks at.
    """
    if not any(grants_any(each.rule, *asked) for each in rules for asked in AUTHORITY):
        return
    other = own_grants(holder.account, snapshot) if holder.account[1] else ()
    if other is not None:
        yield from missing_driver([*rules, *_granted(other)], holder, path)


def _without_role(binding: RoleBinding, named: Sequence[Holder]) -> Iterator[Finding]:
    for holder in named:
        has = f"{binding.role_kind} {binding.role_name}, which is not there, for {holder.told}"
        needs = "a role that is there: it can give anything once somebody makes it"
        fix = "make the role first; it is judged when it comes"
        yield Finding("rbac-role-missing", "roleRef.name", has, needs, fix, "warning")


def _limited(found: Iterable[Finding]) -> list[Finding]:
    """``found`` without what was said before, the gravest first, and of each rule no more than ``MOST_ALIKE``: the last
    of them says that there are more.
    """
    kept: dict[str, dict[Finding, None]] = {}
    for each in found:
        alike = kept.setdefault(each.rule, {})
        if len(alike) <= MOST_ALIKE:
            alike[each] = None
    told: list[Finding] = []
    for alike in kept.values():
        rows = list(alike)[:MOST_ALIKE]
        if len(alike) > MOST_ALIKE:
            rows[-1] = replace(rows[-1], has=f"{rows[-1].has}, and more like it")
        told += rows
    return sorted(told, key=lambda each: SEVERITY_ORDER[each.severity])
