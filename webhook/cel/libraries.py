"""All functions that expressions may call."""

from __future__ import annotations

from webhook.cel import (
    conversions,
    formats,
    formatting,
    lists,
    maths,
    network,
    quantity,
    regexes,
    semver,
    strings,
    times,
    urls,
)
from webhook.cel.library import merge

LIBRARY = merge(
    conversions.LIBRARY,
    formats.LIBRARY,
    formatting.LIBRARY,
    lists.LIBRARY,
    maths.LIBRARY,
    network.LIBRARY,
    quantity.LIBRARY,
    regexes.LIBRARY,
    semver.LIBRARY,
    strings.LIBRARY,
    times.LIBRARY,
    urls.LIBRARY,
)
