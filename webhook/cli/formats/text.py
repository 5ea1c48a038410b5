"""Plain text for people: by file and object, gravest first, with the place and what to do."""

from __future__ import annotations

import textwrap
from itertools import groupby

from webhook.cli.console import paint, severity, width
from webhook.cli.report import Found, Judgement, Report
from webhook.kube.finding import one_line

_INDENT = " " * 11


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
    counts = report.counts
    worst = next((name for name in counts if counts[name]), "")
    worst = "error" if counts["error"] else "warning" if counts["warning"] else worst
    lines.append(severity(worst, report.summary()))
    return "\n".join(lines)


def _judgement(each: Judgement) -> list[str]:
    lines = [f"  {paint(each.label, bold=True)} {paint(f'(document {each.document.index})', dim=True)}"]
    for found in each.found:
        lines += _found(found)
    return lines


def _found(found: Found) -> list[str]:
    finding = found.finding
    also = " (the API server refuses it too)" if finding.origin == "apiserver" else ""
    name = finding.severity
    head = f"    {severity(name)}{' ' * (7 - len(name))}{found.policy}/{finding.rule}"
    place = paint(f"  line {found.line}, column {found.column}{also}", dim=True)
    path = f"{one_line(finding.path)}: " if finding.path else ""
    lines = [head + place, *_wrapped(path + finding.message)]
    if finding.fix:
        first, *rest = _wrapped(f"fix: {found.fix}")
        lines += [first.replace("fix:", paint("fix:", "green"), 1), *rest]
    return lines


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text,
        width(),
        initial_indent=_INDENT,
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
