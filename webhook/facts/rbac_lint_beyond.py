"""What nobody who writes for drivers needs beside the permissions of DRA (R09 to R14)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Set

from msgspec import Struct

from webhook.facts.narrow_role import flow, holder_rules, within
from webhook.facts.rbac import CLAIMS, DRA, SLICES, UNNAMED, Placed, names_resource
from webhook.facts.rbac_lint_dra import TEMPLATES, grants_any
from webhook.facts.rbac_profile import Holder, listed
from webhook.kube.finding import Finding
from webhook.kube.rbac import GROUP as RBAC
from webhook.kube.rbac import PolicyRule
from webhook.kube.rollout import GROUP as OURS
from webhook.kube.snapshot import Snapshot

Writers = Mapping[str, Set[str]]
EVERYWHERE = "*"
WRITES = ("create", "update", "patch", "delete", "deletecollection")
# A connection is a write, whatever the verb: with get one may run commands, too.
_CONNECTS = ("get", *WRITES)
# A collection is deleted without a name, and a list or watch by name gives no more than that object; what is created
# below an object (``pods/exec``) has that one's name.
_MANY = UNNAMED - {"create"}
_IMPERSONATED = {
    "": ("users", "groups", "serviceaccounts"),
    "authentication.k8s.io": ("uids", "userextras"),
}
_ADMISSION = "admissionregistration.k8s.io"
_OUR_KINDS = ("admissionpolicies", "driverrollouts", "nodeledgers")
# What makes pods of a template, which says their account and node and can be changed later, by group.
_POD_MAKERS = {
    "": ("replicationcontrollers",),
    "apps": ("daemonsets", "deployments", "replicasets", "statefulsets"),
    "batch": ("cronjobs", "jobs"),
}
_TEMPLATE_VERBS = ("create", "update", "patch")
# How the names of configurations and policies begin that switch the guard off.
_GUARD = "allocguard"


class _Power(Struct, frozen=True):
    """Verbs on resources that somebody who writes for drivers should not have, and why. ``drivers_only``: an allocator
    may; ``cluster``: nothing is granted within a namespace, or no more than what is there anyway.
    """

    rule: str
    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    why: str
    drivers_only: bool = False
    cluster: bool = False


_POWERS = (
    _Power(
        "rbac-claim-write",
        DRA,
        (CLAIMS, TEMPLATES),
        WRITES,
        "with it claims of others are deleted and their finalizers removed",
        drivers_only=True,
    ),
    _Power(
        "rbac-device-policy-write",
        DRA,
        ("deviceclasses", "devicetaintrules", "devicetaintrules/status", f"{SLICES}/status"),
        WRITES,
        "it decides over devices of the whole cluster",
        cluster=True,
    ),
    _Power(
        "rbac-device-policy-write",
        DRA,
        (SLICES,),
        ("deletecollection",),
        "it deletes slices of every node at once",
        cluster=True,
    ),
    _Power(
        "rbac-node-write",
        "",
        ("nodes", "nodes/status"),
        WRITES,
        "labels and status decide where pods go, and which nodes are canary nodes",
        cluster=True,
    ),
    _Power(
        "rbac-node-write",
        "",
        ("nodes/proxy", "pods/exec", "pods/attach", "pods/portforward", "pods/proxy"),
        _CONNECTS,
        "it leads into pods of others",
    ),
    _Power(
        "rbac-node-write",
        "",
        ("pods", "pods/status", "pods/binding", "bindings"),
        WRITES,
        "it takes over workloads of others",
        drivers_only=True,
    ),
    _Power(
        "rbac-node-write",
        "",
        ("pods/ephemeralcontainers", "pods/resize"),
        WRITES,
        "it takes over workloads of others",
    ),
    _Power(
        "rbac-node-write",
        "",
        ("secrets",),
        ("list", "watch"),
        "it reads the secrets of every namespace",
        cluster=True,
    ),
    _Power("rbac-escalation", RBAC, ("roles", "clusterroles"), ("escalate", "bind"), "it gives itself any right"),
    _Power(
        "rbac-guard-write",
        "",
        ("namespaces", "namespaces/status", "namespaces/finalize"),
        ("update", "patch"),
        "a label there gives admin access to devices",
    ),
    _Power(
        "rbac-guard-write",
        OURS,
        tuple(
            f"{each}{sub}" for each in ("admissionpolicies", "driverrollouts", "nodeledgers") for sub in ("", "/status")
        ),
        WRITES,
        "it says who writes for which driver, and what is refused",
        cluster=True,
    ),
)


def writers_of(snapshot: Snapshot) -> Writers:
    """The names of the accounts that write for drivers, by namespace and ``EVERYWHERE``."""
    found: dict[str, set[str]] = {}
    for namespace, name in snapshot.writers:
        for place in (namespace, EVERYWHERE):
            found.setdefault(place, set()).add(name)
    return found


def beyond(placed: Placed, holder: Holder, writers: Writers, full: Collection[str] = ()) -> Iterator[Finding]:
    """What ``holder`` has by one rule and does not need: ``rbac-claim-write``, ``rbac-device-policy-write``,
    ``rbac-node-write``, ``rbac-escalation``, ``rbac-token-minting`` and ``rbac-guard-write``; not those in ``full``.
    ``writers`` are those of :func:`writers_of`: a role may have thousands of rules.
    """
    rule = placed.rule
    for power in _POWERS:
        if power.rule in full or (power.group not in rule.api_groups and "*" not in rule.api_groups):
            continue
        if (power.drivers_only and holder.allocates) or (power.cluster and not placed.everywhere):
            continue
        verbs = _verbs(rule, _asked(rule, power.verbs))
        resources = [each for each in power.resources if names_resource(rule, each)] if verbs else []
        if resources:
            yield _finding(power.rule, placed, verbs, resources, power.why, holder)
    if holder.allocates and not holder.drives and placed.everywhere:
        verbs = _verbs(rule, WRITES[:-1])
        if verbs and grants_any(rule, SLICES, verbs):
            yield _finding("rbac-device-policy-write", placed, verbs, [SLICES], "an allocator only reads them", holder)
    if "rbac-escalation" not in full:
        yield from _impersonation(placed, holder)
    if "rbac-token-minting" not in full:
        yield from _minting(placed, holder, writers)
    if "rbac-guard-write" not in full:
        yield from _guard(placed, holder)


def _impersonation(placed: Placed, holder: Holder) -> Iterator[Finding]:
    rule = placed.rule
    verbs = [
        each for each in rule.verbs if each == "impersonate" or each.startswith(("impersonate:", "impersonate-on:"))
    ]
    resources = list(rule.resources)
    if not verbs and "*" in rule.verbs:
        verbs, resources = ["*"], list(_impersonated(rule))
    if verbs and resources:
        why = "it acts as anybody, with the node that it says it is on"
        yield _finding("rbac-escalation", placed, verbs, resources, why, holder)


def _impersonated(rule: PolicyRule) -> Iterator[str]:
    """What one may be impersonated with and ``rule`` names."""
    for group, resources in _IMPERSONATED.items():
        if group in rule.api_groups or "*" in rule.api_groups:
            for each in rule.resources:
                yield from resources if each == "*" else [each] if each.partition("/")[0] in resources else []


def _minting(placed: Placed, holder: Holder, writers: Writers) -> Iterator[Finding]:
    """R13: tokens of drivers, and pods with their accounts, carry whatever node their maker wants."""
    rule = placed.rule
    accounts = writers.get(EVERYWHERE if placed.everywhere else placed.namespace, frozenset())
    own = bool(holder.account[1]) and (placed.everywhere or holder.account[0] == placed.namespace)
    driving = bool(accounts) or own
    creates = bool(_verbs(rule, ("create",))) and ("" in rule.api_groups or "*" in rule.api_groups)
    if creates and names_resource(rule, "serviceaccounts/token"):
        why = "it makes tokens of drivers for any node"
        if (placed.everywhere or driving) and (
            not rule.resource_names
            or not accounts.isdisjoint(rule.resource_names)
            or (own and holder.account[1] in rule.resource_names)
        ):
            yield _finding("rbac-token-minting", placed, ["create"], ["serviceaccounts/token"], why, holder)
    if not placed.everywhere and not driving:
        return
    if creates and names_resource(rule, "pods") and _makes(rule):
        why = "a pod with a driver's account, on a node of its choice, has a token for that node"
        yield _finding("rbac-token-minting", placed, ["create"], ["pods"], why, holder)
    makers = [
        each
        for group, resources in _POD_MAKERS.items()
        if group in rule.api_groups or "*" in rule.api_groups
        for each in resources
        if names_resource(rule, each)
    ]
    verbs = [verb for verb in _verbs(rule, _TEMPLATE_VERBS) if verb != "create" or _makes(rule)]
    if makers and verbs:
        why = "it makes pods with a driver's account, on nodes of its choice, which have tokens for these nodes"
        yield _finding("rbac-token-minting", placed, verbs, makers, why, holder)


def _guard(placed: Placed, holder: Holder) -> Iterator[Finding]:
    rule = placed.rule
    if _ADMISSION not in rule.api_groups and "*" not in rule.api_groups:
        return
    verbs = _verbs(rule, WRITES)
    others = _named(rule) and not any(each.startswith(_GUARD) for each in rule.resource_names)
    resources = [
        each
        for each in rule.resources
        if each == "*" or each.partition("/")[0].endswith(("webhookconfigurations", "policies", "policybindings"))
    ]
    if verbs and resources and not others and placed.everywhere:
        yield _finding("rbac-guard-write", placed, verbs, resources, "it switches the guard off", holder)


def _verbs(rule: PolicyRule, wanted: Collection[str]) -> list[str]:
    if "*" in rule.verbs:
        return ["*"] if wanted else []
    return [verb for verb in wanted if verb in rule.verbs]


def _named(rule: PolicyRule) -> bool:
    """Whether ``rule`` holds for some names only, and so for no request without one."""
    return bool(rule.resource_names) and "" not in rule.resource_names


def _makes(rule: PolicyRule) -> bool:
    """Whether ``rule``, which has the verb, lets objects be made. What is made has no name yet when the API server asks
    whether it may be, but for what server-side apply makes: that has one, and is asked for as a patch too.
    """
    return not _named(rule) or bool(_verbs(rule, ("patch",)))


def _asked(rule: PolicyRule, verbs: Collection[str]) -> list[str]:
    """Those of ``verbs`` that may be asked with a name that ``rule`` holds for; an empty one is that of no object."""
    if _named(rule):
        return [verb for verb in verbs if verb not in _MANY]
    return [verb for verb in verbs if verb in UNNAMED or rule.resource_names != ("",)]


def _finding(name: str, placed: Placed, verbs: list[str], resources: list[str], why: str, holder: Holder) -> Finding:
    known = [rule for rule in holder_rules(holder, ()) if not set(resources).isdisjoint(rule["resources"])]
    narrow = within(known, placed.rule)
    has = f"{listed(verbs)} on {listed(resources)} for {holder.told}"
    fix = f"use {flow(narrow)}" if narrow else "take it away"
    return Finding(name, placed.path, has, f"no such right: {why}", fix)
