"""Workflow commands that GitHub Actions turns into annotations in a pull request."""

from __future__ import annotations

from webhook.cli.report import Report
from webhook.kube.finding import one_line

_COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}


def render(report: Report) -> str:
    """One command a finding, then the summary."""
    lines = []
    for each, found in report:
        place = {"file": each.document.file, "line": str(found.line), "col": str(found.column)} if each.in_file else {}
        properties = {**place, "title": f"{found.policy}/{found.finding.rule}"}
        listed = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
        lines.append(f"::{_COMMANDS[found.finding.severity]} {listed}::{_data(f'{each.label}: {found.text()}')}")
    lines.append(report.summary())
    return "\n".join(lines)


def _data(value: str) -> str:
    return one_line(value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))


def _property(value: str) -> str:
    return _data(value).replace(":", "%3A").replace(",", "%2C")
