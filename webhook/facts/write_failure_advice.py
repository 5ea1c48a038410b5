"""What to do about a write to the status of a claim that was refused: a finding with the narrow fix, and when to retry.

Nothing here is wider than the reference of :mod:`webhook.facts.narrow_role`: a refused write never asks for more.
"""

from __future__ import annotations

from webhook.facts.narrow_role import narrow_rules
from webhook.facts.rbac import BINDING, DRIVER, STATUS
from webhook.facts.rbac_profile import ALLOCATOR, MULTI_NODE, NODE_LOCAL
from webhook.facts.write_failures import OWN, Failure
from webhook.facts.writers import POD_EXTRA, Writer
from webhook.kube.claims import ADMIN_ACCESS_LABEL
from webhook.kube.finding import Finding, Severity
from webhook.kube.raw import Json, child
from webhook.kube.rollout import SEVERAL_NODES

POLICY = "write-failures"
"""What stands before the rule of these findings."""

BACKOFF = "retry after 1s, then twice as long each time up to 5m, with jitter"
REREAD = "read the claim again and retry, after 1s and up to 5m apart where that goes on"
WAIT = "retry when Retry-After says, else after 1s, twice as long each time up to 5m, with jitter"
NEVER = "do not retry as it is"

_RETRY = {
    **dict.fromkeys(
        (
            "status-role-missing",
            "binding-missing",
            "driver-verb-missing",
            "verb-mismatch",
            "wrong-driver-names",
            "refused-by-admission",
            OWN,
            "unauthenticated",
            "other",
        ),
        BACKOFF,
    ),
    **dict.fromkeys(("load", "webhook-unavailable", "server-fault"), WAIT),
    "conflict": REREAD,
}
_FIXES = {
    "missing": "apply the role and its binding, they may not be rolled out yet (a)",
    "verb": "give the role the verb of the write, or write with the verb that it has (b)",
    "names": "correct resourceNames (d)",
    "granted": "the next try may pass (a)",
    "unknown": "look for a role that is not rolled out yet (a), has another verb (b) or names another driver (d)",
}


def retry(failure: Failure) -> str:
    """When the writer should try again: exponential backoff with a cap, or never as it is, as when it is told to leave
    the write to others.
    """
    return NEVER if _others_do(failure) else _RETRY.get(failure.cause, NEVER)


def explained(failure: Failure) -> Finding:
    """The finding that tells who was refused what on which claim, and the narrow fix."""
    has, needs, fix = _TEXTS[failure.cause](failure)
    event, refusal = failure.event, failure.refusal
    node = f" (node {failure.allocated_node})" if failure.allocated_node else ""
    path = f"{event.namespace}/{event.name}{node}: {refusal.field or 'status'}"
    fix = f"{fix}; {retry(failure)}" if fix else retry(failure)
    severity: Severity = "info" if failure.cause == OWN else "error"
    told = f"a write by {_who(failure)} with {has}"
    return Finding(failure.cause, path, told, needs, fix, severity, "apiserver")


def _who(failure: Failure) -> str:
    writer, event = failure.writer, failure.event
    node = f" on node {writer.node}" if writer.node and writer.service_account else ""
    through = f", as whom {event.impersonator} wrote" if event.impersonator else ""
    return f"{writer.shown}{node}{through}"


def _others_do(failure: Failure) -> bool:
    """Whether what the writer was refused for want of a role is for others to write, and no role for it to come."""
    resource, writer = _resource(failure), failure.writer
    if resource == BINDING:
        return _only_drives(writer)
    if resource == STATUS and not writer.service_account and not writer.allocates:
        return True
    return bool(resource) and failure.strange


def _resource(failure: Failure) -> str:
    """The resource that the writer lacks a permission on; empty where it is refused for something else."""
    if _TEXTS[failure.cause] not in (_role_missing, _binding_missing, _verb_missing):
        return ""
    return failure.missing[0].rpartition(" ")[2] if failure.missing else DRIVER


def _only_drives(writer: Writer) -> bool:
    """Whether it writes for drivers, and allocates nothing."""
    profiles = set(writer.profiles.values())
    return bool(profiles) and not writer.allocates and ALLOCATOR not in profiles


def _where(failure: Failure) -> str:
    """The node of the claim, as far as it has one."""
    if failure.claim is None:
        return "the node that the claim is allocated to"
    return f"node {failure.allocated_node}" if failure.allocated_node else "one node"


def _rule(failure: Failure, resource: str) -> str:
    """The rule for ``resource`` of the narrowest role that does what the writer is there for, in one line; empty where
    it is there for something else.
    """
    writer = failure.writer
    profiles = {writer.profiles[name] for name in failure.drivers if name in writer.profiles}
    if resource == BINDING:
        profile = ALLOCATOR
    elif profiles & SEVERAL_NODES:
        profile = MULTI_NODE
    elif ALLOCATOR in profiles or writer.allocates:
        profile = ALLOCATOR
    else:
        profile = NODE_LOCAL
    # The rule for the status does not name the driver, which need not be known.
    drivers = failure.drivers or (("unknown",) if resource == STATUS else ())
    for rule in narrow_rules(profile, drivers, (failure.event.verb,), reports=True):
        if rule["resources"] == [resource]:
            return _flow(rule)
    return ""


def _flow(rule: Json) -> str:
    parts = ", ".join(f"{key}: [{', '.join(values)}]" for key, values in rule.items())
    return f"{{{parts}}}"


def _stranger(failure: Failure) -> tuple[str, str]:
    names = ", ".join(failure.drivers)
    return f"one of the accounts that the DriverRollout of {names} names", "give nobody else a role for it"


def _role_missing(failure: Failure) -> tuple[str, str, str]:
    verb, writer = failure.event.verb, failure.writer
    has = f"no right to {verb} {STATUS} in namespace {failure.event.namespace}"
    if not writer.service_account and not writer.allocates:
        return has, "the ServiceAccount of the driver, or the scheduler, to write", "give nobody else a role for it"
    if failure.strange:
        return has, *_stranger(failure)
    return has, f"the rule {_rule(failure, STATUS)}", _fix(failure, f"bind it in namespace {failure.event.namespace}")


def _binding_missing(failure: Failure) -> tuple[str, str, str]:
    verb, writer = failure.event.verb, failure.writer
    has = f"no right to {verb} {BINDING} in all namespaces"
    if _only_drives(writer):
        return has, "allocation and reservedFor to be left to the scheduler", "a driver needs no role for it"
    needs = f"the rule {_rule(failure, BINDING)} in a ClusterRole with a ClusterRoleBinding"
    if not writer.allocates and ALLOCATOR not in writer.profiles.values():
        needs = f"allocation and reservedFor to be left to the scheduler, or, where it is to allocate devices, {needs}"
    return has, needs, _fix(failure, "a binding in one namespace, or for some names, never counts here (a)")


def _verb_missing(failure: Failure) -> tuple[str, str, str]:
    names = ", ".join(failure.drivers) or "the driver"
    resource = _resource(failure)
    if resource == STATUS:
        return _role_missing(failure)
    if resource == BINDING:
        return _binding_missing(failure)
    has = f"no {' or '.join(failure.refusal.verbs) or 'right'} on {DRIVER} for {names}"
    if failure.strange:
        return has, *_stranger(failure)
    rule = _rule(failure, DRIVER)
    needs = f"the rule {rule}" if rule else "a driver to write, and nobody who allocates"
    return has, needs, _fix(failure, f"bind it in namespace {failure.event.namespace} too (a)")


def _fix(failure: Failure, scope: str) -> str:
    told = failure.lack.told
    fix = scope if failure.lack.mistake == "scope" else _FIXES[failure.lack.mistake]
    return f"{told}: {fix}" if told else fix


def _not_associated(failure: Failure) -> tuple[str, str, str]:
    writer, claim = failure.writer, failure.claim
    look = "it is no matter of roles: look at the token and the claim first (c)"
    if not writer.service_account:
        return "no token of a ServiceAccount", f"that of the driver on {_where(failure)}", look
    if not writer.node:
        early = "a token that was made before its pod had a node never names one: make the pod anew (c)"
        fix = early if POD_EXTRA in failure.event.extra else "use the token that is mounted into the driver's pod (c)"
        return f"a token that {writer.node_problem}", f"a token of {_where(failure)}", fix
    if claim is not None and claim.allocation is not None and not failure.allocated_node:
        needs = "a writer that is of no node, and is named so (MultiNode, AnyNode) in the DriverRollout"
        return "a claim that is allocated to no single node", needs, "no role for one node covers it (c)"
    if claim is not None and writer.node == failure.allocated_node:
        return "a claim that was allocated elsewhere", f"a claim on node {writer.node}, as it is by now", look
    return f"a token of node {writer.node}", f"a token of {_where(failure)}", look


def _other_driver(failure: Failure) -> tuple[str, str, str]:
    names = ", ".join(failure.drivers)
    has = f"a change of what {names} says of its devices"
    fix = (
        "patch one's own entry by server-side apply, a merge patch replaces the whole list; where only that was sent, "
        f"the data that {names} stored is not in Go's form: it has to be sent with sorted keys and no spaces"
    )
    return has, "every driver to change its own entries only", fix


def _immutable(failure: Failure) -> tuple[str, str, str]:
    has, needs = "a change of what is set once and for all", "it to stay, until the claim is allocated anew"
    body = failure.event.body
    untouched = isinstance(body, dict) and "spec" not in body and child(body, "status", "allocation") is None
    when = "the writer did not touch it" if untouched else "where the writer did not touch it"
    fix = (
        f"{when}: opaque parameters are stored in a form that Go does not write, they have to be sent with sorted keys "
        "and no spaces; a JSON patch of one's own fields passes unless they have spaces"
    )
    return has, needs, fix


def _admin_access(failure: Failure) -> tuple[str, str, str]:
    needs = f"the label {ADMIN_ACCESS_LABEL}=true on namespace {failure.event.namespace}"
    return "devices with admin access", needs, "whoever owns the namespace has to allow it"


def _not_allocated(failure: Failure) -> tuple[str, str, str]:
    needs = "devices of its allocation only"
    return "entries of devices that the claim does not have", needs, "stop reporting what has left the allocation"


def _replaced(failure: Failure) -> tuple[str, str, str]:
    return "the uid of another claim", "that of the one there is", "the claim was made anew: read it again"


def _malformed(failure: Failure) -> tuple[str, str, str]:
    return f"what the API server does not take ({failure.refusal.says})", "a status by its schema", "correct the writer"


def _admission(failure: Failure) -> tuple[str, str, str]:
    return f"the refusal of {failure.refusal.says}", "a write that it allows", "look at the policy, and at the write"


def _unauthenticated(failure: Failure) -> tuple[str, str, str]:
    return "no valid credentials", "a token that is still good", "read the token of the pod again before each try"


def _conflict(failure: Failure) -> tuple[str, str, str]:
    return "an older version of the claim", "the present one", ""


def _load(failure: Failure) -> tuple[str, str, str]:
    return f"no answer in time ({failure.refusal.says})", "an API server that keeps up", ""


def _gone(failure: Failure) -> tuple[str, str, str]:
    return "the name of no claim", "a claim that is there", "stop writing: it was deleted"


def _no_webhook(failure: Failure) -> tuple[str, str, str]:
    return f"no answer of the webhook {failure.refusal.says}", "one that answers", "look why it does not"


def _fault(failure: Failure) -> tuple[str, str, str]:
    return f"a fault of the API server ({failure.refusal.says})", "an API server that works", "look at its log"


def _other(failure: Failure) -> tuple[str, str, str]:
    return f"a refusal that is none of the known ones ({failure.refusal.says})", "another write", ""


_TEXTS = {
    "status-role-missing": _role_missing,
    "binding-missing": _binding_missing,
    "driver-verb-missing": _verb_missing,
    "verb-mismatch": _verb_missing,
    "wrong-driver-names": _verb_missing,
    "not-associated": _not_associated,
    "other-driver": _other_driver,
    "immutable": _immutable,
    "admin-access": _admin_access,
    "not-allocated": _not_allocated,
    "claim-replaced": _replaced,
    "malformed": _malformed,
    "refused-by-admission": _admission,
    OWN: _admission,
    "unauthenticated": _unauthenticated,
    "conflict": _conflict,
    "load": _load,
    "gone": _gone,
    "webhook-unavailable": _no_webhook,
    "server-fault": _fault,
    "other": _other,
}
