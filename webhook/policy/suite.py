"""Policy tests: runs the cases beside a policy, and fails those that prove nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from webhook.facts.writers import read_params
from webhook.kube.documents import Unreadable, load
from webhook.kube.raw import Json
from webhook.kube.release import Release
from webhook.kube.snapshot import Snapshot, build
from webhook.ledger.book import Book
from webhook.policy.document import KIND as POLICY_KIND
from webhook.policy.evaluate import PolicyResult, evaluate
from webhook.policy.modes import denies, holds, warns
from webhook.policy.problem import Problem, nearest
from webhook.policy.revision import CompiledPolicy, Revision
from webhook.policy.suite_document import KIND, Case, ReadFile, Suite, read_suite


@dataclass(frozen=True, slots=True)
class CaseResult:
    """How a case went: ``failures`` are the expectations that were not met, ``rules`` what was found."""

    name: str
    line: int
    failures: tuple[str, ...]
    rules: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every expectation was met."""
        return not self.failures


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """How the cases of one test document went; ``failures`` are what is wrong with the suite as a whole: rules that no
    case makes fail, or none lets pass.
    """

    file: str
    line: int
    policy: str
    cases: tuple[CaseResult, ...]
    failures: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether all of it went well."""
        return not self.failures and all(case.passed for case in self.cases)


def read_suites(files: Mapping[str, bytes], read: ReadFile) -> tuple[list[Suite], list[Problem]]:
    """The test documents in files (name and content), and what is wrong with them; policies in the files are passed
    over.
    """
    suites: list[Suite] = []
    problems: list[Problem] = []
    for file, data in files.items():
        for document in load(data, file):
            if isinstance(document, Unreadable):
                problems.append(Problem(file, document.line, document.column, document.message, document.fix))
            elif document.value.get("kind") == KIND:
                suite, found = read_suite(document, read)
                suites.append(suite)
                problems += found
            elif document.value.get("kind") != POLICY_KIND:
                has = f"has {document.value.get('kind')!r}, needs {KIND} or {POLICY_KIND}"
                problems.append(Problem(file, *document.position("kind"), has, path="kind"))
    return suites, problems


def run(suites: Iterable[Suite], revision: Revision, every: bool = True) -> list[SuiteResult]:
    """The results of all suites and, with ``every``, one that fails for each policy of ``revision`` without a suite."""
    policies = {compiled.name: compiled for compiled in revision.policies}
    by_policy: dict[str, list[Suite]] = {}
    for suite in suites:
        by_policy.setdefault(suite.policy, []).append(suite)
    results = []
    for name, group in by_policy.items():
        if name in policies:
            results += _run_policy(policies[name], group)
            continue
        message = f"is about the policy {name}, which is not there"
        hint = nearest(name, policies)
        failure = f"{message}; {hint}" if hint else message
        results += [SuiteResult(suite.file, suite.line, name, (), (failure,)) for suite in group]
    for name, compiled in policies.items():
        if every and name not in by_policy:
            policy = compiled.policy
            results.append(SuiteResult(policy.file, policy.place[0], name, (), (f"policy {name} has no test",)))
    return results


def _run_policy(compiled: CompiledPolicy, suites: list[Suite]) -> list[SuiteResult]:
    """The results of the suites of one policy; what no case of any of them shows is told with the first."""
    revision = Revision("", (compiled,))
    judged: list[PolicyResult] = []
    results = []
    for suite in suites:
        snapshots: dict[tuple[object, ...], Snapshot] = {}
        cases = []
        for case in suite.cases:
            result, outcome = _run_case(case, revision, snapshots)
            cases.append(outcome)
            if result is not None and result.matched:
                judged.append(result)
        results.append(SuiteResult(suite.file, suite.line, suite.policy, tuple(cases), ()))
    results[0] = replace(results[0], failures=tuple(_vacuous(compiled, judged)))
    return results


def _vacuous(compiled: CompiledPolicy, judged: list[PolicyResult]) -> Iterator[str]:
    for validation in compiled.policy.validations:
        rules = [rule for result in judged for rule in result.rules if rule.name == validation.name and not rule.error]
        if not any(rule.findings for rule in rules):
            yield f"vacuous: no case makes the rule {validation.name} fail"
        if not any(not rule.findings for rule in rules):
            yield f"vacuous: no case lets the rule {validation.name} pass"
    if compiled.policy.mutations and not any(result.made for result in judged):
        yield "vacuous: no case makes the mutations change anything"
    if compiled.policy.mutations and all(result.made for result in judged):
        yield "vacuous: no case makes the mutations change nothing"


def _run_case(
    case: Case, revision: Revision, snapshots: dict[tuple[object, ...], Snapshot]
) -> tuple[PolicyResult | None, CaseResult]:
    key = (case.release.minor, tuple(sorted(case.release.gates.items())), tuple(map(id, case.objects)))
    snapshot = snapshots.get(key)
    if snapshot is None:
        snapshot = snapshots[key] = build(case.objects, Release(case.release.minor, case.release.gates))
    if case.params is not None:
        compiled = revision.policies[0]
        writers, wrong = read_params(case.params)
        if wrong and compiled.writers is not None:
            failures = tuple(f"params.{each.path}: {each.message}" for each in wrong)
            return None, CaseResult(case.name, case.line, failures)
        policy = replace(compiled.policy, params=case.params)
        revision = Revision("", (replace(compiled, policy=policy, writers=writers),))
    evaluation = evaluate(revision, case.request, case.endpoint, snapshot, Book(), case.now)
    result = evaluation.policies[0] if evaluation.policies else None
    rules = tuple(dict.fromkeys(finding.rule for finding in result.findings)) if result is not None else ()
    return result, CaseResult(case.name, case.line, tuple(_failures(case, result, rules)), rules)


def _failures(case: Case, result: PolicyResult | None, rules: tuple[str, ...]) -> Iterator[str]:
    expect = case.expect
    if result is not None:
        yield from (f"{rule.name} could not be judged: {rule.error}" for rule in result.rules if rule.error)
    if result is None or not result.matched:
        if expect.matched:
            why = result.skipped if result is not None else "matchConstraints"
            yield f"the policy does not match ({why}), expected that it does"
        if expect.findings or expect.allowed is False or expect.warnings or expect.held:
            yield "the policy does not match, expected findings"
        if expect.patch:
            yield "the policy does not match, expected a patch"
        return
    if not expect.matched:
        yield "the policy matches, expected that it does not"
    findings = result.findings
    texts = [finding.text(result.policy) for finding in findings]
    allowed = not any(denies(result.action, finding.severity) for finding in findings)
    if expect.allowed is not None and expect.allowed is not allowed:
        yield f"{'allowed' if allowed else 'denied'}, expected that it is not ({'; '.join(texts) or 'no findings'})"
    warned = any(warns(result.action, finding.severity) for finding in findings)
    if expect.warnings is not None and expect.warnings is not warned:
        yield f"{'warned' if warned else 'not warned'}, expected otherwise ({'; '.join(texts) or 'no findings'})"
    held = any(holds(result.action, finding.severity) for finding in findings)
    if expect.held is not None and expect.held is not held:
        yield f"{'held' if held else 'not held'}, expected otherwise ({'; '.join(texts) or 'no findings'})"
    if expect.patch is not None and expect.patch != result.made:
        yield f"has the patch {_shown(result.made)}, expected {_shown(expect.patch)}"
    loud = [text for finding, text in zip(findings, texts, strict=True) if finding.severity != "info"]
    if expect.findings == () and loud:
        yield f"expected no findings, has {'; '.join(loud)}"
    found = ", ".join(rules) or "nothing"
    yield from (
        f"expected {rule}, which never fires; found {found}" for rule in expect.findings or () if rule not in rules
    )
    yield from (f"has {rule}, which is not expected" for rule in expect.no_findings if rule in rules)
    if expect.message and not any(expect.message in text for text in texts):
        yield f"no message has {expect.message!r} ({'; '.join(texts) or 'no findings'})"


def _shown(patch: tuple[Json, ...]) -> str:
    return json.dumps(patch)
