"""Values as JSON and YAML, for scripts."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import orjson

# What kubectl's YAML reads as a number or a boolean, and PyYAML as a string that needs no quotes.
_UNQUOTED = re.compile(r"[yYnN]|[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?0[bBoOxX][0-9a-fA-F_]+")


def dump(value: Any, name: str) -> str:
    """``value`` as ``json`` or ``yaml``, without a final line break."""
    if name == "json":
        try:
            return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
        except TypeError:  # integers beyond 64 bits and halves of surrogate pairs, which files may hold
            return json.dumps(value, indent=2)
    import yaml

    text: str = yaml.dump(value, Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=120)
    return text.rstrip("\n")


@cache
def _dumper() -> Any:
    import yaml

    class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]  # one of two, by how it is built
        pass

    def quoted(dumper: Any, value: str) -> Any:
        style = "'" if _UNQUOTED.fullmatch(value) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style)

    Dumper.add_representer(str, quoted)
    return Dumper
