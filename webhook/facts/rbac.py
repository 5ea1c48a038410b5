"""What roles grant: the rules of the API server's RBAC authorizer, and the scope of one ServiceAccount."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from msgspec import Struct

from webhook.kube import labels
from webhook.kube.raw import Json, mapping, members, text
from webhook.kube.rbac import ACCOUNT, GROUP_SUBJECT, PolicyRule, Role, RoleBinding, RoleKey, Subject
from webhook.kube.snapshot import Key, Snapshot

DRA = "resource.k8s.io"
CLAIMS, SLICES = "resourceclaims", "resourceslices"
STATUS, BINDING, DRIVER = f"{CLAIMS}/status", f"{CLAIMS}/binding", f"{CLAIMS}/driver"
# The verbs of a status write; a driver's permission is asked with one of the prefixes before them.
STATUS_VERBS = ("update", "patch")
ASSOCIATED, ARBITRARY = "associated-node:", "arbitrary-node:"
NODE_VERBS = tuple(f"{prefix}{verb}" for prefix in (ASSOCIATED, ARBITRARY) for verb in STATUS_VERBS)
# What is asked for without a name: an object that is made has none that counts yet, the others are about many.
UNNAMED = frozenset({"create", "list", "watch", "deletecollection"})

# Beside the role that is written, how many rules are looked at, in how many roles and bindings: it must cost the same
# in any cluster.
MOST_RULES, MOST_ROLES, MOST_BINDINGS = 20_000, 2048, 256


class Grant(Struct, frozen=True):
    """One rule that somebody has. ``role`` is the role that the rule stands in, which is another one than ``binding``
    names where that one has the rules of others; ``namespace`` is where it holds, empty for everywhere.
    """

    rule: PolicyRule
    role: Role
    binding: RoleBinding
    namespace: str


class Placed(Struct, frozen=True):
    """A rule and where it stands: its field path, and whether it holds in the whole cluster or in one ``namespace``."""

    rule: PolicyRule
    path: str
    namespace: str = ""
    everywhere: bool = True


def covers(rule: PolicyRule, group: str, resource: str, verb: str, name: str = "") -> bool:
    """Whether ``rule`` alone allows ``verb`` on ``resource`` (``nodes``, ``resourceclaims/driver``) of ``group``: on
    the object ``name``, or on none in particular.

    ``*`` stands for all groups, all resources with their subresources, and all verbs, ``*/driver`` for the subresource
    of any resource. It means nothing within a longer name, nor among resource names.
    """
    return (
        (verb in rule.verbs or "*" in rule.verbs)
        and (group in rule.api_groups or "*" in rule.api_groups)
        and names_resource(rule, resource)
        and (not rule.resource_names or name in rule.resource_names)
    )


def covers_every(rule: PolicyRule, group: str, resource: str, verb: str) -> bool:
    """As :func:`covers`, on whatever object it is. An empty name among those of a rule is that of requests without one,
    and of no object: those that ``UNNAMED`` are asked with, and those for ``resourceclaims/binding``.
    """
    unnamed = resource == BINDING or (verb in UNNAMED and "/" not in resource)
    return (unnamed or not rule.resource_names) and covers(rule, group, resource, verb)


def names_resource(rule: PolicyRule, resource: str) -> bool:
    """Whether one of the resources of ``rule`` is or means ``resource``."""
    if resource in rule.resources or "*" in rule.resources:
        return True
    _, slash, sub = resource.partition("/")
    return bool(slash) and f"*/{sub}" in rule.resources


def role_rules(role: Role, snapshot: Snapshot, looks: Iterator[int] | None = None) -> Iterator[tuple[PolicyRule, Role]]:
    """The rules of ``role``, each with the role that it stands in; ``looks`` as for :func:`collected`.

    A ClusterRole that has the rules of others has those that a controller wrote into it, and those that are still to
    come: of all ClusterRoles that its selectors choose, and of those that these choose in turn.
    """
    if not role.aggregates:
        yield from ((rule, role) for rule in role.rules)
        return
    source: dict[PolicyRule, Role] = {}
    for other in collected(role, snapshot, looks):
        for rule in other.rules:
            # One that only hands on what it has from others is not where it stands.
            if rule not in source or source[rule].aggregates:
                source[rule] = other
        if len(source) >= MOST_RULES:
            break
    for rule in role.rules:
        yield rule, source.pop(rule, role)
    yield from source.items()


def collected(role: Role, snapshot: Snapshot, looks: Iterator[int] | None = None) -> Iterator[Role]:
    """The ClusterRoles whose rules ``role`` has too, each once and without itself; as many are looked at as ``looks``
    has still to give, by default ``MOST_ROLES``.
    """
    looks = iter(range(MOST_ROLES)) if looks is None else looks
    seen, open_roles = {role.name}, [role]
    while open_roles:
        for selector in open_roles.pop().aggregates:
            for name, _ in zip(_candidates(selector, snapshot), looks, strict=False):
                other = snapshot.roles.get(("", name))
                if other is None or name in seen or not labels.matches(selector, other.labels):
                    continue
                seen.add(name)
                open_roles.append(other)
                yield other


def collectors(role: Role, snapshot: Snapshot) -> Iterator[Role]:
    """The ClusterRoles that have the rules of ``role`` too, each once and without itself; ``MOST_ROLES`` are looked
    at.
    """
    seen, open_roles, looked = {role.name}, [] if role.namespace else [role], 0
    while open_roles:
        found = open_roles.pop()
        for name in islice(snapshot.aggregated_roles, MOST_ROLES - looked):
            looked += 1
            other = snapshot.roles["", name]
            if name not in seen and any(labels.matches(selector, found.labels) for selector in other.aggregates):
                seen.add(name)
                open_roles.append(other)
                yield other


def _candidates(selector: Json, snapshot: Snapshot) -> Iterable[str]:
    """Names of the ClusterRoles that ``selector`` may choose: those with the rarest label that it wants, or all."""
    wanted = [str(key) for key in mapping(selector.get("matchLabels"))]
    wanted += [
        text(each.get("key"))
        for each in members(selector.get("matchExpressions"))
        if each.get("operator") in ("In", "Exists")
    ]
    if not wanted:
        return (name for namespace, name in snapshot.roles if not namespace)
    return min((snapshot.labelled_roles.get(key, {}) for key in wanted), key=len)


def account_subjects(account: Key) -> tuple[Subject, ...]:
    """As whom a ServiceAccount (namespace, name) may be bound: itself, and the groups that it is in."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{account[0]}", "system:authenticated")
    return (Subject(ACCOUNT, *account), *(Subject(GROUP_SUBJECT, "", name) for name in groups))


def grants(account: Key, snapshot: Snapshot) -> tuple[Grant, ...]:
    """Everything that the ServiceAccount (namespace, name) may do, over all bindings and groups."""
    return tuple(_granted(account_subjects(account), snapshot))


def own_grants(account: Key, snapshot: Snapshot) -> tuple[Grant, ...] | None:
    """What bindings of the ServiceAccount itself grant, without those of its groups; None where that is more than a
    review looks at.
    """
    own = account_subjects(account)[:1]
    if len(snapshot.subject_bindings.get(own[0], ())) > MOST_BINDINGS:
        return None
    looks, known = iter(range(MOST_ROLES)), dict[RoleKey, list[tuple[PolicyRule, Role]]]()
    found: list[Grant] = []
    for binding in reaching(own, snapshot):
        role = bound_role(binding, snapshot)
        if role is None:
            continue
        if role.reference not in known:
            known[role.reference] = list(islice(role_rules(role, snapshot, looks), MOST_RULES + 1))
        found += (Grant(rule, source, binding, binding.namespace) for rule, source in known[role.reference])
        if len(found) > MOST_RULES:
            return None
    return tuple(found) if next(looks, None) is not None else None


def distinct_grants(account: Key, snapshot: Snapshot) -> Iterator[Grant]:
    """As :func:`grants`, but a role that several bindings grant in the same place is there once, by the first of them:
    whoever may bind in one namespace may bind there without end.
    """
    known: set[tuple[str, RoleKey]] = set()
    for binding in reaching(account_subjects(account), snapshot):
        place = (binding.namespace, binding.role)
        if place not in known:
            known.add(place)
            yield from _by(binding, snapshot)


def reaching(subjects: Iterable[Subject], snapshot: Snapshot) -> list[RoleBinding]:
    """The bindings that one of ``subjects`` is bound by, sorted."""
    keys = {key for subject in subjects for key in snapshot.subject_bindings.get(subject, ())}
    return [snapshot.bindings[key] for key in sorted(keys)]


def _granted(subjects: Iterable[Subject], snapshot: Snapshot) -> Iterator[Grant]:
    for binding in reaching(subjects, snapshot):
        yield from _by(binding, snapshot)


def _by(binding: RoleBinding, snapshot: Snapshot) -> Iterator[Grant]:
    role = bound_role(binding, snapshot)
    if role is not None:
        for rule, source in role_rules(role, snapshot):
            yield Grant(rule, source, binding, binding.namespace)


def bound_role(binding: RoleBinding, snapshot: Snapshot) -> Role | None:
    """The role that ``binding`` binds; None where there is none, and where a binding of the cluster names one of a
    namespace.
    """
    kind, namespace, name = binding.role
    role = snapshot.roles.get((namespace, name))
    return role if role is not None and role.kind == kind else None
