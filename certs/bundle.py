"""What a certificate folder or Secret holds, as values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath

from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509 import Certificate

# Files of a folder and keys of a Secret (type kubernetes.io/tls, with the names that others use as well), then the two
# that are there only while the authority is being replaced.
AUTHORITY_CERTIFICATE = "ca.crt"
AUTHORITY_KEY = "ca.key"
SERVING_CERTIFICATE = "tls.crt"
SERVING_KEY = "tls.key"
UPCOMING_KEY = "ca-next.key"
RETIRING = "ca-old.crt"
NAMES = (AUTHORITY_CERTIFICATE, AUTHORITY_KEY, SERVING_CERTIFICATE, SERVING_KEY, UPCOMING_KEY, RETIRING)


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
class Material:
    """The content of ``place``, a folder or a Secret.

    ``authorities`` is what clients are to trust (``ca.crt``), empty where there is none; ``authority`` is the pair that
    issues, None where its key is kept elsewhere, as in the Secrets of cert-manager.

    While the authority is being replaced: ``upcoming`` is the one that will issue, trusted already; afterwards
    ``retiring`` holds the one that issued before, still trusted, and the last serving certificate it issued.
    """

    place: PurePath
    serving: Pair
    authorities: tuple[Certificate, ...] = ()
    authority: Pair | None = None
    upcoming: Pair | None = None
    retiring: tuple[Certificate, ...] = ()


def to_pem(certificates: tuple[Certificate, ...]) -> bytes:
    """``certificates`` one after the other, PEM."""
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)
