"""A TLS context for a server that takes a renewed certificate while it serves."""

from __future__ import annotations

import ssl
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from certs.bundle import SERVING_CERTIFICATE, SERVING_KEY, to_pem
from certs.error import CertificateError
from certs.files import Signature, changed, load, read_certificates, signature
from certs.inspect import ends


class ServingContext(ssl.SSLContext):
    """A server context that hands every new connection to the newest good context built from a folder.

    asyncio and uvloop open a TLS connection through ``wrap_bio`` and blocking servers through ``wrap_socket``; both go
    to the current context, so replacing one reference changes the certificate, its kind of key and the client authority
    together, and connections that are open go on as they are. ``ends`` tells by use when what is served ends to be
    valid. Loading a pair into a live context does neither: it keeps
    an earlier pair of another kind, cannot take back a client authority, and a pair that does not match breaks every
    handshake from then on.

    TLS 1.2 or newer, HTTP/1.1 by ALPN. With ``client_authority`` (a PEM file) clients must show a certificate that
    it issued. Raises CertificateError where the folder cannot serve at ``now``.
    """

    _folder: Path
    _client_authority: Path | None
    _current: ssl.SSLContext
    _seen: Signature
    ends: dict[str, datetime]

    def __new__(cls, folder: Path, now: datetime, client_authority: Path | None = None) -> Self:
        """Make the context; see the class."""
        context = super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)
        context._folder = folder
        context._client_authority = client_authority
        context.swap(now)
        return context

    def swap(self, now: datetime) -> None:
        """Serve new connections with what the folder holds now.

        Raises CertificateError where that cannot serve at ``now``; what was served before is still served then.
        """
        self._seen = signature(self._folder, *self._more())
        self._current, self.ends = _build(self._folder, self._client_authority, now)

    def refresh(self, now: datetime) -> bool:
        """As ``swap``, where a file changed since the last look, good or bad; says whether it did."""
        if not changed(self._folder, self._seen, *self._more()):
            return False
        self.swap(now)
        return True

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """As ``ssl.SSLContext.wrap_bio``, on the current context."""
        return self._current.wrap_bio(*args, **kwargs)

    def wrap_socket(self, *args: Any, **kwargs: Any) -> ssl.SSLSocket:
        """As ``ssl.SSLContext.wrap_socket``, on the current context."""
        return self._current.wrap_socket(*args, **kwargs)

    def _more(self) -> tuple[Path, ...]:
        return (self._client_authority,) if self._client_authority else ()


def _build(folder: Path, client_authority: Path | None, now: datetime) -> tuple[ssl.SSLContext, dict[str, datetime]]:
    held = load(folder, now)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        # The empty password keeps OpenSSL from asking a terminal, should an encrypted key have just been put there.
        context.load_cert_chain(folder / SERVING_CERTIFICATE, folder / SERVING_KEY, password="")
    except (OSError, ValueError) as error:
        raise CertificateError(folder / SERVING_CERTIFICATE, f"cannot serve: {error}") from error
    if client_authority:
        trusted = read_certificates(client_authority)
        context.load_verify_locations(cadata=to_pem(trusted).decode("ascii"))
        context.verify_mode = ssl.CERT_REQUIRED
    return context, ends(held)
