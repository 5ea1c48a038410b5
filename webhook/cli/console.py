"""What the command line writes: results on standard output, everything else on standard error."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

import click

from webhook.kube.finding import one_line

# What paint() writes: colours, bold, dim, and the end of each.
_OUR_COLOURS = re.compile(r"\x1b\[(?:[0-2]|3[0-7])m")
_CONTROLS = re.compile(rf"{_OUR_COLOURS.pattern}|[^\n\t\x20-\x7e]")

SEVERITY_COLOURS = {"error": "red", "warning": "yellow", "info": "blue"}


@dataclass(slots=True)
class Session:
    """What one run of the command has seen so far; ``problems`` counts what could not be read."""

    problems: int = 0


class Unreachable(click.ClickException):
    """No cluster to ask, or it does not answer."""

    exit_code = 3


class Unusable(click.ClickException):
    """Input that nothing can be made of; the message is ``PLACE: what is wrong; what to do``."""

    exit_code = 2


def out(text: str, *, exact: bool = False) -> None:
    """Write ``text`` and a line break to standard output. A reader that went away (``| head``) is no error; raises
    Unusable where nothing can be written.

    What names and values could make a terminal do is left out, whoever wrote them; line breaks stay. ``exact`` text is
    changed only for a terminal.
    """
    shown = text if exact and not sys.stdout.isatty() else _CONTROLS.sub(_harmless, text)
    try:
        _write(sys.stdout, f"{shown}\n")
    except OSError as error:
        silence(sys.stdout)
        reason = (error.strerror or str(error)).lower()
        raise Unusable(f"standard output: cannot be written: {reason}; make room, or write elsewhere") from error


def note(text: str) -> None:
    """Tell ``text``, which changes no exit code, on standard error."""
    try:
        _write(sys.stderr, f"allocguard: {one_line(text)}\n")
    except OSError:  # nowhere to tell it; the exit code still does
        silence(sys.stderr)


def problem(text: str) -> None:
    """Tell that input could not be read; the command goes on with the rest and exits with 2."""
    session = click.get_current_context().find_root().ensure_object(Session)
    session.problems += 1
    note(text)


def problems() -> int:
    """How often :func:`problem` was told in this run."""
    return click.get_current_context().find_root().ensure_object(Session).problems


def _harmless(found: re.Match[str]) -> str:
    control: str = found[0]
    return control if _OUR_COLOURS.fullmatch(control) and coloured(sys.stdout) else one_line(control)


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        silence(stream)


def silence(stream: TextIO) -> None:
    """Let ``stream`` swallow what is still to come, the interpreter's own last flush included."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def coloured(stream: TextIO) -> bool:
    """Whether ``stream`` is a terminal whose owner wants colour."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str | None = None, *, bold: bool = False, dim: bool = False) -> str:
    """``text`` for standard output, in ``colour`` where that is a terminal."""
    if not coloured(sys.stdout):
        return text
    return click.style(text, fg=colour, bold=bold or None, dim=dim or None)


def severity(name: str, text: str = "") -> str:
    """``text`` (or the severity itself) in the colour of the severity ``name``."""
    return paint(text or name, SEVERITY_COLOURS.get(name), bold=name == "error")


def width() -> int:
    """Columns to write in: those of the terminal, 100 where it is none."""
    return max(60, min(shutil.get_terminal_size().columns, 160)) if sys.stdout.isatty() else 100


def wrapped(text: str, first: str = "", rest: str = "") -> list[str]:
    """Lines of ``text`` no wider than the terminal, with their indents; names and paths stay whole."""
    return textwrap.wrap(
        text, width(), initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "", left: int = 1) -> list[str]:
    """Lines of a table: the first ``left`` columns to the left, numbers to the right, the last line not padded. A cell
    stays on its line, whatever is in it.
    """
    rows = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = []
    for number, row in enumerate([head, *rows]):
        cells = [
            cell.ljust(size) if index < left else cell.rjust(size)
            for index, (cell, size) in enumerate(zip(row, widths, strict=True))
        ]
        line = f"{indent}{'  '.join(cells)}".rstrip()
        lines.append(paint(line, dim=True) if number == 0 else line)
    return lines
