"""What can go wrong with an expression: while it is compiled, and while it runs."""

from __future__ import annotations

from webhook.cel.values import type_name

_LONGEST = 300  # characters of an error: values in it may be huge


class CelError(ValueError):
    """An expression that cannot be used.

    `message` is one lower-case line, `line` and `column` count from 1 in the expression's own text, `hint` says what to
    write instead (may be empty). All problems of the expression are in `others`, this one being the first.
    """

    def __init__(self, message: str, line: int = 1, column: int = 1, hint: str = "") -> None:
        self.message = message
        self.line = line
        self.column = column
        self.hint = hint
        self.others: list[CelError] = []
        super().__init__(f"{line}:{column}: {message}" + (f"; {hint}" if hint else ""))


class EvaluationError(Exception):
    """An expression that ended without a value, at `line` and `column` (from 1; 0 while not yet known)."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        self.message = message if len(message) <= _LONGEST else message[: _LONGEST - 3] + "..."
        self.line = line
        self.column = column
        super().__init__(self.message)

    def at(self, position: tuple[int, int]) -> EvaluationError:
        """The same error, placed at `position` unless an inner part of the expression has placed it already."""
        if not self.line:
            self.line, self.column = position
        return self

    def __str__(self) -> str:
        return f"{self.line}:{self.column}: {self.message}" if self.line else self.message


def unfit(name: str, error: Exception) -> EvaluationError:
    """The error of a function that was given a value beyond what CEL knows: a number of more than 64 bits, text that
    is no Unicode. JSON can hold both; the API server never sees them.
    """
    reason = "text that is not Unicode" if isinstance(error, UnicodeError) else "a number beyond 64 bits"
    return EvaluationError(f"{name} has {reason}, needs a value that JSON and CEL both know")


class BudgetError(EvaluationError):
    """The expression cost more than its budget. Unlike other errors, `||`, `&&` and `exists` never absorb it."""


def no_overload(name: str, *values: object) -> EvaluationError:
    """The error of an operator or function that was given values it has no meaning for."""
    return EvaluationError(f"no such overload: {name} of ({', '.join(type_name(value) for value in values)})")
