"""Bytes of an AdmissionReview to a :class:`~webhook.kube.admission.Request`, refusing whatever is not exactly one."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import orjson
from msgspec.structs import replace

from webhook.kube.admission import Request, read_request
from webhook.kube.raw import Json, mapping

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"
OPERATIONS = ("CREATE", "UPDATE", "DELETE", "CONNECT")

# What orjson can write again; real objects nest about 20 deep.
MAX_DEPTH = 254
# Twice the entries that the API server lets a claim have (resource.k8s.io validation). What it costs to judge a claim
# grows with their product, and whoever reaches the port may send more.
_CLAIM_LISTS = (("requests", 64), ("constraints", 64), ("results", 64), ("reservedFor", 512))
_CLAIMS = frozenset(("ResourceClaim", "ResourceClaimTemplate", "resourceclaims", "resourceclaimtemplates"))
_INT_RANGE = range(-(1 << 63), 1 << 64)


class BadReview(Exception):  # noqa: N818 - what the sender sent, not an error of ours
    """A body that is no AdmissionReview this server answers. ``str()`` names the place and what is wrong there."""

    status = 400


def decode(data: bytes) -> Request:
    """The request of a review as the API server sends it, JSON of admission.k8s.io/v1. Raises :class:`BadReview`.

    Refused everywhere in it: a member given twice, integers beyond 64 bits, numbers that are none, halves of a
    surrogate pair, deep nesting. In what drivers keep as raw bytes in an object (opaque parameters, device data) the
    API server lets those pass, nothing here judges it, and refusing the review would let its author switch the guard
    off wherever the registration says Ignore: there they are evened out.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        return replace(read_review(_exact(data, error)), sent=data)
    return replace(read_review(value if _round_trips(value, data) else _exact(data)), sent=data)


def read_review(value: object) -> Request:
    """The request of a parsed review. Raises :class:`BadReview`."""
    if not isinstance(value, dict):
        _refuse("", value, "an AdmissionReview")
    if value.get("kind") != KIND:
        _refuse("kind", value.get("kind"), KIND)
    if value.get("apiVersion") != API_VERSION:
        _refuse("apiVersion", value.get("apiVersion"), API_VERSION)
    raw = value.get("request")
    if not isinstance(raw, dict):
        _refuse("request", raw, "an object")
    _check(raw)
    return read_request(raw)


def _check(raw: Json) -> None:
    operation = raw.get("operation")
    if not isinstance(operation, str) or operation not in OPERATIONS:
        _refuse("request.operation", operation, f"one of {', '.join(OPERATIONS)}")
    for name, wanted in (("uid", True), ("name", False), ("namespace", False), ("subResource", False)):
        given = raw.get(name)
        if not (isinstance(given, str) and given) and (wanted or given not in (None, "")):
            _refuse(f"request.{name}", given, "a string")
    for name, member in (("kind", "kind"), ("resource", "resource")):
        fields = raw.get(name)
        if not isinstance(fields, dict):
            _refuse(f"request.{name}", fields, "an object")
        for part in ("group", "version", member):
            given = fields.get(part)
            if not isinstance(given, str) and not (given is None and part == "group"):
                _refuse(f"request.{name}.{part}", given, "a string")
        if not fields[member]:
            _refuse(f"request.{name}.{member}", fields[member], "a name")
    for name, kinds, needs in (
        ("userInfo", dict, "an object"),
        ("options", dict, "an object"),
        ("dryRun", bool, "true or false"),
        ("object", dict, "an object"),
        ("oldObject", dict, "an object"),
    ):
        given = raw.get(name)
        if given is not None and not isinstance(given, kinds):
            _refuse(f"request.{name}", given, needs)
    for name, operations in (("object", ("CREATE", "UPDATE")), ("oldObject", ("UPDATE", "DELETE"))):
        if operation in operations and raw.get(name) is None:
            _refuse(f"request.{name}", None, f"the object of {operation}")
    if {raw["kind"]["kind"], raw["resource"]["resource"]} & _CLAIMS:
        for name in ("object", "oldObject"):
            _check_claim(mapping(raw.get(name)), f"request.{name}")
    user = mapping(raw.get("userInfo"))
    for name, needed, needs in (
        ("username", str, "a string"),
        ("groups", list, "a list"),
        ("extra", dict, "an object"),
    ):
        if user.get(name) is not None and not isinstance(user[name], needed):
            _refuse(f"request.userInfo.{name}", user[name], needs)


def _check_claim(obj: Json, path: str) -> None:
    """Refuse a claim, or the one in a template, that no API server stores."""
    spec, status = mapping(obj.get("spec")), mapping(obj.get("status"))
    inner, allocation = mapping(spec.get("spec")), mapping(status.get("allocation"))
    for at, fields in (
        ("spec.devices", mapping(spec.get("devices"))),
        ("spec.spec.devices", mapping(inner.get("devices"))),
        ("status.allocation.devices", mapping(allocation.get("devices"))),
        ("status", status),
    ):
        for name, most in _CLAIM_LISTS:
            entries = fields.get(name)
            if isinstance(entries, list) and len(entries) > most:
                raise BadReview(f"{path}.{at}.{name}: has {len(entries)} entries, needs at most {most}")


def _refuse(path: str, has: object, needs: str) -> NoReturn:
    match has:
        case None:
            shown = "nothing"
        case dict():
            shown = "an object"
        case list():
            shown = "a list"
        case _:
            shown = ascii(has)[:80]
    raise BadReview(f"{path}: has {shown}, needs {needs}" if path else f"has {shown}, needs {needs}")


def _round_trips(value: object, data: bytes) -> bool:
    """Whether ``data`` is, byte for byte, how ``value`` is written: then nothing was lost in reading it.

    True for what the API server sends, which is compact and, being Go, escapes three characters that JSON need not.
    """
    text = data.rstrip(b"\n")
    if b"\\u00" in text:
        for escaped, plain in ((b"\\u003c", b"<"), (b"\\u003e", b">"), (b"\\u0026", b"&")):
            text = text.replace(escaped, plain)
    try:
        return orjson.dumps(value) == text
    except TypeError:  # deeper than MAX_DEPTH
        return False


def _exact(data: bytes, refused: orjson.JSONDecodeError | None = None) -> Any:
    """The value of ``data``, every member and number looked at; the slow way, for what does not round-trip."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadReview(f"byte {error.start + 1}: is not UTF-8") from error
    twice: dict[int, str] = {}

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) != len(pairs):
            names = [name for name, _ in pairs]
            twice[id(members)] = next(name for name in names if names.count(name) > 1)
        return members

    try:
        value = json.loads(
            text, object_pairs_hook=members, parse_int=_integer, parse_float=_number, parse_constant=_constant
        )
    except json.JSONDecodeError as error:
        # orjson says more plainly what is wrong, where both refuse.
        place, message = (refused, refused.msg) if refused else (error, error.msg)
        raise BadReview(f"line {place.lineno} column {place.colno}: {message.lower()}") from error
    except RecursionError as error:
        raise BadReview(f"is nested deeper than {MAX_DEPTH} levels") from error
    return _clean(value, twice)


class _Beyond(float):
    """A number that neither 64 bits nor a float can hold; ``text`` is how it was written."""

    text = ""


def _beyond(text: str) -> _Beyond:
    number = _Beyond(0)
    number.text = text
    return number


def _integer(text: str) -> int | _Beyond:
    return int(text) if len(text) < 21 and int(text) in _INT_RANGE else _beyond(text)


def _number(text: str) -> float:
    number = float(text)
    return number if number - number == 0 else _beyond(text)


def _constant(text: str) -> NoReturn:
    raise BadReview(f"has {text}, needs a number")


def _clean(root: Any, twice: dict[int, str]) -> Any:
    """``root`` changed in place so that orjson could have given it. Raises where that loses something judged."""
    holder: Any = [root]
    stack: list[tuple[Any, Any, str, int, bool]] = [(holder, 0, "", 0, False)]
    while stack:
        parent, key, path, depth, raw = stack.pop()
        value = parent[key]
        raw = raw or path.endswith((".opaque.parameters", "].data"))
        problem, instead = _problem(value, depth, twice)
        if problem and not raw:
            raise BadReview(f"{path or 'the review'}: {problem}")
        if problem:
            parent[key] = value = instead
        if isinstance(value, dict):
            for name in list(value):
                if not name.isascii() and _plain(name) != name:
                    if not raw:
                        raise BadReview(f"{path or 'the review'}: has half a surrogate pair in a name")
                    value[_plain(name)] = value.pop(name)
            stack += [(value, name, f"{path}.{name}" if path else name, depth + 1, raw) for name in value]
        elif isinstance(value, list):
            stack += [(value, index, f"{path}[{index}]", depth + 1, raw) for index in range(len(value))]
    return holder[0]


def _problem(value: Any, depth: int, twice: dict[int, str]) -> tuple[str, Any]:
    """What is wrong with ``value`` itself, empty when nothing is, and what stands for it where that is let pass."""
    if depth >= MAX_DEPTH and isinstance(value, (dict, list)):
        return f"is nested deeper than {MAX_DEPTH} levels", None
    if isinstance(value, dict) and id(value) in twice:
        return f"has {twice[id(value)]!a} twice, needs each member once", value
    if isinstance(value, _Beyond):
        return f"has {value.text[:40]}, needs a number of 64 bits", None
    if isinstance(value, str) and not value.isascii() and _plain(value) != value:
        return "has half a surrogate pair, needs UTF-8", _plain(value)
    return "", value


def _plain(text: str) -> str:
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
