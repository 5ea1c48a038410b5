"""The formats of a report: each takes a report and gives the text to print."""

from __future__ import annotations

import importlib
from typing import cast

from webhook.cli.report import Report

FORMATS = ("text", "json", "yaml", "junit", "sarif", "github", "markdown")


def render(report: Report, name: str) -> str:
    """``report`` in the format of that name, without a final line break."""
    if name in ("json", "yaml"):
        from webhook.cli.output import dump

        return dump(report.as_json(), name)
    module = importlib.import_module(f"webhook.cli.formats.{name}")
    return cast("str", module.render(report))
