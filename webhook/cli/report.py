"""What `check` found, ready to be printed in any format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from webhook.kube.documents import Document
from webhook.kube.finding import SEVERITY_ORDER, Finding, one_line
from webhook.kube.raw import Json, mapping, text

SEVERITIES = tuple(SEVERITY_ORDER)


@dataclass(frozen=True, slots=True)
class Found:
    """A finding with the policy that made it and its place; line and column count from 1, 0 where there is no file."""

    policy: str
    finding: Finding
    line: int
    column: int

    def text(self) -> str:
        """``path: has X, needs Y; fix`` on one line."""
        finding = self.finding
        return "; ".join(filter(None, (": ".join(filter(None, (one_line(finding.path), finding.message))), self.fix)))

    @property
    def fix(self) -> str:
        """What to do, on one line."""
        return one_line(self.finding.fix)


@dataclass(frozen=True, slots=True)
class Judgement:
    """One document with what was found in it, gravest first."""

    document: Document
    found: tuple[Found, ...] = ()

    @property
    def api_version(self) -> str:
        """The document's apiVersion."""
        return one_line(text(self.document.value.get("apiVersion")))

    @property
    def kind(self) -> str:
        """The document's kind."""
        return one_line(text(self.document.value.get("kind")))

    @property
    def namespace(self) -> str:
        """The object's namespace."""
        return one_line(text(self._metadata.get("namespace")))

    @property
    def name(self) -> str:
        """The object's name, or what its name will begin with."""
        return one_line(text(self._metadata.get("name")) or text(self._metadata.get("generateName")))

    @property
    def label(self) -> str:
        """``Kind namespace/name``."""
        name = "/".join(filter(None, (self.namespace, self.name)))
        return " ".join(filter(None, (self.kind or "object without kind", name)))

    @property
    def in_file(self) -> bool:
        """Whether it has lines in a file; an object of a live cluster has none."""
        return bool(self.document.positions.text)

    @property
    def _metadata(self) -> Json:
        return mapping(self.document.value.get("metadata"))


def judgement(document: Document, found: Sequence[tuple[str, Finding]]) -> Judgement:
    """The judgement of ``document`` from findings with their policies: placed, told once, gravest first."""
    kept: dict[tuple[str, str, str], Found] = {}
    for policy, finding in found:
        key = (finding.rule, finding.path, finding.message)
        if key not in kept or SEVERITY_ORDER[finding.severity] < SEVERITY_ORDER[kept[key].finding.severity]:
            kept[key] = Found(policy, finding, *document.position(finding.path))
    ordered = sorted(kept.values(), key=lambda each: (SEVERITY_ORDER[each.finding.severity], each.line, each.column))
    return Judgement(document, tuple(ordered))


@dataclass(frozen=True, slots=True)
class Report:
    """All documents of a run, in order, and the Kubernetes release they were judged by; ``fine`` is how many more there
    were, of which nothing is to be told.
    """

    judgements: tuple[Judgement, ...]
    release: str = ""
    fine: int = 0

    @property
    def documents(self) -> int:
        """How many documents were judged."""
        return len(self.judgements) + self.fine

    @property
    def counts(self) -> Counter[str]:
        """How many findings there are of each severity."""
        return Counter(found.finding.severity for _, found in self)

    def __iter__(self) -> Iterator[tuple[Judgement, Found]]:
        for each in self.judgements:
            for found in each.found:
                yield each, found

    def summary(self) -> str:
        """``3 documents: 1 error, 2 warnings, 0 infos``."""
        counts = self.counts
        parts = [plural(counts[name], name) for name in SEVERITIES]
        return f"{plural(self.documents, 'document')}: {', '.join(parts)}"

    def as_json(self) -> Json:
        """The report as interface documents promise it."""
        counts = self.counts
        summary = {"documents": self.documents, **{f"{name}s": counts[name] for name in SEVERITIES}}
        return {"summary": summary, "findings": [finding_json(each, found) for each, found in self]}


def finding_json(judged: Judgement, found: Found) -> Json:
    """One finding with its file."""
    return {
        **policy_finding(found.policy, found.finding),
        "file": one_line(judged.document.file),
        "document": judged.document.index,
        "line": found.line,
        "column": found.column,
        "apiVersion": judged.api_version,
        "kind": judged.kind,
        "namespace": judged.namespace,
        "name": judged.name,
    }


def policy_finding(policy: str, finding: Finding) -> Json:
    """One finding as JSON."""
    return {
        "policy": policy,
        "rule": finding.rule,
        "origin": finding.origin,
        "severity": finding.severity,
        "path": one_line(finding.path),
        "message": finding.message,
        "fix": one_line(finding.fix),
    }


def plural(count: int, noun: str) -> str:
    """``1 error``, ``2 errors``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
