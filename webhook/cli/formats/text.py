"""Plain text for people: by file and object, gravest first, with the place and what to do."""

from __future__ import annotations

from itertools import groupby

from webhook.cli.console import paint, severity, wrapped
from webhook.cli.report import SEVERITIES, Found, Judgement, Report
from webhook.kube.finding import one_line

_INDENT = " " * 13


def render(report: Report) -> str:
    """The findings and, last, a summary line."""
    lines: list[str] = []
    for file, group in groupby(report.judgements, key=lambda each: each.document.file):
        told = [each for each in group if each.found]
        if told:
            lines.append(paint(one_line(file), bold=True))
            for each in told:
                lines += _judgement(each)
            lines.append("")
    worst = next((name for name in SEVERITIES if report.counts[name]), "")
    by = paint(f", judged by Kubernetes {report.release}", dim=True) if report.release and report.judgements else ""
    lines.append(severity(worst, report.summary()) + by)
    return "\n".join(lines)


def _judgement(each: Judgement) -> list[str]:
    index = paint(f" (document {each.document.index})", dim=True) if each.in_file else ""
    return [f"  {paint(each.label, bold=True)}{index}", *(line for found in each.found for line in found_lines(found))]


def found_lines(found: Found) -> list[str]:
    """One finding with its place, what is wrong, and what to do."""
    finding = found.finding
    also = " (the API server refuses it too)" if finding.origin == "apiserver" else ""
    name = finding.severity
    head = f"    {severity(name)}{' ' * (9 - len(name))}{found.policy}/{finding.rule}"
    where = f"  line {found.line}, column {found.column}" if found.line else ""
    place = paint(f"{where}{also}", dim=True) if where or also else ""
    path = f"{one_line(finding.path)}: " if finding.path else ""
    lines = [head + place, *_wrapped(path + finding.message)]
    if finding.fix:
        first, *rest = _wrapped(f"fix: {found.fix}")
        lines += [first.replace("fix:", paint("fix:", "green"), 1), *rest]
    return lines


def _wrapped(text: str) -> list[str]:
    return wrapped(text, _INDENT, _INDENT)
