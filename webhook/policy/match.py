"""Which writes a policy is about: ``matchConstraints``, with the meaning it has in ``ValidatingAdmissionPolicy``."""

from __future__ import annotations

from dataclasses import dataclass

from webhook.kube import labels
from webhook.kube.admission import GroupVersionName, Request
from webhook.kube.raw import Json, mapping
from webhook.kube.snapshot import Snapshot
from webhook.policy.reader import Reader

OPERATIONS = ("CREATE", "UPDATE", "DELETE", "CONNECT", "*")
SCOPES = ("Cluster", "Namespaced", "*")
# The one namespace that a cluster needs to start; drivers and their claims seldom live in it.
SYSTEM_NAMESPACES = ("kube-system",)
NAME_LABEL = "kubernetes.io/metadata.name"

# Versions of one group that are the same object to the API server (matchPolicy Equivalent).
_EQUIVALENT = {"resource.k8s.io": frozenset({"v1", "v1beta1", "v1beta2"})}


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of ``resourceRules`` or ``excludeResourceRules``."""

    groups: frozenset[str]
    versions: frozenset[str]
    operations: frozenset[str]
    resources: frozenset[str]
    scope: str
    names: frozenset[str]

    def takes(self, resource: GroupVersionName, sub_resource: str, operation: str, exact: bool) -> bool:
        """Whether the rule names this resource and operation. Not ``exact``: any equivalent version will do."""
        versions = {resource.version}
        if not exact and resource.version in _EQUIVALENT.get(resource.group, ()):
            versions |= _EQUIVALENT[resource.group]
        return (
            _any(self.groups, resource.group)
            and ("*" in self.versions or not self.versions.isdisjoint(versions))
            and _any(self.operations, operation)
            and any(_is(entry, resource.name, sub_resource) for entry in self.resources)
        )

    def names_resource(self, group: str, resource: str) -> bool:
        """Whether the rule names the resource or one of its subresources, in any version and operation."""
        return _any(self.groups, group) and any(entry.partition("/")[0] in ("*", resource) for entry in self.resources)

    def suits(self, request: Request) -> bool:
        """Whether the scope and the object names of the rule let this request through."""
        namespaced = request.namespace != "" and request.kind.name != "Namespace"
        return self.scope in ("*", "Namespaced" if namespaced else "Cluster") and (
            not self.names or request.name in self.names
        )


def _any(known: frozenset[str], value: str) -> bool:
    return value in known or "*" in known


def _is(entry: str, resource: str, sub_resource: str) -> bool:
    name, _, sub = entry.partition("/")
    return name in ("*", resource) and sub in (("*", sub_resource) if "/" in entry else (sub_resource,))


@dataclass(frozen=True, slots=True)
class Match:
    """The ``matchConstraints`` of a policy. ``exact`` is ``matchPolicy: Exact``."""

    rules: tuple[Rule, ...] = ()
    excluded: tuple[Rule, ...] = ()
    namespace_selector: Json | None = None
    object_selector: Json | None = None
    exact: bool = False

    def routes(self, request: Request) -> tuple[tuple[Rule, ...], tuple[Rule, ...]]:
        """The rules, and the excluding rules, that name the request's resource and operation."""
        resource, sub = _asked(request) if self.exact else (request.resource, request.sub_resource)
        return (
            tuple(rule for rule in self.rules if rule.takes(resource, sub, request.operation, self.exact)),
            tuple(rule for rule in self.excluded if rule.takes(resource, sub, request.operation, self.exact)),
        )

    def refuses(self, request: Request, snapshot: Snapshot) -> str:
        """Why the selectors keep the policy away from this request; empty when they do not.

        Raises LookupError when the request's namespace is not known and its labels are asked for.
        """
        if self.namespace_selector and request.namespace:
            found = _namespace_labels(self.namespace_selector, request, snapshot)
            if not labels.matches(self.namespace_selector, found):
                return "namespaceSelector"
        if self.object_selector and not any(
            labels.matches(self.object_selector, _labels(obj))
            for obj in (request.object, request.old_object)
            if obj is not None
        ):
            return "objectSelector"
        return ""


def _asked(request: Request) -> tuple[GroupVersionName, str]:
    raw = request.raw.get("requestResource")
    if not isinstance(raw, dict):
        return request.resource, request.sub_resource
    group, version, name = (str(raw.get(member) or "") for member in ("group", "version", "resource"))
    return GroupVersionName(group, version, name), str(request.raw.get("requestSubResource") or "")


def _labels(obj: Json) -> dict[str, str]:
    found = mapping(mapping(obj.get("metadata")).get("labels"))
    return {str(key): value for key, value in found.items() if isinstance(value, str)}


def _namespace_labels(selector: Json, request: Request, snapshot: Snapshot) -> dict[str, str]:
    # The API server labels every namespace with its own name, so a selector of names needs no object.
    own = {NAME_LABEL: request.namespace}
    if request.kind.name == "Namespace":
        return own | _labels(request.target)
    known = snapshot.namespaces.get(request.namespace)
    if known is not None:
        return own | _labels(known)
    asked = {*mapping(selector.get("matchLabels")), *(row["key"] for row in selector.get("matchExpressions") or ())}
    if asked - own.keys():
        raise LookupError(f"namespace {request.namespace} is not known, needs its labels for the namespaceSelector")
    return own


def read_match(reader: Reader, spec: Json) -> Match:
    """The ``matchConstraints`` below ``spec``; what is wrong is told to the reader."""
    path = "spec.matchConstraints"
    if spec.get("matchConstraints") is None:
        reader.missing("matchConstraints", "spec", "resourceRules that say which writes it judges")
        return Match()
    known = ("resourceRules", "excludeResourceRules", "namespaceSelector", "objectSelector", "matchPolicy")
    fields = reader.fields(spec["matchConstraints"], path, known)
    return Match(
        rules=tuple(_rule(reader, item, at) for at, item in reader.items(fields, "resourceRules", path, required=True)),
        excluded=tuple(_rule(reader, item, at) for at, item in reader.items(fields, "excludeResourceRules", path)),
        namespace_selector=_selector(reader, fields, "namespaceSelector", path),
        object_selector=_selector(reader, fields, "objectSelector", path),
        exact=reader.choice(fields, "matchPolicy", path, ("Equivalent", "Exact"), "Equivalent") == "Exact",
    )


def _selector(reader: Reader, fields: Json, name: str, path: str) -> Json | None:
    value = fields.get(name)
    if value is None:
        return None
    for finding in labels.problems(value, f"{path}.{name}"):
        reader.problem(finding.path, finding.message)
    return mapping(value)


def _rule(reader: Reader, item: object, path: str) -> Rule:
    known = ("apiGroups", "apiVersions", "operations", "resources", "scope", "resourceNames")
    fields = reader.fields(item, path, known)
    operations = reader.texts(fields, "operations", path, required=True)
    for index, operation in enumerate(operations):
        if operation not in OPERATIONS:
            needs = f"has {operation}, needs {', '.join(OPERATIONS[:-1])} or *"
            reader.problem(f"{path}.operations[{index}]", needs)
    resources = reader.texts(fields, "resources", path, required=True)
    for index, resource in enumerate(resources):
        if resource.count("/") > 1 or not all(resource.split("/")):
            needs = f"has {resource!r}, needs resource, resource/subresource or *"
            reader.problem(f"{path}.resources[{index}]", needs)
        elif resource != resource.lower():
            reader.problem(f"{path}.resources[{index}]", f"has {resource}, needs the plural name in lower case")
    return Rule(
        groups=frozenset(reader.texts(fields, "apiGroups", path, required=True)),
        versions=frozenset(reader.texts(fields, "apiVersions", path, required=True)),
        operations=frozenset(operations),
        resources=frozenset(resources),
        scope=reader.choice(fields, "scope", path, SCOPES, "*"),
        names=frozenset(reader.texts(fields, "resourceNames", path)),
    )
