"""Compiles a set of policies, whole or not at all, into a :class:`Revision`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from webhook import cel
from webhook.facts.writers import read_params
from webhook.kube.documents import Document, Unreadable, from_object, load
from webhook.kube.raw import Json
from webhook.kube.rollout import API_VERSION
from webhook.policy.document import KIND, Policy, Validation, read_policy
from webhook.policy.facts import ENVIRONMENT, SUBJECTS
from webhook.policy.place import Expression
from webhook.policy.problem import Problem
from webhook.policy.revision import (
    CompiledAnnotation,
    CompiledException,
    CompiledMutation,
    CompiledPolicy,
    CompiledValidation,
    NamedProgram,
    Revision,
    revision_of,
)
from webhook.policy.types import FINDINGS, PATCH

TEST_KIND = "PolicyTest"
# Lists in lists, and so on, to which a variable's type is known.
_MAX_NESTED = 8


class PolicyErrors(Exception):  # noqa: N818 - several at once
    """Why a set of policies is refused: ``problems`` are all of them, in order of file and place."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(set(problems)))
        super().__init__("\n".join(problem.text for problem in self.problems))


def compile_files(files: Mapping[str, bytes]) -> Revision:
    """The revision of policy files (name and content). Raises :class:`PolicyErrors` with everything that is wrong.

    Policy tests (``kind: PolicyTest``) may stand in the files and are passed over.
    """
    policies: list[tuple[Policy, Document]] = []
    problems: list[Problem] = []
    for file, data in files.items():
        for document in load(data, file):
            if isinstance(document, Unreadable):
                problems.append(Problem(file, document.line, document.column, document.message, document.fix))
                continue
            kind = document.value.get("kind")
            if kind == TEST_KIND and document.value.get("apiVersion") == API_VERSION:
                continue
            if kind != KIND:
                problems.append(
                    Problem(
                        file, *document.position("kind"), f"has {kind!r}, needs {KIND}", "move it elsewhere", "kind"
                    )
                )
                continue
            policy, found = read_policy(document)
            problems.extend(found)
            policies.append((policy, document))
    problems.extend(_repeated([policy for policy, _ in policies]))
    # Expressions are checked even where a document is wrong elsewhere: its author wants all problems at once.
    compiled = [_compile(*each, problems) for each in sorted(policies, key=lambda each: each[0].name)]
    if problems:
        raise PolicyErrors(problems)
    return revision_of(compiled)


def compile_object(obj: Json, name: str) -> CompiledPolicy:
    """The policy of an ``AdmissionPolicy`` object of the cluster, ``name`` in messages. Raises :class:`PolicyErrors`;
    no problem has a line of a file, one within an expression has the line and column there behind its path.
    """
    document = from_object(obj, name)
    policy, problems = read_policy(document)
    compiled = _compile(policy, document, problems)
    if problems:
        raise PolicyErrors(problems)
    return compiled


def _repeated(policies: Sequence[Policy]) -> Iterable[Problem]:
    first: dict[str, Policy] = {}
    for policy in policies:
        known = first.setdefault(policy.name, policy)
        if policy.name and known is not policy:
            message = f"metadata.name: has the policy {policy.name} a second time, first in {known.file}"
            yield Problem(policy.file, *policy.place, message, "rename one of the two")


@dataclass(frozen=True, slots=True)
class _Scope:
    """What the expressions of one policy may name; problems, and the names that were used, are gathered."""

    policy: Policy
    problems: list[Problem]
    names: set[str] = field(default_factory=set)

    def program(
        self, expression: Expression, environment: cel.Environment, expected: cel.Type | None, mixing: bool = False
    ) -> cel.Program | None:
        try:
            program = cel.compile(expression.source, environment, expected, mixing)
        except cel.CelError as error:
            for each in (error, *error.others):
                self.problem(expression, each.message, each.hint, each.line, each.column)
            return None
        self.names.update(program.names)
        for name in sorted(program.names & SUBJECTS.keys()):
            resources = SUBJECTS[name]
            if self.policy.match.rules and not any(_may_concern(self.policy, resource) for resource in resources):
                needs = f"reads {name}, but matchConstraints name none of {', '.join(resources)}"
                self.problem(expression, needs, "match them, or read another fact")
        return program

    def problem(self, expression: Expression, message: str, fix: str = "", line: int = 1, column: int = 1) -> None:
        place = expression.place(line, column)
        self.problems.append(Problem(expression.file, *place, message, fix, expression.path_at(line, column)))


def _may_concern(policy: Policy, resource: str) -> bool:
    return any(entry.partition("/")[0] in (resource, "*") for rule in policy.match.rules for entry in rule.resources)


def _compile(policy: Policy, document: Document, problems: list[Problem]) -> CompiledPolicy:
    scope = _Scope(policy, problems)
    base = ENVIRONMENT
    conditions = [
        NamedProgram(each.name, program)
        for each in policy.conditions
        if (program := scope.program(each.expression, base, cel.BOOL)) is not None
    ]
    fields: dict[str, cel.Field] = {}
    environment = base
    variables = []
    for each in policy.variables:
        program = scope.program(each.expression, environment, None)
        if program is not None:
            variables.append(NamedProgram(each.name, program))
        # A variable that does not compile still counts as declared, so that one error is told once.
        fields[each.name] = cel.Field(_declared(program.type) if program is not None else cel.DYN, each.name)
        environment = base.extend({"variables": cel.StructType("variables", fields=dict(fields))})
    compiled = CompiledPolicy(
        policy=policy,
        conditions=tuple(conditions),
        variables=tuple(variables),
        validations=tuple(
            compiled
            for validation in policy.validations
            if (compiled := _validation(scope, validation, environment)) is not None
        ),
        mutations=tuple(
            CompiledMutation(each.path.removeprefix("spec."), program)
            for each in policy.mutations
            if (program := scope.program(each.expression, environment, PATCH, mixing=True)) is not None
        ),
        annotations=tuple(
            CompiledAnnotation(f"{policy.name}.{each.key}", program)
            for each in policy.annotations
            if (program := _annotation(scope, each.expression, environment)) is not None
        ),
        exceptions=tuple(
            CompiledException(each.name, each.expires, each.ticket, program)
            for each in policy.exceptions
            if (program := scope.program(each.expression, environment, cel.BOOL)) is not None
        ),
    )
    if "writer" not in scope.names:
        return compiled
    writers, found = read_params(policy.params)
    for wrong in found:
        path = f"spec.params.{wrong.path}"
        problems.append(Problem(policy.file, *document.position(path), wrong.message, wrong.fix, path))
    return replace(compiled, writers=writers)


def _annotation(scope: _Scope, expression: Expression, environment: cel.Environment) -> cel.Program | None:
    """The program of a string, or of null for no annotation; as dyn, the value is looked at when it is there."""
    program = scope.program(expression, environment, None)
    if program is not None and not any(cel.assignable(kind, program.type) for kind in (cel.STRING, cel.NULL)):
        scope.problem(expression, f"has type {program.type}, needs string, or null for no annotation")
    return program


def _declared(kind: cel.Type) -> cel.Type:
    """The type that a variable is declared with; the checker takes no nesting without end."""
    level: tuple[cel.Type, ...] = (kind,)
    for _ in range(_MAX_NESTED):
        level = tuple(parameter for each in level for parameter in each.parameters)
    return cel.DYN if level else kind


def _validation(scope: _Scope, validation: Validation, environment: cel.Environment) -> CompiledValidation | None:
    message = (
        scope.program(validation.message_expression, environment, cel.STRING)
        if validation.message_expression is not None
        else None
    )
    if validation.findings is not None:
        program = scope.program(validation.findings, environment, FINDINGS)
    else:
        program = scope.program(validation.expression, environment, cel.BOOL) if validation.expression else None
    return CompiledValidation(validation, program, message) if program is not None else None
