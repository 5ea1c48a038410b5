"""Keeps the folder that is served from at the certificates that all replicas share, and those renewed.

Every replica follows the Secret and every replica may write what is due: over the version it read, so that one of them
is first and the others follow. Without a Secret the folder itself is kept renewed in the same way.

The clock is the API server's: it is the one that finds a certificate expired, or not yet valid.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cryptography.x509 import Certificate

from certs.bundle import Material, to_pem
from certs.error import CertificateError
from certs.files import changed, ensure, keep, read, signature, write
from certs.inspect import problems
from certs.renewal import due, phase, trusts
from webhook.cluster.api import Api, ApiError, Unreachable
from webhook.controllers.clock import SKEW, ServerClock
from webhook.controllers.injection import SETTLE, Entry, entries
from webhook.controllers.secret import Secret, Stored
from webhook.telemetry.log import Log

Check = tuple[str, bool, str]

# Seconds between two looks where nothing tells of a change; while something is awaited; after a failure, at most.
EVERY, SOON, LONGEST = 30.0, 1.0, 30.0
# Seconds until what was written into the folder is served for certain, and for which a bundle that was replaced by
# somebody else is still trusted: replicas follow within that.
_TAKEN_IN, _OVERLAP = 1.5, 60.0


class Certificates:
    """The certificates of one replica: ``folder`` is what it serves from, ``secret`` (``NAMESPACE/NAME``) where they
    are shared, None where they are not; ``hosts`` are the names that they have to be for.
    """

    def __init__(
        self,
        api: Api,
        folder: Path,
        secret: str | None,
        hosts: Sequence[str],
        log: Log,
        clock: ServerClock,
    ) -> None:
        self._api = api
        self._folder = folder
        self._secret = Secret(api, secret) if secret else None
        self._hosts = hosts
        self._log = log
        self._clock = clock
        self._stored = Stored(None, None)
        self._held: Material | None = None
        self._shown: Material | None = None
        self._before: tuple[tuple[Certificate, ...], float] = ((), 0.0)
        self._confirmed: tuple[tuple[Certificate, ...], float] | None = None
        self._awaited = ""
        self._problem = ""
        self._looked = signature(folder)
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Follow and renew until cancelled; trouble is told once and waited out."""
        pause = SOON
        while True:
            try:
                wait = await self._round()
            except (ApiError, Unreachable, CertificateError, ValueError) as error:
                self._tell(str(error))
                pause = min(pause * 2, LONGEST)
                await asyncio.sleep(pause * random.uniform(0.7, 1.0))
                continue
            self._tell("")
            pause = SOON
            if wait and self._secret:
                await self._secret.changed(self._stored, wait)
            elif wait:
                await self._folder_changed(wait)

    def ca_bundle(self) -> bytes:
        """The authorities that API servers are to verify this server by, PEM; empty until there are any.

        Those of a pair that is still shown are among them.
        """
        found = [*(self._held.authorities if self._held else ()), *(self._shown.authorities if self._shown else ())]
        if time.monotonic() < self._before[1]:
            found += self._before[0]
        return to_pem(tuple(dict.fromkeys(found)))

    def checks(self) -> list[Check]:
        """For ``/readyz``: a replica that shows what the others share may serve, whatever befalls it later."""
        if self._held is None or not self.ready.is_set():
            return [("certificate renewal", False, f"failed: {self._problem or 'not read yet'}")]
        told = [str(problem) for problem in problems(self._held, self._clock.now())]
        if not self._held.authorities:
            told.append(f"{self._held.place} has no ca.crt, without which nothing is registered")
        told += [each for each in (self._problem, self._awaited) if each]
        if phase(self._held) == "retiring":
            told.append("an authority that was replaced is trusted until its last certificate has ended")
        if abs(ahead := self._clock.ahead) > SKEW:
            told.append(f"this clock is {ahead.total_seconds():+.0f}s from the API server's")
        return [("certificate renewal", True, f"ok, but {'; '.join(told)}" if told else "ok")]

    async def _round(self) -> float:
        """One look, and what is due done; seconds until the next at the latest."""
        await self._clock.look(self._api)
        if self._secret is None:
            return await self._look_at_folder()
        self._stored = stored = await self._secret.read()
        held = stored.held
        if held is None:
            if stored.foreign:
                raise CertificateError(self._secret.place, "is empty, waits for whoever issues it")
            first = await asyncio.to_thread(self._first)
            if await self._secret.write(first, stored):
                self._report("made", first)
            return 0
        self._held = held
        trouble: Exception | None = None
        try:
            step = None if stored.foreign else due(held, self._clock.now(), self._hosts, await self._injected(held))
            if step is not None:
                if await self._secret.write(step, stored):
                    self._report("renewed", step)
                return 0
        except (ApiError, Unreachable, ValueError) as error:
            # What is there serves, although what is due cannot be done.
            trouble = error
        wait = await self._show(held)
        if trouble:
            raise trouble
        return wait

    async def _look_at_folder(self) -> float:
        self._looked = signature(self._folder)
        before = self._held
        self._held = self._shown = await asyncio.to_thread(read, self._folder)
        await self._served()
        held = await asyncio.to_thread(keep, self._folder, self._hosts, self._clock.now())
        if injected := await self._injected(held):
            held = await asyncio.to_thread(keep, self._folder, self._hosts, self._clock.now(), injected)
        if before and before.serving.certificate != held.serving.certificate:
            self._report("renewed", held)
        self._held = self._shown = held
        return SOON if held.upcoming else EVERY

    async def _folder_changed(self, seconds: float) -> None:
        """Wait until somebody changes the folder, at most ``seconds``."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not changed(self._folder, self._looked):
            await asyncio.sleep(SOON)

    def _first(self) -> Material:
        """What to begin, or to begin again, a Secret with that is not there."""
        known = self._held or ensure(self._folder, self._hosts, self._clock.now())
        if known.authority is None:
            has = "has no key of an authority, with which the Secret could be made"
            fix = "have its issuer make it again, or start the server with an empty folder, which makes an authority"
            raise CertificateError(known.place, f"{has}; {fix}")
        return known

    async def _show(self, held: Material) -> float:
        """Serve ``held``, unless API servers would still refuse it; seconds until the next look."""
        shown = self._shown
        why = ""
        if shown and not trusts(shown.authorities, held, self._clock.now()):
            why = await self._refused(held, shown)
        if why or self._stored.foreign:
            self._awaited = why
        if why:
            return SOON
        if shown is None or (shown.serving.chain, shown.authorities) != (held.serving.chain, held.authorities):
            if shown and set(shown.authorities).isdisjoint(held.authorities):
                self._before = shown.authorities, time.monotonic() + _OVERLAP
            # Only what is served: the keys of authorities stay in the Secret.
            await asyncio.to_thread(write, self._folder, replace(held, authority=None, upcoming=None, retiring=()))
            self._report("followed", held)
        self._shown = held
        await self._served()
        return SOON if held.upcoming else EVERY

    async def _refused(self, held: Material, shown: Material) -> str:
        """Why to go on with ``shown`` although the Secret has ``held``, which somebody else put there; else empty."""
        lacking = [each for each in await entries(self._api) or () if not trusts(each.trusted, held, self._clock.now())]
        if not any(trusts(each.trusted, shown, self._clock.now()) for each in lacking):
            return ""
        return f"another pair is shown until {lacking[0]} trusts the one of the Secret"

    async def _injected(self, held: Material) -> tuple[Certificate, ...]:
        """The authorities of ``held`` once every configuration has had them long enough for every API server to go by
        them; asked while one of them is upcoming only.
        """
        self._awaited = ""
        if held.upcoming:
            self._awaited = _awaited(await entries(self._api), held.authorities)
        if not held.upcoming or self._awaited:
            self._confirmed = None
            return ()
        if self._confirmed is None or self._confirmed[0] != held.authorities:
            self._confirmed = held.authorities, time.monotonic()
        return held.authorities if time.monotonic() - self._confirmed[1] > SETTLE else ()

    async def _served(self) -> None:
        if not self.ready.is_set():
            await asyncio.sleep(_TAKEN_IN)
            self.ready.set()

    def _report(self, what: str, held: Material) -> None:
        serving = held.serving.certificate
        self._log.write(
            "info",
            f"certificates {what}",
            place=str(self._secret.place if self._secret else self._folder),
            serial=f"{serving.serial_number:x}",
            until=serving.not_valid_after_utc.isoformat(),
            authorities=len(held.authorities),
            phase=phase(held),
        )

    def _tell(self, problem: str) -> None:
        if problem and problem != self._problem:
            self._log.write("error", "certificates not kept", message=problem)
        elif self._problem and not problem:
            self._log.write("info", "certificates kept again")
        self._problem = problem


def _awaited(found: list[Entry] | None, authorities: tuple[Certificate, ...]) -> str:
    """What keeps the upcoming authority from issuing; empty when nothing does."""
    if found is None:
        return "an upcoming authority waits for a webhook configuration that trusts it"
    lacking = [each for each in found if each.lacks(authorities)]
    return f"an upcoming authority waits until {lacking[0]} trusts it" if lacking else ""
