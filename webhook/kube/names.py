"""The API server's checks of names, as functions that return None for a good name or a short reason for a bad one.

A reason is a predicate of the name ("has upper case", "is empty"), ready for a message; the constants say what is
wanted instead. All are memoised: the same few names come with every review.
"""

import re
from functools import lru_cache
from typing import Final

LABEL_MAX: Final = 63
SUBDOMAIN_MAX: Final = 253
DRIVER_MAX: Final = 63
POOL_MAX: Final = SUBDOMAIN_MAX
DOMAIN_MAX: Final = DRIVER_MAX
IDENTIFIER_MAX: Final = 32
# The server measures an attribute or capacity name as a whole before it looks at its parts.
DEVICE_QUALIFIED_MAX: Final = DOMAIN_MAX + 1 + IDENTIFIER_MAX

NEEDS_LABEL: Final = "lower case letters, digits and '-', a letter or digit at both ends, at most 63 characters"
NEEDS_SUBDOMAIN: Final = (
    "lower case letters, digits, '-' and '.', a letter or digit at both ends of every part, at most 253 characters"
)
NEEDS_DRIVER: Final = "a DNS subdomain of at most 63 characters (dra.example.com)"
NEEDS_POOL: Final = "DNS subdomains separated by '/', at most 253 characters"
NEEDS_DEVICE_QUALIFIED: Final = "an identifier of at most 32 characters, or domain/identifier"
NEEDS_LABEL_KEY: Final = "a name of at most 63 characters (letters, digits, '-', '_', '.'), or prefix/name"

_MEMO = 1 << 14

_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_IS_LABEL = re.compile(_LABEL)
_IS_SUBDOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_IS_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_IS_LABEL_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_IS_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@lru_cache(maxsize=_MEMO)
def dns_label(name: str) -> str | None:
    """RFC 1123 label: device, request, subrequest, counter and counter set names."""
    return _too_long(name, LABEL_MAX) or (None if _IS_LABEL.fullmatch(name) else _bad(name, "-", ""))


@lru_cache(maxsize=_MEMO)
def dns_subdomain(name: str) -> str | None:
    """RFC 1123 subdomain: names of objects and nodes, device classes, prefixes of label keys."""
    return _too_long(name, SUBDOMAIN_MAX) or (None if _IS_SUBDOMAIN.fullmatch(name) else _bad(name, "-", "."))


# A node's name has the form of any other object's.
node_name = dns_subdomain


@lru_cache(maxsize=_MEMO)
def driver_name(name: str) -> str | None:
    """A DRA driver's name: a subdomain of at most 63 characters; upper case passes, as for CSI drivers."""
    return _too_long(name, DRIVER_MAX) or dns_subdomain(name.lower())


@lru_cache(maxsize=_MEMO)
def c_identifier(name: str) -> str | None:
    """The identifier of a device attribute or capacity, at most 32 characters."""
    reason = _too_long(name, IDENTIFIER_MAX)
    if reason or _IS_IDENTIFIER.fullmatch(name):
        return reason
    if name[:1].isascii() and name[:1].isdigit():
        return "begins with a digit"
    return _bad(name, "_", "", upper=True)


@lru_cache(maxsize=_MEMO)
def device_qualified_name(name: str) -> str | None:
    """A key of `attributes` or `capacity` and what refers to one: `identifier` or `domain/identifier`.

    More than one slash passes, as in the API server of 1.36 and 1.37 (k/k says it is a gap it keeps).
    """
    parts = name.split("/")
    if len(parts) > 2:
        return _too_long(name, DEVICE_QUALIFIED_MAX)
    if len(parts) == 1:
        return c_identifier(name)
    domain, identifier = parts
    if not domain:
        return "has an empty domain"
    if not identifier:
        return "has no identifier after the '/'"
    return _in_part(domain, driver_name(domain)) or _in_part(identifier, c_identifier(identifier))


@lru_cache(maxsize=_MEMO)
def device_fully_qualified_name(name: str) -> str | None:
    """The attribute of a claim's constraint: `domain/identifier`, the domain is not optional."""
    return device_qualified_name(name) or (None if "/" in name else "has no domain")


@lru_cache(maxsize=_MEMO)
def qualified_name(name: str) -> str | None:
    """Label-key form, `name` or `prefix/name`: label and taint keys, binding conditions, feature names."""
    parts = name.split("/")
    if len(parts) > 2:
        return "has more than one '/'"
    if len(parts) == 2:
        if not parts[0]:
            return "has an empty prefix"
        reason = dns_subdomain(parts[0])
        if reason:
            return _in_part(parts[0], reason)
    return _label_name(parts[-1])


label_key = qualified_name


@lru_cache(maxsize=_MEMO)
def label_value(value: str) -> str | None:
    """The value of a label or taint; empty is allowed."""
    return _label_name(value) if value else None


@lru_cache(maxsize=_MEMO)
def uuid(text: str) -> str | None:
    """A UID in the normalised form that `shareID` must have."""
    if _IS_UUID.fullmatch(text):
        return None
    return "has upper case" if _IS_UUID.fullmatch(text.lower()) else "is no UUID" if text else "is empty"


def _label_name(name: str) -> str | None:
    return _too_long(name, LABEL_MAX) or (None if _IS_LABEL_NAME.fullmatch(name) else _bad(name, "-_.", "", upper=True))


def _too_long(name: str, limit: int) -> str | None:
    length = len(name.encode("utf-8", "surrogatepass")) if len(name) * 4 > limit else 0
    return f"has {length} characters, more than {limit}" if length > limit else None


def _in_part(part: str, reason: str | None) -> str | None:
    return reason and f"has the part {part[:70]!r}, which {reason}"


def _bad(name: str, punctuation: str, separator: str, upper: bool = False) -> str:
    """What is wrong with a name whose form is already known to be wrong; `separator` joins parts of the form."""
    if not name:
        return "is empty"
    for character in name:
        if character in punctuation or (separator and character == separator):
            continue
        if character.isascii() and character.isalnum():
            if character.isupper() and not upper:
                return "has upper case"
            continue
        return "has a space" if character == " " else f"has the character {character!r}"
    parts = name.split(separator) if separator else [name]
    if "" in parts:
        return "has an empty part"
    part = next(part for part in parts if not (part[0].isalnum() and part[-1].isalnum()))
    if not part[0].isalnum():
        return f"begins with {part[0]!r}" if part is parts[0] else f"has a part that begins with {part[0]!r}"
    return f"ends with {part[-1]!r}" if part is parts[-1] else f"has a part that ends with {part[-1]!r}"
