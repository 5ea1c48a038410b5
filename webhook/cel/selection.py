"""Reading a field or an element: through optionals, and with the right error where there is nothing."""

from __future__ import annotations

from typing import Any

from webhook.cel import operators
from webhook.cel.errors import EvaluationError
from webhook.cel.values import NONE, DefaultMap, Optional, type_name


def select_slowly(value: Any, field: str, position: tuple[int, int]) -> Any:
    """`value.field` of any value; raises EvaluationError where there is none."""
    if isinstance(value, dict):
        try:
            return value[field]
        except KeyError:
            raise EvaluationError(f"no such key: {field}", *position) from None
    if isinstance(value, Optional):
        return select_optional(value, field, position)
    raise EvaluationError(f"no such field: {field} of {type_name(value)}", *position)


def select_optional(value: Any, field: Any, position: tuple[int, int]) -> Optional:
    """`value.?field` and `value[?field]`."""
    if isinstance(value, Optional):
        if value.empty:
            return NONE
        value = value.value
    try:
        if isinstance(value, dict):
            found = operators.has_key(value, field) or isinstance(value, DefaultMap)
        elif isinstance(value, list | tuple):
            found = 0 <= operators.list_position(value, field) < len(value)
        else:
            return NONE  # nothing is in a string, a number or null
        return Optional(operators.index(value, field)) if found else NONE
    except EvaluationError as error:
        raise error.at(position) from None
