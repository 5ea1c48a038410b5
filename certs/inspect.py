"""Looking at certificates: what they say, and whether a client would accept them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from certs.bundle import AUTHORITY_CERTIFICATE, SERVING_CERTIFICATE, Material
from certs.error import CertificateError


@dataclass(frozen=True, slots=True)
class Description:
    """What one certificate says. ``fingerprint`` is SHA-256, ``days_left`` whole days, negative once expired."""

    subject: str
    issuer: str
    hosts: tuple[str, ...]
    key: str
    authority: bool
    not_before: datetime
    not_after: datetime
    days_left: int
    fingerprint: str


def describe(certificate: x509.Certificate, now: datetime) -> Description:
    """What ``certificate`` says, seen at ``now``."""
    return Description(
        subject=certificate.subject.rfc4514_string(),
        issuer=certificate.issuer.rfc4514_string(),
        hosts=tuple(hosts(certificate)),
        key=_key_kind(certificate),
        authority=is_authority(certificate),
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        days_left=(certificate.not_valid_after_utc - now).days,
        fingerprint=certificate.fingerprint(hashes.SHA256()).hex(":").upper(),
    )


def hosts(certificate: x509.Certificate) -> list[str]:
    """The DNS names, then the IP addresses, among the subject alternative names."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [
        *names.get_values_for_type(x509.DNSName),
        *(str(address) for address in names.get_values_for_type(x509.IPAddress)),
    ]


def is_authority(certificate: x509.Certificate) -> bool:
    """Whether ``certificate`` may sign others."""
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def problems(held: Material, now: datetime) -> list[CertificateError]:
    """Why a client that trusts ``held.authorities`` would refuse its serving certificate at ``now``; empty when fine.

    Without authorities (no ``ca.crt``) the chain is not judged: only the client knows whom it trusts.
    """
    chain = held.serving.chain
    reasons = [reason for certificate in chain if (reason := _period_problem(certificate, now))]
    if not hosts(chain[0]):
        reasons.append("has no subject alternative name, needs one: the API server looks at no other name")
    found = [CertificateError(held.place / SERVING_CERTIFICATE, reason) for reason in reasons]
    if held.authorities:
        found += _chain_problems(held, now)
    return found


def ends(held: Material) -> dict[str, datetime]:
    """When what ``held`` serves with ends to be valid, by use: ``serving``, the first of its chain to end, and ``ca``,
    the last of the authorities that it leads to; without that where clients only know them.
    """
    chain = held.serving.chain
    found = {"serving": min(each.not_valid_after_utc for each in chain)}
    anchors = [each.not_valid_after_utc for each in _anchors(held)]
    return found | ({"ca": max(anchors)} if anchors else {})


def _anchors(held: Material) -> list[x509.Certificate]:
    last = held.serving.chain[-1]
    return [each for each in held.authorities if each == last or _issued(last, each)]


def _chain_problems(held: Material, now: datetime) -> Iterable[CertificateError]:
    place = held.place / SERVING_CERTIFICATE
    chain = held.serving.chain
    for child, parent in pairwise(chain):
        if not _issued(child, parent):
            name = child.subject.rfc4514_string()
            yield CertificateError(
                place, f"the certificate after {name} did not issue it; put each issuer after its own"
            )
            return
    last = chain[-1]
    anchors = _anchors(held)
    if not anchors:
        issuer = last.issuer.rfc4514_string() or "an issuer without a name"
        trusted = ", ".join(each.subject.rfc4514_string() for each in held.authorities)
        fix = f"put the issuer's certificate in {AUTHORITY_CERTIFICATE}"
        yield CertificateError(place, f"was issued by {issuer}, not by {AUTHORITY_CERTIFICATE} ({trusted}); {fix}")
        return
    periods = [_period_problem(anchor, now) for anchor in anchors]
    if all(periods):
        yield CertificateError(held.place / AUTHORITY_CERTIFICATE, periods[0])


def _issued(child: x509.Certificate, parent: x509.Certificate) -> bool:
    try:
        child.verify_directly_issued_by(parent)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return is_authority(parent)


def _period_problem(certificate: x509.Certificate, now: datetime) -> str:
    name = certificate.subject.rfc4514_string() or "the certificate"
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < start:
        return f"{name} is valid from {start:%Y-%m-%dT%H:%M:%SZ}, it is {now:%Y-%m-%dT%H:%M:%SZ} now; check the clock"
    if now > end:
        return f"{name} expired at {end:%Y-%m-%dT%H:%M:%SZ}, it is {now:%Y-%m-%dT%H:%M:%SZ} now; issue it again"
    return ""


def _key_kind(certificate: x509.Certificate) -> str:
    key = certificate.public_key()
    if isinstance(key, ec.EllipticCurvePublicKey):
        return f"ECDSA {key.curve.name}"
    if isinstance(key, rsa.RSAPublicKey):
        return f"RSA {key.key_size}"
    return type(key).__name__.removesuffix("PublicKey").removeprefix("_")
