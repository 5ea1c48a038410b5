"""Kubernetes time stamps (RFC 3339) and how an age is told."""

from __future__ import annotations

import re
from datetime import UTC, datetime

# Python reads more than RFC 3339 has: weeks, times without seconds, no punctuation.
_STAMP = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:[Zz]|[-+][0-9]{2}:[0-9]{2})"
)


def instant(text: str) -> datetime | None:
    """The moment an RFC 3339 time stamp names; None when it is none, has no offset, or lies beyond the years 1 to 9999
    as UTC counts them.
    """
    if not _STAMP.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text.upper())
        moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return moment


def stamp(moment: datetime, precision: str = "seconds") -> str:
    """The RFC 3339 time stamp of ``moment`` in UTC; ``precision`` as the ``timespec`` of ``datetime.isoformat``."""
    return moment.astimezone(UTC).isoformat(timespec=precision).replace("+00:00", "Z")


def duration(seconds: float) -> str:
    """Seconds as people say them: ``12s``, ``4m10s``, ``3h5m``, ``2d4h``."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2]) or "0s"


def age(text: str, now: datetime) -> str:
    """How long before ``now`` a time stamp lies, empty when it cannot be read or lies ahead."""
    moment = instant(text)
    return "" if moment is None or moment > now else duration((now - moment).total_seconds())
