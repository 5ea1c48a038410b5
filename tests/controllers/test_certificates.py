"""Replicas that share a Secret of an API server in memory, with faults that no real one has on order."""

from __future__ import annotations

import asyncio
import io
import json
from base64 import b64decode, b64encode
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePath

import pytest

from certs.authority import issue, make_authority
from certs.bundle import Material, to_pem
from certs.files import ensure, read, write
from certs.inspect import problems
from certs.renewal import announce, phase
from certs.secret import material, parts
from tests.controllers.memory import Memory
from tests.controllers.playing import running, until
from webhook.cluster.api import ApiError
from webhook.controllers import certificates as module
from webhook.controllers.certificates import Certificates
from webhook.controllers.clock import ServerClock
from webhook.controllers.injection import PLURALS
from webhook.telemetry.log import Log

SECRET = "/api/v1/namespaces/guard/secrets/certificates"
HOSTS = ["localhost", "127.0.0.1"]
NOW = datetime.now(UTC)
DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("EVERY", 0.5), ("SOON", 0.05), ("LONGEST", 0.2), ("SETTLE", 0.1), ("_TAKEN_IN", 0.0)):
        monkeypatch.setattr(module, name, seconds)


def sealed(held: Material) -> dict[str, str]:
    return {name: b64encode(part).decode() for name, part in parts(held).items()}


def made(now: datetime = NOW, life: timedelta = 3650 * DAY) -> Material:
    authority = make_authority(now, life)
    return Material(PurePath("made"), issue(authority, HOSTS, now), authority.chain, authority)


class Replica:
    """One replica with a folder of its own; its clock is ``ahead``."""

    def __init__(self, api: Memory, folder: Path, shared: bool = True, ahead: timedelta = timedelta()) -> None:
        self.api, self.folder = api, folder
        ensure(folder, HOSTS, datetime.now(UTC) + ahead)
        self.said = io.StringIO()
        self.log = Log(self.said)
        self.clock = ServerClock(self.log, lambda: datetime.now(UTC) + ahead)
        self.kept = Certificates(
            api,  # type: ignore[arg-type]  # the same methods
            folder,
            "guard/certificates" if shared else None,
            HOSTS,
            self.log,
            self.clock,
        )

    async def run(self) -> None:
        await self.kept.run()

    async def begun(self) -> None:
        await self.kept.ready.wait()

    @property
    def serial(self) -> int:
        return read(self.folder).serving.certificate.serial_number

    @property
    def detail(self) -> str:
        ((_, _, detail),) = self.kept.checks()
        return detail

    def events(self) -> list[str]:
        self.log.close()
        return [json.loads(line)["event"] for line in self.said.getvalue().splitlines()]


def held(api: Memory) -> Material:
    data = api.objects[SECRET]["data"]
    return material({name: b64decode(part) for name, part in data.items()}, PurePath("secret"))


def register(api: Memory, bundle: bytes) -> None:
    """Both configurations, with one webhook each."""
    for plural in PLURALS:
        webhook = {"name": "a.example", "clientConfig": {"caBundle": b64encode(bundle).decode()}}
        api.put(f"/apis/admissionregistration.k8s.io/v1/{plural}/allocguard", {"webhooks": [webhook]})


def test_replicas_that_start_at_once_end_with_one_secret(tmp_path: Path) -> None:
    async def main() -> None:
        api = Memory()
        some = [Replica(api.connection(), tmp_path / str(number)) for number in range(4)]
        for each in some:
            each.api.slow = 0.01
        async with running(*some):
            serial = held(api).serving.certificate.serial_number
            assert {each.serial for each in some} == {serial}
            assert {each.kept.ca_bundle() for each in some} == {to_pem(held(api).authorities)}
            # The key of the authority is in the Secret and nowhere else.
            assert [(each.folder / "ca.key").exists() for each in some] == [False] * 4
        assert sum(each.events().count("certificates made") for each in some) == 1

    asyncio.run(main())


def test_what_is_due_is_renewed_by_one_and_followed_by_all(tmp_path: Path) -> None:
    async def main() -> None:
        api = Memory()
        old = made(NOW - 61 * DAY)
        api.put(SECRET, {"data": sealed(old), "metadata": {"labels": {"a": "b"}}})
        some = [Replica(api.connection(), tmp_path / str(number)) for number in range(3)]
        async with running(*some):
            await until(lambda: {each.serial for each in some} == {held(api).serving.certificate.serial_number})
            assert held(api).serving != old.serving
            assert held(api).authorities == old.authorities
            assert api.objects[SECRET]["metadata"]["labels"] == {"a": "b"}
        assert sum(each.events().count("certificates renewed") for each in some) == 1

    asyncio.run(main())


def test_an_upcoming_authority_waits_for_every_webhook(tmp_path: Path) -> None:
    async def main() -> None:
        api = Memory()
        begun = announce(made(), NOW)
        api.put(SECRET, {"data": sealed(begun)})
        replica = Replica(api, tmp_path)
        async with running(replica):
            await until(lambda: "waits for a webhook configuration that trusts it" in replica.detail)
            register(api, to_pem(begun.authorities))
            mutating = f"/apis/admissionregistration.k8s.io/v1/{PLURALS[1]}/allocguard"
            api.put(mutating, {"webhooks": [{"name": "late.example", "clientConfig": {"caBundle": "%"}}]})
            await until(lambda: f"until {PLURALS[1]}/allocguard: webhook late.example trusts it" in replica.detail)
            await asyncio.sleep(0.3)
            assert phase(held(api)) == "announced"
            register(api, to_pem(begun.authorities))
            await until(lambda: phase(held(api)) == "retiring")
            await until(lambda: replica.serial == held(api).serving.certificate.serial_number)
            assert (
                replica.detail
                == "ok, but an authority that was replaced is trusted until its last certificate has ended"
            )

    asyncio.run(main())


def test_an_api_server_that_is_away_changes_nothing_and_is_told_once(tmp_path: Path) -> None:
    async def main() -> None:
        api = Memory()
        replica = Replica(api, tmp_path)
        async with running(replica):
            serial = replica.serial
            api.cut = True
            await until(lambda: replica.detail == "ok, but connection refused")
            await asyncio.sleep(0.5)
            assert replica.serial == serial
            api.cut = False
            await until(lambda: replica.detail == "ok")
        assert replica.events().count("certificates not kept") == 1

    asyncio.run(main())


def test_a_replica_is_not_ready_before_it_has_seen_the_secret(tmp_path: Path) -> None:
    async def main() -> None:
        api = Memory()
        api.put(SECRET, {"data": {"tls.crt": "%%%", "tls.key": ""}})
        replica = Replica(api, tmp_path)
        async with running(replica, ready=False):
            told = "failed: secret guard/certificates/tls.crt: is no base64"
            await until(lambda: replica.kept.checks() == [("certificate renewal", False, told)])
            assert replica.kept.ca_bundle() == b""
            api.put(SECRET, {"data": {"tls.crt": "", "tls.key": ""}})
            await until(replica.kept.ready.is_set)
            assert replica.serial == held(api).serving.certificate.serial_number

    asyncio.run(main())


@pytest.mark.parametrize(
    "data", [None, 7, [], {"tls.crt": None}, {"tls.crt": 7, "tls.key": "aGk="}, {"ca.key": "aGk="}]
)
def test_content_of_any_kind_is_survived(tmp_path: Path, data: object) -> None:
    async def main() -> None:
        api = Memory()
        replica = Replica(api, tmp_path)
        async with running(replica):
            serial = replica.serial
            api.put(SECRET, {"data": data, "metadata": {"annotations": 7}})
            await asyncio.sleep(0.2)
            await until(lambda: replica.detail != "ok" or held(api))
            assert replica.serial == serial

    asyncio.run(main())


def test_a_secret_that_is_gone_is_made_again_with_the_authority_that_is_known(tmp_path: Path) -> None:
    async def main() -> None:
        api = Memory()
        replica = Replica(api, tmp_path)
        async with running(replica):
            before = parts(held(api))
            del api.objects[SECRET]
            await until(lambda: SECRET in api.objects)
            assert parts(held(api)) == before

    asyncio.run(main())


def test_a_secret_of_somebody_else_that_is_gone_is_left_to_them(tmp_path: Path) -> None:
    async def main() -> None:
        api = Memory()
        theirs = replace(made(), authority=None)
        api.put(SECRET, {"data": sealed(theirs)})
        replica = Replica(api, tmp_path)
        async with running(replica):
            del api.objects[SECRET]
            await until(lambda: "has no key of an authority" in replica.detail)
            assert SECRET not in api.objects
            assert replica.serial == theirs.serving.certificate.serial_number

    asyncio.run(main())


def test_a_key_that_somebody_else_s_secret_still_has_is_not_used(tmp_path: Path) -> None:
    """cert-manager took over a Secret of ours: it writes its parts and leaves the others."""

    async def main() -> None:
        api = Memory()
        ours, theirs = made(), replace(made(NOW - 80 * DAY), authority=None)
        annotations = {"cert-manager.io/issuer-name": "company"}
        api.put(SECRET, {"data": {**sealed(ours), **sealed(theirs)}, "metadata": {"annotations": annotations}})
        replica = Replica(api, tmp_path)
        async with running(replica):
            assert replica.serial == theirs.serving.certificate.serial_number
            assert api.objects[SECRET]["data"]["ca.key"] == sealed(ours)["ca.key"]

    asyncio.run(main())


def test_another_pair_of_somebody_else_is_shown_once_webhooks_trust_it(tmp_path: Path) -> None:
    async def main() -> None:
        api = Memory()
        first, second = (replace(made(), authority=None) for _ in range(2))
        api.put(SECRET, {"data": sealed(first)})
        replica = Replica(api, tmp_path)
        async with running(replica):
            register(api, to_pem(first.authorities))
            api.put(SECRET, {"data": sealed(second)})
            await until(lambda: "another pair is shown until" in replica.detail)
            assert replica.serial == first.serving.certificate.serial_number
            both = replica.kept.ca_bundle()
            assert both == to_pem((*second.authorities, *first.authorities))
            register(api, both)
            await until(lambda: replica.serial == second.serving.certificate.serial_number)
            # Another replica may be a little later.
            assert set(to_pem(first.authorities).splitlines()) <= set(replica.kept.ca_bundle().splitlines())
            await until(lambda: replica.detail == "ok")

    asyncio.run(main())


def test_a_pair_without_an_authority_is_told(tmp_path: Path) -> None:
    async def main() -> None:
        api = Memory()
        api.put(SECRET, {"data": sealed(replace(made(), authority=None, authorities=()))})
        replica = Replica(api, tmp_path)
        async with running(replica):
            told = "ok, but secret guard/certificates has no ca.crt, without which nothing is registered"
            await until(lambda: replica.detail == told)

    asyncio.run(main())


def test_the_folder_is_kept_where_there_is_no_secret(tmp_path: Path) -> None:
    async def main() -> None:
        old = made(NOW - 61 * DAY)
        write(tmp_path, old)
        api = Memory()
        replica = Replica(api, tmp_path, shared=False)
        async with running(replica):
            await until(lambda: replica.serial != old.serving.certificate.serial_number)
            assert problems(read(tmp_path), NOW) == []
            assert replica.kept.ca_bundle() == to_pem(old.authorities)
            write(tmp_path, announce(read(tmp_path), NOW))
            await until(lambda: "waits for a webhook configuration" in replica.detail)
            register(api, replica.kept.ca_bundle())
            await until(lambda: phase(read(tmp_path)) == "retiring")
            assert SECRET not in api.objects

    asyncio.run(main())


def test_certificates_are_made_by_the_clock_of_the_api_server(tmp_path: Path) -> None:
    async def main() -> None:
        for number, ahead in enumerate((400 * DAY, -400 * DAY)):
            api = Memory()
            replica = Replica(api, tmp_path / str(number), ahead=ahead)
            async with running(replica):
                await until(lambda api=api: problems(held(api), datetime.now(UTC)) == [])
                assert "s from the API server's" in replica.detail
                assert abs(replica.clock.now() - datetime.now(UTC)) < timedelta(seconds=5)
            assert "clock compared" in replica.events()

    asyncio.run(main())


def test_what_is_there_serves_although_what_is_due_cannot_be_done(tmp_path: Path) -> None:
    """Rights to read the Secret and none to write it; and the same with a folder."""

    async def main() -> None:
        old = made(NOW - 61 * DAY)

        class Guarded(Memory):
            async def update(self, path: str, obj: dict[str, object], **params: object) -> dict[str, object]:
                raise ApiError(403, "Forbidden", "may not update")

        api = Guarded()
        api.put(SECRET, {"data": sealed(old)})
        replica = Replica(api, tmp_path / "one")
        async with running(replica):
            assert replica.serial == old.serving.certificate.serial_number
            await until(lambda: "may not update" in replica.detail)
            assert replica.kept.ca_bundle() == to_pem(old.authorities)

        folder = tmp_path / "two"
        replica = Replica(Memory(), folder, shared=False)
        write(folder, old)
        (folder / "..data").rename(folder / "kept")
        (folder / "..data").mkdir()
        for path in folder.iterdir():
            if path.is_symlink() and not path.name.startswith("..") and path.name != "kept":
                path.unlink()
                path.symlink_to(f"kept/{path.name}")
        async with running(replica):
            assert replica.serial == old.serving.certificate.serial_number
            await until(lambda: "cannot be written" in replica.detail)

    asyncio.run(main())
