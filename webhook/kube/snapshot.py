"""The snapshot: an immutable view of the cluster objects that decisions need, with the indexes they look up.

Persistent maps let a changed snapshot share everything else with the one before, so that a watch event, or
judging an object as if it were not there, costs a few look-ups and no copy.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from operator import attrgetter
from typing import Any, TypeVar

from immutables import Map
from msgspec import Struct, field
from msgspec.structs import replace

from webhook.kube.claims import Claim, read_template, stored_claim
from webhook.kube.core import GATE, Node, NodeTopology, Pod, read_topology, stored_node, stored_pod
from webhook.kube.node_ledger import NodeLedger, stored_node_ledger
from webhook.kube.raw import Json, mapping, text
from webhook.kube.rbac import BINDINGS, ROLES, Role, RoleBinding, RoleKey, Subject, rbac_key, read_binding, read_role
from webhook.kube.rbac import GROUP as RBAC
from webhook.kube.release import Release
from webhook.kube.resource import Slice, stored_slice
from webhook.kube.rollout import GROUP, DriverRollout, read_rollout

Key = tuple[str, str]
Shape = tuple[tuple[tuple[str, Any], ...], frozenset[tuple[str, bytes]]]
K = TypeVar("K")
T = TypeVar("T")

_by_name, _by_place = attrgetter("name"), attrgetter("namespace", "name")

_HELD = {
    "Node": "nodes",
    "ResourceSlice": "slices",
    "ResourceClaim": "claims",
    "ResourceClaimTemplate": "templates",
    "Pod": "pods",
    "DeviceClass": "classes",
    "Namespace": "namespaces",
    "DriverRollout": "rollouts",
    "NodeResourceTopology": "topologies",
    "NodeLedger": "ledgers",
    **dict.fromkeys(ROLES, "roles"),
    **dict.fromkeys(BINDINGS, "bindings"),
}
_GROUPS = {
    "Node": "",
    "Pod": "",
    "Namespace": "",
    "DriverRollout": GROUP,
    "NodeResourceTopology": "topology.node.k8s.io",
    "NodeLedger": GROUP,
    **dict.fromkeys((*ROLES, *BINDINGS), RBAC),
}
_NAMESPACED = frozenset({"ResourceClaim", "ResourceClaimTemplate", "Pod"})
# Kinds that are kept together with one of the whole cluster, told apart by whether they have a namespace.
_SCOPED = {"Role": True, "ClusterRole": False, "RoleBinding": True, "ClusterRoleBinding": False}

KINDS = frozenset(_HELD)
"""The kinds that a snapshot holds."""


def _add(index: Map[K, tuple[T, ...]], key: K, item: T, by: Callable[[T], Any]) -> Map[K, tuple[T, ...]]:
    """With ``item`` at its place in the order of ``by``: what is said of objects does not depend on which of them was
    heard of first.
    """
    held = index.get(key)
    if held is None:
        return index.set(key, (item,))
    place = bisect_left(held, by(item), key=by)
    return index.set(key, (*held[:place], item, *held[place:]))


def _drop(index: Map[K, tuple[T, ...]], key: K, item: T, by: Callable[[T], Any]) -> Map[K, tuple[T, ...]]:
    held = index.get(key, ())
    place = bisect_left(held, by(item), key=by)
    if place == len(held) or held[place] is not item:
        return index
    return index.set(key, (*held[:place], *held[place + 1 :])) if len(held) > 1 else index.delete(key)


def _mark(index: Map[K, Map[T, None]], key: K, name: T) -> Map[K, Map[T, None]]:
    return index.set(key, index.get(key, Map()).set(name, None))


def _unmark(index: Map[K, Map[T, None]], key: K, name: T) -> Map[K, Map[T, None]]:
    members = index.get(key)
    if members is None or name not in members:
        return index
    members = members.delete(name)
    return index.set(key, members) if members else index.delete(key)


# A struct: with as many members, a changed copy of a dataclass takes ten times as long.
class Snapshot(Struct, frozen=True):
    """What is known of the cluster at one moment; every method that changes something gives a new snapshot.

    Objects by name, namespaced ones by (namespace, name); ``rollout_specs`` are the rollouts without their status, the
    same map until somebody changes what one asks for. Indexes: ``pools`` by (driver, pool name),
    ``node_slices`` by ``spec.nodeName``, ``driver_slices`` names of a driver's slices, ``free_slices`` names of
    slices that are not bound to one node, ``mapped_slices`` names of a driver's slices with node costs,
    ``costless_slices`` names of those with devices that cost nothing,
    ``node_shapes`` names of nodes with equal allocatable and equal slices, ``claims_by_uid``,
    ``device_claims`` claims that hold the device (driver, pool, device), ``pool_claims`` claims that hold any
    device of the pool, ``node_claims`` claims whose allocation names the node, ``pods_by_uid``, ``node_pods``
    by ``spec.nodeName``, ``nominated_pods`` pods with claims that have no node yet by ``status.nominatedNodeName``,
    ``claim_pods`` pods that use the claim (namespace, name), ``gated_pods`` those that our gate keeps from being
    scheduled, ``unscheduled_pods`` pods with claims that the scheduler may give a node and has not, ``writers`` the
    profiles by driver of the accounts (namespace, name) that DriverRollouts name. ``roles`` and ``bindings``
    are those of namespaces and, with an empty namespace, of the cluster: ``role_bindings`` bindings of a role by (kind,
    namespace, name), ``subject_bindings`` by whom they bind, ``labelled_roles`` names of ClusterRoles that have a label
    of this key, ``aggregated_roles`` names of those that have the rules of others. ``seen`` tells by kind when the view
    of it was last known to be current; kinds that are not in it, as those of files, are never stale.
    """

    release: Release = field(default_factory=Release)
    nodes: Map[str, Node] = Map()
    slices: Map[str, Slice] = Map()
    claims: Map[Key, Claim] = Map()
    templates: Map[Key, Claim] = Map()
    pods: Map[Key, Pod] = Map()
    classes: Map[str, Json] = Map()
    namespaces: Map[str, Json] = Map()
    rollouts: Map[str, DriverRollout] = Map()
    rollout_specs: Map[str, DriverRollout] = Map()
    topologies: Map[str, NodeTopology] = Map()
    ledgers: Map[str, NodeLedger] = Map()
    pools: Map[Key, tuple[Slice, ...]] = Map()
    node_slices: Map[str, tuple[Slice, ...]] = Map()
    driver_slices: Map[str, Map[str, None]] = Map()
    free_slices: Map[str, Map[str, None]] = Map()
    mapped_slices: Map[str, Map[str, None]] = Map()
    costless_slices: Map[str, Map[str, None]] = Map()
    node_shapes: Map[Shape, Map[str, None]] = Map()
    claims_by_uid: Map[str, Claim] = Map()
    device_claims: Map[tuple[str, str, str], tuple[Claim, ...]] = Map()
    pool_claims: Map[Key, tuple[Claim, ...]] = Map()
    node_claims: Map[str, tuple[Claim, ...]] = Map()
    pods_by_uid: Map[str, Pod] = Map()
    node_pods: Map[str, tuple[Pod, ...]] = Map()
    nominated_pods: Map[str, tuple[Pod, ...]] = Map()
    claim_pods: Map[Key, tuple[Pod, ...]] = Map()
    gated_pods: Map[Key, Pod] = Map()
    unscheduled_pods: Map[Key, Pod] = Map()
    writers: Map[Key, Mapping[str, str]] = Map()
    roles: Map[Key, Role] = Map()
    bindings: Map[Key, RoleBinding] = Map()
    role_bindings: Map[RoleKey, Map[Key, None]] = Map()
    subject_bindings: Map[Subject, Map[Key, None]] = Map()
    labelled_roles: Map[str, Map[str, None]] = Map()
    aggregated_roles: Map[str, None] = Map()
    seen: Map[str, datetime] = Map()

    def put(self, obj: Json) -> Snapshot:
        """This snapshot with the raw object added, in place of the one of its kind, namespace and name."""
        bare = self.remove(obj)
        kind, name = _kind(obj), _name(obj)
        key = (_namespace(obj), name)
        match kind:
            case "Node":
                return bare._with_node(stored_node(obj))
            case "ResourceSlice":
                return bare._with_slice(stored_slice(obj))
            case "ResourceClaim":
                return bare._with_claim(stored_claim(obj))
            case "ResourceClaimTemplate":
                return replace(bare, templates=bare.templates.set(key, read_template(obj)))
            case "Pod":
                return bare._with_pod(stored_pod(obj))
            case "DeviceClass":
                return replace(bare, classes=bare.classes.set(name, _kept(obj)))
            case "Namespace":
                return replace(bare, namespaces=bare.namespaces.set(name, _kept(obj)))
            case "DriverRollout":
                rollout = read_rollout(obj)
                spec = rollout.without_status()
                specs = (
                    self.rollout_specs if self.rollout_specs.get(name) == spec else bare.rollout_specs.set(name, spec)
                )
                changed = replace(bare, rollouts=bare.rollouts.set(name, rollout), rollout_specs=specs)
                return changed._with_writers(rollout)
            case "NodeResourceTopology":
                return replace(bare, topologies=bare.topologies.set(name, read_topology(obj)))
            case "NodeLedger":
                return replace(bare, ledgers=bare.ledgers.set(name, stored_node_ledger(obj)))
            case "Role" | "ClusterRole":
                return bare._with_role(read_role(obj))
            case "RoleBinding" | "ClusterRoleBinding":
                return bare._with_binding(read_binding(obj))
        return bare

    def remove(self, obj: Json) -> Snapshot:
        """This snapshot without the object of the same kind, namespace and name as ``obj``."""
        kind, name = _kind(obj), _name(obj)
        key = (_namespace(obj), name)
        match kind:
            case "Node" if name in self.nodes:
                return self._without_node(self.nodes[name])
            case "ResourceSlice" if name in self.slices:
                return self._without_slice(self.slices[name])
            case "ResourceClaim" if key in self.claims:
                return self._without_claim(self.claims[key])
            case "ResourceClaimTemplate" if key in self.templates:
                return replace(self, templates=self.templates.delete(key))
            case "Pod" if key in self.pods:
                return self._without_pod(self.pods[key])
            case "DeviceClass" if name in self.classes:
                return replace(self, classes=self.classes.delete(name))
            case "Namespace" if name in self.namespaces:
                return replace(self, namespaces=self.namespaces.delete(name))
            case "DriverRollout" if name in self.rollouts:
                rollouts, specs = self.rollouts.delete(name), self.rollout_specs.delete(name)
                bare = self._without_writers(self.rollouts[name])
                return replace(bare, rollouts=rollouts, rollout_specs=specs)
            case "NodeResourceTopology" if name in self.topologies:
                return replace(self, topologies=self.topologies.delete(name))
            case "NodeLedger" if name in self.ledgers:
                return replace(self, ledgers=self.ledgers.delete(name))
            case "Role" | "ClusterRole" if (known := self.roles.get(rbac_key(obj))) is not None:
                return self._without_role(known)
            case "RoleBinding" | "ClusterRoleBinding" if (bound := self.bindings.get(rbac_key(obj))) is not None:
                return self._without_binding(bound)
        return self

    def with_ledger(self, ledger: NodeLedger) -> Snapshot:
        """This snapshot with ``ledger`` in place of the ledger of its node."""
        return replace(self, ledgers=self.ledgers.set(ledger.node, ledger))

    def with_claim(self, claim: Claim) -> Snapshot:
        """This snapshot with ``claim`` in place of the claim of that namespace and name."""
        known = self.claims.get((claim.namespace, claim.name))
        return (self if known is None else self._without_claim(known))._with_claim(claim)

    def with_pod(self, pod: Pod) -> Snapshot:
        """This snapshot with ``pod`` in place of the pod of that namespace and name."""
        known = self.pods.get((pod.namespace, pod.name))
        return (self if known is None else self._without_pod(known))._with_pod(pod)

    def with_role(self, role: Role) -> Snapshot:
        """This snapshot with ``role`` in place of the role of that namespace and name."""
        known = self.roles.get(role.key)
        return (self if known is None else self._without_role(known))._with_role(role)

    def with_binding(self, binding: RoleBinding) -> Snapshot:
        """This snapshot with ``binding`` in place of the binding of that namespace and name."""
        known = self.bindings.get(binding.key)
        return (self if known is None else self._without_binding(known))._with_binding(binding)

    def keys(self, kind: str) -> set[Key]:
        """(namespace, name) of all objects of ``kind``; no namespace for those of the cluster."""
        held = getattr(self, _HELD[kind])
        if kind in _SCOPED:
            return {key for key in held if bool(key[0]) is _SCOPED[kind]}
        return set(held) if kind in _NAMESPACED else {("", name) for name in held}

    def knows(self, obj: Json) -> bool:
        """Whether an object of the same kind, namespace and name is in the snapshot."""
        return self.remove(obj) is not self

    def _with_writers(self, rollout: DriverRollout) -> Snapshot:
        writers = self.writers
        for each in rollout.writers:
            account = (each.namespace, each.service_account)
            profiles = writers.get(account, {})
            # An account named twice has the profile that stands first.
            if rollout.driver not in profiles:
                writers = writers.set(account, {**profiles, rollout.driver: each.profile})
        return self if writers is self.writers else replace(self, writers=writers)

    def _without_writers(self, rollout: DriverRollout) -> Snapshot:
        writers = self.writers
        for account in {(each.namespace, each.service_account) for each in rollout.writers}:
            left = {name: profile for name, profile in writers[account].items() if name != rollout.driver}
            writers = writers.set(account, left) if left else writers.delete(account)
        return self if writers is self.writers else replace(self, writers=writers)

    def _with_node(self, node: Node) -> Snapshot:
        nodes = self.nodes.set(node.name, node)
        return replace(self._reshape(node.name, nodes, self.node_slices), nodes=nodes)

    def _without_node(self, node: Node) -> Snapshot:
        nodes = self.nodes.delete(node.name)
        return replace(self._reshape(node.name, nodes, self.node_slices), nodes=nodes)

    def _reshape(self, name: str, nodes: Map[str, Node], node_slices: Map[str, tuple[Slice, ...]]) -> Snapshot:
        before = _shape(name, self.nodes, self.node_slices)
        after = _shape(name, nodes, node_slices)
        if before == after:
            return self
        shapes = self.node_shapes
        if before is not None:
            shapes = _unmark(shapes, before, name)
        if after is not None:
            shapes = _mark(shapes, after, name)
        return replace(self, node_shapes=shapes)

    def _with_slice(self, item: Slice) -> Snapshot:
        node_slices = _add(self.node_slices, item.node, item, _by_name) if item.node else self.node_slices
        changed = self._reshape(item.node, self.nodes, node_slices) if item.node else self
        return replace(
            changed,
            slices=self.slices.set(item.name, item),
            pools=_add(self.pools, item.key, item, _by_name),
            node_slices=node_slices,
            driver_slices=_mark(self.driver_slices, item.driver, item.name),
            free_slices=self.free_slices if item.node else _mark(self.free_slices, item.driver, item.name),
            mapped_slices=_mark(self.mapped_slices, item.driver, item.name) if item.mapped else self.mapped_slices,
            costless_slices=_mark(self.costless_slices, item.driver, item.name)
            if item.costless
            else self.costless_slices,
        )

    def _without_slice(self, item: Slice) -> Snapshot:
        node_slices = _drop(self.node_slices, item.node, item, _by_name)
        changed = self._reshape(item.node, self.nodes, node_slices) if item.node else self
        return replace(
            changed,
            slices=self.slices.delete(item.name),
            pools=_drop(self.pools, item.key, item, _by_name),
            node_slices=node_slices,
            driver_slices=_unmark(self.driver_slices, item.driver, item.name),
            free_slices=_unmark(self.free_slices, item.driver, item.name),
            mapped_slices=_unmark(self.mapped_slices, item.driver, item.name),
            costless_slices=_unmark(self.costless_slices, item.driver, item.name),
        )

    def _with_claim(self, claim: Claim) -> Snapshot:
        key = (claim.namespace, claim.name)
        device_claims, pool_claims, node_claims = self.device_claims, self.pool_claims, self.node_claims
        if claim.allocation is not None:
            for identity in dict.fromkeys(r.identity for r in claim.allocation.results):
                device_claims = _add(device_claims, identity, claim, _by_place)
            for pool in dict.fromkeys((r.driver, r.pool) for r in claim.allocation.results):
                pool_claims = _add(pool_claims, pool, claim, _by_place)
            if claim.allocation.node:
                node_claims = _add(node_claims, claim.allocation.node, claim, _by_place)
        return replace(
            self,
            claims=self.claims.set(key, claim),
            claims_by_uid=self.claims_by_uid.set(claim.id, claim),
            device_claims=device_claims,
            pool_claims=pool_claims,
            node_claims=node_claims,
        )

    def _without_claim(self, claim: Claim) -> Snapshot:
        device_claims, pool_claims, node_claims = self.device_claims, self.pool_claims, self.node_claims
        if claim.allocation is not None:
            for identity in dict.fromkeys(r.identity for r in claim.allocation.results):
                device_claims = _drop(device_claims, identity, claim, _by_place)
            for pool in dict.fromkeys((r.driver, r.pool) for r in claim.allocation.results):
                pool_claims = _drop(pool_claims, pool, claim, _by_place)
            node_claims = _drop(node_claims, claim.allocation.node, claim, _by_place)
        uids = self.claims_by_uid
        return replace(
            self,
            claims=self.claims.delete((claim.namespace, claim.name)),
            claims_by_uid=uids.delete(claim.id) if uids.get(claim.id) is claim else uids,
            device_claims=device_claims,
            pool_claims=pool_claims,
            node_claims=node_claims,
        )

    def _with_pod(self, pod: Pod) -> Snapshot:
        key, claim_pods = (pod.namespace, pod.name), self.claim_pods
        for name in dict.fromkeys(pod.claim_names.values()):
            claim_pods = _add(claim_pods, (pod.namespace, name), pod, _by_place)
        return replace(
            self,
            pods=self.pods.set(key, pod),
            pods_by_uid=self.pods_by_uid.set(pod.uid, pod) if pod.uid else self.pods_by_uid,
            node_pods=_add(self.node_pods, pod.node, pod, _by_place) if pod.node else self.node_pods,
            nominated_pods=_add(self.nominated_pods, pod.nominated, pod, _by_place)
            if _nominated(pod)
            else self.nominated_pods,
            claim_pods=claim_pods,
            gated_pods=self.gated_pods.set(key, pod) if GATE in pod.gates else self.gated_pods,
            unscheduled_pods=self.unscheduled_pods.set(key, pod) if _unscheduled(pod) else self.unscheduled_pods,
        )

    def _without_pod(self, pod: Pod) -> Snapshot:
        key, claim_pods = (pod.namespace, pod.name), self.claim_pods
        for name in dict.fromkeys(pod.claim_names.values()):
            claim_pods = _drop(claim_pods, (pod.namespace, name), pod, _by_place)
        uids = self.pods_by_uid
        return replace(
            self,
            pods=self.pods.delete(key),
            pods_by_uid=uids.delete(pod.uid) if uids.get(pod.uid) is pod else uids,
            node_pods=_drop(self.node_pods, pod.node, pod, _by_place),
            nominated_pods=_drop(self.nominated_pods, pod.nominated, pod, _by_place)
            if _nominated(pod)
            else self.nominated_pods,
            claim_pods=claim_pods,
            gated_pods=self.gated_pods.delete(key) if GATE in pod.gates else self.gated_pods,
            unscheduled_pods=self.unscheduled_pods.delete(key) if _unscheduled(pod) else self.unscheduled_pods,
        )

    def _with_role(self, role: Role) -> Snapshot:
        labelled, aggregated = self.labelled_roles, self.aggregated_roles
        if not role.namespace:
            for label in role.labels:
                labelled = _mark(labelled, label, role.name)
            if role.aggregates:
                aggregated = aggregated.set(role.name, None)
        roles = self.roles.set(role.key, role)
        return replace(self, roles=roles, labelled_roles=labelled, aggregated_roles=aggregated)

    def _without_role(self, role: Role) -> Snapshot:
        labelled, aggregated = self.labelled_roles, self.aggregated_roles
        if not role.namespace:
            for label in role.labels:
                labelled = _unmark(labelled, label, role.name)
            if role.aggregates:
                aggregated = aggregated.delete(role.name)
        roles = self.roles.delete(role.key)
        return replace(self, roles=roles, labelled_roles=labelled, aggregated_roles=aggregated)

    def _with_binding(self, binding: RoleBinding) -> Snapshot:
        subjects = self.subject_bindings
        for subject in binding.subjects:
            subjects = _mark(subjects, subject, binding.key)
        return replace(
            self,
            bindings=self.bindings.set(binding.key, binding),
            role_bindings=_mark(self.role_bindings, binding.role, binding.key),
            subject_bindings=subjects,
        )

    def _without_binding(self, binding: RoleBinding) -> Snapshot:
        subjects = self.subject_bindings
        for subject in binding.subjects:
            subjects = _unmark(subjects, subject, binding.key)
        return replace(
            self,
            bindings=self.bindings.delete(binding.key),
            role_bindings=_unmark(self.role_bindings, binding.role, binding.key),
            subject_bindings=subjects,
        )


def _nominated(pod: Pod) -> bool:
    return bool(pod.nominated and pod.claims) and not pod.node


def _unscheduled(pod: Pod) -> bool:
    return bool(pod.claims) and not (pod.node or pod.gates or pod.terminal)


def _kind(obj: Json) -> str:
    """The kind, empty for a group whose kind only shares the name with one of ours."""
    kind, version = text(obj.get("kind")), text(obj.get("apiVersion"))
    group = version.partition("/")[0] if "/" in version else ""
    return kind if group == group_of(kind) else ""


def group_of(kind: str) -> str:
    """The API group of a kind that snapshots hold, empty for the core group."""
    return _GROUPS.get(kind, "resource.k8s.io")


def _kept(obj: Json) -> Json:
    """A raw object without the managed fields, which are most of many an object and asked for by nobody."""
    metadata = mapping(obj.get("metadata"))
    if "managedFields" not in metadata:
        return obj
    return {**obj, "metadata": {name: value for name, value in metadata.items() if name != "managedFields"}}


def _name(obj: Json) -> str:
    return text(mapping(obj.get("metadata")).get("name"))


def _namespace(obj: Json) -> str:
    return text(mapping(obj.get("metadata")).get("namespace"))


def _shape(name: str, nodes: Map[str, Node], node_slices: Map[str, tuple[Slice, ...]]) -> Shape | None:
    node = nodes.get(name)
    if node is None:
        return None
    offered = frozenset((item.driver, item.shape) for item in node_slices.get(name, ()))
    return (tuple(sorted(node.allocatable.items())), offered)


def build(objs: Iterable[Json], release: Release) -> Snapshot:
    """The snapshot of raw objects; an object given twice counts once, the later one wins."""
    snapshot = Snapshot(release)
    for obj in objs:
        snapshot = snapshot.put(obj)
    return snapshot
