"""A revision: a compiled set of policies, named by the hash of its content, and the way from a request to them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

from msgspec import structs

from webhook import cel
from webhook.facts.writers import FREE_CLAIMS, WriterParams, free_claims
from webhook.kube.admission import Request
from webhook.policy.document import Policy, Validation, digest
from webhook.policy.match import Rule

# Requests differ in few ways; who sends more than these is answered all the same, only without the memo.
_MAX_ROUTES = 4096

Route = tuple["CompiledPolicy", tuple[Rule, ...], tuple[Rule, ...]]


@dataclass(frozen=True, slots=True)
class NamedProgram:
    """A compiled match condition or variable."""

    name: str
    program: cel.Program


@dataclass(frozen=True, slots=True)
class CompiledValidation:
    """A rule with its program, and that of its message."""

    validation: Validation
    program: cel.Program
    message: cel.Program | None


@dataclass(frozen=True, slots=True)
class CompiledMutation:
    """A change with its program; ``name`` is its place, as ``mutations[0]``."""

    name: str
    program: cel.Program


@dataclass(frozen=True, slots=True)
class CompiledAnnotation:
    """An audit annotation; ``key`` carries the policy's name."""

    key: str
    program: cel.Program


@dataclass(frozen=True, slots=True)
class CompiledException:
    """An exception with its program."""

    name: str
    expires: datetime
    ticket: str
    program: cel.Program


@dataclass(frozen=True, slots=True, eq=False)
class CompiledPolicy:
    """A policy with the programs of its expressions; ``writers`` is what its params say about writers, None where no
    expression asks who writes.
    """

    policy: Policy
    conditions: tuple[NamedProgram, ...]
    variables: tuple[NamedProgram, ...]
    validations: tuple[CompiledValidation, ...]
    mutations: tuple[CompiledMutation, ...]
    annotations: tuple[CompiledAnnotation, ...]
    exceptions: tuple[CompiledException, ...]
    writers: WriterParams | None = None

    @property
    def name(self) -> str:
        """The policy's name."""
        return self.policy.name


@dataclass(frozen=True, slots=True, eq=False)
class Revision:
    """A compiled set of policies, ordered by name; ``hash`` is that of their content, whatever files they came in."""

    hash: str
    policies: tuple[CompiledPolicy, ...]
    _routes: dict[tuple[str, ...], tuple[Route, ...]] = field(default_factory=dict, init=False, repr=False)

    def route(self, request: Request, endpoint: str) -> tuple[Route, ...]:
        """The policies of ``endpoint`` with a rule for the request's resource and operation, each with the rules and
        the excluding rules that name them. One look-up for a kind of request seen before.
        """
        asked = request.raw.get("requestResource")
        key = (
            endpoint,
            request.resource.group,
            request.resource.version,
            request.resource.name,
            request.sub_resource,
            request.operation,
            *(map(str, asked.values()) if isinstance(asked, dict) else ()),
            str(request.raw.get("requestSubResource")),
        )
        found = self._routes.get(key)
        if found is None:
            found = tuple(
                (policy, *rules)
                for policy in self.policies
                if policy.policy.endpoint == endpoint and (rules := policy.policy.match.routes(request))[0]
            )
            if len(self._routes) < _MAX_ROUTES:
                self._routes[key] = found
        return found


def revision_of(policies: Iterable[CompiledPolicy]) -> Revision:
    """The revision of compiled policies with names of their own."""
    ordered = tuple(sorted(policies, key=lambda compiled: compiled.name))
    content = "\n".join(f"{compiled.name} {compiled.policy.digest}" for compiled in ordered)
    return Revision(hashlib.sha256(content.encode()).hexdigest()[:16], ordered)


def audited(enforced: Revision) -> Revision:
    """The same policies, each with the action Audit: nothing is refused or changed and nobody is warned, also where an
    evaluation fails. Its hash is that of the policies as they are written and says that they are only audited.
    """
    policies = tuple(
        replace(compiled, policy=replace(compiled.policy, action="Audit")) for compiled in enforced.policies
    )
    return Revision(f"{enforced.hash}-audit", policies)


def placed(revision: Revision, namespace: str) -> Revision:
    """The same policies for a guard in ``namespace``: those that name no allocator but the guard's own free-claims, or
    have no such list, name the one there, in their documents too.
    """
    ours = free_claims(namespace)
    return revision if ours == FREE_CLAIMS else revision_of(_placed(each, ours) for each in revision.policies)


def _placed(compiled: CompiledPolicy, ours: str) -> CompiledPolicy:
    if compiled.writers is None or compiled.writers.allocators != {FREE_CLAIMS}:
        return compiled
    params = {**compiled.policy.params, "allocators": [ours]}
    document = {**compiled.policy.document, "spec": {**compiled.policy.document["spec"], "params": params}}
    policy = replace(compiled.policy, params=params, document=document, digest=digest(document))
    return replace(compiled, policy=policy, writers=structs.replace(compiled.writers, allocators=frozenset([ours])))
