"""Values as JSON and YAML, for scripts."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import orjson

# What kubectl's YAML reads as a number or a boolean, and PyYAML as a string that needs no quotes.
_UNQUOTED = re.compile(r"[yYnN]|[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?0[bBoOxX][0-9a-fA-F_]+")

# Within these formats it can only be part of a string.
_CONTROLS = re.compile(r"[^\n\x20-\x7e]")


def dump(value: Any, name: str) -> str:
    """``value`` as ``json`` or ``yaml``, without a final line break. What no printer prints is escaped: a terminal may
    do as it says.
    """
    if name == "json":
        try:
            text = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
        except TypeError:  # integers beyond 64 bits and halves of surrogate pairs, which files may hold
            return json.dumps(value, indent=2)
        return _CONTROLS.sub(lambda found: _escaped(found[0], json.dumps(found[0])[1:-1]), text)
    import yaml

    text = yaml.dump(value, Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=120)
    return _CONTROLS.sub(lambda found: _escaped(found[0], f"\\U{ord(found[0]):08x}"), text).rstrip("\n")


def _escaped(character: str, escape: str) -> str:
    return character if character.isprintable() else escape


@cache
def _dumper() -> Any:
    import yaml

    class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]  # one of two, by how it is built
        pass

    def quoted(dumper: Any, value: str) -> Any:
        style = "'" if _UNQUOTED.fullmatch(value) else None
        if not value.replace("\n", "").isprintable():
            # Only double quotes have escapes, and none of them is for half of a surrogate pair.
            style, value = '"', value.encode("utf-8", "backslashreplace").decode()
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style)

    Dumper.add_representer(str, quoted)
    return Dumper
