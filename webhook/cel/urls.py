"""Kubernetes' url library. Addresses must be absolute: with a scheme, or a path that begins with a slash."""

from __future__ import annotations

import re
import urllib.parse
from dataclasses import dataclass
from typing import ClassVar

from webhook.cel import types
from webhook.cel.budget import Budget
from webhook.cel.errors import EvaluationError
from webhook.cel.library import Library

LIBRARY = Library()

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_PORT = re.compile(r":[0-9]*")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_HOST = re.compile(r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:<>\"]|[^\x00-\x7f]|%[0-9A-Fa-f]{2})*")
_USER = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")


@dataclass(frozen=True, slots=True)
class URL:
    """The parts of an address as written; `host` includes the port."""

    text: str
    scheme: str
    host: str
    path: str
    query: str

    cel_type: ClassVar[str] = types.URL.name

    def __str__(self) -> str:
        return self.text


def parse(text: str) -> URL | None:
    """The parts of an absolute address, or None when Go's url.ParseRequestURI would refuse it.

    That function knows no fragments: it judges `#...` as part of what is before it.
    """
    if not text or _CONTROL.search(text):
        return None
    scheme, rest = "", text
    before, colon, after = text.partition(":")
    if colon and _SCHEME.fullmatch(before):
        scheme, rest = before.lower(), after
    elif colon and "/" not in before:
        return None
    if not rest.startswith("/"):
        # `mailto:a@b` is taken; without a scheme only a path may be.
        return URL(text, scheme, "", "", rest.partition("#")[0].partition("?")[2]) if scheme else None
    host, path = _authority(scheme, rest.partition("?")[0])
    user, at, host = host.rpartition("@")
    if (at and not _USER.fullmatch(user)) or not _host_is_good(host) or _BAD_ESCAPE.search(path):
        return None
    rest, _, fragment = rest.partition("#")
    rest, _, query = rest.partition("?")
    if _BAD_ESCAPE.search(fragment):
        return None
    return URL(text, scheme, _unescaped_host(host), _authority(scheme, rest)[1], query)


def _authority(scheme: str, rest: str) -> tuple[str, str]:
    if not scheme or not rest.startswith("//"):
        return "", rest
    host, slash, path = rest[2:].partition("/")
    return host, slash + path


def _host_is_good(host: str) -> bool:
    if host.startswith("["):
        inside, bracket, port = host[1:].rpartition("]")
        return bool(bracket) and (not port or bool(_PORT.fullmatch(port))) and not _BAD_ESCAPE.search(inside)
    name, colon, port = host.rpartition(":")
    if colon and not _PORT.fullmatch(colon + port):
        return False
    return bool(_HOST.fullmatch(name if colon else host))


def _unescaped_host(host: str) -> str:
    return urllib.parse.unquote(host) if "%" in host else host


def _split_host(url: URL) -> tuple[str, str]:
    host, port = url.host, ""
    name, colon, digits = host.rpartition(":")
    if colon and _PORT.fullmatch(colon + digits) and not (host.startswith("[") and not name.endswith("]")):
        host, port = name, digits
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return host, port


LIBRARY.declare("url", types.URL, types.STRING)
LIBRARY.declare("isURL", types.BOOL, types.STRING)
for _name in ("getScheme", "getHost", "getHostname", "getPort", "getEscapedPath"):
    LIBRARY.declare(_name, types.STRING, types.URL, member=True)
LIBRARY.declare("getQuery", types.map_of(types.STRING, types.list_of(types.STRING)), types.URL, member=True)


@LIBRARY.function("url", str, charges=True)
def _url(budget: Budget, text: str) -> URL:
    budget.spend(len(text) // 10)
    url = parse(text)
    if url is None:
        raise EvaluationError(f"has the address {text[:60]!r}, needs an absolute URL")
    return url


@LIBRARY.function("isURL", str, charges=True)
def _is_url(budget: Budget, text: str) -> bool:
    budget.spend(len(text) // 10)
    return parse(text) is not None


@LIBRARY.member("getScheme", URL)
def _scheme(url: URL) -> str:
    return url.scheme


@LIBRARY.member("getHost", URL)
def _host(url: URL) -> str:
    return url.host


@LIBRARY.member("getHostname", URL)
def _hostname(url: URL) -> str:
    return _split_host(url)[0]


@LIBRARY.member("getPort", URL)
def _port(url: URL) -> str:
    return _split_host(url)[1]


@LIBRARY.member("getEscapedPath", URL)
def _escaped_path(url: URL) -> str:
    return urllib.parse.quote(url.path, safe="/%:@!$&'()*+,;=-._~")


@LIBRARY.member("getQuery", URL)
def _query(url: URL) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for part in url.query.split("&"):
        if not part or ";" in part:
            continue
        key, _, value = part.partition("=")
        if _BAD_ESCAPE.search(part):
            continue
        found.setdefault(urllib.parse.unquote_plus(key), []).append(urllib.parse.unquote_plus(value))
    return found
