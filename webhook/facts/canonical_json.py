"""JSON as Go writes it again, and the blobs of claims and classes that are stored in another form.

The API server keeps opaque parameters and device data as the bytes they came in, compares them as bytes, and writes
them anew for whoever patches the object: one that is not in Go's own form has then changed, and that writer is refused
for a field it did not touch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache

import msgspec
import orjson
from msgspec import Raw, Struct

from webhook.kube.finding import Finding

# How a review begins that nothing but the API server has written: no reader can tell from any other one what it held.
_SENT = b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{'

_INT64 = range(-(1 << 63), 1 << 63)
# What Go writes as an escape though it need not.
_ESCAPED = (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029"))
# Half a surrogate pair, beside what looks like one (the first group).
_HALF = re.compile(
    rb"(\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
# Of a blob, in a message.
_SHOWN = 60
_BEFORE = 20
_ADVICE = "write sorted keys, no spaces, the shortest numbers, plain UTF-8, and < > & as \\u003c \\u003e \\u0026"


class _Opaque(Struct):
    driver: str = ""
    parameters: Raw = Raw()


class _Config(Struct):
    opaque: _Opaque | None = None


class _Devices(Struct):
    config: list[_Config | None] | None = None


class _Data(Struct):
    driver: str = ""
    data: Raw = Raw()


class _Allocation(Struct):
    devices: _Devices | None = None


class _Spec(Struct):
    """Of a claim (``devices``), of a template (``spec``) or of a class (``config``)."""

    devices: _Devices | None = None
    config: list[_Config | None] | None = None
    spec: _Spec | None = None


class _Status(Struct):
    allocation: _Allocation | None = None
    devices: list[_Data | None] | None = None


class _Object(Struct):
    spec: _Spec | None = None
    status: _Status | None = None


class _Request(Struct, rename={"old": "oldObject"}):
    object: _Object | None = None
    old: _Object | None = None


class _Review(Struct):
    request: _Request


class Blob(Struct, frozen=True):
    """Raw JSON in an object: its field path, whose it is, and its text as a review has it."""

    path: str
    driver: str
    text: str


def canonical(text: str) -> str:
    """The JSON ``text`` as Go writes its value: keys sorted, no spaces, ``<``, ``>``, ``&`` and the two line separators
    escaped and nothing else that need not be, integers of 64 bits as they are and other numbers in their shortest form;
    of a key given twice the last one. Raises ValueError for what has no such form.
    """
    try:
        value = json.loads(text, parse_int=_integer, parse_float=_float, parse_constant=_constant)
        written = orjson.dumps(_plain(value) if "\\u" in text else value, option=orjson.OPT_SORT_KEYS).decode()
    except (RecursionError, TypeError) as error:
        raise ValueError("is nested too deep") from error
    for plain, escaped in _ESCAPED:
        if plain in written:
            written = written.replace(plain, escaped)
    return written


def is_canonical(text: str) -> bool:
    """Whether the JSON ``text`` is, byte for byte, how Go writes its value."""
    try:
        return canonical(text) == text
    except ValueError:
        return False


def blob_problems(sent: bytes) -> list[Finding]:
    """``blob-not-canonical`` (warning) for each blob that this write stores in another form than Go's: opaque
    parameters of claims, of templates, of classes and of allocations, and ``status.devices[].data``.

    ``sent`` are the bytes of the review. The API server leaves out spaces there and escapes ``<``, ``>``, ``&`` and
    line separators: whether the blob was stored with those cannot be seen. All else can, but not in a review that
    somebody else has written again (a recorded one): about those nothing is said.
    """
    if not sent.startswith(_SENT) or not (b'"parameters":' in sent or b'"data":' in sent):
        return []
    try:
        request = _read(sent)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Not what the API server writes, after all: others judge the shape of objects.
        return []
    if request.object is None:
        return []
    stored = {(section, blob.driver, blob.text) for section, blob in _blobs(request.old or _Object())}
    return [
        _problem(blob)
        for section, blob in _blobs(request.object)
        if (section, blob.driver, blob.text) not in stored and not _known(blob.text)
    ]


def _read(sent: bytes) -> _Request:
    try:
        return msgspec.json.decode(sent, type=_Review).request
    except msgspec.DecodeError:
        # Half a surrogate pair, perhaps, which Go passes on; and so it is in another form than Go's still.
        even = _HALF.sub(lambda found: found[0] if found[1] else b"\\ufffd", sent)
        return msgspec.json.decode(even, type=_Review).request


@lru_cache(maxsize=1024)
def _known(text: str) -> bool:
    return is_canonical(text)


def _blobs(obj: _Object) -> Iterator[tuple[str, Blob]]:
    """The blobs of an object, each with the list it is in: what only has another place there is not written anew."""
    spec, status = obj.spec or _Spec(), obj.status or _Status()
    inner = spec.spec or _Spec()
    allocation = status.allocation or _Allocation()
    for section, configs in (
        ("spec.config", spec.config),
        ("spec.devices.config", (spec.devices or _Devices()).config),
        ("spec.spec.devices.config", (inner.devices or _Devices()).config),
        ("status.allocation.devices.config", (allocation.devices or _Devices()).config),
    ):
        for index, config in enumerate(configs or ()):
            opaque = config.opaque if config is not None else None
            if opaque is not None and (text := _text(opaque.parameters)):
                path = f"{section}[{index}].opaque.parameters"
                yield section, Blob(path, opaque.driver, text)
    for index, device in enumerate(status.devices or ()):
        if device is not None and (text := _text(device.data)):
            yield "status.devices", Blob(f"status.devices[{index}].data", device.driver, text)


def _text(raw: Raw) -> str:
    """The text of a blob; empty where there is none."""
    text = bytes(raw).decode("utf-8", "replace")
    return "" if text == "null" else text


def _problem(blob: Blob) -> Finding:
    path, text = blob.path, blob.text
    reporting = path.startswith("status.devices")
    victim = "the claim's status" if reporting else "a claim that has it"
    cause = f"naming {blob.driver or 'its driver'}" if reporting else "immutable"
    fix = f"whoever patches {victim} is refused for it (422, {cause}); {_ADVICE}"
    try:
        wanted = canonical(text)
    except ValueError as error:
        has, needs = f"JSON that nobody can write again ({error})", "JSON that Go can read"
        return Finding("blob-not-canonical", path, has, needs, fix, "warning")
    at = next((n for n, (one, other) in enumerate(zip(text, wanted, strict=False)) if one != other), len(wanted))
    needs = f"Go's own form {_around(wanted, at)}"
    return Finding("blob-not-canonical", path, _around(text, at), needs, fix, "warning")


def _around(text: str, at: int) -> str:
    """``text`` near the character ``at``, where it is long."""
    start = max(0, at - _BEFORE) if len(text) > _SHOWN else 0
    shown = text[start : start + _SHOWN]
    return f"{'...' if start else ''}{shown}{'...' if start + _SHOWN < len(text) else ''}"


def _integer(text: str) -> int | orjson.Fragment:
    return int(text) if len(text) < 21 and int(text) in _INT64 else _float(text)


def _float(text: str) -> orjson.Fragment:
    number = float(text)
    if number - number != 0:
        raise ValueError(f"has {text[:40]}, which is no number of 64 bits")
    return orjson.Fragment(_shortest(number))


def _constant(text: str) -> float:
    raise ValueError(f"has {text}")


def _shortest(number: float) -> str:
    """A number as encoding/json writes it: the shortest digits that mean it, with an exponent only where it is below a
    millionth or from 10^21 up.
    """
    if number == 0:
        return "0"  # of -0.0 Go makes -0, and 0 of that the next time
    if 1e-6 <= abs(number) < 1e21:
        return f"{Decimal(repr(number)):f}".removesuffix(".0")
    return repr(number).replace("e-0", "e-")


def _plain(value: object) -> object:
    """``value`` with the mark of what cannot be read in place of each half of a surrogate pair."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
