"""A Markdown table, for comments on pull requests."""

from __future__ import annotations

import re

from webhook.cli.report import Report
from webhook.kube.finding import one_line

# Everything that Markdown or the HTML in it would take as more than text.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&!])")


def render(report: Report) -> str:
    """A table of the findings under a summary."""
    lines = [f"**{report.summary()}**"]
    if any(True for _ in report):
        lines += ["", "| Severity | Object | Place | Finding | Rule |", "|---|---|---|---|---|"]
    for each, found in report:
        lines_at = f":{found.line}:{found.column}" if each.in_file else ""
        place = f"{one_line(each.document.file)}{lines_at}"
        row = (found.finding.severity, each.label, place, found.text(), f"{found.policy}/{found.finding.rule}")
        lines.append(f"| {' | '.join(map(escaped, row))} |")
    return "\n".join(lines)


def escaped(cell: str) -> str:
    """``cell`` as Markdown that shows just that, on one line."""
    return _SPECIAL.sub(r"\\\1", one_line(cell))
