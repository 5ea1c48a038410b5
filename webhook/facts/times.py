"""Kubernetes time stamps (RFC 3339) and how an age is told."""

from __future__ import annotations

from datetime import datetime


def instant(text: str) -> datetime | None:
    """The moment an RFC 3339 time stamp names; None when it is none or has no offset."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None and "T" in text.upper() else None


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
    """How long before ``now`` a time stamp lies, empty when it cannot be read."""
    moment = instant(text)
    return "" if moment is None else duration((now - moment).total_seconds())
