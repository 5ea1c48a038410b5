"""What is wrong with a policy file, at its place."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from webhook.kube.finding import one_line


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One problem; ``line`` and ``column`` count from 1, 0 where the place is not known. ``path`` is the field's."""

    file: str
    line: int
    column: int
    message: str
    fix: str = ""
    path: str = ""

    @property
    def text(self) -> str:
        """``FILE:LINE:COL: path: what is wrong; what to do``."""
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        line = ": ".join(filter(None, (place, self.path, self.message)))
        return one_line(f"{line}; {self.fix}" if self.fix else line)


def nearest(word: str, known: Iterable[str]) -> str:
    """``did you mean x?`` for the known word nearest to ``word``, empty when none is near."""
    lowered = {each.lower(): each for each in known}
    close = difflib.get_close_matches(word.lower(), lowered, n=1, cutoff=0.6)
    return f"did you mean `{lowered[close[0]]}`?" if close else ""
