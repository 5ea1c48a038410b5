"""Results of `policy lint` and `policy test`, in the formats they are printed in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element, SubElement

from webhook.cli.console import paint
from webhook.cli.formats.junit import document
from webhook.cli.report import plural
from webhook.kube.finding import one_line
from webhook.policy.problem import Problem
from webhook.policy.revision import Revision
from webhook.policy.suite import CaseResult, SuiteResult


@dataclass(frozen=True, slots=True)
class Lint:
    """What the compiler says about the policies in ``files``; ``revision`` is None where it refuses them."""

    files: tuple[str, ...]
    revision: Revision | None
    problems: tuple[Problem, ...]

    def text(self) -> str:
        """One line a problem, then a summary."""
        lines = [paint(each.text, "red") for each in self.problems]
        if self.revision is None or not self.revision.policies:
            lines.append(f"{plural(len(self.files), 'file')}: {plural(len(self.problems), 'problem')}")
        else:
            count = _policies(len(self.revision.policies))
            lines.append(paint(f"{count}, no problem, revision {self.revision.hash}", "green"))
        return "\n".join(lines)

    def json(self) -> dict[str, Any]:
        """The value for scripts."""
        compiled = self.revision.policies if self.revision is not None else ()
        return {
            "revision": self.revision.hash if self.revision is not None else None,
            "policies": [
                {"name": each.name, "file": each.policy.file, "endpoint": each.policy.endpoint} for each in compiled
            ],
            "problems": [
                {"file": p.file, "line": p.line, "column": p.column, "path": p.path, "message": p.message, "fix": p.fix}
                for p in self.problems
            ],
        }

    def junit(self) -> str:
        """A case a file."""
        suite = Element("testsuite", name="allocguard policy lint", tests=str(len(self.files)), errors="0")
        failed = 0
        for file in self.files:
            case = SubElement(suite, "testcase", classname="policy lint", name=one_line(file))
            mine = [each.text for each in self.problems if each.file == file]
            failed += _fail(case, mine)
        suite.set("failures", str(failed))
        root = Element("testsuites", name="allocguard policy lint")
        root.append(suite)
        return document(root)


@dataclass(frozen=True, slots=True)
class Tests:
    """How the suites of a run went."""

    suites: tuple[SuiteResult, ...]

    @property
    def passed(self) -> bool:
        """Whether everything did, and there was something."""
        return bool(self.suites) and all(suite.passed for suite in self.suites)

    @property
    def _cases(self) -> list[CaseResult]:
        return [case for suite in self.suites for case in suite.cases]

    def text(self) -> str:
        """A line a suite, with what failed under it, then a summary."""
        lines = [line for suite in self.suites for line in _suite_lines(suite)]
        failed = sum(not case.passed for case in self._cases) + sum(len(suite.failures) for suite in self.suites)
        policies = len({suite.policy for suite in self.suites})
        text = f"{_policies(policies)}, {plural(len(self._cases), 'case')}, {failed or 'none'} failed"
        return "\n".join([*lines, paint(text, "green" if self.passed else "red")])

    def json(self) -> dict[str, Any]:
        """The value for scripts."""
        cases = self._cases
        return {
            "passed": self.passed,
            "summary": {
                "policies": len({suite.policy for suite in self.suites}),
                "cases": len(cases),
                "failed": sum(not case.passed for case in cases),
            },
            "suites": [
                {
                    "policy": suite.policy,
                    "file": suite.file,
                    "line": suite.line,
                    "passed": suite.passed,
                    "failures": list(suite.failures),
                    "cases": [
                        {
                            "name": case.name,
                            "line": case.line,
                            "passed": case.passed,
                            "failures": list(case.failures),
                            "rules": list(case.rules),
                        }
                        for case in suite.cases
                    ],
                }
                for suite in self.suites
            ],
        }

    def junit(self) -> str:
        """A suite a test document, a case a case; what is wrong with a suite as a whole is a case of its own."""
        root = Element("testsuites", name="allocguard policy test")
        for suite in self.suites:
            element = SubElement(root, "testsuite", name=one_line(suite.policy), errors="0")
            failed = 0
            for case in suite.cases:
                each = SubElement(element, "testcase", classname=one_line(suite.file), name=one_line(case.name))
                failed += _fail(each, list(case.failures))
            whole = SubElement(element, "testcase", classname=one_line(suite.file), name="every rule is tested")
            failed += _fail(whole, list(suite.failures))
            element.set("tests", str(len(suite.cases) + 1))
            element.set("failures", str(failed))
        return document(root)


def _suite_lines(suite: SuiteResult) -> Iterator[str]:
    mark = paint("ok    ", "green") if suite.passed else paint("FAILED", "red")
    file = one_line(suite.file)
    where = paint(f"{plural(len(suite.cases), 'case')}, {file}", dim=True)
    yield f"{mark} {one_line(suite.policy)} {where}"
    for case in suite.cases:
        for failure in case.failures:
            yield f"       {file}:{case.line}: {one_line(case.name)}: {one_line(failure)}"
    for failure in suite.failures:
        yield f"       {file}:{suite.line}: {one_line(failure)}"


def _fail(case: Element, failures: list[str]) -> bool:
    if failures:
        SubElement(case, "failure", message=one_line(failures[0])).text = "\n".join(map(one_line, failures))
    return bool(failures)


def _policies(count: int) -> str:
    return "1 policy" if count == 1 else f"{count} policies"
