"""Random changes of an object: what people, templates and broken programs do to a manifest.

Fields and their types come from the server's own OpenAPI, so that a change may add any field that a kind has.
"""

from __future__ import annotations

import copy
import json
import random
from functools import cache
from importlib import resources
from typing import Any

from tests.e2e.fidelity.objects import Object
from tests.e2e.fidelity.values import JUNK, key_of, scalar

Path = tuple[str | int, ...]
_KEPT = (("apiVersion",), ("kind",))
# What a writer does not write, or what the server then says something of its own about.
_LEFT_ALONE = {
    "managedFields", "selfLink", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
    "resourceVersion", "status", "generation",
}  # fmt: skip
_LONG = (4, 5, 8, 9, 10, 11, 16, 17, 32, 33, 48, 49, 64, 65, 128, 129)


@cache
def _schema(minor: int) -> dict[str, dict[str, Any]]:
    text = resources.files("webhook.kube").joinpath("schemas", f"1.{minor}.json").read_text()
    return json.loads(text)  # type: ignore[no-any-return]


class Mutation:
    """One object on its way: ``obj`` is changed in place."""

    def __init__(self, obj: Object, minor: int, rng: random.Random) -> None:
        self.obj = obj
        self._rng = rng
        self._types: dict[str, dict[str, str]] = _schema(minor)["types"]
        self._root = "#" + _schema(minor)["kinds"][obj["apiVersion"]][obj["kind"]]

    def places(self) -> list[tuple[Path, str]]:
        """Every place of the object with the schema's type of what stands there; unknown ones are left out."""
        found: list[tuple[Path, str]] = []
        self._walk(self.obj, self._root, (), found)
        return [place for place in found if place[0] and place[0] not in _KEPT]

    def _walk(self, value: Any, kind: str, path: Path, found: list[tuple[Path, str]]) -> None:
        found.append((path, kind))
        shape, inner = kind[0], kind[1:]
        if shape == "#" and isinstance(value, dict):
            for name, member in value.items():
                if (below := self._types[inner].get(name)) and not (
                    path in ((), ("metadata",)) and name in _LEFT_ALONE
                ):
                    self._walk(member, below, (*path, name), found)
        elif shape == "{" and isinstance(value, dict):
            for name, member in value.items():
                self._walk(member, inner, (*path, name), found)
        elif shape == "[" and isinstance(value, list):
            for index, member in enumerate(value):
                self._walk(member, inner, (*path, index), found)

    def at(self, path: Path) -> Any:
        value: Any = self.obj
        for step in path:
            value = value[step]
        return value

    def change(self) -> None:
        """One change somewhere. Deep places are as likely as shallow ones: first a depth, then a place."""
        places = self.places()
        if not places:
            return
        depth = self._rng.choice(sorted({len(path) for path, _ in places}))
        path, kind = self._rng.choice([place for place in places if len(place[0]) == depth])
        value, holder, last = self.at(path), self.at(path[:-1]), path[-1]
        names = [step for step in path if isinstance(step, str)]
        draw = self._rng.random()
        if draw < 0.08:
            holder.pop(last)
        elif draw < 0.12:
            holder[last] = None
        elif draw < 0.135:
            holder[last] = copy.deepcopy(self._rng.choice(JUNK))
        elif kind[0] == "#" and isinstance(value, dict):
            self._struct(value, kind[1:], draw)
        elif kind[0] == "[" and isinstance(value, list):
            self._list(value, kind[1:], names[-1])
        elif kind[0] == "{" and isinstance(value, dict):
            self._map(value, kind[1:], names[-1])
        else:
            holder[last] = copy.deepcopy(scalar(kind, names[-1], names[-2] if len(names) > 1 else "", self._rng))

    def _struct(self, value: Object, kind: str, draw: float) -> None:
        if draw < 0.15:
            value[self._rng.choice(("foo", "Name", "value ", "extra", "capacity", "mapping", "name"))] = "x"
            return
        fields = sorted(
            name for name in self._types[kind] if name not in _LEFT_ALONE and name not in ("apiVersion", "kind")
        )
        if not fields:
            return
        name = self._rng.choice(fields)
        value[name] = self.make(self._types[kind][name], name, kind, 3)

    def _list(self, value: list[Any], kind: str, field: str) -> None:
        draw = self._rng.random()
        if draw < 0.25 and value:
            value.append(copy.deepcopy(self._rng.choice(value)))
        elif draw < 0.45 and value:
            # Too long a list, of things that are mostly fine: the same one again under other names.
            first = self._rng.choice(value)
            for number in range(self._rng.choice(_LONG) - len(value)):
                item = copy.deepcopy(first)
                if isinstance(item, dict):
                    for name in ("name", "key", "counterSet"):
                        if isinstance(item.get(name), str):
                            item[name] = f"{item[name][:50]}{number}"
                elif isinstance(item, str):
                    item = f"{item[:50]}{number}"
                value.append(item)
        elif draw < 0.55 and value:
            value.pop(self._rng.randrange(len(value)))
        elif draw < 0.6:
            value.clear()
        elif draw < 0.7:
            self._rng.shuffle(value)
        else:
            value.insert(self._rng.randrange(len(value) + 1), self.make(kind, field, "", 3))

    def _map(self, value: Object, kind: str, field: str) -> None:
        draw = self._rng.random()
        if draw < 0.4 and value:
            value[key_of(field, self._rng)] = value.pop(self._rng.choice(sorted(value)))
        elif draw < 0.55:
            for number in range(self._rng.choice(_LONG) - len(value)):
                value[f"k{number}"] = self.make(kind, field, "", 1)
        elif draw < 0.6:
            value.clear()
        else:
            value[key_of(field, self._rng)] = self.make(kind, field, "", 3)

    def make(self, kind: str, field: str, parent: str, depth: int) -> Any:
        """Something of the schema's type ``kind``, with values that somebody might write."""
        shape, inner = kind[0], kind[1:]
        if shape == "#":
            if depth <= 0:
                return {}
            fields = sorted(name for name in self._types[inner] if name not in _LEFT_ALONE)
            chosen = self._rng.sample(fields, min(len(fields), self._rng.choice((1, 2, 2, 3))))
            return {name: self.make(self._types[inner][name], name, field, depth - 1) for name in chosen}
        if shape == "[":
            return [self.make(inner, field, parent, depth) for _ in range(self._rng.choice((0, 1, 1, 2)))]
        if shape == "{":
            return {
                key_of(field, self._rng): self.make(inner, field, parent, depth)
                for _ in range(self._rng.choice((0, 1, 1, 2)))
            }
        return copy.deepcopy(scalar(kind, field, parent, self._rng))


def mutated(obj: Object, minor: int, rng: random.Random) -> Object:
    """A copy of ``obj`` after none to four changes, most often one or two."""
    mutation = Mutation(copy.deepcopy(obj), minor, rng)
    for _ in range(rng.choice((0, 1, 1, 1, 1, 2, 2, 2, 3, 4))):
        mutation.change()
    return mutation.obj
