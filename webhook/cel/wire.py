"""Reads protobuf's wire format, as far as a serialized CEL expression needs it."""

from __future__ import annotations

import struct
from collections.abc import Iterator

Value = int | bytes


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The unsigned varint at `at`, and the offset behind it."""
    result = shift = 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at
        shift += 7


def fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """(field number, value) in order: int for varints and fixed widths, bytes for everything with a length."""
    at, end = 0, len(data)
    while at < end:
        key, at = data[at], at + 1  # nearly every number is below 128 and needs no loop
        if key >= 0x80:
            key, at = varint(data, at - 1)
        kind = key & 7
        if kind == 0:
            number, at = data[at], at + 1
            if number >= 0x80:
                number, at = varint(data, at - 1)
            yield key >> 3, number
        elif kind == 2:
            length, at = data[at], at + 1
            if length >= 0x80:
                length, at = varint(data, at - 1)
            yield key >> 3, data[at : at + length]
            at += length
        elif kind == 1:
            yield key >> 3, int.from_bytes(data[at : at + 8], "little")
            at += 8
        elif kind == 5:
            yield key >> 3, int.from_bytes(data[at : at + 4], "little")
            at += 4
        else:
            raise ValueError(f"has wire type {kind}, needs 0, 1, 2 or 5")


def signed(number: int) -> int:
    """A varint read as int64."""
    return number - (1 << 64) if number >= 1 << 63 else number


def double(bits: int) -> float:
    """The eight bytes of a fixed64 read as a double."""
    return float(struct.unpack("<d", bits.to_bytes(8, "little"))[0])


def packed(data: bytes) -> list[int]:
    """A packed repeated field of varints."""
    numbers, at = [], 0
    while at < len(data):
        number, at = varint(data, at)
        numbers.append(number)
    return numbers
