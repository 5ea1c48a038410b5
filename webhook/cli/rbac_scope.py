"""What one ServiceAccount may do, over all roles and bindings, and the narrowest role that does its job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

from webhook.cli.console import paint, wrapped
from webhook.cli.formats.text import found_lines
from webhook.cli.output import dump
from webhook.cli.rbac_narrow import Narrowest
from webhook.cli.report import finding_json, plural
from webhook.facts.narrow_role import flow
from webhook.facts.rbac import DRA, Grant, grants
from webhook.facts.rbac_lint_dra import of_dra
from webhook.facts.rbac_profile import Holder, account_holder, annotated
from webhook.kube.finding import one_line
from webhook.kube.rbac import ACCOUNT, BINDING, CLUSTER_ROLE, DRIVERS, PROFILE, PolicyRule, Role, Subject, read_rule

if TYPE_CHECKING:
    from webhook.cli.report import Report
    from webhook.kube.snapshot import Key, Snapshot

Json = dict[str, Any]

_EVERYWHERE = "all namespaces"
# Roles that Kubernetes comes with, and others depend on.
_BUILT_IN = frozenset({"cluster-admin", "admin", "edit", "view"})
# Columns for the verbs of a rule; longer ones push what they are for to the right.
_MOST_VERBS = 48


class Scope:
    """What the ServiceAccount ``account`` has in ``snapshot``, and what it would need."""

    def __init__(self, account: Key, snapshot: Snapshot) -> None:
        self.account = account
        self.grants = grants(account, snapshot)
        self.holder = account_holder(account, snapshot) or _annotated(self.grants, account)
        self._named = account in snapshot.writers
        self._snapshot = snapshot

    def as_json(self, report: Report) -> Json:
        """The scope with the findings of ``report``, for scripts."""
        holder = self.holder
        return {
            "serviceAccount": {"namespace": self.account[0], "name": self.account[1]},
            "profiles": [{"driver": name, "profile": profile} for name, profile in sorted(holder.profiles.items())]
            if holder
            else [],
            "by": "" if holder is None else "DriverRollout" if self._named else "annotations",
            "grants": [_grant_json(each) for each in self.grants],
            "findings": [finding_json(judged, found) for judged, found in report],
            "narrowest": self.narrowest(),
        }

    def narrowest(self) -> list[Json]:
        """The roles that the account needs, and what binds them where the roles that it has are not its own; empty
        where nobody knows what it is for.
        """
        if self.holder is None:
            return []
        return Narrowest(self.holder, self.grants, self._own_role(), self._snapshot).objects()

    def _own_role(self) -> Role | None:
        """The one ClusterRole that is bound to this account, everywhere, and to nobody else: its rules may change."""
        own = (each for each in self.grants if not _by_group(each, self.account))
        found = {grant.binding.key: grant for grant in own}
        if len(found) != 1:
            return None
        [grant] = found.values()
        binding = grant.binding
        role = self._snapshot.roles.get((binding.role[1], binding.role_name))
        alone = len(binding.subjects) == 1 and len(self._snapshot.role_bindings.get(binding.role, ())) == 1
        shipped = binding.role_name in _BUILT_IN or binding.role_name.startswith("system:")
        if role is None or role.namespace or role.aggregates or binding.namespace or shipped or not alone:
            return None
        return role

    def text(self, report: Report) -> Iterator[str]:
        """The scope for people, with the findings of ``report`` and what to use instead."""
        yield from self._rights()
        for judged in report.judgements:
            yield ""
            if judged.found:
                yield paint("what is wrong", bold=True)
                yield from (line for found in judged.found for line in found_lines(found))
                yield ""
        yield from self._advice()

    def _rights(self) -> Iterator[str]:
        holder = self.holder
        title = paint(f"{ACCOUNT} {'/'.join(self.account)}", bold=True)
        if holder is None:
            yield f"{title}: no DriverRollout names it among its writers, and no role of it says whose it is"
        else:
            source = "a DriverRollout says" if self._named else "the annotations of its role say"
            yield f"{title}: {one_line(holder.told)}, as {source}"
        hidden = [each for each in self.grants if _everybodys(each, self.account)]
        shown = [each for each in self.grants if each not in hidden]
        for (namespace, by), group in groupby(shown, key=lambda each: (each.namespace, _by(each))):
            where = f"in namespace {one_line(namespace)}" if namespace else f"in {_EVERYWHERE}"
            yield ""
            yield from wrapped(f"may, {where}, by {by}", "  ", "      ")
            rows = [_row(each.rule) for each in group]
            size = min(max(len(verbs) for verbs, _ in rows), _MOST_VERBS)
            for verbs, what in rows:
                yield from wrapped(f"{verbs.ljust(size)}  {what}", "    ", " " * (6 + size))
        if not shown:
            yield "  has no right of its own"
        if hidden:
            names = one_line(", ".join(sorted({each.binding.role_name for each in hidden})))
            yield ""
            yield from wrapped(f"and {plural(len(hidden), 'rule')} that every account has ({names})", "  ", "      ")

    def _advice(self) -> Iterator[str]:
        if self.holder is None:
            fix = f"name it in spec.writers of the DriverRollout, or annotate its role with {PROFILE} and {DRIVERS}"
            yield from wrapped(f"the narrowest role is not known; where it is a driver's or an allocator's, {fix}")
            return
        objects = self.narrowest()
        if not objects:
            yield from wrapped("no role is shown: it has none of the rights that such a writer uses")
            return
        own = self._own_role()
        others = [
            each for each in self.grants if of_dra(each.rule) and (own is None or each.binding.role != own.reference)
        ]
        named = sorted({f"{each.binding.kind} {'/'.join(filter(None, each.binding.key))}" for each in others})
        away = one_line(f"take the account out of {', '.join(named)}") if named else ""
        single = len(objects) == 1
        if own is not None and single and _of_devices(own.rules) == _of_devices(map(read_rule, objects[0]["rules"])):
            told = f"{CLUSTER_ROLE} {one_line(own.name)} is the narrowest role already"
            yield from wrapped(f"{told}; {away}" if away else told)
            return
        if any(each["kind"] == BINDING for each in objects) and self._placed() == _placed(objects):
            yield from wrapped("its roles are the narrowest already")
            return
        if own is not None:
            kept = "patch on resourceclaims for the finalizer" if self.holder.allocates else "for events"
            name = one_line(own.name)
            what = f"the narrowest role, to replace {CLUSTER_ROLE} {name}; keep what else it needs, as {kept}"
        else:
            what = "the narrowest role, with what binds it"
        what += f"; once it is there, {away}:" if away else ":"
        first, *rest = wrapped(what)
        yield from (paint(first, bold=True), *rest)
        yield "---"
        yield "\n---\n".join(map(_manifest, objects))

    def _placed(self) -> set[object]:
        """What it may do with devices, and where."""
        return {(each.namespace, right) for each in self.grants for right in _of_devices([each.rule])}


def _placed(objects: Iterable[Json]) -> set[object]:
    """What roles among ``objects`` say about devices, and where the bindings among them grant it."""
    found = list(objects)
    rights = {each["metadata"]["name"]: _of_devices(map(read_rule, each["rules"])) for each in found if "rules" in each}
    bound = [each for each in found if "roleRef" in each]
    return {
        (each["metadata"].get("namespace", ""), right) for each in bound for right in rights[each["roleRef"]["name"]]
    }


def _annotated(granted: Iterable[Grant], account: Key) -> Holder | None:
    """Whom the roles of the account are for, as their annotations say; of two that differ the first counts."""
    said = [holder for each in granted if (holder := annotated(each.role)) is not None]
    if not said:
        return None
    profiles = {name: profile for each in reversed(said) for name, profile in each.profiles.items()}
    return Holder(profiles, said[0].profile, account)


def _manifest(obj: Json) -> str:
    """``obj`` as people write it, a rule a line."""
    rules = obj.get("rules")
    lines = [dump({key: value for key, value in obj.items() if key != "rules"}, "yaml")]
    return "\n".join([*lines, *(["rules:", *(f"- {flow([rule])}" for rule in rules)] if rules else [])])


def _of_devices(rules: Iterable[PolicyRule]) -> set[tuple[str, str, str, tuple[str, ...]]]:
    """What ``rules`` say about devices, however it is spread over them."""
    return {
        (group, resource, verb, tuple(sorted(rule.resource_names)))
        for rule in rules
        for group in rule.api_groups
        if group in (DRA, "*")
        for resource in rule.resources
        for verb in rule.verbs
    }


def _by_group(grant: Grant, account: Key) -> bool:
    return Subject(ACCOUNT, *account) not in grant.binding.subjects


def _everybodys(grant: Grant, account: Key) -> bool:
    """Whether it is one of the rights that Kubernetes gives to every account, as to ask what it may do."""
    return grant.binding.role_name.startswith("system:") and _by_group(grant, account)


def _by(grant: Grant) -> str:
    binding, role = grant.binding, grant.role
    told = f"{binding.kind} {'/'.join(filter(None, binding.key))}"
    named = f"{binding.role_kind} {binding.role_name}"
    if role.reference != binding.role:
        return one_line(f"{told} of {named}, which has it from {role.kind} {role.name}")
    return one_line(f"{told} of {named}")


def _row(rule: PolicyRule) -> tuple[str, str]:
    """Verbs, and what they are for: resources with their group, names, or URLs."""
    groups = [each for each in rule.api_groups if each not in ("", DRA)]
    resources = ", ".join(rule.resources)
    if groups:
        resources += f" of {', '.join(each or 'core' for each in rule.api_groups)}"
    names = ", ".join(name or '""' for name in rule.resource_names)
    named = f" named {names}" if names else ""
    what = "; ".join(filter(None, (resources + named, ", ".join(rule.urls))))
    return one_line(", ".join(rule.verbs)), one_line(what)


def _grant_json(grant: Grant) -> Json:
    rule, binding = grant.rule, grant.binding
    lists = {
        "apiGroups": rule.api_groups,
        "resources": rule.resources,
        "resourceNames": rule.resource_names,
        "nonResourceURLs": rule.urls,
        "verbs": rule.verbs,
    }
    return {
        "namespace": grant.namespace,
        "rule": {name: list(values) for name, values in lists.items() if values},
        "role": _reference(*grant.role.reference),
        "binding": _reference(binding.kind, *binding.key),
        "bound": _reference(*binding.role),
    }


def _reference(kind: str, namespace: str, name: str) -> Json:
    return {"kind": kind, "namespace": namespace, "name": name}
