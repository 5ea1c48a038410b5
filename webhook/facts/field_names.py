"""Names inside DRA objects, as the types of the errors that the API server has for them; memoised."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from webhook.kube.names import DOMAIN_MAX, DRIVER_MAX, IDENTIFIER_MAX, POOL_MAX, dns_subdomain
from webhook.kube.quantity import Number, canonical

INVALID: Final = "FieldValueInvalid"
REQUIRED: Final = "FieldValueRequired"
TOO_LONG: Final = "FieldValueTooLong"

_MEMO = 1 << 14
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER = r"(?:0|[1-9][0-9]*)"
_PRE = r"(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-{_PRE}(?:\.{_PRE})*)?(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?"
)


def shown(amount: Number) -> str:
    """A capacity of unknown unit as people write it, in whichever kind of suffix is shorter ("4Gi", "100G", "500m")."""
    if amount.denominator != 1:
        return canonical(amount)
    return min(canonical(amount, binary=True), canonical(amount), key=len)


def length(text: str) -> int:
    """The length of ``text`` in bytes, which is what the server measures."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


@lru_cache(maxsize=_MEMO)
def driver_errors(name: str) -> tuple[str, ...]:
    """Error types of a driver name or a domain: a subdomain of at most 63 bytes in which upper case passes."""
    if not name:
        return (REQUIRED,)
    types = (TOO_LONG,) if length(name) > DRIVER_MAX else ()
    return (*types, INVALID) if dns_subdomain(name.lower()) else types


@lru_cache(maxsize=_MEMO)
def pool_errors(name: str) -> tuple[str, ...]:
    """Error types of a pool name: subdomains separated by slashes, at most 253 bytes."""
    if not name:
        return (REQUIRED,)
    types = (TOO_LONG,) if length(name) > POOL_MAX else ()
    return (*types, INVALID) if any(dns_subdomain(part) for part in name.split("/")) else types


def _identifier(name: str) -> tuple[str, ...]:
    types = (TOO_LONG,) if length(name) > IDENTIFIER_MAX else ()
    return types if _IDENTIFIER.fullmatch(name) else (*types, INVALID)


@lru_cache(maxsize=_MEMO)
def qualified_errors(name: str) -> tuple[str, ...]:
    """Error types of an attribute or capacity key: ``identifier`` or ``domain/identifier``.

    More than one slash passes: neither release looks at such a name at all.
    """
    parts = name.split("/")
    if len(parts) > 2:
        return ()
    if len(parts) == 1:
        return _identifier(name)
    domain, identifier = parts
    types = driver_errors(domain) if domain else (INVALID,)
    return tuple(dict.fromkeys((*types, *(_identifier(identifier) if identifier else (INVALID,)))))


@lru_cache(maxsize=_MEMO)
def is_semver(text: str) -> bool:
    """Whether ``text`` is a version by semver.org 2.0.0."""
    return _SEMVER.fullmatch(text) is not None


def shortened(key: str, limit: int) -> str:
    """A map key as it stands in the server's field paths: cut in the middle when longer than ``limit`` bytes."""
    if length(key) <= limit:
        return key
    raw = key.encode("utf-8", "surrogatepass")
    rest = max(limit, 16) - 3
    return (raw[: (rest + 1) // 2] + b"..." + raw[len(raw) - rest // 2 :]).decode("utf-8", "replace")


KEY_LIMIT: Final = DOMAIN_MAX + 1 + IDENTIFIER_MAX
