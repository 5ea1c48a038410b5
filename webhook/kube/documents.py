"""Files of objects: bytes in, documents out, each with its place; what cannot be read is said, the rest still comes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from webhook.kube import json_text, yaml_text
from webhook.kube.places import Place, UnparsableError

# Far above what kubectl writes for the largest clusters, and below what would take the memory of a machine.
MAX_BYTES: Final = 512 * 1024 * 1024
_MAX_LIST_DEPTH = 8

_BOUNDARY = re.compile(rb"^(?:---|\.\.\.)(?=[ \t\r\n]|\Z)", re.MULTILINE)
_NOTHING_YET = re.compile(rb"(?:[ \t]*(?:#[^\n]*)?\r?(?:\n|\Z)|%[^\n]*(?:\n|\Z))*\Z")
_LOOKS_LIKE_JSON = re.compile(r"(?:---[ \t\r\n]+)?[ \t\r\n]*\{[ \t\r\n]*[\"}]")
_UTF_16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A part of a file that is no document: where (line and column from 1), what is wrong, what to do."""

    file: str
    line: int
    column: int
    message: str
    fix: str
    index: int

    @property
    def text(self) -> str:
        """``FILE:LINE:COL: what is wrong; what to do``."""
        line = f"{self.file}:{self.line}:{self.column}: {self.message}"
        return f"{line}; {self.fix}" if self.fix else line


@dataclass(frozen=True, slots=True)
class Positions:
    """Where a document stands: the text it is part of, kept whole and read for places only when somebody asks."""

    text: str
    first_line: int
    is_json: bool
    number: int
    prefix: str

    def find(self, path: str) -> tuple[int, int]:
        """Line and column (from 1) of a field path, or of its nearest parent that is there; (0, 0) without a text."""
        if not self.text:
            return 0, 0
        place = _places(self.text, self.is_json)[self.number].find(self.prefix)
        place = place.find(path)
        return place.line + self.first_line - 1, place.column


@dataclass(frozen=True, slots=True)
class Document:
    """One object of a file. `value` is never to be changed: parts of it may be shared (YAML aliases).

    `index` counts the documents of the file from 1, empty ones left out, the items of a List one by one.
    """

    value: dict[str, Any]
    file: str
    index: int
    positions: Positions

    def position(self, path: str = "") -> tuple[int, int]:
        """Line and column (from 1) of a Kubernetes field path, or of its nearest parent that the document has."""
        return self.positions.find(path)


def from_object(value: dict[str, Any], name: str) -> Document:
    """The document of an object that no file holds: ``name`` stands for the file, and nothing in it has a line."""
    return Document(value, name, 1, Positions("", 1, False, 0, ""))


def load(data: bytes, file: str) -> list[Document | Unreadable]:
    """Every document of a file, in order, YAML or JSON, Lists taken apart. Never raises: what is wrong is Unreadable,
    a file without any document too; nothing at all is what an empty List holds.

    Values are those that kubectl sends (see yaml_text): a number with a point or an exponent is an int when it is
    whole, else a float, whose shortest text is the quantity (see quantity.parse).
    """
    if len(data) > MAX_BYTES:
        size = f"has {len(data)} bytes, more than {MAX_BYTES}"
        return [Unreadable(file, 1, 1, size, "split the file", 1)]
    if data.startswith(_UTF_16_MARKS) or b"\0" in data[:4]:
        return [Unreadable(file, 1, 1, "is UTF-16 or UTF-32, needs UTF-8", "save the file as UTF-8", 1)]
    found: list[Document | Unreadable] = []
    empty = True
    for chunk, first_line in _chunks(data.removeprefix(b"\xef\xbb\xbf")):
        some = _load_chunk(chunk, first_line, file, len(found))
        if some is not None:
            empty = False
            found.extend(some)
    if empty:
        return [Unreadable(file, 1, 1, "has no document", "write an object with apiVersion and kind", 1)]
    return found


def _chunks(data: bytes) -> Iterator[tuple[bytes, int]]:
    """The parts of a YAML stream, cut where a document begins or ends, so that a broken one leaves the others alone.

    A line that begins with `---` or `...` is a boundary wherever it stands, also inside a scalar.
    """
    start = 0
    line = 1
    for match in _BOUNDARY.finditer(data):
        cut = match.start()
        if match.group() == b"...":
            after = data.find(b"\n", cut)
            cut = len(data) if after < 0 else after + 1
        elif _NOTHING_YET.match(data, start, cut):
            continue
        if cut > start:
            yield data[start:cut], line
            line += data.count(b"\n", start, cut)
            start = cut
    if start < len(data):
        yield data[start:], line


def _load_chunk(chunk: bytes, first_line: int, file: str, before: int) -> list[Document | Unreadable] | None:
    """What one part holds; None where that is no document at all, but comments and blanks."""
    try:
        text = chunk.decode("utf-8")
    except UnicodeDecodeError as error:
        line = chunk.count(b"\n", 0, error.start)
        column = error.start - (chunk.rfind(b"\n", 0, error.start) + 1) + 1
        message = f"has the byte 0x{chunk[error.start]:02x}, which is no UTF-8"
        return [Unreadable(file, first_line + line, column, message, "save the file as UTF-8", before + 1)]
    if not _LOOKS_LIKE_JSON.match(text):
        found, problem = _read(yaml_text.values, text, first_line, False, file, before)
    else:
        start = text.index("{")
        json_part = re.sub(r"[^\n]", " ", text[:start]) + text[start:]
        found, problem = _read(json_text.values, json_part, first_line, True, file, before)
        if problem is not None:
            # YAML in braces may look like JSON; what neither can read is told as JSON.
            other, no_yaml = _read(yaml_text.values, text, first_line, False, file, before)
            if no_yaml is None:
                return other
    if problem is not None:
        line = problem.line + first_line - 1
        found = [*(found or ()), _broken(file, line, problem, before + len(found or ()) + 1)]
    return found


def _broken(file: str, line: int, problem: UnparsableError, index: int) -> Unreadable:
    return Unreadable(file, line, problem.column, problem.message, problem.fix, index)


def _read(
    values: Callable[[str], Iterator[Any]], text: str, first_line: int, is_json: bool, file: str, before: int
) -> tuple[list[Document | Unreadable] | None, UnparsableError | None]:
    found: list[Document | Unreadable] = []
    empty = True
    number = 0
    try:
        for value in values(text):
            positions = Positions(text, first_line, is_json, number, "")
            if value is not None:
                empty = False
                found.extend(_flatten(value, positions, file, before + len(found), 0))
            number += 1
    except UnparsableError as error:
        return found, error
    return None if empty else found, None


def _flatten(
    value: object, positions: Positions, file: str, before: int, depth: int
) -> Iterator[Document | Unreadable]:
    if not isinstance(value, dict):
        kind = "list" if isinstance(value, list) else "plain value"
        line, column = positions.find("")
        fix = "write one object, or a List with its objects under items"
        yield Unreadable(file, line, column, f"has a {kind}, needs an object with apiVersion and kind", fix, before + 1)
        return
    items = _items(value)
    if items is None or depth == _MAX_LIST_DEPTH:
        yield Document(value, file, before + 1, positions)
        return
    for number, item in enumerate(items):
        prefix = f"{positions.prefix}.items[{number}]" if positions.prefix else f"items[{number}]"
        inside = Positions(positions.text, positions.first_line, positions.is_json, positions.number, prefix)
        for found in _flatten(_with_type(item, value), inside, file, before, depth + 1):
            before += 1
            yield found


def _items(value: dict[str, Any]) -> list[Any] | None:
    """The items of `kind: List` or of a list of one kind, None when the object is no list."""
    kind = value.get("kind")
    if not isinstance(kind, str) or not kind.endswith("List"):
        return None
    items = value.get("items")
    return items if isinstance(items, list) else None


def _with_type(item: object, parent: dict[str, Any]) -> object:
    """An item of a list of one kind need not say its type again."""
    kind = parent["kind"].removesuffix("List")
    if not isinstance(item, dict) or not kind or ("apiVersion" in item and "kind" in item):
        return item
    return {"apiVersion": parent.get("apiVersion"), "kind": kind, **item}


@lru_cache(maxsize=4)
def _places(text: str, is_json: bool) -> list[Place]:
    found: list[Place] = []
    # What stands before the place where a stream is broken was given as documents, and has its places.
    with suppress(UnparsableError):
        for place in json_text.places(text) if is_json else yaml_text.places(text):
            found.append(place)  # noqa: PERF402, an extend would not keep what came before the end
    return found
