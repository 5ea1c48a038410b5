"""Evaluates the policies of a revision for one request: which match, what they find and change, what fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from msgspec import Struct, field
from msgspec.structs import replace

from webhook import cel
from webhook.kube.admission import Request
from webhook.kube.finding import Finding
from webhook.kube.raw import Json
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book
from webhook.policy.exceptions import applies
from webhook.policy.facts import Facts, Names
from webhook.policy.patching import applied, operations
from webhook.policy.revision import CompiledPolicy, CompiledValidation, Revision, Route

# Ten times what Kubernetes lets one expression cost, for all expressions of one request.
REQUEST_LIMIT = 10 * cel.PER_CALL_LIMIT

# The rule of a finding that says that a policy could not be evaluated.
FAILED = "evaluation-failed"
DEADLINE = "the time for this request is nearly spent"


class ConditionResult(Struct, frozen=True):
    """A match condition: its value, or the error that it ended with."""

    name: str
    value: bool
    error: str = ""


class RuleResult(Struct, frozen=True):
    """A validation: what it found, or the error that it ended with. With ``failurePolicy: Fail`` an error is a
    finding, too.
    """

    name: str
    findings: tuple[Finding, ...] = ()
    error: str = ""


class PolicyResult(Struct, frozen=True):
    """What one policy says. ``skipped`` is why it does not match (empty where it does); where nobody can tell, it is an
    error in ``rules``, too. ``exception`` names the exception and its ticket, when one turns what it says into
    audit-only. ``patch`` are the operations (RFC 6902) of its mutations, ``patched`` is the object after them; None
    where they change nothing.
    """

    compiled: CompiledPolicy
    skipped: str = ""
    conditions: tuple[ConditionResult, ...] = ()
    rules: tuple[RuleResult, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    exception: str = ""
    patch: tuple[Json, ...] = ()
    patched: Json | None = None

    @property
    def policy(self) -> str:
        """The policy's name."""
        return self.compiled.name

    @property
    def matched(self) -> bool:
        """Whether the policy's rules were judged."""
        return not self.skipped

    @property
    def action(self) -> str:
        """What to do with the findings: the policy's action, or Audit under an exception."""
        return "Audit" if self.exception else self.compiled.policy.action

    @property
    def made(self) -> tuple[Json, ...]:
        """The patch as it is made: none by a policy that only audits."""
        return () if self.action == "Audit" else self.patch

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of all rules, in the policy's order."""
        return tuple([finding for rule in self.rules for finding in rule.findings])


class Evaluation(Struct, frozen=True):
    """What the policies that name the request's resource and operation say, in order of their names. ``facts`` holds
    what they read.
    """

    revision: str
    policies: tuple[PolicyResult, ...]
    facts: Facts

    @property
    def patch(self) -> tuple[Json, ...]:
        """The patches that are made, one after the other."""
        return tuple([operation for result in self.policies for operation in result.made])

    @property
    def patched(self) -> Json | None:
        """The object after :attr:`patch`."""
        return self.facts.latest.request.object


def _never() -> bool:
    return False


def evaluate(
    revision: Revision,
    request: Request,
    endpoint: str,
    snapshot: Snapshot,
    book: Book,
    now: datetime,
    budget: cel.Budget | None = None,
    expired: Callable[[], bool] = _never,
) -> Evaluation:
    """Judge ``request`` at ``endpoint``: ``validate``, ``mutate`` or, for files, ``check``.

    Every fact is computed at most once, for all policies together; ``budget`` is what all expressions may cost; once
    ``expired`` says so, the policies not yet judged fail as their failurePolicy says, as far as they match.
    """
    facts = Facts(request, snapshot, book, now)
    spend = budget if budget is not None else cel.Budget(REQUEST_LIMIT)
    results: list[PolicyResult] = []
    for route in revision.route(request, endpoint):
        result = _judge(route, facts.latest, spend, expired)
        results.append(result)
        if result.made and result.patched is not None:
            # Patches apply one after the other: the next policy is asked about what this one has made of the object.
            facts.change(result.patched)
    return Evaluation(revision.hash, tuple(results), facts)


def _judge(route: Route, facts: Facts, budget: cel.Budget, expired: Callable[[], bool]) -> PolicyResult:
    compiled, rules, excluded = route
    request = facts.request
    if not any(rule.suits(request) for rule in rules):
        return PolicyResult(compiled, skipped="resourceRules")
    if any(rule.suits(request) for rule in excluded):
        return PolicyResult(compiled, skipped="excludeResourceRules")
    try:
        if skipped := compiled.policy.match.refuses(request, facts.snapshot):
            return PolicyResult(compiled, skipped=skipped)
    except LookupError as error:
        return _unmatched(compiled, (), "namespaceSelector", str(error.args[0]))
    names = Names(facts, compiled.policy.params, compiled.writers)
    conditions, error_at = _conditions(compiled, names, budget)
    if conditions and not conditions[-1].value and not conditions[-1].error:
        return PolicyResult(compiled, f"matchConditions: {conditions[-1].name}", conditions)
    if error_at is not None:
        return _unmatched(compiled, conditions, error_at.name, error_at.error)
    # Asked late: what no policy is about, as a write that gives devices back, must not be refused for want of time.
    if expired():
        return PolicyResult(compiled, "", conditions, (_failed(compiled, "policy", DEADLINE),))
    if compiled.variables:
        names["variables"] = cel.Record({each.name: _lazy(each.program, names, budget) for each in compiled.variables})
    results = tuple([_rule(compiled, validation, names, budget) for validation in compiled.validations])
    annotations, failures = _annotations(compiled, names, budget)
    results = (*results, *failures)
    patch: tuple[Json, ...] = ()
    patched = None
    if compiled.mutations:
        patch, patched, failure = _patch(compiled, request.object, names, budget)
        results = (*results, *failure)
    exception = ""
    if compiled.exceptions and (patch or any(result.findings for result in results)):
        exception, notes, problems = applies(compiled.exceptions, names, facts.now, budget)
        results = (*(_noted(result, notes) for result in results), *(RuleResult(n, error=e) for n, e in problems))
    names.clear()  # the variables read it: a circle that only the cycle collector would find
    return PolicyResult(compiled, "", conditions, results, annotations, exception, patch, patched)


def _lazy(program: cel.Program, names: Mapping[str, object], budget: cel.Budget) -> cel.Lazy:
    return cel.Lazy(lambda: program.evaluate(names, budget))


def _unmatched(
    compiled: CompiledPolicy, conditions: tuple[ConditionResult, ...], name: str, error: str
) -> PolicyResult:
    """A policy of which nobody can tell whether it matches: judged failed, or passed over; the error is told."""
    skipped = f"{name}: {error}" if compiled.policy.failure_policy == "Ignore" else ""
    return PolicyResult(compiled, skipped, conditions, (_failed(compiled, name, error),))


def _conditions(
    compiled: CompiledPolicy, names: Mapping[str, object], budget: cel.Budget
) -> tuple[tuple[ConditionResult, ...], ConditionResult | None]:
    """The conditions up to the first that is false; and the first that failed, when none is false."""
    found: list[ConditionResult] = []
    failed: ConditionResult | None = None
    for condition in compiled.conditions:
        try:
            value = condition.program.evaluate(names, budget) is True
        except cel.EvaluationError as error:
            found.append(ConditionResult(condition.name, False, str(error)))
            failed = failed or found[-1]
            continue
        found.append(ConditionResult(condition.name, value))
        if not value:
            return tuple(found), None
    return tuple(found), failed


def _failed(compiled: CompiledPolicy, name: str, error: str) -> RuleResult:
    if compiled.policy.failure_policy == "Ignore":
        return RuleResult(name, error=error)
    finding = Finding(FAILED, "", f"{name} could not be judged: {error}", "")
    return RuleResult(name, (finding,), error)


def _rule(
    compiled: CompiledPolicy, rule: CompiledValidation, names: Mapping[str, object], budget: cel.Budget
) -> RuleResult:
    validation = rule.validation
    try:
        value = rule.program.evaluate(names, budget)
        if validation.findings is not None:
            return RuleResult(validation.name, _as_findings(value))
        if value is True:
            return RuleResult(validation.name)
        message = _message(rule, names, budget)
    except cel.EvaluationError as error:
        return _failed(compiled, validation.name, str(error))
    return RuleResult(validation.name, (Finding(validation.name, "", message, ""),))


def _as_findings(value: object) -> tuple[Finding, ...]:
    if isinstance(value, (list, tuple)) and {Finding}.issuperset(map(type, value)):
        return tuple(value)
    raise cel.EvaluationError("has something else, needs a list of findings")


def _message(rule: CompiledValidation, names: Mapping[str, object], budget: cel.Budget) -> str:
    """As upstream: a messageExpression that fails, is empty or has line breaks gives way to the plain message."""
    if rule.message is not None:
        try:
            text = str(rule.message.evaluate(names, budget)).strip()
        except cel.BudgetError:
            raise
        except cel.EvaluationError:
            text = ""
        if text and "\n" not in text:
            return text
    return rule.validation.message or f"failed expression: {' '.join(rule.program.source.split())}"


def _annotations(
    compiled: CompiledPolicy, names: Mapping[str, object], budget: cel.Budget
) -> tuple[dict[str, str], tuple[RuleResult, ...]]:
    values: dict[str, str] = {}
    failures: list[RuleResult] = []
    for annotation in compiled.annotations:
        try:
            value = annotation.program.evaluate(names, budget)
            if value is not None and not isinstance(value, str):
                raise cel.EvaluationError("has another value, needs a string or null")
        except cel.EvaluationError as error:
            failures.append(_failed(compiled, annotation.key, str(error)))
            continue
        if value:
            values[annotation.key] = value
    return values, tuple(failures)


def _patch(
    compiled: CompiledPolicy, obj: Json | None, names: Mapping[str, object], budget: cel.Budget
) -> tuple[tuple[Json, ...], Json | None, tuple[RuleResult, ...]]:
    """The operations of all mutations and the object after them; or none of them and what failed."""
    found: list[Json] = []
    patched = None
    name = ""
    try:
        for mutation in compiled.mutations:
            name = mutation.name
            found += operations(mutation.program.evaluate(names, budget), "the patch")
        name = "mutations"
        if found:
            patched = applied(obj, found)
    except cel.EvaluationError as error:
        return (), None, (_failed(compiled, name, str(error)),)
    return tuple(found), patched, ()


def _noted(result: RuleResult, notes: tuple[str, ...]) -> RuleResult:
    if not notes or not result.findings:
        return result
    found = tuple(replace(f, fix="; ".join(filter(None, (f.fix, *notes)))) for f in result.findings)
    return RuleResult(result.name, found, result.error)
