"""What ``allocguard certs rotate`` does: one step, in a folder or in the Secret that servers share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import click

from certs.authority import CLOCK_SKEW
from certs.bundle import Material
from certs.error import CertificateError
from certs.files import locked, read, write
from certs.renewal import announce, drop, phase, renew, switch
from webhook.cli.console import Unusable, note
from webhook.cluster.api import Api
from webhook.controllers.clock import server_time
from webhook.controllers.injection import SETTLE, entries
from webhook.controllers.secret import Secret

# How often to begin again when others write the Secret at the same time.
_TRIES = 5

_INJECT = "write the authorities into every caBundle (allocguard certs inject)"


@dataclass(frozen=True, slots=True)
class Turned:
    """What there is after a step: ``done`` says what it was, ``then`` what has to be done next, ``at`` is when."""

    held: Material
    at: datetime
    done: str
    then: str


async def in_folder(folder: Path, authority: bool, now: datetime, api: Api | None = None) -> Turned:
    """Do the next step in ``folder``; ``api`` is the cluster whose webhooks trust it. Raises Unusable; ClickException
    where a webhook does not trust what would issue.
    """
    try:
        with locked(folder):
            turned = await _next(read(folder), authority, now, api)
            write(folder, turned.held)
    except CertificateError as error:
        raise Unusable(str(error)) from error
    return turned


async def in_secret(api: Api, name: str, authority: bool) -> Turned:
    """Do the next step in the Secret ``name``; as :func:`in_folder`, and ApiError, Unreachable."""
    secret = Secret(api, name)
    for _ in range(_TRIES):
        try:
            stored = await secret.read()
        except CertificateError as error:
            raise Unusable(str(error)) from error
        if stored.held is None:
            raise Unusable(f"{secret.place}: has no certificates; a server with --certs-secret makes them")
        if stored.foreign:
            raise Unusable(f"{secret.place}: is issued by somebody else, as cert-manager; renew it there")
        now = await server_time(api)
        if now is None:
            raise click.ClickException("the API server does not tell its time, by which certificates are made")
        turned = await _next(stored.held, authority, now, api)
        if await secret.write(turned.held, stored):
            return turned
    raise click.ClickException(f"{secret.place}: is written by others all the time; try again")


async def _next(held: Material, authority: bool, now: datetime, api: Api | None) -> Turned:
    try:
        if not authority:
            return Turned(renew(held, now), now, "the serving certificate is new", "")
        standing = phase(held)
        if standing == "announced":
            await _injected(api, held)
            last = "once every server shows the new certificate, run it again to trust the old authority no more"
            return Turned(switch(held, now), now, "the new authority issues", last)
        if standing == "retiring":
            await _taken_in(held, now)
            return Turned(drop(held), now, "the old authority is trusted no more", _INJECT)
        if held.authority is None:
            raise ValueError("has no key of an authority (ca.key), needs one to replace it")
        return Turned(
            announce(held, now), now, "a new authority is trusted beside the old one", f"{_INJECT}, then run it again"
        )
    except ValueError as error:
        raise Unusable(f"{held.place}: {error}") from error


async def _injected(api: Api | None, held: Material) -> None:
    """See that every API server goes by all authorities, as far as a cluster can be asked."""
    found = await entries(api) if api else None
    if found is None:
        return
    if lacking := [each for each in found if each.lacks(held.authorities)]:
        raise click.ClickException(f"{lacking[0]} does not trust the new authority yet; {_INJECT}, then run it again")
    note(f"waiting {SETTLE:.0f}s for every API server to read them")
    await asyncio.sleep(SETTLE)


async def _taken_in(held: Material, now: datetime) -> None:
    """Leave servers the time to show what the new authority has issued."""
    issued = held.serving.certificate.not_valid_before_utc + CLOCK_SKEW
    left = (issued + timedelta(seconds=SETTLE) - now).total_seconds()
    if 0 < left <= SETTLE:
        note(f"waiting {left:.0f}s for servers to take in the new certificate")
        await asyncio.sleep(left)
