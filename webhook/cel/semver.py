"""Kubernetes' semver library: versions of the form major.minor.patch[-pre.release][+build]."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from webhook.cel import types
from webhook.cel.errors import EvaluationError
from webhook.cel.library import Library

LIBRARY = Library()

_NUMBER = r"(0|[1-9][0-9]*)"
_VERSION = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
)
_UINT64_MAX = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Semver:
    """A semantic version. Builds are kept and, as semver.org says, never compared."""

    major: int
    minor: int
    patch: int
    prerelease: tuple[int | str, ...] = ()
    build: tuple[str, ...] = ()

    cel_type: ClassVar[str] = types.SEMVER.name

    @classmethod
    def parse(cls, text: str) -> Semver:
        """Reads the strict form; raises EvaluationError."""
        version = _parse(text)
        if version is None:
            raise EvaluationError(f"has the version {text[:40]!r}, needs one like 1.2.3")
        return version

    def compare(self, other: Semver) -> int:
        """-1, 0 or 1 by precedence: numbers, then a release before its pre-releases' end."""
        mine, theirs = (self.major, self.minor, self.patch), (other.major, other.minor, other.patch)
        if mine != theirs:
            return 1 if mine > theirs else -1
        if not self.prerelease or not other.prerelease:
            return (not self.prerelease) - (not other.prerelease)
        for left, right in zip(self.prerelease, other.prerelease, strict=False):
            if left == right:
                continue
            if isinstance(left, int) and isinstance(right, int):
                return 1 if left > right else -1
            if isinstance(left, str) and isinstance(right, str):
                return 1 if left > right else -1
            return -1 if isinstance(left, int) else 1
        return (len(self.prerelease) > len(other.prerelease)) - (len(self.prerelease) < len(other.prerelease))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self.compare(other) == 0

    def __hash__(self) -> int:
        return hash((self.major, self.minor, self.patch, self.prerelease))

    def __str__(self) -> str:
        pre = "-" + ".".join(map(str, self.prerelease)) if self.prerelease else ""
        return f"{self.major}.{self.minor}.{self.patch}{pre}" + ("+" + ".".join(self.build) if self.build else "")


@lru_cache(maxsize=4096)
def _parse(text: str) -> Semver | None:
    if len(text) > 1000:
        return None
    match = _VERSION.fullmatch(text)
    if not match:
        return None
    numbers = [int(match[group]) for group in (1, 2, 3)]
    prerelease: list[int | str] = []
    for part in match[4].split(".") if match[4] else ():
        if part.isdigit():
            if (len(part) > 1 and part[0] == "0") or int(part) > _UINT64_MAX:
                return None
            prerelease.append(int(part))
        else:
            prerelease.append(part)
    if max(numbers) > _UINT64_MAX:
        return None
    major, minor, patch = numbers
    return Semver(major, minor, patch, tuple(prerelease), tuple(match[5].split(".")) if match[5] else ())


def _normalised(text: str) -> str:
    """`v1.02` as `1.2.0`: without the v, leading zeros, and with all three numbers."""
    parts = text.removeprefix("v").split(".", 2)
    for number, part in enumerate(parts):
        if len(part) > 1:
            bare = part.lstrip("0")
            parts[number] = bare if bare[:1].isascii() and bare[:1].isdigit() else f"0{bare}"
    if len(parts) < 3 and ("+" in parts[-1] or "-" in parts[-1]):
        return ""
    return ".".join(parts + ["0"] * (3 - len(parts)))


LIBRARY.declare("semver", types.SEMVER, types.STRING)
LIBRARY.declare("semver", types.SEMVER, types.STRING, types.BOOL)
LIBRARY.declare("isSemver", types.BOOL, types.STRING)
LIBRARY.declare("isSemver", types.BOOL, types.STRING, types.BOOL)
LIBRARY.declare("isGreaterThan", types.BOOL, types.SEMVER, types.SEMVER, member=True)
LIBRARY.declare("isLessThan", types.BOOL, types.SEMVER, types.SEMVER, member=True)
LIBRARY.declare("compareTo", types.INT, types.SEMVER, types.SEMVER, member=True)
for _name in ("major", "minor", "patch"):
    LIBRARY.declare(_name, types.INT, types.SEMVER, member=True)


@LIBRARY.function("semver", str)
def _semver(text: str) -> Semver:
    return Semver.parse(text)


@LIBRARY.function("semver", str, bool)
def _semver_normalised(text: str, normalise: bool) -> Semver:
    version = _parse(_normalised(text) if normalise else text)
    if version is None:
        raise EvaluationError(f"has the version {text[:40]!r}, needs one like 1.2.3")
    return version


@LIBRARY.function("isSemver", str)
def _is_semver(text: str) -> bool:
    return _parse(text) is not None


@LIBRARY.function("isSemver", str, bool)
def _is_semver_normalised(text: str, normalise: bool) -> bool:
    return _parse(_normalised(text) if normalise else text) is not None


@LIBRARY.member("isGreaterThan", Semver, Semver)
def _is_greater(version: Semver, other: Semver) -> bool:
    return version.compare(other) > 0


@LIBRARY.member("isLessThan", Semver, Semver)
def _is_less(version: Semver, other: Semver) -> bool:
    return version.compare(other) < 0


@LIBRARY.member("compareTo", Semver, Semver)
def _compare(version: Semver, other: Semver) -> int:
    return version.compare(other)


@LIBRARY.member("major", Semver)
def _major(version: Semver) -> int:
    return version.major


@LIBRARY.member("minor", Semver)
def _minor(version: Semver) -> int:
    return version.minor


@LIBRARY.member("patch", Semver)
def _patch(version: Semver) -> int:
    return version.patch
