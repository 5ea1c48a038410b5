"""Who keeps an account from publishing slices beyond its own: our registration, or a ValidatingAdmissionPolicy.

Permissions cannot tell the slices of one node or driver from those of others, so something at admission has to. What is
there is not read but tried: a guard refuses what is not the account's to write, and takes what is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from msgspec import Struct

from webhook.kube.admission import Request, raw_request, read_request
from webhook.kube.raw import Json, mapping, members, sequence, text
from webhook.kube.rollout import API_VERSION, GROUP
from webhook.kube.snapshot import Key, Snapshot
from webhook.ledger.book import Book
from webhook.policy.compile import PolicyErrors, compile_object
from webhook.policy.document import KIND
from webhook.policy.evaluate import evaluate
from webhook.policy.revision import CompiledPolicy, Revision, revision_of
from webhook.registration.configurations import VALIDATING
from webhook.registration.rows import IGNORE, VALIDATE

POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
KINDS = (VALIDATING, POLICY, BINDING)
"""The kinds of objects that make a guard; their group is admissionregistration.k8s.io."""

DRA = "resource.k8s.io"
_OPERATIONS = ("CREATE", "UPDATE", "DELETE")
# What a policy of the API server and one of ours have alike, as far as it decides about a write.
_FIELDS = ("matchConstraints", "matchConditions", "variables", "validations", "failurePolicy")
# The entries of our registration that send us every slice, whatever it holds, by operation.
_MAPPED = "mapped-slices"
_WRITTEN = frozenset({_MAPPED, "other-slices"})
_ENTRIES = {"CREATE": _WRITTEN, "UPDATE": _WRITTEN, "DELETE": frozenset({"slice-deletions"})}
# What is tried: nodes and a driver that nobody has.
_HERE, _THERE = "here.probe.allocguard.dev", "there.probe.allocguard.dev"
_OTHER = "other.probe.allocguard.dev"
# Who may publish for all nodes is kept from other drivers alone, and of ours from those that name their writers.
_NAMED: Json = {
    "apiVersion": API_VERSION,
    "kind": "DriverRollout",
    "metadata": {"name": _OTHER},
    "spec": {"writers": [{"namespace": "probe", "serviceAccount": "probe"}]},
}
_EXTRA = "authentication.kubernetes.io/"


class SliceGuards(Struct, frozen=True):
    """The guards of a cluster. ``own`` are our policies that look at who writes, none in audit mode, ``asked`` the
    operations for which the API server sends us all slices; ``policies`` those of others, ``unread`` the names of those
    that cannot be tried here, as they read parameters or ask the authorizer.
    """

    own: Revision
    asked: frozenset[str] = frozenset()
    policies: tuple[Revision, ...] = ()
    unread: tuple[str, ...] = ()

    def guarded(
        self, namespace: str, account: str, driver: str, profile: str, snapshot: Snapshot, now: datetime
    ) -> bool | None:
        """Whether the ServiceAccount, a writer of ``driver`` with this ``profile`` (empty: not known), is kept from
        creating, changing and deleting slices that are not its own. None: a guard that cannot be tried may do it.
        """
        snapshot = snapshot.put(_NAMED) if profile == "AnyNode" else snapshot
        every = all(
            self._refuses(operation, namespace, account, driver, profile, snapshot, now) for operation in _OPERATIONS
        )
        return every or (None if self.unread else False)

    def _refuses(
        self, operation: str, namespace: str, account: str, driver: str, profile: str, snapshot: Snapshot, now: datetime
    ) -> bool:
        def taken(revision: Revision, spec: Json) -> bool:
            return not _refused(revision, _write(operation, spec, namespace, account), snapshot, now)

        own, foreign = _specs(driver, profile)
        guards = (self.own, *self.policies) if operation in self.asked else self.policies
        # Who refuses everything, as for want of a label, does not look at whose it is.
        return any(taken(guard, own) and not all(taken(guard, spec) for spec in foreign) for guard in guards)


def slice_guards(objects: Iterable[Json], revision: Revision) -> SliceGuards:
    """The guards among the ``objects`` of a cluster (kinds of :data:`KINDS`); ``revision`` is what we serve."""
    found = list(objects)
    policies: list[Revision] = []
    unread: list[str] = []
    bindings = [mapping(each.get("spec")) for each in found if each.get("kind") == BINDING]
    denying = [each for each in bindings if "Deny" in sequence(each.get("validationActions"))]
    for each in found:
        name = text(mapping(each.get("metadata")).get("name"))
        bound = [spec for spec in denying if spec.get("policyName") == name]
        if each.get("kind") != POLICY or not bound or not _concerns(each):
            continue
        compiled = _compiled(each, name)
        if compiled is None or all(map(_narrowed, bound)):
            unread.append(name)
        else:
            policies.append(revision_of([compiled]))
    own = revision_of(
        each
        for each in (() if _audits(found) else revision.policies)
        if each.policy.endpoint == VALIDATE and "writer" in _names(each)
    )
    return SliceGuards(own, _asked(found), tuple(policies), tuple(unread))


def remembered(guards: SliceGuards | None, snapshot: Snapshot, now: datetime) -> Callable[[Key], bool | None]:
    """Whether a ServiceAccount (namespace, name) is kept to its own slices, for each driver that DriverRollouts name it
    for; tried once for each account. None: not known, as where the ``guards`` are not.
    """
    answers: dict[Key, bool | None] = {}

    def guarded(account: Key) -> bool | None:
        if guards is None:
            return None
        if account not in answers:
            profiles = snapshot.writers.get(account, {"": ""})
            tried = [guards.guarded(*account, driver, profile, snapshot, now) for driver, profile in profiles.items()]
            answers[account] = False if False in tried else None if None in tried else True
        return answers[account]

    return guarded


def _concerns(policy: Json) -> bool:
    """Whether it is about slices in the version that every API server has. One that lists older versions alone holds
    for as long as they are served, and then for nothing.
    """
    rules = members(mapping(mapping(policy.get("spec")).get("matchConstraints")).get("resourceRules"))
    wanted = (("apiGroups", DRA), ("apiVersions", "v1"), ("resources", "resourceslices"))
    return any(all({value, "*"} & set(map(str, sequence(rule.get(at)))) for at, value in wanted) for rule in rules)


def _narrowed(binding: Json) -> bool:
    """Whether the binding takes some writes of slices only; namespaces do not matter to them."""
    return bool(mapping(binding.get("matchResources")).keys() - {"namespaceSelector", "matchPolicy"})


def _compiled(policy: Json, name: str) -> CompiledPolicy | None:
    """The policy as one of ours, which have the same fields; None where it asks for what is not there to try it."""
    spec = {key: value for key, value in mapping(policy.get("spec")).items() if key in _FIELDS}
    # The API server sends other versions as v1 here, and only where they are served.
    spec["matchConstraints"] = {**mapping(spec.get("matchConstraints")), "matchPolicy": "Exact"}
    spec["validations"] = [
        {"name": f"rule-{index}", "expression": each.get("expression")}
        for index, each in enumerate(members(spec.get("validations")))
    ]
    ours = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": {**spec, "action": "Deny"}}
    try:
        compiled = compile_object(ours, name)
    except PolicyErrors:
        return None
    return None if "params" in _names(compiled) else compiled


def _names(policy: CompiledPolicy) -> frozenset[str]:
    """The names that the expressions of ``policy`` read."""
    programs = [each.program for part in (policy.conditions, policy.variables, policy.validations) for each in part]
    return frozenset().union(*(each.names for each in programs))


def _asked(objects: Iterable[Json]) -> frozenset[str]:
    """The operations for which an entry of ours has every slice sent to us."""
    sent: dict[str, set[str]] = {operation: set() for operation in _ENTRIES}
    for name, entry in _entries(objects):
        for operation in _operations(entry):
            sent[operation].add(name)
    return frozenset(operation for operation, names in sent.items() if _ENTRIES[operation] <= names)


def _audits(objects: Iterable[Json]) -> bool:
    """Whether we are registered in audit mode, where nothing is refused whatever the policies say: only there is the
    entry for slices that take from their node one of those that the API server passes over.
    """
    return any(name == _MAPPED and entry.get("failurePolicy") == IGNORE for name, entry in _entries(objects))


def _entries(objects: Iterable[Json]) -> Iterator[tuple[str, Json]]:
    """The entries of our registration, by their names."""
    for each in objects:
        for entry in members(each.get("webhooks")) if each.get("kind") == VALIDATING else ():
            name, dot, group = text(entry.get("name")).partition(".")
            if dot and group == GROUP:
                yield name, entry


def _operations(entry: Json) -> Iterator[str]:
    for rule in members(entry.get("rules")):
        if "resourceslices" in sequence(rule.get("resources")) and "v1" in sequence(rule.get("apiVersions")):
            yield from _ENTRIES.keys() & set(map(str, sequence(rule.get("operations"))))


def _specs(driver: str, profile: str) -> tuple[Json, tuple[Json, ...]]:
    """The spec of a slice that is the account's own, and those of slices that are not."""
    own, other = {"driver": driver or _OTHER}, {"driver": _OTHER}
    if profile == "MultiNode":
        return {**own, "allNodes": True}, ({**other, "allNodes": True}, {**own, "nodeName": _HERE})
    if profile == "AnyNode":
        return {**own, "nodeName": _THERE}, ({**other, "nodeName": _THERE},)
    return {**own, "nodeName": _HERE}, ({**own, "nodeName": _THERE},)


def _write(operation: str, spec: Json, namespace: str, account: str) -> Request:
    """The write of a slice by a pod of the account."""

    def made(generation: int) -> Json:
        pool = {"name": text(spec.get("nodeName")) or "probe", "generation": generation, "resourceSliceCount": 1}
        return {
            "apiVersion": f"{DRA}/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": "probe"},
            "spec": {**spec, "pool": pool, "devices": [{"name": "probe"}]},
        }

    token = {"node-name": _HERE, "node-uid": "probe", "pod-name": "probe", "pod-uid": "probe"}
    raw = raw_request(
        operation,
        None if operation == "DELETE" else made(2),
        None if operation == "CREATE" else made(1),
        user=f"system:serviceaccount:{namespace}:{account}",
        groups=("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"),
        extra={f"{_EXTRA}{key}": [value] for key, value in {**token, "credential-id": "JTI=probe"}.items()},
    )
    raw["userInfo"]["uid"] = "probe"
    return read_request(raw)


def _refused(revision: Revision, request: Request, snapshot: Snapshot, now: datetime) -> bool:
    found = evaluate(revision, request, VALIDATE, snapshot, Book(), now)
    return any(
        result.action == "Deny" and any(finding.severity == "error" for finding in result.findings)
        for result in found.policies
    )
