"""Regular expressions, by RE2: Kubernetes' syntax, and time linear in the text whatever the pattern."""

from __future__ import annotations

from functools import lru_cache

import re2

from webhook.cel import types
from webhook.cel.budget import Budget
from webhook.cel.errors import EvaluationError
from webhook.cel.library import Library

LIBRARY = Library()

MAX_PATTERN = 1000  # characters
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = 1 << 20  # a pattern that compiles to more is refused


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re2._Regexp | str:
    if len(pattern) > MAX_PATTERN:
        return f"longer than {MAX_PATTERN} characters"
    try:
        return re2.compile(pattern, _OPTIONS)
    except (re2.error, UnicodeError) as error:
        reason = error.args[0] if error.args else "invalid"
        return (reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)).rstrip(".")


def compiled(pattern: str) -> re2._Regexp:
    """The compiled pattern, kept for the next time; raises EvaluationError with RE2's own reason."""
    found = _compiled(pattern)
    if isinstance(found, str):
        raise EvaluationError(f"has the pattern {pattern[:40]!r}, which is no regular expression: {found}")
    return found


def _pay(budget: Budget, text: str, pattern: str) -> None:
    budget.spend((len(text) // 10 + 1) * (len(pattern) // 4 + 1))


LIBRARY.declare("find", types.STRING, types.STRING, types.STRING, member=True)
LIBRARY.declare("findAll", types.list_of(types.STRING), types.STRING, types.STRING, member=True)
LIBRARY.declare("findAll", types.list_of(types.STRING), types.STRING, types.STRING, types.INT, member=True)


@LIBRARY.function("matches", str, str, charges=True)
@LIBRARY.member("matches", str, str, charges=True)
def _matches(budget: Budget, text: str, pattern: str) -> bool:
    _pay(budget, text, pattern)
    return compiled(pattern).search(text) is not None


@LIBRARY.member("find", str, str, charges=True)
def _find(budget: Budget, text: str, pattern: str) -> str:
    _pay(budget, text, pattern)
    found = compiled(pattern).search(text)
    return found.group() if found else ""


@LIBRARY.member("findAll", str, str, charges=True)
def _find_all(budget: Budget, text: str, pattern: str) -> list[str]:
    return _find_some(budget, text, pattern, -1)


@LIBRARY.member("findAll", str, str, int, charges=True)
def _find_some(budget: Budget, text: str, pattern: str, limit: int) -> list[str]:
    """At most `limit` matches; all for a negative one."""
    _pay(budget, text, pattern)
    found: list[str] = []
    end_of_last = -1
    for match in compiled(pattern).finditer(text) if limit else ():
        # As in Go, an empty match right behind another match does not count.
        if match.end() == match.start() == end_of_last:
            continue
        end_of_last = match.end()
        found.append(match.group())
        if len(found) == limit:
            break
    budget.spend(len(found))
    return found
