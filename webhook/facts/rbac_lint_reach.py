"""Whom roles reach, and what becomes of them there (R15 to R18)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from webhook.facts.narrow_role import flow, holder_rules
from webhook.facts.rbac import BINDING, DRIVER, NODE_VERBS, SLICES, STATUS_VERBS, Placed
from webhook.facts.rbac_lint_dra import grants_any, status_verbs
from webhook.facts.rbac_profile import MOST_DRIVERS, MOST_SUBJECTS, Holder, listed
from webhook.kube.finding import Finding, Severity
from webhook.kube.names import driver_name
from webhook.kube.rbac import ACCOUNT, DRIVERS, GROUP_SUBJECT, PROFILE, Role, RoleBinding, Subject
from webhook.kube.rollout import PROFILES

# What more than one workload is in, or everybody.
_CROWDS = frozenset({"system:authenticated", "system:unauthenticated", "system:serviceaccounts", "system:nodes"})
_WRITES = ("create", "update", "patch", "delete")
_TENANTS = tuple(f"rbac.authorization.k8s.io/aggregate-to-{name}" for name in ("admin", "edit", "view"))


def annotation_problems(role: Role) -> Iterator[Finding]:
    """``rbac-annotation``: annotations that say whom a role is for, in words that mean nothing."""
    path = "metadata.annotations"
    if role.profile and role.profile not in PROFILES:
        has, needs = f"the profile {role.profile[:40]!r}", f"one of {', '.join(PROFILES)}"
        yield Finding("rbac-annotation", f"{path}[{PROFILE}]", has, needs, "it is judged as NodeLocal", "warning")
    wrong = [name for name in role.drivers if driver_name(name) is not None]
    if wrong:
        has, needs = f"{listed(name[:40] for name in wrong)}", "names of drivers, separated by commas"
        yield Finding("rbac-annotation", f"{path}[{DRIVERS}]", has, needs, "correct or remove it", "warning")
    if len(role.drivers) > MOST_DRIVERS:
        has, needs = f"{len(role.drivers)} drivers", f"at most {MOST_DRIVERS}"
        yield Finding("rbac-annotation", f"{path}[{DRIVERS}]", has, needs, "the others are passed over", "warning")


def shared_subjects(bindings: Iterable[RoleBinding], inside: bool = False) -> Iterator[Finding]:
    """R15, ``rbac-shared-subject``: rights of one writer in the hands of many. ``inside``: paths are of the binding
    itself, of which every subject is looked at, else they are said in words.
    """
    subjects = ((each, index, subject) for each in bindings for index, subject in enumerate(each.subjects))
    for binding, index, subject in islice(subjects, None if inside else MOST_SUBJECTS):
        crowd = _crowd(subject)
        if crowd:
            path = f"subjects[{index}]" if inside else ""
            has = crowd if inside else f"{crowd} by {binding.kind} {'/'.join(filter(None, binding.key))}"
            needs = "the one ServiceAccount of the writer: what one of them may, all of them may"
            yield Finding("rbac-shared-subject", path, has, needs, "bind a ServiceAccount of its own")


def _crowd(subject: Subject) -> str:
    if subject.kind == ACCOUNT and subject.name == "default":
        return f"the default ServiceAccount of {subject.namespace or 'a namespace that is not named'}"
    if subject.kind == GROUP_SUBJECT and (
        subject.name in _CROWDS or subject.name.startswith("system:serviceaccounts:")
    ):
        return f"group {subject.name}"
    return f"user {subject.name}" if subject.name == "system:anonymous" else ""


def several_drivers(holder: Holder, listed_by_role: Iterable[str], path: str) -> Iterator[Finding]:
    """R15 for two drivers that share an account; a warning where the role says that it is for all of them. Who only
    allocates does so for as many as there are.
    """
    if len(holder.drivers) < 2 or not holder.account[1]:
        return
    has = f"ServiceAccount {'/'.join(holder.account)} of {listed(holder.drivers)}"
    needs = "a ServiceAccount for each driver: nobody can tell their writes apart"
    severity: Severity = "warning" if set(holder.drivers) <= set(listed_by_role) else "error"
    yield Finding("rbac-shared-subject", path, has, needs, "give each driver one of its own", severity)


def aggregated(role: Role, rules: Iterable[Placed]) -> Iterator[Finding]:
    """R16, ``rbac-aggregated``: rights of drivers and allocators that every tenant gets."""
    tenants = [label for label in _TENANTS if role.labels.get(label) == "true"]
    if not tenants or role.namespace:
        return
    if any(grants_any(each.rule, DRIVER, NODE_VERBS) or grants_any(each.rule, BINDING, STATUS_VERBS) for each in rules):
        has = f"{DRIVER} or {BINDING} in a role that is added to {listed(t.rpartition('-')[2] for t in tenants)}"
        needs = "no such label: everybody who has that role gets these rights"
        yield Finding("rbac-aggregated", f"metadata.labels[{tenants[0]}]", has, needs, "remove the label")


def unguarded(rules: Iterable[Placed], holder: Holder, guarded: bool | None, path: str) -> Iterator[Finding]:
    """R17, ``rbac-unguarded-slices``: RBAC cannot say whose slices one may write, and nothing else does."""
    if guarded is False and any(each.everywhere and grants_any(each.rule, SLICES, _WRITES) for each in rules):
        has = f"{SLICES} of every node and driver for {holder.told}"
        needs = "a guard of slices: RBAC cannot tell one slice from another"
        fix = "run allocguard in mode enforce (allocguard install), or register a ValidatingAdmissionPolicy of v1"
        yield Finding("rbac-unguarded-slices", path, has, needs, fix, "warning")


def unused_status(
    rules: Sequence[Placed], holder: Holder, reports: Mapping[str, bool] | None, path: str
) -> Iterator[Finding]:
    """R18, ``rbac-unused-status`` (info): claim status may be written, and no claim in use has a report of it."""
    verbs = status_verbs(rules)
    silent = [name for name in holder.drivers if reports is not None and reports.get(name) is False]
    if verbs and silent and not holder.allocates:
        has = f"{', '.join(sorted(verbs))} on claim status, and no claim in use has a report of {listed(silent)}"
        rest = flow(holder_rules(holder, verbs, reports=False))
        yield Finding("rbac-unused-status", path, has, "no right that is not used", f"use {rest}", "info")
