"""What a certificate folder holds, as values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509 import Certificate

AUTHORITY_CERTIFICATE = "ca.crt"
AUTHORITY_KEY = "ca.key"
SERVING_CERTIFICATE = "tls.crt"
SERVING_KEY = "tls.key"


@dataclass(frozen=True, slots=True)
class Pair:
    """A private key and its certificate, which is the first of ``chain``; intermediates follow it."""

    chain: tuple[Certificate, ...]
    key: CertificateIssuerPrivateKeyTypes

    @property
    def certificate(self) -> Certificate:
        """The certificate that the key belongs to."""
        return self.chain[0]

    def certificate_pem(self) -> bytes:
        """The whole chain, PEM."""
        return to_pem(self.chain)

    def key_pem(self) -> bytes:
        """The key, PEM (PKCS #8), not encrypted."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@dataclass(frozen=True, slots=True)
class Bundle:
    """The content of ``folder``.

    ``authorities`` is what clients trust (``ca.crt``), empty where the folder has none; ``authority`` is the pair that
    can issue, None where ``ca.key`` is kept elsewhere, as in a mounted Secret.
    """

    folder: Path
    serving: Pair
    authorities: tuple[Certificate, ...] = ()
    authority: Pair | None = None


def to_pem(certificates: tuple[Certificate, ...]) -> bytes:
    """``certificates`` one after the other, PEM."""
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)
