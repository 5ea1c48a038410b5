"""The narrowest roles for what one ServiceAccount does, with what binds them: in no more namespaces than it has them
today, and of what is no report never more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from webhook.facts.narrow_role import flow, holder_rules
from webhook.facts.rbac import (
    ARBITRARY,
    ASSOCIATED,
    BINDING,
    CLAIMS,
    DRA,
    DRIVER,
    STATUS,
    STATUS_VERBS,
    Grant,
    covers,
    covers_every,
)
from webhook.facts.rbac_profile import Holder
from webhook.kube.rbac import (
    ACCOUNT,
    API_VERSION,
    CLUSTER_BINDING,
    CLUSTER_ROLE,
    DRIVERS,
    GROUP,
    PROFILE,
    PolicyRule,
    Role,
)
from webhook.kube.rbac import BINDING as ROLE_BINDING
from webhook.kube.snapshot import Snapshot

Json = dict[str, Any]

# Of DRA, what is in namespaces and may be granted there; a right to allocate is asked for the whole cluster.
_INSIDE = (CLAIMS, STATUS, DRIVER)


class Narrowest:
    """What ``holder`` needs of what ``grants`` give it. ``own`` is the role whose rules may change, None for none."""

    def __init__(self, holder: Holder, grants: Sequence[Grant], own: Role | None, snapshot: Snapshot) -> None:
        self._holder = holder
        self._grants = grants
        self._own = own
        self._snapshot = snapshot
        self._taken: set[str] = set()

    def objects(self) -> list[Json]:
        """The roles and bindings as manifests; of an own role no binding. Empty where nothing is needed."""
        verbs = [verb for verb in STATUS_VERBS if self._reports_by(verb)]
        wanted = holder_rules(self._holder, verbs, bool(verbs))
        if not verbs:
            wanted = [rule for rule in wanted if not any("/" in each for each in rule["resources"])]
        inside = {each: self._namespaces(each) for each in _INSIDE}
        outside = [each for rule in wanted for each in self._cut(rule, [r for r in _INSIDE if inside[r]])]
        found: list[Json] = []
        name = self._own.name if self._own is not None else self._free(self._holder.account[1])
        if self._own is not None or outside:
            found.append(self._role(name, outside))
        if self._own is None and outside:
            found.append(self._binding(name, ""))
        for rules, namespaces in self._by_namespace(wanted, inside):
            name = self._free(f"{self._holder.account[1]}-claims")
            found.append(self._role(name, rules))
            found += [self._binding(name, each) for each in namespaces]
        return found

    def _reports_by(self, verb: str) -> bool:
        """Whether it has any of what a status write by ``verb`` takes: who has one half is to have the other."""
        asked = [(STATUS, verb)]
        if self._holder.drives:
            asked += [(DRIVER, f"{ASSOCIATED}{verb}"), (DRIVER, f"{ARBITRARY}{verb}")]
        # A right to allocate that holds within a namespace is none.
        allocates = self._holder.allocates and "" in self._places(BINDING, [verb])
        return allocates or any(self._places(resource, [wanted]) for resource, wanted in asked)

    def _places(self, resource: str, verbs: Collection[str], group: str = DRA) -> set[str]:
        """Where it has one of ``verbs``: namespaces, and an empty one for everywhere. Of a part of an object names do
        not matter: those of drivers are the reference's, and a status is to be written with one half or with both.
        """

        def gives(rule: PolicyRule) -> bool:
            if "/" not in resource:
                return any(covers_every(rule, group, resource, verb) for verb in verbs)
            return any(
                covers(rule, group, resource, verb, name) for verb in verbs for name in ("", *rule.resource_names)
            )

        return {each.namespace for each in self._grants if gives(each.rule)}

    def _namespaces(self, resource: str) -> set[str]:
        """The namespaces in which alone it has ``resource``; empty where it has it everywhere, or not at all.

        A report takes two rights, and where it has but one of them it reports nothing.
        """
        if resource == CLAIMS:
            places = self._places(CLAIMS, ("get", "list", "watch"))
            return set() if "" in places else places
        status = self._places(STATUS, STATUS_VERBS)
        prefixed = [f"{prefix}{verb}" for prefix in (ASSOCIATED, ARBITRARY) for verb in STATUS_VERBS]
        driver = self._places(DRIVER, prefixed) if self._holder.drives else {""}
        if not status or not driver:
            both = status | driver
        elif "" in status or "" in driver:
            both = driver if "" in status else status
        else:
            both = status & driver or status | driver
        return set() if "" in both else both

    def _cut(self, rule: Json, left_out: Collection[str], namespace: str = "") -> list[Json]:
        """``rule`` of the reference without the objects and verbs that the account does without today, and without
        objects that are ``left_out``; of what a status write takes all is needed.
        """
        resources = [each for each in rule["resources"] if each not in left_out]
        if any("/" in each for each in resources):
            return [{**rule, "resources": resources}]
        [group] = rule["apiGroups"]
        alike: dict[tuple[str, ...], list[str]] = {}
        for each in resources:
            verbs = tuple(verb for verb in rule["verbs"] if self._places(each, [verb], group) & {"", namespace})
            alike.setdefault(verbs, []).append(each)
        return [{**rule, "resources": same, "verbs": list(verbs)} for verbs, same in alike.items() if verbs]

    def _by_namespace(
        self, wanted: Sequence[Json], inside: dict[str, set[str]]
    ) -> Iterator[tuple[list[Json], list[str]]]:
        """The rules that hold in namespaces alone, with those in which they are the same."""
        alike: dict[str, tuple[list[Json], list[str]]] = {}
        for namespace in sorted(set().union(*inside.values())):
            here = [resource for resource in _INSIDE if namespace in inside[resource]]
            parts = ({**rule, "resources": [r for r in rule["resources"] if r in here]} for rule in wanted)
            rules = [cut for part in parts if part["resources"] for cut in self._cut(part, (), namespace)]
            if rules:
                alike.setdefault(flow(rules), (rules, []))[1].append(namespace)
        yield from alike.values()

    def _role(self, name: str, rules: Sequence[Json]) -> Json:
        profiles = self._holder.all_profiles
        profile = next(iter(profiles)) if len(profiles) == 1 else ""
        about = {PROFILE: profile, DRIVERS: ", ".join(sorted(self._holder.profiles)) if profile else ""}
        annotations = {key: value for key, value in about.items() if value}
        metadata = {"name": name, **({"annotations": annotations} if annotations else {})}
        return {"apiVersion": API_VERSION, "kind": CLUSTER_ROLE, "metadata": metadata, "rules": list(rules)}

    def _binding(self, name: str, namespace: str) -> Json:
        space, account = self._holder.account
        return {
            "apiVersion": API_VERSION,
            "kind": ROLE_BINDING if namespace else CLUSTER_BINDING,
            "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
            "roleRef": {"apiGroup": GROUP, "kind": CLUSTER_ROLE, "name": name},
            "subjects": [{"kind": ACCOUNT, "namespace": space, "name": account}],
        }

    def _free(self, name: str) -> str:
        """A name that no role and no binding has, which begins with ``name``."""
        bindings = {each for _, each in self._snapshot.bindings}
        while ("", name) in self._snapshot.roles or name in bindings or name in self._taken:
            name = f"{name}-narrow"
        self._taken.add(name)
        return name
