"""A finding: one thing that is wrong, where it is, what is wanted instead and how to get there."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Severity = Literal["error", "warning", "info"]
Origin = Literal["guard", "apiserver"]

SEVERITY_ORDER: dict[str, int] = {"error": 0, "warning": 1, "info": 2}


def one_line(text: str) -> str:
    """``text`` without line breaks and control characters: object names and values may hold anything."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


class Finding(Struct, frozen=True, gc=False):
    """What a rule found.

    ``path`` is the Kubernetes field path, ``origin`` tells whether the API server of that release refuses
    the object itself (``apiserver``) or only the guard looks (``guard``), ``error_type`` is the cause reason
    of the API server's own error (``FieldValueInvalid`` …) where there is one. One that is ``passing`` is about
    what is so today (a hold, a stage, a pool that is being published, a claim that waits): a write is tried again when
    it is over, and nothing is wrong with what is stored already.
    """

    rule: str
    path: str
    has: str
    needs: str
    fix: str = ""
    severity: Severity = "error"
    origin: Origin = "guard"
    error_type: str = ""
    passing: bool = False

    @property
    def message(self) -> str:
        """``has X, needs Y`` on one line; what a policy's own message says stands in ``has`` alone."""
        return one_line(f"has {self.has}, needs {self.needs}" if self.needs else self.has)

    def text(self, policy: str) -> str:
        """The line for the person whose write was refused: ``policy/rule: path: has X, needs Y; fix``."""
        place = f"{one_line(self.path)}: " if self.path else ""
        line = f"{policy}/{self.rule}: {place}{self.message}"
        return f"{line}; {one_line(self.fix)}" if self.fix else line


def cause(
    rule: str, path: str, error_type: str, has: str, needs: str, fix: str = "", severity: Severity = "error"
) -> Finding:
    """A finding that the API server makes too (``origin: apiserver``), with the type of its field error."""
    return Finding(rule, path, has, needs, fix, severity, "apiserver", error_type)


def worst(findings: list[Finding]) -> str:
    """The gravest severity among ``findings``, or the empty string when there are none."""
    return min((f.severity for f in findings), key=SEVERITY_ORDER.__getitem__, default="")
