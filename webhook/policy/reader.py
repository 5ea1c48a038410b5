"""Reads the fields of a document and gathers every problem with its place, instead of stopping at the first."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from webhook.kube.documents import Document
from webhook.kube.raw import Json
from webhook.policy.place import Expression, pieces, scalar
from webhook.policy.problem import Problem, nearest


def kind_of(value: object) -> str:
    """The JSON word for the type of ``value``."""
    words = {type(None): "null", bool: "a boolean", str: "a string", list: "a list", dict: "a map"}
    return words.get(type(value), "a number")


class Reader:
    """Reads one document; what it finds wrong is in ``problems``. A field that is wrong is given as absent."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[Problem] = []
        self._lines = document.positions.text.split("\n")

    def problem(self, path: str, message: str, fix: str = "") -> None:
        """Note that the field at ``path`` is wrong."""
        line, column = self.document.position(path)
        self.problems.append(Problem(self.document.file, line, column, message, fix, path))

    def fields(self, value: object, path: str, known: Collection[str], hints: Mapping[str, str] | None = None) -> Json:
        """``value`` as a map, its members that are not ``known`` reported with the nearest right name or a hint."""
        if not isinstance(value, dict):
            self.problem(path, f"has {kind_of(value)}, needs a map of {', '.join(known)}")
            return {}
        for name in value:
            if name not in known:
                where = f"{path}.{name}" if path else str(name)
                fix = (hints or {}).get(str(name), "") or nearest(str(name), known)
                self.problem(where, f"is no field here, needs one of {', '.join(known)}", fix)
        return value

    def text(self, fields: Json, name: str, path: str, default: str = "", required: bool = False) -> str:
        """The string member ``name``."""
        value = fields.get(name)
        if value is None or value == "":
            if required:
                self.missing(name, path)
            return default
        if not isinstance(value, str):
            self.problem(f"{path}.{name}", f"has {kind_of(value)}, needs a string")
            return default
        return value

    def choice(self, fields: Json, name: str, path: str, known: Collection[str], default: str = "") -> str:
        """The member ``name``, one of ``known``; required when there is no default."""
        value = self.text(fields, name, path, default, required=not default)
        if value and value not in known:
            self.problem(f"{path}.{name}", f"has {value}, needs {' or '.join(known)}", nearest(value, known))
            return default
        return value

    def texts(self, fields: Json, name: str, path: str, required: bool = False) -> tuple[str, ...]:
        """The member ``name``, a list of strings."""
        value = fields.get(name)
        if not value and required:
            self.missing(name, path, "a list with at least one member")
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.problem(f"{path}.{name}", "has something else, needs a list of strings")
            return ()
        return tuple(value)

    def items(self, fields: Json, name: str, path: str, required: bool = False) -> Iterator[tuple[str, object]]:
        """Path and value of each member of the list ``name``."""
        value = fields.get(name)
        if not value and required:
            self.missing(name, path, "a list with at least one member")
        if value is None:
            return
        if not isinstance(value, list):
            self.problem(f"{path}.{name}", f"has {kind_of(value)}, needs a list")
            return
        for index, item in enumerate(value):
            yield f"{path}.{name}[{index}]", item

    def expression(self, fields: Json, name: str, path: str, required: bool = True) -> Expression | None:
        """The CEL expression ``name``, with the places of its text."""
        value = self.text(fields, name, path, required=required)
        if not value:
            return None
        where = f"{path}.{name}"
        above = self.document.positions.first_line - 1
        line, column = self.document.position(where)
        found = pieces(value, self._lines, *scalar(self._lines, line - above, column))
        return Expression(value, where, self.document.file, tuple((o, at + above, c) for o, at, c in found))

    def missing(self, name: str, path: str, needs: str = "") -> None:
        """Note that the required member ``name`` is not there."""
        self.problem(path, f"has no {name}, needs {needs or 'one'}")
