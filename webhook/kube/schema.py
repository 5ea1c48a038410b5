"""Strict decoding: what the API server of a release says about the fields and types of an object.

Field tables come from the server's own OpenAPI (`schemas/1.NN.json`, made by tests/tools/make_schemas.py). As in the
server's decoder, null is taken for anything, names are compared with their case, whole numbers must be whole, and what
a field of free form holds is not looked at. Values are judged elsewhere.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any, Final

from webhook.kube import field_hints, quantity
from webhook.kube.field_hints import MAPPING_FIELDS, MULTIPLIERS, described
from webhook.kube.finding import Finding, cause
from webhook.kube.release import SUPPORTED, Release

_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,]\d+)?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)", re.ASCII
)
_NEEDS: Final = {
    "string": "a text",
    "bool": "true or false",
    "int32": "a whole number of 32 bits",
    "int64": "a whole number of 64 bits",
    "number": "a number",
    "quantity": 'a quantity ("2", "500m", "4Gi")',
    "time": "a time as in RFC 3339 (2026-11-20T09:00:00Z)",
    "bytes": "a text in base64",
    "int-or-string": "a whole number or a text",
    "[": "a list",
    "{": "a map",
    "#": "a map",
}


def problems(obj: Mapping[str, Any], release: Release) -> list[Finding]:
    """What strict decoding by the API server of the release refuses: wrong types, unknown fields, a missing type.

    All findings have origin `apiserver`, except a quantity that only the guard cannot compute with. Objects of other
    groups than those in the tables give none.
    """
    table = _table(release.minor)
    findings: list[Finding] = []
    api_version, kind = obj.get("apiVersion"), obj.get("kind")
    if not (isinstance(api_version, str) and api_version and isinstance(kind, str) and kind):
        sketched = field_hints.sketch(obj, release.minor)
        if sketched is not None and not (isinstance(kind, str) and kind):
            return [sketched]
        api_version = _missing_type(api_version, kind, table, findings)
        if api_version is None or not isinstance(kind, str):
            return findings
    if kind.endswith("List"):
        return findings + _list_problems(obj, api_version, kind, table)
    name = table.kinds.get(api_version, {}).get(kind)
    if name is None:
        return findings + _unknown_kind(api_version, kind, table, release)
    other = _table(next(minor for minor in SUPPORTED if minor != release.minor))
    body = {field: value for field, value in obj.items() if field not in ("apiVersion", "kind")}
    _Check(release.minor, table.types, other.types, findings).struct(body, name, "")
    return findings


class _Table:
    __slots__ = ("groups", "kinds", "types")

    def __init__(self, text: str) -> None:
        data = json.loads(text)
        self.kinds: dict[str, dict[str, str]] = data["kinds"]
        self.types: dict[str, dict[str, str]] = data["types"]
        self.groups = {_group(api_version) for api_version in self.kinds}


@cache
def _table(minor: int) -> _Table:
    return _Table(resources.files("webhook.kube").joinpath("schemas", f"1.{minor}.json").read_text(encoding="utf-8"))


def _group(api_version: str) -> str:
    return api_version.rpartition("/")[0]


def _missing_type(api_version: object, kind: object, table: _Table, findings: list[Finding]) -> str | None:
    """Reports a missing or unusable apiVersion or kind; gives the version to go on with, if the kind tells it."""
    if not isinstance(kind, str) or not kind:
        has = "no kind" if kind in (None, "") else described(kind)
        findings.append(cause("decode", "kind", "", has, "the kind of the object (ResourceSlice, ResourceClaim, Pod)"))
    if isinstance(api_version, str) and api_version:
        return api_version
    has = "no apiVersion" if api_version in (None, "") else described(api_version)
    likely = [version for version, kinds in table.kinds.items() if kind in kinds] if isinstance(kind, str) else []
    fix = f"write apiVersion: {likely[0]}" if likely else ""
    findings.append(cause("decode", "apiVersion", "", has, "the group and version of the kind", fix))
    return likely[0] if likely else None


def _list_problems(obj: Mapping[str, Any], api_version: str, kind: str, table: _Table) -> list[Finding]:
    item = kind.removesuffix("List")
    known = api_version in table.kinds and (item in table.kinds[api_version] or not item)
    items = obj.get("items")
    if not known or items is None or isinstance(items, list):
        return []
    return [cause("decode", "items", "", described(items), "a list")]


def _unknown_kind(api_version: str, kind: str, table: _Table, release: Release) -> list[Finding]:
    if _group(api_version) not in table.groups:
        return []
    has = f"kind {kind} in {api_version}, which {release} does not serve"
    elsewhere = [version for version, kinds in table.kinds.items() if kind in kinds]
    if elsewhere:
        return [cause("decode", "apiVersion", "", has, elsewhere[0], f"write apiVersion: {elsewhere[0]}")]
    kinds = table.kinds.get(api_version) or {name: "" for known in table.kinds.values() for name in known}
    same = next((name for name in kinds if name.lower() == kind.lower()), None)
    close = [same] if same else difflib.get_close_matches(kind[:80], kinds, 1)
    return [cause("decode", "kind", "", has, "a kind of that version", f"write kind: {close[0]}" if close else "")]


class _Check:
    """One walk over one object."""

    __slots__ = ("_findings", "_minor", "_other", "_types")

    def __init__(
        self, minor: int, types: dict[str, dict[str, str]], other: dict[str, dict[str, str]], findings: list[Finding]
    ) -> None:
        self._minor = minor
        self._types = types
        self._other = other
        self._findings = findings

    def struct(self, members: Mapping[str, Any], name: str, path: str) -> None:
        fields = self._types[name]
        for key, value in members.items():
            spec = fields.get(key)
            if spec is None:
                found = field_hints.unknown_field(
                    str(key),
                    name,
                    f"{path}.{key}" if path else str(key),
                    members,
                    self._minor,
                    self._types,
                    self._other,
                )
                if found is not None:
                    self._findings.append(found)
            elif value is not None:
                scalar = _SCALARS.get(spec)
                if scalar is None:
                    self._container(value, spec, f"{path}.{key}" if path else key, key)
                elif not scalar(value):
                    self._wrong(value, spec, f"{path}.{key}" if path else key, key)

    def _container(self, value: object, spec: str, path: str, field: str) -> None:
        shape = spec[0]
        if shape == "#":
            if isinstance(value, dict):
                self.struct(value, spec[1:], path)
            else:
                self._wrong(value, spec, path, field)
            return
        inner = spec[1:]
        scalar = _SCALARS.get(inner)
        members: Iterable[tuple[Any, Any]]
        if shape == "[" and isinstance(value, list):
            members = enumerate(value)
        elif shape == "{" and isinstance(value, dict):
            members = value.items()
        else:
            self._wrong(value, spec, path, field)
            return
        for key, member in members:
            if member is None:
                continue
            if scalar is None:
                if field in MAPPING_FIELDS and not isinstance(member, dict):
                    self._findings.append(field_hints.wrong_entry(str(key), member, f"{path}[{key}]", self._minor))
                else:
                    self._container(member, inner, f"{path}[{key}]", field)
            elif not scalar(member):
                self._wrong(member, inner, f"{path}[{key}]", field)

    def _wrong(self, value: object, spec: str, path: str, field: str) -> None:
        if field in MAPPING_FIELDS and isinstance(value, list):
            self._findings.append(field_hints.mapping_list(value, path, self._minor))
            return
        rule = "multiplier-not-quantity" if field in MULTIPLIERS else "decode"
        has = described(value)
        needs = _NEEDS[spec if spec in _SCALARS else spec[0]]
        if spec == "quantity":
            try:
                quantity.parse(value)
            except quantity.QuantityRangeError as error:
                self._findings.append(Finding(rule, path, f"{has}, which {error}", needs))
                return
            except quantity.QuantityError as error:
                has = f"{has}, which {error}" if isinstance(value, str) else has
        fix = "put it in quotes" if spec == "string" and isinstance(value, bool | int | float) else ""
        fix = fix or field_hints.bare_value(value, spec, path)
        self._findings.append(cause(rule, path, "", has, needs, fix))


def _is_whole(value: object, bits: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << bits - 1) <= value < 1 << bits - 1


def _is_time(value: object) -> bool:
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return False
    year, month, day, hour, minute, second = map(int, match.groups())
    try:
        # Go has a year 0, a leap year like 4; Python has not.
        return datetime(year or 4, month, day, hour, minute, second, tzinfo=UTC) is not None
    except ValueError:
        return False


def _is_base64(value: object) -> bool:
    try:
        return isinstance(value, str) and base64.b64decode(value.replace("\n", ""), validate=True) is not None
    except (binascii.Error, ValueError):
        return False


_SCALARS: Final[dict[str, Callable[[Any], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "bool": lambda value: isinstance(value, bool),
    "int32": lambda value: _is_whole(value, 32),
    "int64": lambda value: _is_whole(value, 64),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "quantity": lambda value: quantity.try_parse(value) is not None,
    "time": _is_time,
    "bytes": _is_base64,
    "int-or-string": lambda value: isinstance(value, str) or _is_whole(value, 32),
    "any": lambda value: True,
}
