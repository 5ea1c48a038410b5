"""Who is told everything that a view of a cluster sees, beside the view itself: the journal, or an export."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from webhook.kube.raw import Json
from webhook.kube.release import Release


class Recorder(Protocol):
    """Is told in the order of what happened, from one thread; never fails, and never keeps the view waiting."""

    def put(self, obj: Json) -> None:
        """``obj`` was made or changed."""

    def gone(self, obj: Json) -> None:
        """The object with this apiVersion, kind, namespace and name is there no more; its resource version, where it
        has one, is that of its deletion.
        """

    def whole(self, kind: str, keys: Iterable[tuple[str, str]]) -> None:
        """There are these objects (namespace, name) of ``kind`` at this moment, and no others."""

    def judged(self, release: Release) -> None:
        """``release`` is what is judged by from now on."""

    def wants(self) -> bool:
        """Whether everything is to be told once more; true once each time."""


class Unrecorded:
    """Keeps nothing."""

    def put(self, obj: Json) -> None:
        """Nothing."""

    def gone(self, obj: Json) -> None:
        """Nothing."""

    def whole(self, kind: str, keys: Iterable[tuple[str, str]]) -> None:
        """Nothing."""

    def judged(self, release: Release) -> None:
        """Nothing."""

    def wants(self) -> bool:
        """Never."""
        return False


class Kept:
    """Keeps the objects that there are in the end, as they came."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str, str], Json] = {}

    @property
    def objects(self) -> list[Json]:
        """All of them, in the order in which they were first seen."""
        return list(self._objects.values())

    def put(self, obj: Json) -> None:
        """Keep ``obj``."""
        self._objects[_key(obj)] = obj

    def gone(self, obj: Json) -> None:
        """Forget the object."""
        self._objects.pop(_key(obj), None)

    def whole(self, kind: str, keys: Iterable[tuple[str, str]]) -> None:
        """Nothing: what is gone was told."""

    def judged(self, release: Release) -> None:
        """Nothing: the view has it."""

    def wants(self) -> bool:
        """Never."""
        return False


def _key(obj: Json) -> tuple[str, str, str]:
    metadata = obj.get("metadata") or {}
    return (str(obj.get("kind")), str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))
