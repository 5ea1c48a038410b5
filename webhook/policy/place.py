"""Where a character of an expression stands in its file, whatever way the YAML scalar is written."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

Piece = tuple[int, int, int]  # offset in the value, line and column (from 1) in the file

# A key, its colon, and an anchor or tag before the value.
_KEY = re.compile(r"""\s*(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^\s:]+)\s*:\s*(?:[&!]\S+\s+)*""")


def scalar(lines: list[str], line: int, column: int) -> tuple[int, int]:
    """Line and column where the value of the key at ``line``, ``column`` begins."""
    text = lines[line - 1][column - 1 :] if 0 < line <= len(lines) else ""
    key = _KEY.match(text)
    if key is None:
        return line, column
    if key.end() < len(text):
        return line, column + key.end()
    following = lines[line] if line < len(lines) else ""
    return line + 1, len(following) - len(following.lstrip()) + 1


def pieces(value: str, lines: list[str], line: int, column: int) -> tuple[Piece, ...]:
    """The pieces of a scalar's ``value`` that stand on lines of their own; the scalar begins at ``line``, ``column``.

    Plain, quoted, literal and folded scalars differ only in how lines are joined, and lines are joined by white
    space alone; so lines and value are walked side by side, white space skipped in both. Escapes within a line shift
    what comes after them on that line.
    """
    found: list[Piece] = []
    text = lines[line - 1][column - 1 :] if 0 < line <= len(lines) else ""
    if text[:1] in ("|", ">"):
        line, column = line + 1, 1
        text = lines[line - 1] if line <= len(lines) else ""
    elif text[:1] in ("'", '"'):
        column, text = column + 1, text[1:]
    offset = 0
    while offset < len(value):
        content = text.lstrip()
        if content:
            while offset < len(value) and value[offset].isspace():
                offset += 1
            found.append((offset, line, column + len(text) - len(content)))
            offset += len(content.rstrip())
        if line >= len(lines):
            break
        line, column, text = line + 1, 1, lines[line]
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Expression:
    """A CEL expression with its field path in the document and the places of its text in the file."""

    source: str
    path: str
    file: str
    pieces: tuple[Piece, ...] = ()

    def place(self, line: int, column: int) -> tuple[int, int]:
        """Line and column in the file of a line and column (from 1) of the expression; (0, 0) where no file has it."""
        if not self.pieces:
            return (0, 0)
        before = self.source.split("\n")[: max(line, 1) - 1]
        offset = sum(len(each) + 1 for each in before) + max(column, 1) - 1
        index = max(bisect_right(self.pieces, offset, key=lambda piece: piece[0]) - 1, 0)
        start, file_line, file_column = self.pieces[index]
        return (file_line, file_column + max(offset - start, 0))

    def path_at(self, line: int, column: int) -> str:
        """The field path; where no file has the expression, with the line and column (from 1) within it."""
        return self.path if self.pieces else f"{self.path}:{line}:{column}"
