"""Chains of fields, `object.spec.nodeName`: read in one closure, since nearly every expression consists of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from webhook.cel.selection import select_slowly
from webhook.cel.values import Lazy

Frame = list[Any]
Run = Callable[[Frame], Any]
Position = tuple[int, int]

# What plain indexing raises when a value is no map, has no such key, or is still to be computed.
_FAILED = (KeyError, TypeError, IndexError)


def reader(slot: int) -> Run:
    """The closure that reads a root name."""

    def root(frame: Frame) -> Any:
        value = frame[slot]
        if type(value) is Lazy:
            value = frame[slot] = value.get()
        return value

    return root


def path(slot: int, fields: tuple[str, ...], positions: tuple[Position, ...]) -> Run:
    """The closure that reads a chain of one to three fields from a slot of the frame."""

    def slowly(frame: Frame) -> Any:
        value = frame[slot]
        if type(value) is Lazy:
            value = frame[slot] = value.get()
        for field, position in zip(fields, positions, strict=True):
            value = select_slowly(value, field, position)
        return value

    if len(fields) == 1:
        (only,) = fields

        def one(frame: Frame) -> Any:
            try:
                return frame[slot][only]
            except _FAILED:
                return slowly(frame)

        return one
    if len(fields) == 2:
        first, second = fields

        def two(frame: Frame) -> Any:
            try:
                return frame[slot][first][second]
            except _FAILED:
                return slowly(frame)

        return two
    first, second, third = fields

    def three(frame: Frame) -> Any:
        try:
            return frame[slot][first][second][third]
        except _FAILED:
            return slowly(frame)

    return three
