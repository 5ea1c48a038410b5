"""When certificates are due, and the steps in which an authority is replaced without one refused connection.

Servers show a new pair, and API servers read a new ``caBundle``, each when they get to it. So whatever a server may
still show has to be trusted by whatever an API server may still go by:

1. announced: the upcoming authority is trusted beside the one that issues;
2. once every ``caBundle`` has both, the upcoming one issues; the one before it is retiring, still trusted;
3. once the last serving certificate of the retiring one has ended, and so is shown by nobody, it is dropped.

Where a step stands is in the material itself; who takes one needs no memory, and two who take the same one at once are
told apart by the place they write to.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Literal

from cryptography import x509

from certs.authority import SERVING_LIFETIME, alternative_name, issue, made_here, make_authority
from certs.bundle import Material, Pair
from certs.inspect import hosts as names_of
from certs.inspect import is_authority, problems

Phase = Literal["steady", "announced", "retiring"]


def due(
    held: Material, now: datetime, hosts: Sequence[str], injected: Collection[x509.Certificate] = ()
) -> Material | None:
    """The next step that ``held`` is due for, None when there is none; ask again after each.

    ``now`` is the clock of those who verify, the API servers. ``hosts`` are the names that the serving certificate has
    to be for. ``injected`` are authorities that every API server is known to go by.

    Both kinds of certificate are due at two thirds of their life, and what is expired or from the future at once. An
    authority that was not made here is its owner's: it is never replaced unasked. Without the key of an authority
    nothing is ever due. Raises ValueError for a bad host.
    """
    authority = held.authority
    if authority is None:
        return None
    if held.upcoming and not _valid(held.upcoming.certificate, now):
        return announce(held, now)
    if held.upcoming and (set(held.authorities) <= set(injected) or not _valid(authority.certificate, now)):
        return switch(held, now, hosts)
    if held.retiring and all(now > each.not_valid_after_utc for each in held.retiring if not is_authority(each)):
        return drop(held)
    if not held.upcoming and made_here(authority.certificate):
        aged = _aged(authority.certificate, now) and not held.retiring
        if aged or not _valid(authority.certificate, now):
            return announce(held, now)
    return _serving_due(held, authority, now, hosts)


def phase(held: Material) -> Phase:
    """Where the replacement of the authority stands; ``steady`` when none is under way."""
    return "announced" if held.upcoming else "retiring" if held.retiring else "steady"


def renew(held: Material, now: datetime, hosts: Sequence[str] = ()) -> Material:
    """``held`` with a new serving pair, for the names of the present one and ``hosts``.

    Names are only ever added: replicas that are told different ones, as during a rolling update, share the pair.
    Raises ValueError for a bad host, where the authority has ended, and without the authority's key.
    """
    return replace(held, serving=issue(_issuer(held), _names(held, hosts), now))


def announce(held: Material, now: datetime) -> Material:
    """``held`` with a new upcoming authority, which is trusted and does not issue yet."""
    upcoming = make_authority(now)
    kept = tuple(each for each in held.authorities if not held.upcoming or each != held.upcoming.certificate)
    return replace(held, upcoming=upcoming, authorities=(*kept, upcoming.certificate))


def switch(held: Material, now: datetime, hosts: Sequence[str] = ()) -> Material:
    """``held`` with its upcoming authority as the one that issues, and has issued, and the one before it retiring.

    Raises ValueError without an upcoming one.
    """
    upcoming, before = held.upcoming, _issuer(held).certificate
    if upcoming is None:
        raise ValueError("has no upcoming authority, needs one to be announced first")
    turned = replace(
        held,
        serving=issue(upcoming, _names(held, hosts), now),
        authority=upcoming,
        authorities=(upcoming.certificate, *(each for each in held.authorities if each != upcoming.certificate)),
        upcoming=None,
    )
    if _valid(before, now):
        return replace(turned, retiring=(*held.retiring, before, held.serving.certificate))
    # Nobody is verified by one that has ended or is from the future.
    return replace(turned, authorities=tuple(each for each in turned.authorities if each != before))


def drop(held: Material) -> Material:
    """``held`` without its retiring authorities."""
    kept = tuple(each for each in held.authorities if each not in held.retiring)
    return replace(held, authorities=kept, retiring=())


def trusts(authorities: Sequence[x509.Certificate], held: Material, now: datetime) -> bool:
    """Whether who goes by ``authorities`` at ``now`` accepts the serving certificate of ``held``."""
    return bool(authorities) and not problems(replace(held, authorities=tuple(authorities)), now)


def _serving_due(held: Material, authority: Pair, now: datetime, hosts: Sequence[str]) -> Material | None:
    serving = held.serving.certificate
    lacking = {alternative_name(host) for host in hosts} - {alternative_name(host) for host in _names(held, ())}
    # An authority that ends sooner than that gives nothing better than what there is.
    longer = min(now + SERVING_LIFETIME, authority.certificate.not_valid_after_utc) > serving.not_valid_after_utc
    wanted = bool(lacking) or (_aged(serving, now) and longer) or bool(problems(held, now))
    if not wanted or not _valid(authority.certificate, now):
        return None
    renewed = renew(held, now, hosts)
    return renewed if not problems(renewed, now) or lacking else None


def _issuer(held: Material) -> Pair:
    if held.authority is None:
        raise ValueError("has no key of an authority, needs ca.key to issue; whoever issued the pair renews it")
    return held.authority


def _names(held: Material, hosts: Sequence[str]) -> list[str]:
    kept = []
    for name in names_of(held.serving.certificate):
        try:
            alternative_name(name)
        except ValueError:  # somebody else's certificate may be for names that ours never are
            continue
        kept.append(name)
    return [*kept, *hosts]


def _valid(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc


def _aged(certificate: x509.Certificate, now: datetime) -> bool:
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now >= start + (end - start) * 2 // 3
