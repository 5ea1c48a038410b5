"""The parts of a certificate folder or Secret, by name, and what they mean together.

A folder's files and a Secret's keys are the same, so both are read and written by this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import PurePath

from certs.authority import issue, make_authority
from certs.bundle import (
    AUTHORITY_CERTIFICATE,
    AUTHORITY_KEY,
    RETIRING,
    SERVING_CERTIFICATE,
    SERVING_KEY,
    UPCOMING_KEY,
    Material,
    Pair,
    to_pem,
)
from certs.error import CertificateError
from certs.pem import certificates, private_key

# Those that only who may issue has to be able to read.
PRIVATE = frozenset({AUTHORITY_KEY, SERVING_KEY, UPCOMING_KEY})


def material(parts: Mapping[str, bytes], place: PurePath, *, issuing: bool = True) -> Material:
    """What ``parts`` say, their keys matched with their certificates, whatever the dates are.

    Without ``issuing`` the keys of authorities are not looked at: somebody else issues here. Raises CertificateError,
    naming the part.
    """
    # Issuers that do not tell their authority leave it empty.
    present = {name: data for name, data in parts.items() if name != AUTHORITY_CERTIFICATE or data.strip()}
    for name, other in ((SERVING_CERTIFICATE, SERVING_KEY), (SERVING_KEY, SERVING_CERTIFICATE)):
        if name not in present:
            beside = f" beside {other}" if other in present else ""
            raise CertificateError(place / name, f"is missing{beside}; put the whole pair there")
    serving = _pair(present, SERVING_KEY, SERVING_CERTIFICATE, place)
    if not issuing or AUTHORITY_KEY not in present:
        trusted = present.get(AUTHORITY_CERTIFICATE)
        return Material(place, serving, certificates(trusted, place / AUTHORITY_CERTIFICATE) if trusted else ())
    authority = _authority(present, place)
    upcoming = None
    if UPCOMING_KEY in present:
        upcoming = _pair(present, UPCOMING_KEY, AUTHORITY_CERTIFICATE, place)
    return Material(
        place,
        serving,
        certificates(present[AUTHORITY_CERTIFICATE], place / AUTHORITY_CERTIFICATE),
        Pair((authority.certificate,), authority.key),
        Pair((upcoming.certificate,), upcoming.key) if upcoming else None,
        certificates(present[RETIRING], place / RETIRING) if RETIRING in present else (),
    )


def complete(parts: Mapping[str, bytes], place: PurePath, hosts: Sequence[str], now: datetime) -> Material:
    """As :func:`material`, with what is missing made: an authority where there is nothing at all, a serving pair for
    ``hosts`` where there is only an authority. Raises ValueError for a bad host too.
    """
    if parts.keys() & {SERVING_CERTIFICATE, SERVING_KEY}:
        return material(parts, place)
    if not parts:
        fresh = make_authority(now)
        return Material(place, issue(fresh, hosts, now), fresh.chain, fresh)
    authority = _authority(parts, place)
    try:
        serving = issue(authority, hosts, now)
    except ValueError as error:
        raise CertificateError(place / AUTHORITY_CERTIFICATE, str(error)) from error
    return material({**parts, SERVING_CERTIFICATE: serving.certificate_pem(), SERVING_KEY: serving.key_pem()}, place)


def parts(held: Material) -> dict[str, bytes]:
    """``held`` by the names of its parts, without those that it does not have."""
    found = {SERVING_CERTIFICATE: held.serving.certificate_pem(), SERVING_KEY: held.serving.key_pem()}
    if held.authorities:
        found[AUTHORITY_CERTIFICATE] = to_pem(held.authorities)
    if held.authority:
        found[AUTHORITY_KEY] = held.authority.key_pem()
    if held.upcoming:
        found[UPCOMING_KEY] = held.upcoming.key_pem()
    if held.retiring:
        found[RETIRING] = to_pem(held.retiring)
    return found


def _authority(present: Mapping[str, bytes], place: PurePath) -> Pair:
    for name, other in ((AUTHORITY_CERTIFICATE, AUTHORITY_KEY), (AUTHORITY_KEY, AUTHORITY_CERTIFICATE)):
        if name not in present:
            raise CertificateError(place / name, f"is missing beside {other}; put the whole pair there")
    return _pair(present, AUTHORITY_KEY, AUTHORITY_CERTIFICATE, place)


def _pair(present: Mapping[str, bytes], key_name: str, certificate_name: str, place: PurePath) -> Pair:
    chain = certificates(present[certificate_name], place / certificate_name)
    key = private_key(present[key_name], place / key_name)
    # Servers show what they serve in this order; a bundle of authorities has none.
    candidates = chain[:1] if certificate_name == SERVING_CERTIFICATE else chain
    for number, certificate in enumerate(candidates):
        if certificate.public_key() == key.public_key():
            return Pair(chain[number:], key)
    fix = "put a pair there that belongs together"
    raise CertificateError(place / key_name, f"belongs to another certificate than {certificate_name}; {fix}")
