"""Kubernetes' format library: `format.dns1123Label().validate(name)` gives what is wrong, or nothing."""

from __future__ import annotations

import base64
import binascii
import datetime
import re
from collections.abc import Callable
from typing import ClassVar

from webhook.cel import types, urls
from webhook.cel.budget import Budget
from webhook.cel.library import Library
from webhook.cel.values import NONE, Optional
from webhook.kube import names

LIBRARY = Library()

Check = Callable[[str], list[str]]

_DNS1035 = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?")
_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE)
_DATETIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:.[0-9]+)?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
)


class Format:
    """A named form of text."""

    __slots__ = ("check", "name")
    cel_type: ClassVar[str] = types.FORMAT.name

    def __init__(self, name: str, check: Check) -> None:
        self.name = name
        self.check = check

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Format) and self.name == other.name

    def __hash__(self) -> int:
        return hash((Format, self.name))

    def __repr__(self) -> str:
        return f"Format({self.name})"


def _named(reason: Callable[[str], str | None], needs: str, prefix: bool = False) -> Check:
    """A check of a name. A prefix may end with a dash, as the name that is made of it does not."""

    def check(text: str) -> list[str]:
        if prefix and len(text) > 1 and text.endswith("-"):
            text = text[:-2] + "a"
        found = reason(text)
        return [f"{found}, needs {needs}"] if found else []

    return check


def _dns1035(text: str) -> str | None:
    if len(text) > names.LABEL_MAX:
        return f"has {len(text)} characters, more than {names.LABEL_MAX}"
    return None if _DNS1035.fullmatch(text) else names.dns_label(text) or "does not begin with a letter"


def _plain(test: Callable[[str], bool], problem: str) -> Check:
    return lambda text: [] if test(text) else [problem]


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return bool(text)


def _is_date(text: str) -> bool:
    try:
        return len(text) == 10 and bool(datetime.date.fromisoformat(text))
    except ValueError:
        return False


def _is_datetime(text: str) -> bool:
    match = _DATETIME.fullmatch(text)
    return match is not None and _is_date(match[1]) and int(match[2]) < 24 and int(match[3]) < 60 and int(match[4]) < 60


_LABEL_1035 = "a DNS-1035 label: a lower case letter, then letters, digits and '-', at most 63"
FORMATS = {
    "dns1123Label": _named(names.dns_label, names.NEEDS_LABEL),
    "dns1123LabelPrefix": _named(names.dns_label, names.NEEDS_LABEL, prefix=True),
    "dns1123Subdomain": _named(names.dns_subdomain, names.NEEDS_SUBDOMAIN),
    "dns1123SubdomainPrefix": _named(names.dns_subdomain, names.NEEDS_SUBDOMAIN, prefix=True),
    "dns1035Label": _named(_dns1035, _LABEL_1035),
    "dns1035LabelPrefix": _named(_dns1035, _LABEL_1035, prefix=True),
    "qualifiedName": _named(names.qualified_name, names.NEEDS_LABEL_KEY),
    "labelValue": _named(names.label_value, "letters, digits, '-', '_' and '.', at most 63 characters"),
    "uri": _plain(lambda text: urls.parse(text) is not None, "is no absolute URI"),
    "uuid": _plain(lambda text: bool(_UUID.fullmatch(text)), "is no UUID"),
    "byte": _plain(_is_base64, "is no base64"),
    "date": _plain(_is_date, "is no date"),
    "datetime": _plain(_is_datetime, "is no date with a time"),
}

LIBRARY.declare("format.named", types.optional_of(types.FORMAT), types.STRING)
LIBRARY.declare("validate", types.optional_of(types.list_of(types.STRING)), types.FORMAT, types.STRING, member=True)
for _name, _check in FORMATS.items():
    LIBRARY.declare(f"format.{_name}", types.FORMAT)
    LIBRARY.constant(f"format.{_name}", Format(_name, _check))


@LIBRARY.function("format.named", str)
def _format_named(name: str) -> Optional:
    check = FORMATS.get(name)
    return Optional(Format(name, check)) if check else NONE


@LIBRARY.member("validate", Format, str, charges=True)
def _validate(budget: Budget, form: Format, text: str) -> Optional:
    budget.spend(len(text) // 2 + 1)
    problems = form.check(text)
    return Optional(problems) if problems else NONE
