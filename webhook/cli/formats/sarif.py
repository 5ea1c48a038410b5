"""SARIF 2.1.0, for code scanning."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from webhook.cli.output import dump
from webhook.cli.report import Found, Judgement, Report
from webhook.kube.finding import one_line

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}


def render(report: Report) -> str:
    """The log with one run."""
    rules = dict.fromkeys(f"{found.policy}/{found.finding.rule}" for _, found in report)
    indexes = {name: index for index, name in enumerate(rules)}
    driver = {
        "name": "allocguard",
        "version": version("allocguard"),
        "rules": [{"id": name, "name": name.rpartition("/")[2]} for name in rules],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(each, found, indexes) for each, found in report],
    }
    return dump({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, "json")


def _result(each: Judgement, found: Found, indexes: dict[str, int]) -> dict[str, Any]:
    rule = f"{found.policy}/{found.finding.rule}"
    physical = {
        "artifactLocation": {"uri": _uri(each.document.file)},
        "region": {"startLine": found.line, "startColumn": found.column},
    }
    place = {
        **({"physicalLocation": physical} if each.in_file else {}),
        "logicalLocations": [{"fullyQualifiedName": one_line(f"{each.label}: {found.finding.path}"), "kind": "object"}],
    }
    return {
        "ruleId": rule,
        "ruleIndex": indexes[rule],
        "level": _LEVELS[found.finding.severity],
        "message": {"text": f"{each.label}: {found.text()}"},
        "locations": [place],
        "properties": {"origin": found.finding.origin, "document": each.document.index},
    }


def _uri(file: str) -> str:
    path = PurePath(file)
    encoded = quote(path.as_posix().encode("utf-8", "surrogateescape"))
    return f"file://{encoded}" if path.is_absolute() else encoded
