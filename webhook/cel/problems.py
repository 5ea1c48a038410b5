"""Words the checker's complaints anew: one line, where it is, and the nearest name that exists."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from webhook.cel.errors import CelError
from webhook.cel.types import StructType

_MESSAGE = re.compile(r"^(?:[A-Z_]+: )?ERROR: <input>:(-?\d+):(-?\d+): (.*)$", re.MULTILINE)
_MACROS = (
    "has",
    "all",
    "exists",
    "exists_one",
    "existsOne",
    "filter",
    "map",
    "optMap",
    "optFlatMap",
    "cel.bind",
    "or",
    "orValue",
)
_FROM_MACROS = ("math.greatest", "math.least")  # these have inner names of their own
_FIELD = re.compile(r"undefined field '(.+)' not found in struct '(.+)'")
_NAME = re.compile(r"undeclared reference to '(.+?)'")
_OVERLOAD = re.compile(r"found no matching overload for '(.+?)' applied to '(.*)'")
_NO_FIELDS = re.compile(r"expression of type '(.+)' cannot be the operand of a select operation")
_EXPECTING = re.compile(r"expecting \{.{60,}\}")
_NUMERIC_ARGUMENT = re.compile(r"\b(?:int|uint|double|string)\b")


class Problems:
    """Knows the names that expressions of one environment may use."""

    def __init__(self, variables: Iterable[str], functions: Iterable[str], structs: Mapping[str, StructType]) -> None:
        self._structs = structs
        self._names = [*variables, *_MACROS, *_FROM_MACROS, *(name for name in functions if "@" not in name)]
        self._namespaces = {name.split(".")[0] for name in self._names if "." in name}

    def first(self, message: str, text: str) -> CelError:
        """The first problem in the text (the others in its `others`) of what the checker raised."""
        lines = text.split("\n")
        found = []
        for line_text, column_text, problem in _MESSAGE.findall(message):
            line, column = max(int(line_text), 1), max(int(column_text), 1)
            found.append(self._problem(problem, line, column, lines[line - 1] if line <= len(lines) else ""))
        if not found:
            found.append(too_deep(1, 1) if "recursion" in message else CelError(message.split("\n")[0].lower()))
        found.sort(key=lambda error: (error.line, error.column))
        found = self._joined(found, lines)
        found[0].others = found[1:]
        return found[0]

    def _joined(self, found: list[CelError], lines: list[str]) -> list[CelError]:
        """`math` and `greatst` are two unknown names to the checker, and one unknown function to people."""
        joined: list[CelError] = []
        for error in found:
            if joined and isinstance(error, _UnknownNameError) and isinstance(joined[-1], _UnknownNameError):
                namespace = joined[-1].word
                whole = f"{namespace}.{error.word}"
                start = joined[-1].column - 1
                if namespace in self._namespaces and lines[error.line - 1][start:].startswith(whole):
                    joined[-1] = self._unknown(whole, error.line, start + 1)
                    continue
            joined.append(error)
        return joined

    def _problem(self, problem: str, line: int, column: int, text: str) -> CelError:
        if match := _FIELD.search(problem):
            name = plain(match[2])
            fields = self._structs[name].fields if name in self._structs else {}
            column = max(text.find(match[1], column - 1) + 1, column)  # the checker points at the dot
            return CelError(f"has no field `{match[1]}` in {name}", line, column, nearest(match[1], fields))
        if match := _NAME.search(problem):
            # Of `a.b.c` the checker names all and points behind `a`: the unknown word is the first.
            word = match[1].removeprefix(".").split(".")[0]
            return self._unknown(word, line, max(text.rfind(word, 0, column - 1 + len(word)) + 1, 1))
        if match := _OVERLOAD.search(problem):
            name, arguments = match[1].replace("@", "").strip("_").replace("?_:", "?:"), plain(match[2])
            hint = ""
            if "kubernetes.Quantity" in arguments and _NUMERIC_ARGUMENT.search(arguments):
                hint = 'compare quantities with quantities: x.isLessThan(quantity("3"))'
            return CelError(f"has `{name}` of {arguments}, which does not take these types", line, column, hint)
        if match := _NO_FIELDS.search(problem):
            return CelError(f"has a field of {plain(match[1])}, which has no fields", line, column)
        if "recursion depth" in problem:
            return too_deep(line, column)
        problem = plain(_EXPECTING.sub("expecting an operand", problem))
        return CelError(problem[0].lower() + problem[1:].rstrip("."), line, column)

    def _unknown(self, word: str, line: int, column: int) -> _UnknownNameError:
        if word in self._names:
            return _UnknownNameError(word, line, column, "", f"has `{word}` with arguments that it does not take")
        hint = nearest(word, self._names if "." in word else [name for name in self._names if "." not in name])
        return _UnknownNameError(word, line, column, hint, f"has the unknown name `{word}`")


class _UnknownNameError(CelError):
    def __init__(self, word: str, line: int, column: int, hint: str, message: str) -> None:
        super().__init__(message, line, column, hint)
        self.word = word


def plain(text: str) -> str:
    """Type names without the package that struct types have for the checker only."""
    return text.replace("struct.", "")


def too_deep(line: int, column: int) -> CelError:
    """The error for an expression beyond the parser's fixed depth."""
    message = "has more than 32 levels of operators and calls, needs fewer"
    return CelError(message, line, column, "split it with variables")


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint with the known name that is most like a word; empty when none is."""
    lowered = {each.lower(): each for each in known}
    close = difflib.get_close_matches(word.lower(), lowered, n=1, cutoff=0.6)
    return f"did you mean `{lowered[close[0]]}`?" if close else ""
