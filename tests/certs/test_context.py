"""Real handshakes on the loopback interface, on both event loops that a server may run on."""

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from certs import files
from certs.authority import issue, make_authority
from certs.bundle import Material, Pair
from certs.context import ServingContext
from certs.error import CertificateError
from certs.files import ensure

# Clients use the clock of the machine, so certificates have to be valid by that.
NOW = datetime.now(UTC)
SOMEBODY = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "somebody")])
HOSTS = ["localhost", "127.0.0.1"]
Run = Callable[[Coroutine[object, object, None]], None]


def write(folder: Path, authority: Pair, serving: Pair) -> None:
    files.write(folder, Material(folder, serving, authority.chain, authority))


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def in_loop(main: Coroutine[object, object, None]) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main)

    return in_loop


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    ensure(tmp_path / "certs", HOSTS, NOW)
    return tmp_path / "certs"


@pytest.fixture
def authority(folder: Path) -> Pair:
    bundle = ensure(folder, HOSTS, NOW)
    assert bundle.authority is not None
    return bundle.authority


def trusting(*authorities: Pair, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata="".join(each.certificate_pem().decode() for each in authorities))
    context.maximum_version = newest
    return context


@asynccontextmanager
async def serving(context: ssl.SSLContext) -> AsyncIterator[int]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


class Connection:
    """One client connection that echoes lines and knows which certificate it was shown."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, port: int, client: ssl.SSLContext, host: str = "localhost") -> "Connection":
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname=host))

    async def echo(self) -> bool:
        self.writer.write(b"hello\n")
        await self.writer.drain()
        return await self.reader.readline() == b"hello\n"

    @property
    def tls(self) -> ssl.SSLObject:
        found = self.writer.get_extra_info("ssl_object")
        assert isinstance(found, ssl.SSLObject)
        return found

    @property
    def shown(self) -> x509.Certificate:
        der = self.tls.getpeercert(binary_form=True)
        assert der is not None
        return x509.load_der_x509_certificate(der)

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


async def shown(port: int, client: ssl.SSLContext, host: str = "localhost") -> x509.Certificate:
    connection = await Connection.open(port, client, host)
    assert await connection.echo()
    certificate = connection.shown
    await connection.close()
    return certificate


def rsa_pair(authority: Pair, start: datetime = NOW, days: int = 5) -> Pair:
    key = rsa.generate_private_key(65537, 2048)
    certificate = (
        x509.CertificateBuilder(
            authority.certificate.subject, SOMEBODY, key.public_key(), 7, start, start + timedelta(days=days)
        )
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.certificate.public_key()),
            critical=False,
        )
        .sign(authority.key, hashes.SHA256())
    )
    return Pair((certificate,), key)


def test_a_client_verifies_names_and_addresses(run: Run, folder: Path, authority: Pair) -> None:
    async def main() -> None:
        async with serving(ServingContext(folder, NOW)) as port:
            for host in HOSTS:
                await shown(port, trusting(authority), host)
            with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
                await shown(port, trusting(authority), "elsewhere.example")
            with pytest.raises(ssl.SSLCertVerificationError, match="certificate verify failed"):
                await shown(port, trusting(make_authority(NOW)))

    run(main())


def test_versions_and_protocols(run: Run, folder: Path, authority: Pair) -> None:
    async def main() -> None:
        async with serving(ServingContext(folder, NOW)) as port:
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                client = trusting(authority, newest=version)
                client.set_alpn_protocols(["h2", "http/1.1"])
                connection = await Connection.open(port, client)
                assert connection.tls.version() == version.name.replace("_", ".")
                assert connection.tls.selected_alpn_protocol() == "http/1.1"
                await connection.close()

            old = trusting(authority)
            old.set_ciphers("ALL:@SECLEVEL=0")
            with pytest.warns(DeprecationWarning, match="deprecated"):
                old.minimum_version = ssl.TLSVersion.TLSv1
            with pytest.warns(DeprecationWarning, match="deprecated"):
                old.maximum_version = ssl.TLSVersion.TLSv1_1
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await Connection.open(port, old)

    run(main())


def test_rotation_under_load_refuses_nobody(run: Run, folder: Path, authority: Pair) -> None:
    async def main() -> None:
        context = ServingContext(folder, NOW)
        client = trusting(authority)
        async with serving(context) as port:
            kept = await Connection.open(port, client)
            first = kept.shown.serial_number
            seen: set[int] = set()
            done = asyncio.Event()

            async def newcomers() -> None:
                while not done.is_set():
                    seen.add((await shown(port, client)).serial_number)

            crowd = [asyncio.create_task(newcomers()) for _ in range(4)]
            served = {first}
            for _ in range(10):
                renewed = issue(authority, HOSTS, NOW)
                write(folder, authority, renewed)
                assert context.refresh(NOW)
                served.add(renewed.certificate.serial_number)
                assert (await shown(port, client)).serial_number == renewed.certificate.serial_number
                assert await kept.echo()
            done.set()
            await asyncio.gather(*crowd)
            assert seen <= served
            assert len(seen) > 1
            assert kept.shown.serial_number == first
            await kept.close()

    run(main())


def test_nothing_changed_swaps_nothing(folder: Path) -> None:
    assert not ServingContext(folder, NOW).refresh(NOW)


@pytest.mark.parametrize("file", ["tls.crt", "tls.key"])
def test_half_a_new_pair_keeps_the_old_one_until_the_other_half_comes(
    run: Run, folder: Path, authority: Pair, tmp_path: Path, file: str
) -> None:
    async def main() -> None:
        context = ServingContext(folder, NOW)
        renewed = rsa_pair(authority)
        halves = {"tls.crt": renewed.certificate_pem(), "tls.key": renewed.key_pem()}
        async with serving(context) as port:
            before = await shown(port, trusting(authority))
            (folder / file).unlink()
            (folder / file).write_bytes(halves.pop(file))
            with pytest.raises(CertificateError, match="belongs to another certificate"):
                context.refresh(NOW)
            assert await shown(port, trusting(authority)) == before
            # Told once: a bad pair that stays as it is is not news every second.
            assert not context.refresh(NOW)

            for other, content in halves.items():
                (folder / other).unlink()
                (folder / other).write_bytes(content)
            assert context.refresh(NOW)
            assert await shown(port, trusting(authority)) == renewed.certificate

    run(main())


def test_the_kind_of_key_changes_both_ways(run: Run, folder: Path, authority: Pair) -> None:
    async def main() -> None:
        context = ServingContext(folder, NOW)
        async with serving(context) as port:
            for renewed in (rsa_pair(authority), issue(authority, HOSTS, NOW)):
                write(folder, authority, renewed)
                context.swap(NOW)
                assert await shown(port, trusting(authority)) == renewed.certificate
                assert context.ends["serving"] == renewed.certificate.not_valid_after_utc

    run(main())


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (lambda root: rsa_pair(root, NOW - timedelta(days=9)), "expired at"),
        (lambda root: rsa_pair(root, NOW + timedelta(days=1)), "is valid from"),
        (lambda _: rsa_pair(make_authority(NOW)), r"not by ca\.crt"),
    ],
)
def test_a_pair_that_clients_would_refuse_keeps_the_old_one(
    run: Run, folder: Path, authority: Pair, bad: Callable[[Pair], Pair], reason: str
) -> None:
    async def main() -> None:
        context = ServingContext(folder, NOW)
        async with serving(context) as port:
            before = await shown(port, trusting(authority))
            write(folder, authority, bad(authority))
            with pytest.raises(CertificateError, match=reason):
                context.refresh(NOW)
            assert await shown(port, trusting(authority)) == before

    run(main())


def test_a_folder_that_vanishes_keeps_the_old_pair(run: Run, folder: Path, authority: Pair) -> None:
    async def main() -> None:
        context = ServingContext(folder, NOW)
        async with serving(context) as port:
            before = await shown(port, trusting(authority))
            folder.rename(folder.with_name("away"))
            with pytest.raises(CertificateError, match="is missing"):
                context.refresh(NOW)
            assert await shown(port, trusting(authority)) == before

    run(main())


@pytest.mark.parametrize("later", [timedelta(days=91), timedelta(days=-1)])
def test_a_context_does_not_start_on_a_pair_that_cannot_serve(folder: Path, later: timedelta) -> None:
    with pytest.raises(CertificateError, match=r"tls\.crt"):
        ServingContext(folder, NOW + later)


def client_pair(authority: Pair) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder(
            authority.certificate.subject, SOMEBODY, key.public_key(), 8, NOW, NOW + timedelta(days=1)
        )
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return Pair((certificate,), key)


def test_clients_show_a_certificate_of_the_authority_that_is_current(
    run: Run, folder: Path, authority: Pair, tmp_path: Path
) -> None:
    def showing(pair: Pair, name: str) -> ssl.SSLContext:
        path = tmp_path / name
        path.write_bytes(pair.certificate_pem() + pair.key_pem())
        # In TLS 1.3 the client learns of a refusal only when it reads.
        client = trusting(authority, newest=ssl.TLSVersion.TLSv1_2)
        client.load_cert_chain(path)
        return client

    async def refused(opening: Awaitable[object]) -> None:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await opening

    async def main() -> None:
        first, second = make_authority(NOW), make_authority(NOW)
        one, two = showing(client_pair(first), "one.pem"), showing(client_pair(second), "two.pem")
        clients = tmp_path / "clients.crt"
        clients.write_bytes(first.certificate_pem())
        context = ServingContext(folder, NOW, client_authority=clients)
        async with serving(context) as port:
            await shown(port, one)
            await refused(shown(port, two))
            await refused(shown(port, trusting(authority, newest=ssl.TLSVersion.TLSv1_2)))

            clients.write_text("nonsense")
            with pytest.raises(CertificateError, match=r"clients\.crt: holds no readable PEM certificate"):
                context.refresh(NOW)
            await shown(port, one)

            clients.write_bytes(second.certificate_pem())
            assert context.refresh(NOW)
            await shown(port, two)
            await refused(shown(port, one))

    run(main())


def test_blocking_servers_take_the_current_pair_too(folder: Path, authority: Pair) -> None:
    import socket

    context = ServingContext(folder, NOW)
    renewed = issue(authority, HOSTS, NOW)
    write(folder, authority, renewed)
    context.swap(NOW)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve_one() -> None:
            plain, _ = listener.accept()
            with context.wrap_socket(plain, server_side=True) as tls:
                tls.recv(1)

        thread = threading.Thread(target=serve_one)
        thread.start()
        with (
            socket.create_connection(listener.getsockname()) as plain,
            trusting(authority).wrap_socket(plain, server_hostname="localhost") as tls,
        ):
            der = tls.getpeercert(binary_form=True)
            tls.send(b"x")
        thread.join()
    assert der is not None
    assert x509.load_der_x509_certificate(der) == renewed.certificate
