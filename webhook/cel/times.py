"""Timestamps and durations of CEL, to the nanosecond (Python's own stop at the microsecond), with their functions."""

from __future__ import annotations

import datetime
import re
import zoneinfo
from functools import total_ordering
from typing import ClassVar

from webhook.cel.errors import EvaluationError
from webhook.cel.library import Library
from webhook.cel.values import INT_MAX, INT_MIN

SECOND = 1_000_000_000
_UNITS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_FIRST, _LAST = -62_135_596_800 * SECOND, 253_402_300_800 * SECOND - 1  # the years 1 to 9999
_RFC3339 = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})([.,][0-9]+)?(?:(Z)|([+-])([0-9]{2}):([0-9]{2}))"
)
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")

LIBRARY = Library()


@total_ordering
class _Nanoseconds:
    __slots__ = ("nanoseconds",)

    def __init__(self, nanoseconds: int) -> None:
        self.nanoseconds = nanoseconds

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.nanoseconds == other.nanoseconds

    def __lt__(self, other: _Nanoseconds) -> bool:
        return self.nanoseconds < other.nanoseconds

    def __hash__(self) -> int:
        return hash((type(self), self.nanoseconds))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"


class Duration(_Nanoseconds):
    """A span of time; `nanoseconds` fit int64, as in Go."""

    __slots__ = ()
    cel_type: ClassVar[str] = "google.protobuf.Duration"

    @classmethod
    def of(cls, nanoseconds: int) -> Duration:
        """The duration, or an EvaluationError when it does not fit."""
        if not INT_MIN <= nanoseconds <= INT_MAX:
            raise EvaluationError("duration overflow")
        return cls(nanoseconds)

    @classmethod
    def parse(cls, text: str) -> Duration:
        """Reads Go's form: "1h30m", "-1.5s", "0"."""
        sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
        if rest == "0":
            return cls(0)
        at, total = 0, 0
        while at < len(rest):
            match = _PART.match(rest, at)
            if not match or not (match[1] or match[2]):
                break
            at = match.end()
            unit = _UNITS[match[3]]
            total += int(match[1] or 0) * unit
            fraction = (match[2] or "")[:30]
            total += int(fraction or 0) * unit // 10 ** len(fraction)
        if not rest or at < len(rest):
            raise EvaluationError(f"has the duration {text[:40]!r}, needs one like 1h30m or 1.5s")
        return cls.of(sign * total)

    def __str__(self) -> str:
        whole, rest = divmod(abs(self.nanoseconds), SECOND)
        fraction = f".{rest:09d}".rstrip("0") if rest else ""
        return f"{'-' if self.nanoseconds < 0 else ''}{whole}{fraction}s"


class Timestamp(_Nanoseconds):
    """A moment; `nanoseconds` since 1970 in UTC, in the years 1 to 9999."""

    __slots__ = ()
    cel_type: ClassVar[str] = "google.protobuf.Timestamp"

    @classmethod
    def of(cls, nanoseconds: int) -> Timestamp:
        """The moment, or an EvaluationError when it is outside the years 1 to 9999."""
        if not _FIRST <= nanoseconds <= _LAST:
            raise EvaluationError("timestamp overflow")
        return cls(nanoseconds)

    @classmethod
    def parse(cls, text: str) -> Timestamp:
        """Reads RFC 3339."""
        match = _RFC3339.fullmatch(text)
        try:
            if not match:
                raise ValueError
            date = datetime.date.fromisoformat(match[1])
            hour, minute, second = int(match[2]), int(match[3]), int(match[4])
            if hour > 23 or minute > 59 or second > 59:
                raise ValueError
            seconds = (date.toordinal() - _EPOCH.toordinal()) * 86_400 + hour * 3600 + minute * 60 + second
            if match[7]:
                if int(match[8]) > 24 or int(match[9]) > 60:
                    raise ValueError
                offset = int(match[8]) * 3600 + int(match[9]) * 60
                seconds += offset if match[7] == "-" else -offset
            fraction = (match[5] or ".")[1:10].ljust(9, "0")
            return cls.of(seconds * SECOND + int(fraction))
        except ValueError:
            raise EvaluationError(f"has the timestamp {text[:40]!r}, needs one like 2026-01-02T15:04:05Z") from None

    def local(self, zone: datetime.tzinfo) -> datetime.datetime:
        """The moment on the clock of a zone, cut to microseconds."""
        return (_EPOCH + datetime.timedelta(microseconds=self.nanoseconds // 1000)).astimezone(zone)

    def __str__(self) -> str:
        seconds, rest = divmod(self.nanoseconds, SECOND)
        moment = _EPOCH + datetime.timedelta(seconds=seconds)
        fraction = f".{rest:09d}".rstrip("0") if rest else ""
        return f"{moment.year:04d}-{moment:%m-%dT%H:%M:%S}{fraction}Z"


def _zone(name: str) -> datetime.tzinfo:
    match = re.fullmatch(r"([+-]?)([0-9]{2}):([0-9]{2})", name)
    try:
        if match:
            offset = datetime.timedelta(hours=int(match[2]), minutes=int(match[3]))
            return datetime.timezone(-offset if match[1] == "-" else offset)
        return zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        raise EvaluationError(f"has the time zone {name[:40]!r}, needs a name like Europe/Madrid or +02:00") from None


_GETTERS = {
    "getFullYear": lambda moment: moment.year,
    "getMonth": lambda moment: moment.month - 1,
    "getDayOfYear": lambda moment: moment.timetuple().tm_yday - 1,
    "getDayOfMonth": lambda moment: moment.day - 1,
    "getDate": lambda moment: moment.day,
    "getDayOfWeek": lambda moment: moment.isoweekday() % 7,
    "getHours": lambda moment: moment.hour,
    "getMinutes": lambda moment: moment.minute,
    "getSeconds": lambda moment: moment.second,
    "getMilliseconds": lambda moment: moment.microsecond // 1000,
}
_PARTS = {"getHours": 3600 * SECOND, "getMinutes": 60 * SECOND, "getSeconds": SECOND, "getMilliseconds": 1_000_000}


def _add_getters() -> None:
    for name, read in _GETTERS.items():

        def of_moment(moment: Timestamp, zone: str = "UTC", read: object = read) -> int:
            where = datetime.UTC if zone == "UTC" else _zone(zone)
            try:
                return read(moment.local(where))  # type: ignore[operator,no-any-return]  # one of the lambdas above
            except OverflowError:
                raise EvaluationError("timestamp overflow") from None

        LIBRARY.member(name, Timestamp)(of_moment)
        LIBRARY.member(name, Timestamp, str)(of_moment)
    for name, unit in _PARTS.items():

        def of_span(span: Duration, unit: int = unit) -> int:
            whole = abs(span.nanoseconds) // unit
            return whole if span.nanoseconds >= 0 else -whole

        LIBRARY.member(name, Duration)(of_span)


_add_getters()
