"""Where the API server and we differ about an object."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.client import Client
from tests.e2e.fidelity.objects import Object
from tests.e2e.fidelity.ours import Opinion, Ours, as_decoder
from tests.e2e.fidelity.server import NONE, Answer, ask, path_of

# The decoder tells no more unknown fields than these.
_TOLD = 100
LISTED = yaml.safe_load((Path(__file__).parent / "differences.yaml").read_text())["validation"]


@dataclass(frozen=True)
class Difference:
    """One error (field path and cause) that only ``side`` (``server`` or ``guard``) makes; without a cause it is about
    whether the object decodes at all.
    """

    side: str
    path: str
    cause: str

    def __str__(self) -> str:
        return f"only the {self.side}: {self.path} {self.cause}"


class Comparison:
    """Asks both about objects, one after the other, and counts."""

    def __init__(self, client: Client, ours: Ours, minor: int) -> None:
        self._client, self._ours, self._minor = client, ours, minor
        self.outcomes: Counter[str] = Counter()
        self.listed: Counter[int] = Counter()

    def create(self, obj: Object) -> frozenset[Difference]:
        """The unlisted differences about a new object."""
        opinion = self._ours.create(obj)
        answer = ask(self._client, obj, path_of(obj))
        found = _decoding(answer, opinion)
        self.outcomes[answer.outcome] += 1
        if answer.outcome == "unknown":
            # What remains when the server drops what it does not know is judged as well.
            answer = ask(self._client, obj, path_of(obj), strict=False)
        if answer.outcome != "undecodable" and not found:
            found = _judging(answer, opinion)
        return self._unlisted(obj, found, answer)

    def update(self, obj: Object, old: Object) -> frozenset[Difference]:
        """The unlisted differences about a change of a stored object."""
        opinion = self._ours.update(obj, old)
        answer = ask(self._client, obj, path_of(old, name=True), strict=False, update=True)
        self.outcomes[answer.outcome] += 1
        return (
            frozenset() if answer.outcome == "undecodable" else self._unlisted(obj, _judging(answer, opinion), answer)
        )

    def _unlisted(self, obj: Object, found: frozenset[Difference], answer: Answer) -> frozenset[Difference]:
        left = set()
        for difference in found:
            number = listed(difference, obj["kind"], self._minor, answer.text)
            if number is None:
                left.add(difference)
            else:
                self.listed[number] += 1
        return frozenset(left)


def listed(difference: Difference, kind: str, minor: int, text: str) -> int | None:
    """The number of the entry of differences.yaml that has ``difference``, None when there is none.

    ``text`` is what the server said.
    """
    for number, entry in enumerate(LISTED):
        if (
            difference.side == entry["side"]
            and difference.cause == entry["cause"]
            and minor in entry.get("releases", [36, 37])
            and kind in entry.get("kinds", [kind])
            and re.fullmatch(entry["path"], difference.path)
            and re.search(entry.get("says", ""), text)
        ):
            return number
    return None


def _decoding(answer: Answer, opinion: Opinion) -> frozenset[Difference]:
    if answer.outcome == "undecodable":
        return frozenset() if opinion.schema else frozenset({Difference("server", answer.text[-120:], "undecodable")})
    ours, theirs = as_decoder(opinion.schema), answer.errors if answer.outcome == "unknown" else NONE
    found = {Difference("server", path, "undecodable") for path, _ in theirs - ours}
    if len(theirs) < _TOLD:
        found |= {Difference("guard", path, "undecodable") for path, _ in ours - theirs}
    return frozenset(found)


def _judging(answer: Answer, opinion: Opinion) -> frozenset[Difference]:
    match answer.outcome:
        case "cut":
            return frozenset() if opinion.cut else frozenset({Difference("server", "", "cut")})
        case "misplaced":
            return frozenset()
        case "other":
            return frozenset({Difference("server", answer.text, "other")})
    found = {Difference("server", *error) for error in answer.errors - opinion.errors}
    found |= {Difference("guard", *error) for error in opinion.errors - answer.errors}
    if opinion.cut and answer.outcome != "refused":
        found.add(Difference("guard", "", "cut"))
    # Nodes are looked at last, and only when nothing else is wrong.
    if answer.outcome != "refused" and opinion.undeclared != (answer.outcome == "undeclared"):
        found.add(Difference("guard" if opinion.undeclared else "server", "", "undeclared"))
    return frozenset(found)


def excerpt(obj: Object) -> dict[str, Any]:
    """``obj`` for a message: texts that are too long to read are cut."""

    def cut(value: Any) -> Any:
        if isinstance(value, dict):
            return {key[:100]: cut(each) for key, each in value.items()}
        if isinstance(value, list):
            return [cut(each) for each in value[:70]]
        return value if not isinstance(value, str) or len(value) < 200 else f"{value[:40]}… ({len(value)} characters)"

    return {key: cut(value) for key, value in obj.items()}
