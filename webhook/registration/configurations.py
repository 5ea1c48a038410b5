"""The two webhook configurations (admissionregistration.k8s.io/v1) that the loaded policies need, and no more.

Every field that the API server would fill in is written, so that what is stored can be compared with what is wanted.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from webhook.kube.names import dns_subdomain
from webhook.kube.raw import Json
from webhook.kube.rollout import GROUP
from webhook.kube.snapshot import Key
from webhook.policy.match import NAME_LABEL, Rule
from webhook.policy.revision import CompiledPolicy, Revision
from webhook.registration.needs import may_judge, named_cells, pushed
from webhook.registration.rows import IGNORE, MUTATE, VALIDATE, Row, rows

NAME = "allocguard"
API_VERSION = "admissionregistration.k8s.io/v1"
VALIDATING, MUTATING = "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"
DRIVERS = f"{GROUP}/drivers"
LABELS = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/managed-by": NAME}

# Never sent to a webhook, or so often and so deep in the server that a webhook must not be asked.
_NEVER = {
    GROUP: "it is our own",
    "admissionregistration.k8s.io": "the API server sends none of it to webhooks",
    "authentication.k8s.io": "a webhook may need it to answer",
    "authorization.k8s.io": "a webhook may need it to answer",
    "coordination.k8s.io": "every heartbeat would wait for a webhook",
}
# The longest path tail that the server counts under its own name.
_LONGEST = 63


@dataclass(frozen=True, slots=True)
class Address:
    """Where the API server reaches us: a ``url`` (https, without a path), or a Service by namespace, name and port."""

    url: str = ""
    namespace: str = ""
    name: str = ""
    port: int = 443

    def client(self, path: str, ca_bundle: bytes) -> Json:
        """The ``clientConfig`` of an entry that is served at ``path``."""
        trusted = b64encode(ca_bundle).decode()
        if self.url:
            return {"url": self.url.rstrip("/") + path, "caBundle": trusted}
        service = {"namespace": self.namespace, "name": self.name, "port": self.port, "path": path}
        return {"service": service, "caBundle": trusted}


@dataclass(frozen=True, slots=True)
class _Rules:
    """One item of ``rules``: a group, its versions, and operations by resource."""

    group: str
    versions: tuple[str, ...]
    cells: frozenset[tuple[str, str]]

    def json(self) -> list[Json]:
        by_operations: dict[tuple[str, ...], list[str]] = {}
        for resource in sorted({resource for resource, _ in self.cells}):
            operations = tuple(sorted(operation for name, operation in self.cells if name == resource))
            by_operations.setdefault(operations, []).append(resource)
        return [
            {
                "apiGroups": [self.group],
                "apiVersions": list(self.versions),
                "operations": list(operations),
                "resources": resources,
                "scope": "*",
            }
            for operations, resources in by_operations.items()
        ]


def configurations(
    revision: Revision,
    address: Address,
    ca_bundle: bytes,
    drivers: frozenset[str] = frozenset(),
    audit: bool = False,
    namespace: str = "allocguard-system",
    narrow: bool = True,
    accounts: frozenset[Key] | None = None,
) -> tuple[Json, Json]:
    """The validating and the mutating configuration, both named ``allocguard``, for the policies of ``revision``.

    ``drivers`` as :func:`webhook.registration.drivers.listed_drivers` has them; ``ca_bundle`` is PEM; ``audit`` makes
    every entry Ignore; ``namespace`` is our own, which is left alone. Not ``narrow``: without the policies' own match
    conditions, for an API server that does not take them. ``accounts`` are those that DriverRollouts name as writers,
    None where that is not known; the policies' params may name more.
    """
    if accounts is not None:
        accounts |= {key for policy in revision.policies if policy.writers for key in policy.writers.accounts}
    entries = [
        _entry(row, found, policies, address, ca_bundle, namespace, audit, narrow)
        for row, found, policies in (*_known(revision, rows(drivers, accounts)), *_generic(revision))
    ]
    listed = {DRIVERS: ",".join(sorted(drivers))} if drivers else {}
    return (
        _configuration(VALIDATING, [entry for row, entry in entries if row.endpoint == VALIDATE], listed),
        _configuration(MUTATING, [entry for row, entry in entries if row.endpoint == MUTATE], {}),
    )


def unregistered(revision: Revision) -> list[str]:
    """What policies ask for and is not registered, one line each: groups that no webhook may stand in the way of, and
    wildcards, which stand for the writes with a row of their own only.
    """
    found = []
    for policy in revision.policies:
        if policy.policy.endpoint not in (VALIDATE, MUTATE):
            continue
        for rule in policy.policy.match.rules:
            never = sorted(rule.groups & _NEVER.keys())
            found += [f"{policy.name}: {group} is not registered: {_NEVER[group]}" for group in never]
            if "*" in rule.groups or any(_wild(each) for each in rule.resources):
                found.append(f"{policy.name}: * is registered for the guard's own resources only; name the others")
    return list(dict.fromkeys(found))


def _known(revision: Revision, known: list[Row]) -> Iterable[tuple[Row, list[_Rules], list[CompiledPolicy]]]:
    for row in known:
        asking = [
            (policy, found)
            for policy in revision.policies
            if policy.policy.endpoint == row.endpoint
            and (found := named_cells(row, policy.policy))
            and may_judge(policy, row.implies)
        ]
        if asking:
            every = {cell for _, found in asking for cell in found}
            yield row, [_Rules(row.group, ("v1",), frozenset(every))], [policy for policy, _ in asking]


def _generic(revision: Revision) -> Iterable[tuple[Row, list[_Rules], list[CompiledPolicy]]]:
    """An entry for each resource that a policy names and no row knows."""
    asked: dict[tuple[str, str, str], dict[tuple[str, str], list[CompiledPolicy]]] = {}
    covered = {
        (row.endpoint, row.group, resource, operation)
        for row in rows(frozenset())
        for resource, operations in row.operations.items()
        for operation in operations
    }
    for policy in revision.policies:
        endpoint = policy.policy.endpoint
        for group, resource, operation, versions in _named(policy.policy.match.rules):
            if endpoint in (VALIDATE, MUTATE) and (endpoint, group, resource, operation) not in covered:
                cells = asked.setdefault((endpoint, group, resource), {})
                for version in versions:
                    cells.setdefault((version, operation), []).append(policy)
    for (endpoint, group, resource), cells in sorted(asked.items()):
        versions_of: dict[frozenset[tuple[str, str]], list[str]] = {}
        for version in sorted({version for version, _ in cells}):
            operations = frozenset((resource, operation) for each, operation in cells if each == version)
            versions_of.setdefault(operations, []).append(version)
        rules = [_Rules(group, tuple(versions), each) for each, versions in versions_of.items()]
        policies = list(dict.fromkeys(policy for each in cells.values() for policy in each))
        name = ".".join(part for part in (resource.replace("/", "-"), group) if part)
        yield Row(_short(name), group, {}, endpoint=endpoint), rules, policies


def _named(rules: Sequence[Rule]) -> Iterable[tuple[str, str, str, list[str]]]:
    for rule in rules:
        for group in sorted(rule.groups - {"*", *_NEVER}):
            for resource in sorted(each for each in rule.resources if not _wild(each)):
                for operation in ("CREATE", "UPDATE", "DELETE") if "*" in rule.operations else sorted(rule.operations):
                    # A status is only ever updated, whatever else a rule has beside it.
                    if operation == "UPDATE" or not resource.endswith("/status"):
                        yield group, resource, operation, _versions(group, rule.versions)


def _versions(group: str, versions: frozenset[str]) -> list[str]:
    """What to register: of built-in groups one version stands for all, which the API server converts to, and a list of
    older ones would match nothing once they are served no more.
    """
    if "." in group and not group.endswith(".k8s.io"):
        return sorted(versions)
    return ["v1"] if versions & {"v1", "*"} else sorted({"v1", *versions})


def _wild(resource: str) -> bool:
    return "*" in resource.split("/")


def _short(name: str) -> str:
    """``name`` as part of a path and of a webhook's name, whatever stands in the policy that it comes from."""
    if len(name) <= _LONGEST and dns_subdomain(name) is None:
        return name
    plain = re.sub("[^a-z0-9]+", "-", name.lower())[: _LONGEST - 9].strip("-")
    return f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}".lstrip("-")


def _entry(
    row: Row,
    rules: list[_Rules],
    policies: list[CompiledPolicy],
    address: Address,
    ca_bundle: bytes,
    namespace: str,
    audit: bool,
    narrow: bool,
) -> tuple[Row, Json]:
    row = replace(row, failure=IGNORE) if audit else row
    conditions = [*row.conditions]
    if narrow and (more := pushed(row.failure, policies)):
        conditions.append(("policies", more))
    middle = "" if row.endpoint == VALIDATE else f".{MUTATE}"
    entry: Json = {
        "name": f"{row.name}{middle}.{GROUP}",
        "clientConfig": address.client(f"/{row.endpoint}/{row.name}", ca_bundle),
        "rules": [each for part in rules for each in part.json()],
        "failurePolicy": row.failure,
        "matchPolicy": "Equivalent",
        "namespaceSelector": _namespaces(policies, (namespace, *row.excluded)),
        "objectSelector": {},
        "sideEffects": row.side_effects,
        "timeoutSeconds": row.seconds,
        "admissionReviewVersions": ["v1"],
    }
    if conditions:
        entry["matchConditions"] = [{"name": name, "expression": expression} for name, expression in conditions]
    if row.endpoint == MUTATE:
        # What another webhook has changed since may need our change again; whoever changes nothing need not look twice.
        changing = any(each.policy.mutations or each.policy.action == "Hold" for each in policies)
        entry["reinvocationPolicy"] = "IfNeeded" if changing else "Never"
    return row, entry


def _namespaces(policies: Sequence[CompiledPolicy], excluded: Sequence[str]) -> Json:
    """The selector that keeps ``excluded`` away, and what all policies keep away, where they agree."""
    selectors = [policy.policy.match.namespace_selector or {} for policy in policies]
    shared: Json = selectors[0] if all(each == selectors[0] for each in selectors) else {}
    ours: dict[str, Any] = {"key": NAME_LABEL, "operator": "NotIn", "values": sorted(excluded)}
    return {**shared, "matchExpressions": [*(shared.get("matchExpressions") or ()), ours]}


def _configuration(kind: str, webhooks: list[Json], annotations: Mapping[str, str]) -> Json:
    metadata: Json = {"name": NAME, "labels": dict(LABELS)}
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "webhooks": webhooks}
