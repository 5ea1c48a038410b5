"""Bounds on the text of an expression, checked before any parser sees it, and its line and column arithmetic."""

from __future__ import annotations

import re

from webhook.cel.errors import CelError

MAX_LENGTH = 20_000  # characters
MAX_NESTING = 30  # brackets within brackets; the parser's own limit is 32 levels of anything

# A string literal (triple, raw, bytes), a comment, or one bracket, in this order: brackets in text do not count.
_TOKEN = re.compile(
    r"""(?P<skip>[rR]?[bB]?[rR]?(?:\"{3}.*?\"{3}|'{3}.*?'{3})|[bB]?[rR][bB]?(?:"[^"\n]*"|'[^'\n]*')"""
    r"""|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|//[^\n]*)|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<tick>`)""",
    re.DOTALL,
)


def place(source: str, offset: int) -> tuple[int, int]:
    """Line and column (from 1) of a character offset."""
    before = source[:offset]
    return before.count("\n") + 1, offset - before.rfind("\n")


def check(source: object) -> str:
    """The expression's text, when it is short, flat and clean enough to be parsed; raises CelError."""
    if not isinstance(source, str):
        raise CelError(f"has {type(source).__name__}, needs an expression as text")
    if not source.strip():
        raise CelError("has an empty expression, needs one")
    if len(source) > MAX_LENGTH:
        raise CelError(f"has {len(source)} characters, needs at most {MAX_LENGTH}", hint="split it with variables")
    for offset, character in enumerate(source):
        if "\ud800" <= character <= "\udfff" or character == "\0":
            raise CelError(f"has the character U+{ord(character):04X}, needs text", *place(source, offset))
    depth = 0
    for match in _TOKEN.finditer(source):
        if match["open"]:
            depth += 1
            if depth > MAX_NESTING:
                line, column = place(source, match.start())
                raise CelError(
                    f"has brackets nested deeper than {MAX_NESTING}", line, column, "split it with variables"
                )
        elif match["close"]:
            depth -= 1
        elif match["tick"]:
            line, column = place(source, match.start())
            raise CelError("has a backtick, which Kubernetes does not take", line, column, 'write ["the-name"]')
    return source
