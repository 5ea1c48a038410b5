"""Functions of strings: CEL's own and the strings extension. Positions count code points."""

from __future__ import annotations

from webhook.cel.budget import Budget
from webhook.cel.errors import EvaluationError, no_overload
from webhook.cel.library import Library

LIBRARY = Library()

# What Go's unicode.IsSpace says; Python would strip U+001C to U+001F too.
_SPACES = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_UPPER = {lower: lower - 32 for lower in range(ord("a"), ord("z") + 1)}
_ESCAPES = {7: "\\a", 8: "\\b", 12: "\\f", 10: "\\n", 13: "\\r", 9: "\\t", 11: "\\v", 92: "\\\\", 34: '\\"'}


@LIBRARY.member("contains", str, str, charges=True)
def _contains(budget: Budget, text: str, part: str) -> bool:
    budget.spend(len(text) // 10)
    return part in text


@LIBRARY.member("startsWith", str, str)
def _starts_with(text: str, part: str) -> bool:
    return text.startswith(part)


@LIBRARY.member("endsWith", str, str)
def _ends_with(text: str, part: str) -> bool:
    return text.endswith(part)


@LIBRARY.member("charAt", str, int)
def _char_at(text: str, position: int) -> str:
    if 0 <= position <= len(text):
        return text[position : position + 1]
    raise EvaluationError(f"index out of range: {position}")


@LIBRARY.member("indexOf", str, str, charges=True)
def _index_of(budget: Budget, text: str, part: str) -> int:
    budget.spend(len(text) // 10)
    return text.find(part)


@LIBRARY.member("indexOf", str, str, int, charges=True)
def _index_of_from(budget: Budget, text: str, part: str, start: int) -> int:
    if not part:
        return start
    if start < 0:
        raise EvaluationError(f"index out of range: {start}")
    budget.spend(len(text) // 10)
    return text.find(part, start)


@LIBRARY.member("lastIndexOf", str, str, charges=True)
def _last_index_of(budget: Budget, text: str, part: str) -> int:
    budget.spend(len(text) // 10)
    return text.rfind(part)


@LIBRARY.member("lastIndexOf", str, str, int, charges=True)
def _last_index_of_to(budget: Budget, text: str, part: str, last: int) -> int:
    """The last place at or before `last` where `part` begins."""
    if not part:
        return last
    if last < 0:
        raise EvaluationError(f"index out of range: {last}")
    budget.spend(len(text) // 10)
    # Behind the end nothing is found at all; Kubernetes has it so.
    return text.rfind(part, 0, last + len(part)) if last < len(text) else -1


@LIBRARY.member("join", list, charges=True)
def _join(budget: Budget, parts: list[object]) -> str:
    return _join_with(budget, parts, "")


@LIBRARY.member("join", list, str, charges=True)
def _join_with(budget: Budget, parts: list[object], separator: str) -> str:
    total = len(separator) * len(parts)
    strings = []
    for part in parts:
        if not isinstance(part, str):
            raise no_overload("join", part)
        total += len(part)
        strings.append(part)
    budget.spend(len(parts) + total // 10)
    return separator.join(strings)


@LIBRARY.member("split", str, str, charges=True)
def _split(budget: Budget, text: str, separator: str) -> list[str]:
    return _split_at_most(budget, text, separator, -1)


@LIBRARY.member("split", str, str, int, charges=True)
def _split_at_most(budget: Budget, text: str, separator: str, limit: int) -> list[str]:
    """At most `limit` parts, the last one with the rest; all for a negative one."""
    if limit == 0:
        return []
    if separator:
        budget.spend(len(text) // 10 + text.count(separator))
        return text.split(separator, limit - 1 if limit > 0 else -1)
    budget.spend(len(text))
    if limit < 0 or limit >= len(text):
        return list(text)
    return [*text[: limit - 1], text[limit - 1 :]]


@LIBRARY.member("replace", str, str, str, charges=True)
def _replace(budget: Budget, text: str, old: str, new: str) -> str:
    return _replace_some(budget, text, old, new, -1)


@LIBRARY.member("replace", str, str, str, int, charges=True)
def _replace_some(budget: Budget, text: str, old: str, new: str, limit: int) -> str:
    """The first `limit` places; all for a negative one."""
    places = text.count(old)
    if limit >= 0:
        places = min(places, limit)
    budget.spend((len(text) + places * len(new)) // 10)
    return text.replace(old, new, places)


@LIBRARY.member("substring", str, int, charges=True)
def _substring(budget: Budget, text: str, start: int) -> str:
    return _substring_to(budget, text, start, len(text))


@LIBRARY.member("substring", str, int, int, charges=True)
def _substring_to(budget: Budget, text: str, start: int, end: int) -> str:
    budget.spend(len(text) // 10)
    if start > end or not 0 <= start <= len(text) or not 0 <= end <= len(text):
        raise EvaluationError(f"index out of range: {start} to {end} of {len(text)}")
    return text[start:end]


@LIBRARY.member("lowerAscii", str, charges=True)
def _lower(budget: Budget, text: str) -> str:
    budget.spend(len(text) // 10)
    return text.translate(_LOWER)


@LIBRARY.member("upperAscii", str, charges=True)
def _upper(budget: Budget, text: str) -> str:
    budget.spend(len(text) // 10)
    return text.translate(_UPPER)


@LIBRARY.member("trim", str, charges=True)
def _trim(budget: Budget, text: str) -> str:
    budget.spend(len(text) // 10)
    return text.strip(_SPACES)


@LIBRARY.member("reverse", str, charges=True)
def _reverse(budget: Budget, text: str) -> str:
    budget.spend(len(text) // 10)
    return text[::-1]


@LIBRARY.function("strings.quote", str, charges=True)
def _quote(budget: Budget, text: str) -> str:
    budget.spend(len(text) // 10)
    return quoted(text)


def quoted(text: str) -> str:
    """A string between quotes, as it could stand in an expression."""
    return '"' + text.translate(_ESCAPES) + '"'
