"""JUnit XML: a suite a file, a case a document, which fails where it has an error."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from webhook.cli.report import Found, Judgement, Report
from webhook.kube.finding import one_line


def render(report: Report) -> str:
    """The XML document."""
    root = _suite("testsuites", "allocguard check", report.judgements)
    for file, group in groupby(report.judgements, key=lambda each: each.document.file):
        members = tuple(group)
        suite = _suite("testsuite", one_line(file), members)
        root.append(suite)
        for each in members:
            _case(suite, each)
    return document(root)


def document(root: Element) -> str:
    """``root`` as a document, indented."""
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}'


def _suite(tag: str, name: str, members: Sequence[Judgement]) -> Element:
    failures = sum(bool(_errors(each)) for each in members)
    return Element(tag, name=name, tests=str(len(members)), failures=str(failures), errors="0")


def _case(suite: Element, each: Judgement) -> None:
    name = f"{each.label} (document {each.document.index})" if each.in_file else each.label
    case = SubElement(suite, "testcase", classname=one_line(each.document.file), name=name)
    errors = _errors(each)
    if errors:
        first = errors[0]
        kind = f"{first.policy}/{first.finding.rule}"
        SubElement(case, "failure", type=kind, message=first.text()).text = "\n".join(map(_line, errors))
    others = [found for found in each.found if found not in errors]
    if others:
        SubElement(case, "system-out").text = "\n".join(map(_line, others))


def _errors(each: Judgement) -> list[Found]:
    return [found for found in each.found if found.finding.severity == "error"]


def _line(found: Found) -> str:
    place = f"{found.line}:{found.column}: " if found.line else ""
    return f"{place}{found.finding.severity}: {found.policy}/{found.finding.rule}: {found.text()}"
