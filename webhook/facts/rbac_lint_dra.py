"""The permissions of DRA itself in a role: wider than one driver needs, granting nothing, or missing (R01 to R08)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from msgspec.structs import replace

from webhook.facts.narrow_role import flow, holder_rules, within
from webhook.facts.rbac import (
    ARBITRARY,
    ASSOCIATED,
    BINDING,
    CLAIMS,
    DRA,
    DRIVER,
    NODE_VERBS,
    SLICES,
    STATUS,
    STATUS_VERBS,
    Placed,
    covers_every,
    names_resource,
)
from webhook.facts.rbac_profile import NODE_LOCAL, Holder, listed
from webhook.kube.finding import Finding, Severity
from webhook.kube.rbac import PolicyRule
from webhook.kube.rollout import SEVERAL_NODES

TEMPLATES = "resourceclaimtemplates"
READS = frozenset({"get", "list", "watch"})
_RESOURCES = frozenset({CLAIMS, STATUS, BINDING, DRIVER, SLICES, TEMPLATES, "deviceclasses", "devicetaintrules"})
# What is written with the rights that decide who gets which devices: roles with these are looked at, whoever has them.
AUTHORITY = ((STATUS, STATUS_VERBS), (BINDING, STATUS_VERBS), (DRIVER, NODE_VERBS))
_SLICE_WRITES = ("create", "update", "patch", "delete", "deletecollection")
_ARBITRARY_VERBS = tuple(f"{ARBITRARY}{verb}" for verb in STATUS_VERBS)
# Names of other designs and of guesses: nothing is ever asked of them.
_NOTHING = frozenset({"drivers", "driver", "binding", f"{CLAIMS}/drivers", f"{CLAIMS}/bindings"})
_NEVER_ASKED = "update-device-status"


def of_dra(rule: PolicyRule) -> bool:
    """Whether ``rule`` names DRA: its group, or one of its resources in all groups. A role that has everything of
    everything is no role about devices.
    """
    return DRA in rule.api_groups or ("*" in rule.api_groups and not _RESOURCES.isdisjoint(rule.resources))


def has_authority(rule: PolicyRule) -> bool:
    """Whether ``rule`` lets its holder write what decides who gets which devices: slices, claim status, and what a
    driver or an allocator is asked for with it.
    """
    asked = (*AUTHORITY, (SLICES, _SLICE_WRITES))
    return any(grants_any(rule, resource, verbs) for resource, verbs in asked)


def grants_any(rule: PolicyRule, resource: str, verbs: Collection[str]) -> bool:
    """Whether ``rule`` has one of ``verbs`` on the DRA ``resource``, of all names or some."""
    named = DRA in rule.api_groups or "*" in rule.api_groups
    return named and names_resource(rule, resource) and ("*" in rule.verbs or any(v in rule.verbs for v in verbs))


def everything(placed: Placed, holder: Holder | None) -> Iterator[Finding]:
    """R01, ``rbac-everything``: ``*`` where resource.k8s.io is covered; a warning where it only reads."""
    rule = placed.rule
    wide = [name for name, values in _lists(rule) if "*" in values or (name == "resources" and _stars(values))]
    if not wide or not _covered(rule):
        return
    reads = READS.issuperset(rule.verbs)
    if holder is None and (reads or not has_authority(rule)):
        return
    has = f'"*" in {" and ".join(wide)}, so {listed(rule.verbs)} on {_covered(rule)}'
    more = [
        told
        for told, resource, verbs in (("arbitrary-node", DRIVER, _ARBITRARY_VERBS), ("binding", BINDING, STATUS_VERBS))
        if grants_any(rule, resource, verbs)
    ]
    needs = "what is used, by name" + (f": this is {' and '.join(more)} too" if more else "")
    fix = "name groups, resources and verbs one by one"
    if holder is not None:
        kept = within(holder_rules(holder, _suffixes(rule)), rule)
        fix = f"use {flow(kept)}" if kept else "take it away"
    yield Finding("rbac-everything", f"{placed.path}.{wide[0]}", has, needs, fix, "warning" if reads else "error")


def takes_everything(rule: PolicyRule) -> bool:
    """Whether ``rule`` is about all resources of DRA: what is wrong with it is said once, not by every other rule."""
    return "*" in rule.resources and (DRA in rule.api_groups or "*" in rule.api_groups)


def arbitrary_node(placed: Placed, holder: Holder) -> Iterator[Finding]:
    """R02, ``rbac-arbitrary-node``: a NodeLocal writer that may report on claims of any node."""
    rule = placed.rule
    local = {name for name, profile in holder.profiles.items() if profile == NODE_LOCAL}
    named = [name for name in rule.resource_names if holder.profiles.get(name, NODE_LOCAL) == NODE_LOCAL]
    concerned = bool(named) if rule.resource_names else bool(local) or holder.profile == NODE_LOCAL
    verbs = [verb for verb in rule.verbs if verb == "*" or (verb in NODE_VERBS and verb.startswith(ARBITRARY))]
    if NODE_LOCAL not in holder.all_profiles or not concerned or not verbs or not grants_any(rule, DRIVER, verbs):
        return
    has = f"{listed(verbs)} on {DRIVER} for {holder.told}"
    needs = "associated-node verbs: the token of one node could rewrite the claims of every node"
    yield Finding("rbac-arbitrary-node", f"{placed.path}.verbs", has, needs, _use(holder, DRIVER, _suffixes(rule)))


def driver_without_names(placed: Placed, holder: Holder | None) -> Iterator[Finding]:
    """R03, ``rbac-driver-without-names``: may report on the devices of every driver; a warning for one that stands for
    several drivers which are named.
    """
    rule = placed.rule
    if rule.resource_names or not grants_any(rule, DRIVER, NODE_VERBS):
        return
    proxy = holder is not None and holder.proxy
    whose = f" ({listed(holder.drivers)})" if holder is not None and holder.drivers else ""
    needs = f"its own drivers in resourceNames{whose}"
    fix = _use(holder, DRIVER, _suffixes(rule)) if holder is not None else "add resourceNames with its drivers"
    severity: Severity = "warning" if proxy else "error"
    yield Finding("rbac-driver-without-names", placed.path, f"{DRIVER} of all drivers", needs, fix, severity)


def other_driver(placed: Placed, holder: Holder) -> Iterator[Finding]:
    """R04, ``rbac-other-driver``: resourceNames has a driver that is not the writer's."""
    rule = placed.rule
    own = holder.drivers
    if not grants_any(rule, DRIVER, NODE_VERBS) or not (own or not holder.drives):
        return
    others = [name for name in rule.resource_names if name not in own and name not in ("", "*")]
    if not others:
        return
    has = f"{DRIVER} of {listed(others)} for {holder.told}"
    needs = f"{listed(own)} only" if own else f"no {DRIVER}: it reports on no devices"
    fix = _use(holder, DRIVER, _suffixes(rule))
    yield Finding("rbac-other-driver", f"{placed.path}.resourceNames", has, needs, fix)


def binding_of_driver(placed: Placed, holder: Holder) -> Iterator[Finding]:
    """R05, ``rbac-binding-in-node-plugin``: a driver that may allocate, and so take devices away from others."""
    rule = placed.rule
    if holder.allocates or not grants_any(rule, BINDING, rule.verbs):
        return
    has = f"{listed(rule.verbs)} on {BINDING} for {holder.told}"
    needs = "no such right: with it allocations and reservations of every claim can be rewritten"
    yield Finding("rbac-binding-in-node-plugin", placed.path, has, needs, "take it away: no driver needs it")


def ineffective_binding(placed: Placed, holder: Holder | None) -> Iterator[Finding]:
    """R06, ``rbac-binding-ineffective``: asked for without a name and for the whole cluster, never granted here."""
    rule = placed.rule
    if not grants_any(rule, BINDING, STATUS_VERBS):
        return
    if rule.resource_names and "" not in rule.resource_names:
        path, has = f"{placed.path}.resourceNames", f"resourceNames on {BINDING}"
    elif not placed.everywhere:
        path, has = placed.path, f"{BINDING} within a namespace"
    else:
        return
    needs = "no such rule: it is asked for without a name and for the whole cluster, so this grants nothing"
    fix = "take it away"
    if holder is not None and holder.allocates:
        fix = f"{_use(holder, BINDING, _suffixes(rule))} by a ClusterRoleBinding"
    yield Finding("rbac-binding-ineffective", path, has, needs, fix, "warning")


def dead_grant(placed: Placed, holder: Holder | None) -> Iterator[Finding]:
    """R07, ``rbac-dead-grant``: verbs, resources and names that nothing is ever asked with."""
    rule = placed.rule
    if not of_dra(rule):
        return
    nothing = [each for each in rule.resources if each in _NOTHING or each.endswith("/*")]
    if nothing:
        ours = any(each in _NOTHING or each == f"{CLAIMS}/*" for each in nothing)
        asked = f"{STATUS}, {BINDING} or {DRIVER}" if ours else "resources in full, or */ with a subresource"
        needs = f"{asked}: this one is never asked for and grants nothing"
        yield _dead(f"{placed.path}.resources", f"resource {listed(nothing)}", needs, holder if ours else None)
    if "*" in rule.resource_names:
        needs = 'names in full: "*" among resourceNames is a name like any other and grants nothing'
        yield _dead(f"{placed.path}.resourceNames", '"*" in resourceNames', needs, holder)
    if "" in rule.resource_names and DRIVER in rule.resources:
        needs = f"names in full: {DRIVER} is asked for by the name of a driver, so an empty one grants nothing"
        yield _dead(f"{placed.path}.resourceNames", "an empty name in resourceNames", needs, holder)
    living = [each for each in rule.resources if each not in nothing]
    verbs = [verb for verb in rule.verbs if living and not any(_alive(verb, each) for each in living)]
    if verbs:
        needs = f"verbs that are asked for: this grants nothing on {listed(living)}"
        wanted = holder if any(each in (DRIVER, "*/driver") for each in living) else None
        yield _dead(f"{placed.path}.verbs", f"verb {listed(verbs)}", needs, wanted, _suffixes(rule))
    yield from slices_inside(placed)


def slices_inside(placed: Placed) -> Iterator[Finding]:
    """R07 for slices that may be written within a namespace."""
    if not placed.everywhere and of_dra(placed.rule) and grants_any(placed.rule, SLICES, _SLICE_WRITES):
        needs = "a ClusterRoleBinding: slices are in no namespace, so this grants nothing"
        yield _dead(placed.path, f"{SLICES} within a namespace", needs, None)


def _dead(path: str, has: str, needs: str, holder: Holder | None, verbs: Collection[str] = ()) -> Finding:
    fix = _use(holder, DRIVER, verbs) if holder is not None and holder.drivers else "take it away"
    return Finding("rbac-dead-grant", path, has, needs, fix, "warning")


def _alive(verb: str, resource: str) -> bool:
    """Whether a request with this verb, of what ``resource`` names in a rule, is ever made."""
    if verb == "*" or resource in (DRIVER, "*/driver"):
        return verb == "*" or verb in NODE_VERBS
    if resource in (BINDING, "*/binding"):
        return verb in STATUS_VERBS
    node = verb.startswith((ASSOCIATED, ARBITRARY))
    return verb != _NEVER_ASKED and (not node or (resource == "*" and verb in NODE_VERBS))


def missing_driver(rules: Sequence[Placed], holder: Holder, path: str) -> Iterator[Finding]:
    """R08, ``rbac-missing-driver``: claim status may be written, and not what is asked for with it, or the other way
    round: every such write is refused from 1.36 on. ``rules`` are all that somebody has.
    """
    found = list(_missing_of(rules, holder, path))
    yield from found
    if found:
        return
    # Each half may hold in another namespace than the other one.
    inside: dict[str, list[Placed]] = {}
    for each in rules:
        if each.namespace and not each.everywhere:
            inside.setdefault(each.namespace, []).append(each)
    outside = [each for each in rules if each.everywhere or not each.namespace]
    for namespace, here in sorted(inside.items()):
        if any(grants_any(each.rule, STATUS, STATUS_VERBS) for each in here):
            for one in _missing_of([*outside, *here], holder, path):
                yield replace(one, has=f"{one.has}, in namespace {namespace}")


def _missing_of(rules: Sequence[Placed], holder: Holder, path: str) -> Iterator[Finding]:
    granted = [each.rule for each in rules]
    status = {verb for verb in STATUS_VERBS if any(covers_every(rule, DRA, STATUS, verb) for rule in granted)}
    named = {
        verb
        for verb in STATUS_VERBS
        if verb not in status and any(grants_any(rule, STATUS, (verb,)) for rule in granted)
    }
    if named:
        has = f"{', '.join(sorted(named))} on {STATUS} of claims with the names in resourceNames only"
        needs = "a rule of its own: names of drivers belong to resourceclaims/driver, claims have others"
        yield _missing(path, has, needs, holder, named)
    if holder.allocates and not holder.drives:
        everywhere = [each.rule for each in rules if each.everywhere]
        bound = {verb for verb in STATUS_VERBS if any(covers_every(rule, DRA, BINDING, verb) for rule in everywhere)}
        if not named:
            yield from _apart(path, status, bound, "", BINDING, holder)
        return
    if named or any(grants_any(rule, BINDING, STATUS_VERBS) for rule in granted):
        return
    asked = {verb: _named(granted, verb) for verb in NODE_VERBS}
    for driver in holder.drivers or ("",):
        prefixes = (
            (ARBITRARY,) if holder.profiles.get(driver, holder.profile) in SEVERAL_NODES else (ASSOCIATED, ARBITRARY)
        )
        reported = {
            verb
            for verb in STATUS_VERBS
            if any("" in asked[f"{p}{verb}"] or driver in asked[f"{p}{verb}"] for p in prefixes)
            or (not driver and any(asked[f"{p}{verb}"] for p in prefixes))
        }
        what = f"{DRIVER} of {driver}" if driver else DRIVER
        yield from _apart(path, status, reported, prefixes[0], what, holder)


def _named(rules: Sequence[PolicyRule], verb: str) -> set[str]:
    """The drivers for which ``rules`` grant ``verb``; the empty name stands for all."""
    granted = [rule.resource_names or ("",) for rule in rules if grants_any(rule, DRIVER, (verb,))]
    return {name for names in granted for name in names}


def _apart(path: str, status: set[str], asked: set[str], prefix: str, what: str, holder: Holder) -> Iterator[Finding]:
    """Verbs of status writes without what is asked for with them, or that alone. More of the latter does no harm."""
    lacking = sorted(status - asked)
    if lacking:
        has = f"{', '.join(lacking)} on {STATUS} without {', '.join(prefix + verb for verb in lacking)} on {what}"
        yield _missing(path, has, "both: the API server refuses such writes with 422 from 1.36 on", holder, status)
    elif asked and not status:
        verbs = sorted(asked)
        has = f"{', '.join(prefix + verb for verb in verbs)} on {what} without {', '.join(verbs)} on {STATUS}"
        yield _missing(path, has, "both: the API server refuses such writes with 403", holder, asked)


def _missing(path: str, has: str, needs: str, holder: Holder, verbs: Collection[str]) -> Finding:
    fix = _use(holder, BINDING if holder.allocates and not holder.drives else DRIVER, verbs, also=STATUS)
    fix = f"{fix}, or neither where it never writes claim status" if holder.drives else fix
    return Finding("rbac-missing-driver", path, has, needs, fix, "warning")


def status_verbs(rules: Sequence[Placed]) -> set[str]:
    """The verbs with which claim status can be written by ``rules``."""
    return {verb for verb in STATUS_VERBS if any(grants_any(each.rule, STATUS, (verb,)) for each in rules)}


def _suffixes(rule: PolicyRule) -> set[str]:
    return {verb for verb in STATUS_VERBS if any(each == verb or each.endswith(f":{verb}") for each in rule.verbs)}


def _use(holder: Holder, resource: str, verbs: Collection[str], also: str = "") -> str:
    """What to have instead: the rules that ``holder`` needs of ``resource``."""
    rules = [rule for rule in holder_rules(holder, verbs) if not {resource, also}.isdisjoint(rule["resources"])]
    return f"use {flow(rules)}" if rules else "take it away"


def _lists(rule: PolicyRule) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return (("apiGroups", rule.api_groups), ("resources", rule.resources), ("verbs", rule.verbs))


def _stars(resources: tuple[str, ...]) -> bool:
    return not {"*/status", "*/driver", "*/binding"}.isdisjoint(resources)


def _covered(rule: PolicyRule) -> str:
    """What of DRA ``rule`` is about, empty for nothing."""
    if DRA not in rule.api_groups and "*" not in rule.api_groups:
        return ""
    if "*" in rule.resources:
        return f"all of {DRA}"
    found = [each for each in rule.resources if each in _RESOURCES or _stars((each,))]
    return listed(found)
