"""Certificates on the real API server: shared, renewed and replaced without one refused connection."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path, PurePath

import pytest
from click.testing import CliRunner
from cryptography import x509

from certs.authority import issue, make_authority
from certs.bundle import Material, to_pem
from certs.files import ensure, read
from certs.inspect import problems
from certs.renewal import phase
from certs.secret import material, parts
from tests.e2e.client import ApiError, Json
from tests.e2e.cluster import Cluster
from tests.e2e.guard import CONFIGURATIONS, KINDS, Guard
from tests.e2e.guarding import definitions, guarded
from tests.e2e.kinds import path
from tests.e2e.waiting import eventually
from webhook.cli.program import program
from webhook.cluster.access import connect
from webhook.controllers.certificates import Certificates
from webhook.controllers.clock import ServerClock
from webhook.telemetry.log import Log

NAME = "certificates"
NOW = datetime.now(UTC)
LONG_AGO = NOW - timedelta(days=100)
HOSTS = ["127.0.0.1", "localhost"]


def sealed(parts_of: dict[str, bytes]) -> dict[str, str]:
    return {name: b64encode(part).decode() for name, part in parts_of.items()}


def fill(cluster: Cluster, held: Material, **metadata: Json) -> None:
    """A Secret with ``held``, made by somebody else."""
    body = {"type": "kubernetes.io/tls", "metadata": {"name": NAME, **metadata}, "data": sealed(parts(held))}
    cluster.create("Secret", body)


def stored(cluster: Cluster) -> Material | None:
    """What the Secret holds."""
    obj = cluster.as_admin.find(cluster.path("Secret", NAME))
    if obj is None:
        return None
    return material({name: b64decode(part) for name, part in obj["data"].items()}, PurePath("secret"))


def bundles(cluster: Cluster) -> set[bytes]:
    """By which authorities the registered webhooks are verified, PEM."""
    found = [cluster.as_admin.find(f"{CONFIGURATIONS}/{plural}/allocguard") for plural in KINDS.values()]
    return {
        b64decode(webhook["clientConfig"].get("caBundle", ""))
        for obj in found
        if obj is not None
        for webhook in obj["webhooks"]
    }


def shown(guard: Guard, trusted: bytes | None = None) -> int:
    """The serial number of what ``guard`` shows on a new connection, verified by ``trusted`` where that is given."""
    context = ssl.create_default_context(cadata=trusted.decode()) if trusted else ssl.create_default_context()
    if trusted is None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", guard.port), timeout=10) as raw,
        context.wrap_socket(raw, server_hostname="127.0.0.1") as connection,
    ):
        der = connection.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der).serial_number


def certs(cluster: Cluster, *arguments: str) -> str:
    """``allocguard certs`` as an administrator runs it; its output."""
    kubeconfig = cluster.plane.kubeconfig("admin", "system:masters")
    ran = CliRunner(catch_exceptions=False).invoke(program, ["certs", *arguments, f"--kubeconfig={kubeconfig}"])
    assert ran.exit_code == 0, ran.output
    return ran.output


def sharing(cluster: Cluster) -> str:
    return f"--certs-secret={cluster.ns}/{NAME}"


class Traffic:
    """Real admission requests, and verified connections to each of ``guards``, until :meth:`stop`."""

    def __init__(self, cluster: Cluster, *guards: Guard) -> None:
        self._cluster, self._guards = cluster, guards
        self._ended = threading.Event()
        self.asked = self.connected = 0
        self.failures: list[str] = []
        node = cluster.node("traffic")
        driver = cluster.driver("traffic.example.org", node)
        device = driver.device("d", {"cpus": "8"}, {"cpu": ("cpus", "1")})
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": driver.name, "nodeName": node, "pool": pool, "devices": [device]}
        # A slice with a mapping: its entry has the failure policy Fail.
        self._slice = {"metadata": {"name": driver.name}, "spec": spec}
        self._threads = [
            threading.Thread(target=self._loop, args=(act,))
            for act in (self._write, *(partial(self._connect, guard) for guard in guards))
        ]

    def start(self) -> None:
        self._write()
        assert self.failures == []
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _loop(self, act: Callable[[], None]) -> None:
        while not self._ended.is_set():
            try:
                act()
            except Exception as error:  # the thread must tell it
                self.failures.append(f"{time.strftime('%X')} {error!r}")
            time.sleep(0.01)

    def _write(self) -> None:
        try:
            self._cluster.as_admin.create(path("ResourceSlice"), self._slice, dryRun="All")
        except ApiError as error:
            self.failures.append(str(error))
        self.asked += 1

    def _connect(self, guard: Guard) -> None:
        # The two configurations are written one after the other.
        for trusted in bundles(self._cluster):
            shown(guard, trusted)
            self.connected += 1


@contextmanager
def traffic(cluster: Cluster, *guards: Guard) -> Iterator[Traffic]:
    """Traffic that has to go well from beginning to end."""
    running = Traffic(cluster, *guards)
    running.start()
    try:
        yield running
        # Some more after the last step.
        asked, connected = running.asked, running.connected
        eventually(lambda: running.asked > asked + 20 and running.connected > connected + 20)
    finally:
        running.stop()
    assert running.failures == []


def shared_by(cluster: Cluster, *guards: Guard) -> Material:
    """What the Secret holds, once each of ``guards`` shows it and every webhook is verified by it."""

    def same() -> Material | None:
        held = stored(cluster)
        assert held is not None
        assert [shown(guard) for guard in guards] == [held.serving.certificate.serial_number] * len(guards)
        assert bundles(cluster) in ({to_pem(held.authorities)}, set())
        return held

    found = eventually(same)
    assert found is not None
    return found


def test_two_servers_are_renewed_and_rolled_while_they_are_asked(cluster: Cluster) -> None:
    """The serving certificate is renewed and the authority replaced: not one request, not one connection fails."""
    first = guarded(cluster, sharing(cluster))
    second = cluster.guard(sharing(cluster), f"--namespace={cluster.name('guard')}")
    begin = shared_by(cluster, first, second)
    with traffic(cluster, first, second):
        certs(cluster, "rotate", f"--secret={cluster.ns}/{NAME}")
        renewed = shared_by(cluster, first, second)
        assert renewed.serving != begin.serving
        assert renewed.authorities == begin.authorities

        certs(cluster, "rotate", "--ca", f"--secret={cluster.ns}/{NAME}")
        # The servers go on by themselves once both webhook configurations have both.
        eventually(lambda: phase(stored(cluster) or begin) == "retiring")
        rolled = shared_by(cluster, first, second)
        assert len(rolled.authorities) == 2
        assert rolled.authority is not None
        assert rolled.authority.certificate not in begin.authorities

        certs(cluster, "rotate", "--ca", f"--secret={cluster.ns}/{NAME}")
        ended = shared_by(cluster, first, second)
        assert ended.authorities == rolled.authority.chain
    assert "[+]certificate renewal ok" in first.get("/readyz?verbose").text


def test_a_replica_that_was_away_while_the_authority_was_replaced(cluster: Cluster) -> None:
    """Its folder has a pair that nobody trusts any more: it is ready once it shows that of the Secret."""
    first = guarded(cluster, sharing(cluster))
    second = cluster.guard(sharing(cluster), f"--namespace={cluster.name('guard')}")
    begin = shared_by(cluster, first, second)
    second.kill()
    certs(cluster, "rotate", "--ca", f"--secret={cluster.ns}/{NAME}")
    eventually(lambda: phase(stored(cluster) or begin) == "retiring")
    shared_by(cluster, first)
    certs(cluster, "rotate", "--ca", f"--secret={cluster.ns}/{NAME}")
    ended = shared_by(cluster, first)
    assert set(ended.authorities).isdisjoint(begin.authorities)
    # /readyz is asked over a connection that the replica's own ca.crt verifies.
    second.start(ready=True)
    assert shown(second, to_pem(ended.authorities)) == ended.serving.certificate.serial_number
    assert shared_by(cluster, first, second).serving.chain == ended.serving.chain


def test_two_servers_that_start_at_once_share_one_secret(cluster: Cluster) -> None:
    definitions(cluster)
    guards = [cluster.guard(sharing(cluster), start=False) for _ in range(2)]
    for guard in guards:
        guard.start(ready=False)
    for guard in guards:
        guard.wait()
    held = shared_by(cluster, *guards)
    assert len(held.authorities) == 1
    assert sum(len(guard.lines(event="certificates made")) for guard in guards) == 1


def test_a_wrong_authority_in_a_configuration_is_put_right(cluster: Cluster) -> None:
    guard = guarded(cluster, sharing(cluster))
    held = shared_by(cluster, guard)
    where = f"{CONFIGURATIONS}/{KINDS['validate']}/allocguard"
    wrong = b64encode(to_pem(make_authority(NOW).chain)).decode()
    cluster.as_admin.patch(where, [{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": wrong}], "json")
    eventually(lambda: bundles(cluster) == {to_pem(held.authorities)}, within=10)


def test_expired_certificates_are_made_again_at_the_start(cluster: Cluster) -> None:
    """The serving certificate of the Secret has ended, and so has the one of the folder: it starts all the same."""
    old = make_authority(LONG_AGO)
    expired = Material(PurePath("secret"), issue(old, HOSTS, LONG_AGO), old.chain, old)
    fill(cluster, expired)
    guard = cluster.guard(sharing(cluster), start=False)
    for part, content in parts(replace(expired, authority=None)).items():
        (guard.certificates / part).unlink()
        (guard.certificates / part).write_bytes(content)
    (guard.certificates / "ca.key").unlink()
    definitions(cluster)
    guard.start()
    held = shared_by(cluster, guard)
    assert held.authorities == expired.authorities
    assert problems(held, datetime.now(UTC)) == []


def test_an_expired_authority_is_replaced_at_the_start(cluster: Cluster) -> None:
    old = make_authority(LONG_AGO, timedelta(days=90))
    fill(cluster, Material(PurePath("secret"), issue(old, HOSTS, LONG_AGO), old.chain, old))
    guard = guarded(cluster, sharing(cluster))
    held = shared_by(cluster, guard)
    assert old.certificate not in held.authorities
    assert problems(held, datetime.now(UTC)) == []


def test_a_folder_that_has_expired_is_renewed_at_the_start(cluster: Cluster) -> None:
    """The same without a Secret."""
    definitions(cluster)
    guard = cluster.guard(start=False)
    old = make_authority(LONG_AGO)
    for part, content in parts(Material(guard.certificates, issue(old, HOSTS, LONG_AGO), old.chain, old)).items():
        (guard.certificates / part).unlink()
        (guard.certificates / part).write_bytes(content)
    guard.start()
    assert problems(read(guard.certificates), datetime.now(UTC)) == []
    eventually(lambda: bundles(cluster) == {to_pem(old.chain)})


def test_a_folder_is_rolled_while_it_is_asked(cluster: Cluster) -> None:
    """Without a Secret: the same steps in the folder, taken by hand; the server injects what it is to be trusted by."""
    guard = guarded(cluster)
    begin = read(guard.certificates)
    folder = f"--dir={guard.certificates}"
    with traffic(cluster, guard):
        certs(cluster, "rotate", folder)
        eventually(lambda: shown(guard) == read(guard.certificates).serving.certificate.serial_number)
        certs(cluster, "rotate", "--ca", folder)
        eventually(lambda: phase(read(guard.certificates)) == "retiring")
        eventually(lambda: shown(guard) == read(guard.certificates).serving.certificate.serial_number)
        certs(cluster, "rotate", "--ca", folder)
        eventually(lambda: bundles(cluster) == {to_pem(read(guard.certificates).authorities)}, within=40)
    held = read(guard.certificates)
    assert phase(held) == "steady"
    assert begin.authority is not None
    assert begin.authority.certificate not in held.authorities


def test_a_secret_that_is_deleted_comes_back_as_it_was(cluster: Cluster) -> None:
    guard = guarded(cluster, sharing(cluster))
    before = shared_by(cluster, guard)
    cluster.delete("Secret", NAME)
    eventually(lambda: stored(cluster))
    after = shared_by(cluster, guard)
    assert parts(after) == parts(before)


def test_a_secret_that_cannot_be_read_is_told_and_what_serves_goes_on(cluster: Cluster) -> None:
    guard = guarded(cluster, sharing(cluster))
    before = shared_by(cluster, guard)
    where = cluster.path("Secret", NAME)
    cluster.as_admin.patch(where, {"data": {"tls.crt": b64encode(b"nonsense").decode()}})
    fix = "put the one there that was issued"
    told = f"ok, but secret {cluster.ns}/{NAME}/tls.crt: holds no readable PEM certificate; {fix}"
    eventually(lambda: f"[+]certificate renewal {told}" in guard.get("/readyz?verbose").text)
    assert shown(guard) == before.serving.certificate.serial_number
    lines = eventually(lambda: guard.lines(event="certificates not kept"))
    assert [line["message"] for line in lines] == [told.removeprefix("ok, but ")]

    cluster.as_admin.patch(where, {"data": sealed(parts(before))})
    eventually(lambda: "[+]certificate renewal ok\n" in guard.get("/readyz?verbose").text, within=40)
    eventually(lambda: guard.lines(event="certificates kept again"))


def test_what_somebody_else_issues_is_followed_and_never_written(cluster: Cluster) -> None:
    """A Secret as cert-manager has it: no key of the authority. When it is issued by another authority one day, which
    comes without notice, the server shows the old pair until the webhooks trust the new one.
    """

    def issued() -> Material:
        authority = make_authority(NOW)
        return Material(PurePath("secret"), issue(authority, HOSTS, NOW), authority.chain)

    first, second = issued(), issued()
    fill(cluster, first, annotations={"cert-manager.io/certificate-name": "guard"})
    where = cluster.path("Secret", NAME)
    version = cluster.as_admin.get(where)["metadata"]["resourceVersion"]
    guard = guarded(cluster, sharing(cluster))
    shared_by(cluster, guard)
    kubeconfig = cluster.plane.kubeconfig("admin", "system:masters")
    arguments = ["certs", "rotate", f"--secret={cluster.ns}/{NAME}", f"--kubeconfig={kubeconfig}"]
    ran = CliRunner().invoke(program, arguments)
    assert (ran.exit_code, "is issued by somebody else" in ran.output) == (2, True)
    assert "clients accept it" in certs(cluster, "show", f"--secret={cluster.ns}/{NAME}")
    assert cluster.as_admin.get(where)["metadata"]["resourceVersion"] == version
    with traffic(cluster, guard):
        cluster.as_admin.patch(where, {"data": sealed(parts(second))})
        eventually(lambda: shown(guard) == second.serving.certificate.serial_number)
    assert all(to_pem(second.authorities) in bundle for bundle in bundles(cluster))


@pytest.mark.parametrize("hours", [-5, 5, 24 * 200, -24 * 200])
def test_a_clock_that_is_wrong_makes_certificates_that_are_right(cluster: Cluster, tmp_path: Path, hours: int) -> None:
    """Whoever makes them goes by the clock of the API server, which verifies them; and says that its own is wrong."""

    async def follow() -> str:
        api = await connect(str(cluster.plane.kubeconfig("admin", "system:masters")))
        wrong = timedelta(hours=hours)
        ensure(tmp_path / "certs", HOSTS, datetime.now(UTC) + wrong)
        log = Log()
        clock = ServerClock(log, lambda: datetime.now(UTC) + wrong)
        followed = Certificates(api, tmp_path / "certs", f"{cluster.ns}/{NAME}", HOSTS, log, clock)
        running = asyncio.create_task(followed.run())
        await asyncio.wait_for(followed.ready.wait(), 20)
        ((name, fine, detail),) = followed.checks()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await api.close()
        log.close()
        assert (name, fine) == ("certificate renewal", True)
        return detail

    detail = asyncio.run(follow())
    held = stored(cluster)
    assert held is not None
    assert problems(held, datetime.now(UTC)) == []
    seconds = int(detail.removeprefix("ok, but this clock is ").split("s from the API server's")[0])
    assert abs(seconds - hours * 3600) < 30


def test_inject_writes_the_authorities_into_both_configurations_and_nothing_else(
    cluster: Cluster, tmp_path: Path
) -> None:
    held = ensure(tmp_path / "certs", HOSTS, NOW)
    kubeconfig = cluster.plane.kubeconfig("admin", "system:masters")
    arguments = ["certs", "inject", f"--dir={tmp_path / 'certs'}", f"--kubeconfig={kubeconfig}"]
    ran = CliRunner().invoke(program, arguments)
    assert (ran.exit_code, ran.output.count("is not there")) == (1, 2)

    where = f"{CONFIGURATIONS}/{KINDS['validate']}"
    webhooks = [
        {
            "name": f"{name}.example.org",
            "clientConfig": {"url": "https://127.0.0.1:1/validate"},
            "rules": [{"apiGroups": ["none.example"], "apiVersions": ["v1"], "resources": ["x"], "operations": ["*"]}],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        for name in ("one", "two")
    ]
    before = cluster.as_admin.create(where, {"metadata": {"name": "allocguard"}, "webhooks": webhooks})
    ran = CliRunner().invoke(program, arguments)
    assert (ran.exit_code, "2 of 2 webhooks changed" in ran.output) == (0, True)
    assert bundles(cluster) == {to_pem(held.authorities)}
    after = cluster.as_admin.get(f"{where}/allocguard")
    for webhook in after["webhooks"]:
        del webhook["clientConfig"]["caBundle"]
    assert after["webhooks"] == before["webhooks"]
    assert "0 of 2 webhooks changed" in CliRunner().invoke(program, arguments).output

    # A new authority is announced and then issues, unless a webhook does not trust it.
    rotating = ["certs", "rotate", "--ca", *arguments[2:]]
    assert CliRunner().invoke(program, rotating).exit_code == 0
    ran = CliRunner().invoke(program, rotating)
    assert (ran.exit_code, "does not trust the new authority yet" in ran.output) == (1, True)
    assert phase(read(tmp_path / "certs")) == "announced"
    assert CliRunner().invoke(program, arguments).exit_code == 0
    assert CliRunner().invoke(program, rotating).exit_code == 0
    assert phase(read(tmp_path / "certs")) == "retiring"


def test_the_lease_goes_over_when_its_holder_ends_and_when_it_dies(cluster: Cluster) -> None:
    """Each registers its own url, so the registration shows who leads."""
    first = guarded(cluster, sharing(cluster))
    second = cluster.guard(sharing(cluster), f"--namespace={cluster.name('guard')}")
    shared_by(cluster, first, second)
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{cluster.name('guard')}/leases/allocguard"

    def registered() -> str:
        found = cluster.as_admin.get(f"{CONFIGURATIONS}/{KINDS['validate']}/allocguard")
        return str(found["webhooks"][0]["clientConfig"]["url"])

    assert registered().startswith(first.url)
    assert first.stop() == 0
    assert first.lines(event="lease given back")
    eventually(lambda: registered().startswith(second.url))

    first.start()
    assert "leads" in first.get("/readyz?verbose").text
    second.kill()
    eventually(lambda: registered().startswith(first.url), within=60)
    assert cluster.as_admin.get(lease)["spec"]["leaseTransitions"] == 2
