"""What an action makes of a finding: the one table of severities and actions."""

from __future__ import annotations

from webhook.kube.finding import Severity

_WARNS: dict[str, tuple[Severity, ...]] = {
    "Deny": ("warning",),
    "Warn": ("error", "warning"),
    "Hold": ("error", "warning"),
}


def denies(action: str, severity: Severity) -> bool:
    """Whether a finding refuses the write: an error under ``Deny``, nothing else."""
    return action == "Deny" and severity == "error"


def holds(action: str, severity: Severity) -> bool:
    """Whether a finding makes a new pod wait: an error under ``Hold``, nothing else. It warns, too."""
    return action == "Hold" and severity == "error"


def warns(action: str, severity: Severity) -> bool:
    """Whether a finding is told to the writer as a warning. What does neither is only audited."""
    return severity in _WARNS.get(action, ())
