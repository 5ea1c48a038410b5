"""Certificates and keys from PEM, read whole: what is broken is refused here and not where it is used."""

from __future__ import annotations

from pathlib import PurePath
from typing import cast, get_args

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from certs.error import CertificateError


def certificates(data: bytes, place: PurePath) -> tuple[x509.Certificate, ...]:
    """The certificates of ``data``, at least one; raises CertificateError, naming ``place``."""
    try:
        found = x509.load_pem_x509_certificates(data)
        for certificate in found:
            # Parsing is lazy: ask now for what is read later, so that a broken certificate is refused here.
            _ = certificate.extensions, certificate.subject, certificate.issuer, certificate.public_key()
            _ = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    except (ValueError, x509.DuplicateExtension, UnsupportedAlgorithm) as error:
        raise CertificateError(place, "holds no readable PEM certificate; put the one there that was issued") from error
    return tuple(found)


def private_key(data: bytes, place: PurePath) -> CertificateIssuerPrivateKeyTypes:
    """The private key of ``data``, one that can sign; raises CertificateError, naming ``place``."""
    try:
        key = load_pem_private_key(data, password=None)
    except TypeError as error:
        raise CertificateError(place, "is encrypted, needs a key without a password") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise CertificateError(place, "holds no PEM private key; put the key of its certificate there") from error
    if not isinstance(key, get_args(CertificateIssuerPrivateKeyTypes)):
        raise CertificateError(place, f"holds a {type(key).__name__}, needs a key that can sign (ECDSA, RSA)")
    return cast(CertificateIssuerPrivateKeyTypes, key)
