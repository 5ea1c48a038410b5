"""Roles and bindings (``rbac.authorization.k8s.io``), as far as rules, subjects and our own annotations go."""

from __future__ import annotations

from collections.abc import Mapping
from sys import intern

from msgspec import Struct

from webhook.kube.raw import Json, mapping, members, sequence, text
from webhook.kube.rollout import GROUP as OURS
from webhook.kube.sharing import by_content, shared

GROUP = "rbac.authorization.k8s.io"
API_VERSION = f"{GROUP}/v1"
CLUSTER_ROLE, ROLE = "ClusterRole", "Role"
CLUSTER_BINDING, BINDING = "ClusterRoleBinding", "RoleBinding"
ROLES, BINDINGS = (CLUSTER_ROLE, ROLE), (CLUSTER_BINDING, BINDING)
ACCOUNT, USER, GROUP_SUBJECT = "ServiceAccount", "User", "Group"
# What an author says of a role: whom it is for (NodeLocal, MultiNode, AnyNode, Allocator), and of which drivers.
PROFILE, DRIVERS = f"{OURS}/profile", f"{OURS}/driver"
ACCOUNT_USER = "system:serviceaccount:"

Key = tuple[str, str]
RoleKey = tuple[str, str, str]


class PolicyRule(Struct, frozen=True, gc=False):
    """One rule of a role: what it has of each list, in its order."""

    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()


class Role(Struct, frozen=True):
    """A Role, or a ClusterRole, whose ``namespace`` is empty. ``profile`` and ``drivers`` are what its annotations say,
    ``drivers`` sorted; ``aggregates`` are the selectors of a ClusterRole whose rules are those of others.
    """

    namespace: str
    name: str
    rules: tuple[PolicyRule, ...] = ()
    labels: Mapping[str, str] = {}
    profile: str = ""
    drivers: tuple[str, ...] = ()
    aggregates: tuple[Json, ...] = ()

    @property
    def key(self) -> Key:
        """(namespace, name)."""
        return (self.namespace, self.name)

    @property
    def kind(self) -> str:
        """``Role`` or ``ClusterRole``."""
        return ROLE if self.namespace else CLUSTER_ROLE

    @property
    def reference(self) -> RoleKey:
        """(kind, namespace, name): what bindings call it."""
        return (self.kind, self.namespace, self.name)


class Subject(Struct, frozen=True, gc=False):
    """Who is bound: a ServiceAccount, a user or a group. A user that is a ServiceAccount by its name counts as one."""

    kind: str
    namespace: str
    name: str


class RoleBinding(Struct, frozen=True, gc=False):
    """A RoleBinding, or a ClusterRoleBinding, whose ``namespace`` is empty."""

    namespace: str
    name: str
    role_kind: str
    role_name: str
    subjects: tuple[Subject, ...] = ()

    @property
    def key(self) -> Key:
        """(namespace, name)."""
        return (self.namespace, self.name)

    @property
    def kind(self) -> str:
        """``RoleBinding`` or ``ClusterRoleBinding``."""
        return BINDING if self.namespace else CLUSTER_BINDING

    @property
    def role(self) -> RoleKey:
        """(kind, namespace, name) of the role that is bound; a ClusterRole has no namespace."""
        return (self.role_kind, self.namespace if self.role_kind == ROLE else "", self.role_name)


def account_user(namespace: str, name: str) -> str:
    """The user name of a ServiceAccount."""
    return f"{ACCOUNT_USER}{namespace}:{name}"


def rbac_key(obj: Json) -> Key:
    """(namespace, name) of a raw role or binding. What needs a namespace and has none, as in files, is in ``default``,
    so that it is taken for none of the cluster.
    """
    metadata = mapping(obj.get("metadata"))
    namespaced = obj.get("kind") in (ROLE, BINDING)
    return (text(metadata.get("namespace")) or "default" if namespaced else "", text(metadata.get("name")))


def _texts(raw: object) -> tuple[str, ...]:
    return tuple([intern(each) for each in sequence(raw) if isinstance(each, str)])


def read_rule(raw: object) -> PolicyRule:
    """The model of a raw rule; members of a wrong type count as absent."""
    fields = mapping(raw)
    return PolicyRule(
        _texts(fields.get("apiGroups")),
        _texts(fields.get("resources")),
        _texts(fields.get("verbs")),
        _texts(fields.get("resourceNames")),
        _texts(fields.get("nonResourceURLs")),
    )


# Most roles of a cluster are made from a few charts: what is equal in them is kept once.
_shared_rule = by_content(read_rule)


def read_role(obj: Json) -> Role:
    """The model of a raw Role or ClusterRole; fields of a wrong type count as absent (the schema tells)."""
    namespace, name = rbac_key(obj)
    metadata = mapping(obj.get("metadata"))
    annotations = mapping(metadata.get("annotations"))
    drivers = {each.strip() for each in text(annotations.get(DRIVERS)).split(",")} - {""}
    labels = {str(key): value for key, value in mapping(metadata.get("labels")).items() if isinstance(value, str)}
    selectors = mapping(obj.get("aggregationRule")).get("clusterRoleSelectors")
    return Role(
        namespace=intern(namespace),
        name=name,
        rules=tuple([_shared_rule(rule) for rule in sequence(obj.get("rules"))]),
        labels=shared(labels),
        profile=text(annotations.get(PROFILE)),
        drivers=tuple([intern(each) for each in sorted(drivers)]),
        aggregates=() if namespace else tuple([shared(each) for each in members(selectors)]),
    )


def _subject(raw: Json, namespace: str) -> Subject:
    kind, name = text(raw.get("kind")), text(raw.get("name"))
    if kind == USER and name.startswith(ACCOUNT_USER):
        space, _, account = name.removeprefix(ACCOUNT_USER).partition(":")
        return Subject(ACCOUNT, intern(space), intern(account))
    space = text(raw.get("namespace")) or namespace if kind == ACCOUNT else ""
    return Subject(intern(kind), intern(space), intern(name))


def read_binding(obj: Json) -> RoleBinding:
    """The model of a raw RoleBinding or ClusterRoleBinding; fields of a wrong type count as absent."""
    namespace, name = rbac_key(obj)
    reference = mapping(obj.get("roleRef"))
    return RoleBinding(
        namespace=intern(namespace),
        name=name,
        role_kind=intern(text(reference.get("kind"))),
        role_name=intern(text(reference.get("name"))),
        subjects=tuple([_subject(mapping(each), namespace) for each in sequence(obj.get("subjects"))]),
    )
