"""Making certificates: an authority of our own, and what it issues for the webhook.

The API server verifies the webhook's certificate by its subject alternative names alone (the common name counts for
nothing), against the ``caBundle`` of the registration.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.types import (
    CertificateIssuerPrivateKeyTypes,
    CertificateIssuerPublicKeyTypes,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.bundle import Pair

DEFAULT_HOSTS = ("localhost", "127.0.0.1", "::1", "allocguard.allocguard-system.svc")
AUTHORITY_LIFETIME = timedelta(days=3650)
SERVING_LIFETIME = timedelta(days=90)
# Who verifies may have a clock that is behind, and must not meet a certificate from its future.
CLOCK_SKEW = timedelta(hours=1)

_AUTHORITY = "allocguard authority"

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def make_authority(now: datetime, lifetime: timedelta = AUTHORITY_LIFETIME) -> Pair:
    """A new self-signed authority (ECDSA P-256) that may issue serving certificates and nothing below them.

    ``now`` has a time zone; the validity begins an hour before it.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(_AUTHORITY)
    certificate = _sign(
        _builder(subject, subject, key.public_key(), key.public_key(), now - CLOCK_SKEW, now + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(key_cert_sign=True, crl_sign=True), critical=True),
        key,
    )
    return Pair((certificate,), key)


def issue(authority: Pair, hosts: Sequence[str], now: datetime, lifetime: timedelta = SERVING_LIFETIME) -> Pair:
    """A new serving pair (ECDSA P-256) for ``hosts``, DNS names and IP addresses, signed by ``authority``.

    It never outlives its authority. Raises ValueError for a host that is neither, and when there is none.
    """
    names = list(dict.fromkeys(alternative_name(host) for host in hosts))
    if not names:
        raise ValueError("has no host, needs at least one DNS name or IP address")
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = authority.certificate
    start = max(now - CLOCK_SKEW, issuer.not_valid_before_utc)
    end = min(now + lifetime, issuer.not_valid_after_utc)
    if end <= start:
        raise ValueError(f"the authority's own certificate ended at {issuer.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}")
    certificate = _sign(
        _builder(_name("allocguard"), issuer.subject, key.public_key(), authority.key.public_key(), start, end)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False),
        authority.key,
    )
    return Pair((certificate,), key)


def made_here(certificate: x509.Certificate) -> bool:
    """Whether ``certificate`` is an authority as :func:`make_authority` makes it, and not somebody's own."""
    return certificate.subject == certificate.issuer == _name(_AUTHORITY)


def alternative_name(host: str) -> x509.GeneralName:
    """``host`` as a subject alternative name; ValueError when it is neither an IP address nor a DNS name."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    name = host.lower()
    labels = name.removeprefix("*.").split(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels) or labels[-1].isdigit():
        raise ValueError(f"has host {host!r}, needs a DNS name or an IP address without a port")
    return x509.DNSName(name)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: CertificateIssuerPublicKeyTypes,
    issuer_public: CertificateIssuerPublicKeyTypes,
    start: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_public), critical=False)
    )


def _key_usage(digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _sign(builder: x509.CertificateBuilder, key: CertificateIssuerPrivateKeyTypes) -> x509.Certificate:
    # Edwards curves bring their own hash and refuse to be given one.
    algorithm = None if isinstance(key, (Ed25519PrivateKey, Ed448PrivateKey)) else hashes.SHA256()
    return builder.sign(key, algorithm)
