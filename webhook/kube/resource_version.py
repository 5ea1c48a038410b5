"""Resource versions as numbers: an API server hands them out in the order of its writes, and the API says since 1.35
that those of a kind compare so.
"""

from __future__ import annotations


def version(text: str) -> int:
    """A resourceVersion as a number, -1 where it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 30 else -1
