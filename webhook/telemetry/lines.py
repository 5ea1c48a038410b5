"""Lines of the Prometheus text format, for families too large to be made as objects: what others call their things is
escaped, or has no line.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from prometheus_client.utils import floatToGoString

from webhook.kube.quantity import Number

PREFIX = "allocguard_"

# Of a label: the longest name of an object. Whoever scrapes may refuse everything for one that is longer.
LONGEST = 253

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def heading(name: str, text: str) -> bytes:
    """What stands above the lines of a gauge ``allocguard_<name>``; ``text`` is ours, without quotes."""
    return f"# HELP {PREFIX}{name} {text}\n# TYPE {PREFIX}{name} gauge\n".encode()


def series(name: str, labels: Mapping[str, str]) -> str | None:
    """The line of a sample up to its value; None where a label is longer than any name, or no text that can be sent."""
    listed: list[str] = []
    for key in sorted(labels):
        # What is longer is not remembered either.
        label = _label(key, labels[key]) if len(labels[key]) <= LONGEST else None
        if label is None:
            return None
        listed.append(label)
    return f"{PREFIX}{name}{{{','.join(listed)}}} "


# Lines of one node have its name in common, and those of all nodes their resources.
@lru_cache(maxsize=1024)
def _label(key: str, value: str) -> str | None:
    return f'{key}="{value.translate(_ESCAPES)}"' if showable(value) else None


def showable(value: str) -> bool:
    """Whether something may be the value of a label: no longer than any name, and text that can be encoded."""
    if len(value) > LONGEST:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a pair, as JSON may have it
        return False
    return True


def shown(value: Number | float) -> str:
    """A value; one too large for a sample is shown as infinite."""
    try:
        text: str = floatToGoString(value)  # type: ignore[no-untyped-call]  # the library has no types for it
    except OverflowError:
        return "+Inf" if value > 0 else "-Inf"
    return text
