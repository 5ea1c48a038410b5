"""Who may write slices, as ValidatingAdmissionPolicies: those of the guard's rules that need nothing but the object and
the user. They hold while no guard answers, and where there is none.

Each driver that names its writers gets a policy of its own, so that it can be tried or taken away alone; one more warns
about the slices of all others. Drivers and accounts stand in the expressions as they were when these were made. One
rule has another name: a writer of another driver is a stranger here, since no policy knows more than its own driver.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec import Struct, structs

from webhook.facts.times import stamp
from webhook.facts.writers import COLLECTORS, CONTROLLERS, NODE_EXTRA, SERVICE_ACCOUNT, WriterParams, account_of
from webhook.kube.raw import Json
from webhook.kube.rollout import ADMINISTRATORS, KUBELET, KUBELETS, PROFILES, DriverRollout
from webhook.policy.revision import CompiledPolicy, CompiledValidation
from webhook.registration.configurations import API_VERSION, NAME
from webhook.registration.slice_guards import BINDING, POLICY

LABELS = {"app.kubernetes.io/name": NAME}
# The findings of ours that are exported, and when ours asks for them, as the API server says it.
_EXPORTED, _ASKED = "writer.sliceProblems", "slice.changed || slice.lifetimeChanged || slice.deleted"
_OWNERS, _FINALIZERS = "metadata.?ownerReferences.orValue([])", "metadata.?finalizers.orValue([])"
_CHANGES = (
    'request.operation != "UPDATE" || object.spec != oldObject.spec || '
    f"object.{_OWNERS} != oldObject.{_OWNERS} || !sets.contains(oldObject.{_FINALIZERS}, object.{_FINALIZERS})"
)
# Names in one condition, as in those of our own registration.
_CHUNK = 512

_USER, _GROUPS = "request.userInfo.username", "request.userInfo.?groups.orValue([])"
_DRIVER = "(object == null ? oldObject : object).spec.driver"
_LOCAL = 'variables.kubelet || variables.profile == "NodeLocal"'
_ON_NODE = 'variables.node == "" || variables.nodes.all(each, each == "" || each == variables.node)'
_CLEANING = '(request.operation == "DELETE" || (object != null && oldObject != null && object.spec == oldObject.spec))'
_ON_NO_NODE = 'variables.nodes.all(each, each == "")'


class _Rule(Struct, frozen=True):
    """A rule of ours: what is true when it passes, and its message, which is ``has`` as it stands and CEL behind it."""

    name: str
    passes: str
    has: str
    rest: str


_OTHER_NODE = _Rule(
    "slice-of-other-node",
    _ON_NODE,
    "spec.nodeName: has ",
    f'variables.nodes.filter(each, each != variables.node)[0] + ", by " + {_USER} + " on node " + variables.node + '
    '", needs " + variables.node',
)


def named_writers(rollouts: Mapping[str, DriverRollout], params: WriterParams) -> dict[str, dict[str, str]]:
    """The profiles of the users that write for a driver, by driver: those that a DriverRollout or ``params`` name
    writers for.
    """
    found: dict[str, dict[str, str]] = {}
    for driver in sorted({*rollouts, *params.drivers}):
        rollout = rollouts.get(driver)
        named = (*(rollout.writers if rollout is not None else ()), *params.drivers.get(driver, ()))
        users: dict[str, str] = {}
        for each in named:
            user = f"{SERVICE_ACCOUNT}{each.namespace}:{each.service_account}"
            # Who is named twice has the profile that stands first; what can be no account's name is nobody's.
            if account_of(user):
                users.setdefault(user, each.profile)
        if named:
            found[driver] = users
    return found


def slice_policies(rollouts: Mapping[str, DriverRollout], policy: CompiledPolicy) -> list[Json]:
    """A policy and its binding for each driver that names its writers, and for all others together.

    ``policy`` is ours: its params say who is exempt, its action what becomes of a write that breaks a rule.
    """
    params, action = policy.writers or WriterParams(), policy.policy.action
    named = named_writers(rollouts, params)
    asked, nodes = [("changes-or-deletes", _CHANGES), ("not-exempt", f"!({_exempt(params)})")], _nodes(params)
    found: list[Json] = []
    for driver, users in named.items():
        conditions = [("driver", f"{_DRIVER} == {_text(driver)}"), *asked]
        spec = _spec(policy.name, conditions, [*_profile(users, params), *nodes], _rules(driver, users))
        found += _pair(_name(driver), spec, action)
    drivers = list(named)
    unlisted = [
        (f"other-driver-{at // _CHUNK + 1}", f"!({_DRIVER} in {_list(drivers[at : at + _CHUNK])})")
        for at in range(0, len(drivers), _CHUNK)
    ]
    spec = _spec(policy.name, [*unlisted, *asked], nodes, [_OTHER_NODE])
    return [*found, *_pair(f"{NAME}-slices-of-others", spec, "Warn" if action == "Deny" else action)]


def exportable(policies: Iterable[CompiledPolicy]) -> list[CompiledPolicy]:
    """Those policies whose rule about writers of slices can be exported."""
    return [each for each in policies if any(_source(rule) == _EXPORTED for rule in each.validations)]


def left_out(policy: CompiledPolicy, now: datetime) -> list[str]:
    """What of ``policy`` is not in its export, and why, one line each."""
    found = [
        f"{rule.validation.name} ({_source(rule)}): needs more than the object and the user"
        for rule in policy.validations
        if _source(rule) != _EXPORTED
    ]
    found += [
        f"the match condition {each.name} ({source}): {_advice(source)}"
        for each in policy.conditions
        if (source := each.program.source.strip()) != _ASKED
    ]
    return found + [
        f"the exception {each.name} ({each.ticket}): it ends at {stamp(each.expires)}, and such policies know no clock"
        for each in policy.exceptions
        if each.expires > now
    ]


def _advice(condition: str) -> str:
    """What is to be done about a match condition that is not exported: nothing, where all that it passes by breaks no
    rule that is. Only the plainest form of it is known, an alternative at its end that asks for findings.
    """
    if condition.endswith(f"|| {_EXPORTED} != []") and "?" not in condition and "//" not in condition:
        return "needs nothing, as what it passes by breaks none of these rules"
    return "write it into each policy where you want it"


def _source(rule: CompiledValidation) -> str:
    return rule.program.source.strip()


def _rules(driver: str, users: Mapping[str, str]) -> list[_Rule]:
    """The rules for the slices of ``driver``, whose writers are ``users``, each with its profile."""
    publishers = [user for user, profile in users.items() if profile != "Allocator"]
    accounts = sorted(user.removeprefix(SERVICE_ACCOUNT).replace(":", "/") for user in publishers)
    shown = ", ".join(accounts[:3]) + (f" and {len(accounts) - 3} more" if len(accounts) > 3 else "")
    needs = f", needs one of its writers: {shown or 'nobody'}; spec.writers of DriverRollout {driver} names them"
    node = f'(variables.nodes[0] == "" ? "none" : variables.nodes[0]) + ", by " + {_USER}'
    return [
        _Rule(
            "slice-by-stranger",
            'variables.kubelet || variables.cleans || variables.profile != ""',
            f"spec.driver: has {driver}, written by ",
            f"{_USER} + {_text(needs)}",
        ),
        _Rule(
            "slice-not-its-profile",
            f'variables.profile != "Allocator" && (variables.profile != "MultiNode" || {_ON_NO_NODE})',
            "spec.nodeName: has ",
            f'{node} + " with profile " + variables.profile + ", needs " + '
            '(variables.profile == "MultiNode" ? "no node name, or profile AnyNode" : '
            '"a writer with profile NodeLocal, MultiNode or AnyNode")',
        ),
        _Rule(
            "slice-of-several-nodes",
            f'!({_LOCAL}) || !("" in variables.nodes)',
            "spec.nodeName: has none, by ",
            f'{_USER} + ", which writes for its own node only, needs that node"',
        ),
        _Rule(
            "slice-writer-without-node",
            f'!({_LOCAL}) || variables.node != "" || {_ON_NO_NODE}',
            "spec.nodeName: has ",
            f'{node} + ", needs a writer whose node is known: a token that names one node"',
        ),
        structs.replace(_OTHER_NODE, passes=f"!({_LOCAL}) || {_ON_NODE}"),
    ]


def _profile(users: Mapping[str, str], params: WriterParams) -> list[tuple[str, str]]:
    """What the user may do as a writer of the driver, and whether it deletes as those do that clean up."""
    # A profile that nobody knows counts as the narrowest one.
    known = {user: profile if profile in PROFILES else PROFILES[0] for user, profile in users.items()}
    table = ", ".join(f"{_text(user)}: {_text(profile)}" for user, profile in known.items())
    # Who is a scheduler is nothing else.
    cleaners = sorted({user for user, kind in CONTROLLERS.items() if kind in COLLECTORS} - params.schedulers)
    return [
        ("cleans", f"{_CLEANING} && {_USER} in {_list(cleaners)}"),
        ("profile", f'{{{table}}}[?{_USER}].orValue("")' if users else '""'),
    ]


def _nodes(params: WriterParams) -> list[tuple[str, str]]:
    """The nodes of the slice, as it was and as it is to be (empty where it names none), and the one of the writer: of a
    kubelet's name, or the only one that an account's token names.
    """
    kubelet = f"{_USER}.startsWith({_text(KUBELET)}) && {_text(KUBELETS)} in {_GROUPS}"
    schedulers = sorted(user for user in params.schedulers if user.startswith(KUBELET))
    if schedulers:
        kubelet += f" && !({_USER} in {_list(schedulers)})"
    account = f'{_USER}.matches("^{SERVICE_ACCOUNT}[^:]+:[^:]+$")'
    token = f'{account} ? request.userInfo.?extra[?"{NODE_EXTRA}"].orValue([]) : []'
    valid = "!format.dns1123Subdomain().validate(variables.names[0]).hasValue()"
    return [
        ("nodes", '[oldObject, object].filter(each, each != null).map(each, each.spec.?nodeName.orValue(""))'),
        ("kubelet", kubelet),
        ("names", f"variables.kubelet ? [{_USER}.substring({len(KUBELET)})] : {token}"),
        ("node", f'size(variables.names) == 1 && {valid} ? variables.names[0] : ""'),
    ]


def _exempt(params: WriterParams) -> str:
    """Who may write everything."""
    groups = _list(sorted({ADMINISTRATORS, *params.break_glass_groups}))
    users = f" || {_USER} in {_list(sorted(params.break_glass_users))}" if params.break_glass_users else ""
    return f"{_GROUPS}.exists(each, each in {groups}){users}"


def _spec(
    policy: str,
    conditions: Sequence[tuple[str, str]],
    variables: Sequence[tuple[str, str]],
    rules: Sequence[_Rule],
) -> Json:
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "resourceRules": [
                {
                    "apiGroups": ["resource.k8s.io"],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE", "UPDATE", "DELETE"],
                    "resources": ["resourceslices"],
                }
            ],
        },
        "matchConditions": [{"name": name, "expression": expression} for name, expression in conditions],
        "variables": [{"name": name, "expression": expression} for name, expression in variables],
        "validations": [
            {
                "expression": rule.passes,
                "messageExpression": f"{_text(f'{policy}/{rule.name}: {rule.has}')} + {rule.rest}",
                "reason": "Forbidden",
            }
            for rule in rules
        ],
    }


def _pair(name: str, spec: Json, action: str) -> list[Json]:
    metadata = {"name": name, "labels": LABELS}
    bound = {"policyName": name, "validationActions": [action]}
    return [
        {"apiVersion": API_VERSION, "kind": POLICY, "metadata": metadata, "spec": spec},
        {"apiVersion": API_VERSION, "kind": BINDING, "metadata": metadata, "spec": bound},
    ]


def _name(driver: str) -> str:
    """The name of the policy of ``driver``, whose own may differ from another's in upper case alone."""
    lower = driver.lower()
    mark = "" if lower == driver else f"-{hashlib.sha256(driver.encode()).hexdigest()[:8]}"
    return f"{NAME}-slices{mark}.{lower}"


def _text(value: str) -> str:
    """``value`` as CEL writes it."""
    return json.dumps(value, ensure_ascii=False)


def _list(values: Iterable[str]) -> str:
    return f"[{', '.join(map(_text, values))}]"
