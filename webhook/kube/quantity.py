"""Kubernetes quantities, exact: the API server's grammar, its rounding, its cap and its way of printing.

A value is an `int` or a `fractions.Fraction` in base units: cores for cpu, bytes for memory, plain count else.
Rules of `resource.Quantity` (k8s.io/apimachinery), checked against vectors that the real parser made.
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final, TypeAlias

Number: TypeAlias = int | Fraction

INT64_MAX: Final = 2**63 - 1

_MEMO = 1 << 15
# Go refuses none of these; a number with a thousand digits is beyond any node, and computing with it is how a short
# text ("1e400000000") stops a server. See QuantityRangeError.
_MAX_DIGITS = 1000
_NANO_EXPONENT = -9
# The Go parser has a fast path for what fits in 18 decimal digits; only there is a text that is already canonical kept.
_FAST_DIGITS = 18
_FAST_BINARY_DIGITS = 15

_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX: Final = ("", *_BINARY)

_NUMBER = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?")
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)")
# What Go's TrimSpace removes and JSON allows inside a string without an escape; an escaped space is not removed,
# because the decoder hands over the raw bytes.
_SPACES = (
    " \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)

_HINTS: Final = {
    "K": "write k (1000) or Ki (1024)",
    "KB": "write k (1000) or Ki (1024)",
    "kB": "write k (1000) or Ki (1024)",
    "KiB": "write Ki",
    "MB": "write M (1000²) or Mi (1024²)",
    "MiB": "write Mi",
    "GB": "write G (1000³) or Gi (1024³)",
    "GiB": "write Gi",
    "TB": "write T or Ti",
    "TiB": "write Ti",
    "g": "write G or Gi",
    "gi": "write Gi",
    "mi": "write Mi",
    "ki": "write Ki",
    "B": "leave the unit out, plain numbers are bytes",
    "b": "leave the unit out, plain numbers are bytes",
}


class QuantityError(ValueError):
    """The text is no quantity: the API server does not decode it. `str()` is a reason without capital or full stop."""


class QuantityRangeError(QuantityError):
    """A quantity that the API server takes and nobody can compute with (more than a thousand digits)."""


@dataclass(frozen=True, slots=True)
class _Amount:
    """`unscaled * 10**exponent`, before anything large is computed. `kept`: the text prints as it was written."""

    unscaled: int
    exponent: int
    binary: bool
    scientific: bool
    kept: str | None


def parse(value: object) -> Number:
    """The exact value of a quantity as it stands in JSON or YAML, in base units.

    Takes a string or a number; a float counts as its shortest text, so 0.1 is exactly 1/10. Finer than nano is rounded
    away from zero to nano; a binary suffix (Ki ... Ei) caps at 2**63-1 and a decimal one does not, as in Go.
    Raises QuantityError, also for null, bool, list and map: whoever may see null decides what absent means.
    """
    if type(value) is str:
        return _parse(value)
    return _parse(_text(value))


def try_parse(value: object) -> Number | None:
    """As parse, but None for whatever is no quantity (null too)."""
    try:
        return _parse(value) if type(value) is str else parse(value)
    except QuantityError:
        return None


def canonical(value: Number, binary: bool = False) -> str:
    """The text that the API server prints for a value: "3", "500m", "4Gi" (binary: powers of 1024 where exact).

    Finer than nano is rounded away from zero. Where Go loses the suffix (10**21 and more, 1024**7 and more) this keeps
    the value instead: "1e21", "1024Ei".
    """
    # Sums and ledgers have few amounts, again and again; a fraction's own hash would cost more than is saved.
    return _printed(value.numerator, value.denominator, binary)


@lru_cache(maxsize=_MEMO)
def _printed(numerator: int, denominator: int, binary: bool) -> str:
    if not numerator:
        return "0"
    if denominator == 1:
        if binary and not -1024 < numerator < 1024:
            return _print_binary(numerator)
        return _print_decimal(numerator, 0, scientific_from=21)
    nano = _ceil_away(Fraction(numerator, denominator), 10**9)
    return _print_decimal(nano, _NANO_EXPONENT, scientific_from=21)


def beyond_int64(resource: str, amount: Number) -> bool:
    """Whether the scheduler's 64 bits cannot hold ``amount`` (base units; it counts thousandths of cpu, and units of
    everything else): it would then count nothing.
    """
    return not -INT64_MAX <= (amount * 1000 if resource == "cpu" else amount) <= INT64_MAX


def of_resource(resource: str, value: Number) -> str:
    """canonical() with the suffixes usual for a resource: binary for memory, ephemeral-storage and hugepages-*."""
    return canonical(value, unit(resource) == "bytes")


def unit(resource: str) -> str:
    """What amounts of ``resource`` are counted in: ``cores``, ``bytes`` or, of anything else, ``count``."""
    if resource == "cpu":
        return "cores"
    return "bytes" if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-") else "count"


@lru_cache(maxsize=_MEMO)
def canonical_text(text: str) -> str:
    """What the API server makes of a quantity text when it stores it, the format kept ("1024Ki" -> "1Mi").

    Faithful also where the server loses the value: "1000E" is stored as "1". Raises QuantityError.
    """
    amount = _split(text.strip(_SPACES))
    if amount.kept is not None:
        return amount.kept
    if not amount.unscaled:
        return "0"
    if amount.binary:
        value = _materialise(amount)
        if value.denominator == 1 and not -1024 < value < 1024:
            return _print_binary(int(value))
        return _print_decimal(_ceil_away(value, 10**9), _NANO_EXPONENT)
    return _print_decimal(amount.unscaled, amount.exponent, scientific_from=-(2**31) if amount.scientific else None)


def _text(value: object) -> str:
    if value is None:
        raise QuantityError("is null, not a quantity")
    if isinstance(value, bool):
        raise QuantityError(f"is the boolean {str(value).lower()}, not a quantity")
    if isinstance(value, int):
        if value.bit_length() > 3 * _MAX_DIGITS:
            raise QuantityRangeError(f"has more than {_MAX_DIGITS} digits")
        return str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        return str(value)
    raise QuantityError(f"is a {'list' if isinstance(value, list) else 'map'}, not a quantity")


@lru_cache(maxsize=_MEMO)
def _parse(text: str) -> Number:
    return _materialise(_split(text.strip(_SPACES)))


def _materialise(amount: _Amount) -> Number:
    unscaled, exponent = amount.unscaled, amount.exponent
    if unscaled == 0:
        return 0
    if exponent >= 0:
        if exponent > _MAX_DIGITS:
            raise QuantityRangeError(f"has more than {_MAX_DIGITS} digits")
        value: Number = unscaled * 10**exponent
    else:
        value = Fraction(unscaled, 10**-exponent)
    if amount.binary:
        value = max(-INT64_MAX, min(INT64_MAX, value))
    return int(value) if value.denominator == 1 else value


def _split(text: str) -> _Amount:
    """The amount of a text, rounded to nano where Go rounds, by the path that Go would take."""
    if len(text) > _MAX_DIGITS:
        raise QuantityRangeError(f"is longer than {_MAX_DIGITS} characters")
    match = _NUMBER.match(text)
    if match is None or not text:
        raise QuantityError("is empty, not a quantity")
    sign, whole, decimals = match.group(1), match.group(2).lstrip("0"), match.group(3) or ""
    suffix = text[match.end() :]
    if not suffix and not whole and match.group(3) is None:
        return _Amount(0, 0, False, False, "0")
    numerator = whole or "0"
    power, exponent, scientific = _suffix(text, suffix)
    digits = numerator + decimals
    unscaled = int(digits)

    if power is None:
        fast = len(digits) <= _FAST_DIGITS
        exponent = _int32(exponent - len(decimals))
    else:
        fast = not decimals and _FAST_BINARY_DIGITS - len(numerator) - power * 3 // 10 - 1 >= 0
        exponent = -len(decimals)
    if fast and exponent >= _NANO_EXPONENT:
        keep = (power is not None and unscaled & 7 != 0) or (
            power is None and exponent % 3 == 0 and not digits.endswith("000") and digits[0] != "0"
        )
    else:
        keep = False
        if not match.group(2) and not match.group(3):
            raise QuantityError("has no digits")
    if power is not None:
        unscaled <<= power
    if exponent < _NANO_EXPONENT and unscaled:
        unscaled, exponent = _round_to_nano(unscaled, exponent), _NANO_EXPONENT
    if sign == "-":
        unscaled = -unscaled
    return _Amount(unscaled, exponent, power is not None, scientific, text if keep else None)


def _suffix(text: str, suffix: str) -> tuple[int | None, int, bool]:
    """(power of two or None, power of ten, whether written with e) of a suffix."""
    if suffix in _DECIMAL:
        return None, _DECIMAL[suffix], False
    if suffix in _BINARY:
        return _BINARY[suffix], 0, False
    match = _EXPONENT.fullmatch(suffix)
    # strconv.ParseInt takes 64 bits, and the result is then cut to 32 without a check.
    if match is not None and -(2**63) <= (exponent := int(match.group(1))) < 2**63:
        return None, _int32(exponent), True
    if suffix == text:
        raise QuantityError("is not a number with an optional suffix")
    bare = suffix.strip()
    hint = "write it without spaces" if bare in _DECIMAL or bare in _BINARY else _HINTS.get(bare)
    raise QuantityError(f"has the unknown suffix {suffix[:20]!r}" + (f" ({hint})" if hint else ""))


def _int32(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


def _round_to_nano(unscaled: int, exponent: int) -> int:
    drop = _NANO_EXPONENT - exponent
    if drop > 2 * _MAX_DIGITS:
        return 1
    power: int = 10**drop
    return -(-unscaled // power)


def _ceil_away(value: Number, times: int) -> int:
    """``value`` so many times, as a whole number; integers alone are a few times as fast as fractions."""
    whole = -(-abs(value.numerator) * times // value.denominator)
    return whole if value > 0 else -whole


def _print_binary(value: int) -> str:
    power = 0
    while power < len(_BINARY_SUFFIX) - 1 and value % 1024 == 0:
        value //= 1024
        power += 1
    return f"{value}{_BINARY_SUFFIX[power]}"


def _print_decimal(unscaled: int, exponent: int, scientific_from: int | None = None) -> str:
    while unscaled % 10 == 0:
        unscaled //= 10
        exponent += 1
    unscaled *= 10 ** (exponent % 3)
    exponent -= exponent % 3
    if scientific_from is not None and exponent >= scientific_from:
        return f"{unscaled}e{exponent}" if exponent else str(unscaled)
    return f"{unscaled}{_DECIMAL_SUFFIX.get(exponent, '')}"
