"""Values as JSON and YAML, for scripts."""

from __future__ import annotations

import json
from typing import Any

import orjson


def dump(value: Any, name: str) -> str:
    """``value`` as ``json`` or ``yaml``, without a final line break."""
    if name == "json":
        try:
            return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
        except TypeError:  # integers beyond 64 bits and halves of surrogate pairs, which files may hold
            return json.dumps(value, indent=2)
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(value, Dumper=dumper, sort_keys=False, allow_unicode=True, width=120)
    return text.rstrip("\n")
