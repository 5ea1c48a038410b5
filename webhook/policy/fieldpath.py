"""Objects with some fields changed, by Kubernetes field path: ``spec.devices[0].capacity[size].value``."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

from webhook.kube.raw import Json

_PATH = re.compile(r"(?:(?:^|\.)[^.\[\]]+|\[[^\]]+\])+")
_STEP = re.compile(r"\.?([^.\[\]]+)|\[([^\]]+)\]")


def changed(obj: Json, changes: Mapping[str, object]) -> Json:
    """A copy of ``obj`` in which every path has its new value; null removes. A list takes the index after its last as
    an addition. Raises ValueError for what is no path, LookupError for one that leads nowhere.
    """
    result = copy.deepcopy(obj)
    for path, value in changes.items():
        if not _PATH.fullmatch(path):
            raise ValueError(f"has the path {path}, needs one like spec.devices[0].capacity[size].value")
        steps = [match[1] or match[2] for match in _STEP.finditer(path)]
        place: Any = result
        for step in steps[:-1]:
            place = _enter(place, step, path)
        _put(place, steps[-1], copy.deepcopy(value), path)
    return result


def _enter(place: Any, step: str, path: str) -> Any:
    if isinstance(place, dict):
        return place.setdefault(step, {})
    if isinstance(place, list) and step.isascii() and step.isdigit() and int(step) < len(place):
        return place[int(step)]
    raise LookupError(f"has the path {path}, which leads nowhere at {step}")


def _put(place: Any, step: str, value: object, path: str) -> None:
    if isinstance(place, dict):
        if value is None:
            place.pop(step, None)
        else:
            place[step] = value
    elif isinstance(place, list) and step.isascii() and step.isdigit() and int(step) <= len(place):
        place[int(step) : int(step) + 1] = [] if value is None else [value]
    else:
        raise LookupError(f"has the path {path}, which leads nowhere at {step}")
