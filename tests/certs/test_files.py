import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa, x25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from certs import files
from certs.authority import issue, make_authority
from certs.bundle import Material, Pair, to_pem
from certs.error import CertificateError
from certs.files import changed, ensure, keep, load, locked, read, signature
from certs.inspect import hosts
from certs.renewal import announce, drop, switch
from certs.secret import parts

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
HOSTS = ["localhost", "127.0.0.1"]
STEADY = ("ca.crt", "ca.key", "tls.crt", "tls.key")


def write(folder: Path, authority: Pair, serving: Pair) -> None:
    files.write(folder, Material(folder, serving, authority.chain, authority))


def copy_plain(folder: Path, to: Path, *names: str) -> Path:
    """A folder of plain files, as a person or a mounted Secret would have them."""
    to.mkdir()
    for name in names:
        (to / name).write_bytes((folder / name).read_bytes())
    return to


@pytest.fixture
def made(tmp_path: Path) -> Path:
    folder = tmp_path / "certs"
    ensure(folder, HOSTS, NOW)
    return folder


def test_an_empty_place_is_filled_and_then_kept(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "certs"
    first = ensure(folder, HOSTS, NOW)
    again = ensure(folder, ["other.example"], NOW)
    assert again.serving.certificate == first.serving.certificate
    assert again.authority is not None
    assert again.authorities == (again.authority.certificate,)
    assert load(folder, NOW).serving.certificate == first.serving.certificate
    assert all((folder / name).is_file() for name in STEADY)


def test_only_the_owner_reads_keys_whatever_the_umask(tmp_path: Path) -> None:
    for umask in (0o000, 0o077):
        folder = tmp_path / oct(umask)
        before = os.umask(umask)
        try:
            ensure(folder, HOSTS, NOW)
        finally:
            os.umask(before)
        modes = {name: stat.S_IMODE((folder / name).stat().st_mode) for name in STEADY}
        assert modes == {"ca.crt": 0o644, "ca.key": 0o600, "tls.crt": 0o644, "tls.key": 0o600}


def test_a_pair_is_issued_by_the_authority_that_is_there(made: Path, tmp_path: Path) -> None:
    folder = copy_plain(made, tmp_path / "plain", "ca.crt", "ca.key")
    bundle = ensure(folder, ["a.example"], NOW)
    assert bundle.authorities == read(made).authorities
    load(folder, NOW)


def test_a_serving_pair_alone_serves(made: Path, tmp_path: Path) -> None:
    folder = copy_plain(made, tmp_path / "plain", "tls.crt", "tls.key")
    bundle = ensure(folder, HOSTS, NOW)
    assert bundle.serving.chain == read(made).serving.chain
    assert load(folder, NOW).authorities == bundle.authorities == ()

    (folder / "ca.crt").write_bytes(b"\n")
    assert load(folder, NOW).authorities == ()


def test_a_mounted_secret_with_an_authority_serves(made: Path, tmp_path: Path) -> None:
    folder = copy_plain(made, tmp_path / "plain", "tls.crt", "tls.key", "ca.crt")
    bundle = ensure(folder, HOSTS, NOW)
    assert bundle.authority is None
    assert bundle.authorities == read(made).authorities


@pytest.mark.parametrize(
    ("present", "missing", "beside"),
    [
        (["tls.crt"], "tls.key", "tls.crt"),
        (["tls.key"], "tls.crt", "tls.key"),
        (["tls.key", "ca.crt", "ca.key"], "tls.crt", "tls.key"),
        (["ca.crt"], "ca.key", "ca.crt"),
        (["ca.key"], "ca.crt", "ca.key"),
        (["tls.crt", "tls.key", "ca.key"], "ca.crt", "ca.key"),
    ],
)
def test_half_a_pair_names_the_missing_file(
    made: Path, tmp_path: Path, present: list[str], missing: str, beside: str
) -> None:
    folder = copy_plain(made, tmp_path / "plain", *present)
    with pytest.raises(CertificateError, match=f"is missing beside {beside}") as raised:
        ensure(folder, HOSTS, NOW)
    assert raised.value.place == folder / missing
    assert sorted(path.name for path in folder.iterdir()) == sorted(present)


def test_reading_an_empty_folder_names_the_certificate(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match=r"tls\.crt: is missing; put the whole pair there"):
        read(tmp_path)


def _key(name: str) -> bytes:
    if name == "agreement":
        return x25519.X25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    key = rsa.generate_private_key(65537, 2048)
    encryption = BestAvailableEncryption(b"x") if name == "encrypted" else NoEncryption()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("tls.key", lambda _: _key("other"), r"belongs to another certificate than tls\.crt"),
        ("tls.key", lambda _: _key("encrypted"), "is encrypted"),
        ("tls.key", lambda _: _key("agreement"), "needs a key that can sign"),
        ("tls.key", lambda folder: (folder / "tls.crt").read_bytes(), "holds no PEM private key"),
        ("tls.key", lambda folder: (folder / "tls.key").read_bytes()[:100], "holds no PEM private key"),
        ("tls.key", lambda _: b"", "holds no PEM private key"),
        ("tls.crt", lambda _: b"", "holds no readable PEM certificate"),
        ("tls.crt", lambda folder: (folder / "tls.crt").read_bytes()[:200], "holds no readable PEM certificate"),
        ("tls.crt", lambda folder: (folder / "tls.key").read_bytes(), "holds no readable PEM certificate"),
        ("tls.crt", lambda _: b"\xff\xfe\x00", "holds no readable PEM certificate"),
        ("ca.crt", lambda _: b"nonsense", "holds no readable PEM certificate"),
        ("ca.key", lambda folder: (folder / "tls.key").read_bytes(), r"belongs to another certificate than ca\.crt"),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_named(
    made: Path, tmp_path: Path, file: str, content: Callable[[Path], bytes], reason: str
) -> None:
    folder = copy_plain(made, tmp_path / "plain", *STEADY)
    (folder / file).write_bytes(content(made))
    with pytest.raises(CertificateError, match=reason) as raised:
        load(folder, NOW)
    assert raised.value.place == folder / file
    assert "\n" not in str(raised.value)


def test_a_folder_that_is_a_file_and_a_file_that_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CertificateError, match="needs to be a folder"):
        ensure(tmp_path / "file", HOSTS, NOW)
    with pytest.raises(CertificateError, match="cannot be written: not a directory"):
        ensure(tmp_path / "file" / "below", HOSTS, NOW)
    (tmp_path / "folder" / "tls.crt").mkdir(parents=True)
    (tmp_path / "folder" / "tls.key").write_text("")
    with pytest.raises(CertificateError, match="cannot be read: is a directory"):
        ensure(tmp_path / "folder", HOSTS, NOW)


def test_a_pipe_is_refused_at_once(made: Path) -> None:
    (made / "tls.key").unlink()
    os.mkfifo(made / "tls.key")
    with pytest.raises(CertificateError, match=r"tls\.key: is no regular file"):
        read(made)


def test_a_bad_host_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs a DNS name"):
        ensure(tmp_path / "certs", ["a b"], NOW)
    assert not (tmp_path / "certs").exists()


def test_an_expired_authority_is_named_when_it_should_issue(made: Path, tmp_path: Path) -> None:
    folder = copy_plain(made, tmp_path / "plain", "ca.crt", "ca.key")
    with pytest.raises(CertificateError, match=r"ca\.crt: the authority's own certificate ended at 2036"):
        ensure(folder, HOSTS, NOW + timedelta(days=4000))


def test_an_expired_pair_is_read_but_not_loaded(made: Path) -> None:
    later = NOW + timedelta(days=91)
    assert read(made).serving.certificate.not_valid_after_utc < later
    with pytest.raises(CertificateError, match=r"tls\.crt: CN=allocguard expired at 2027-02-27T12:00:00Z, it is"):
        load(made, later)


def test_replacing_leaves_only_the_new_version(made: Path) -> None:
    authority = read(made).authority
    assert authority is not None
    for _ in range(3):
        renewed = issue(authority, HOSTS, NOW)
        write(made, authority, renewed)
        assert load(made, NOW).serving.certificate == renewed.certificate
    versions = [path for path in made.iterdir() if path.is_dir() and not path.is_symlink()]
    assert len(versions) == 1
    assert sorted(path.name for path in versions[0].iterdir()) == sorted(STEADY)


def test_plain_files_of_a_person_are_replaced(made: Path, tmp_path: Path) -> None:
    folder = copy_plain(made, tmp_path / "plain", *STEADY)
    authority = make_authority(NOW)
    renewed = issue(authority, HOSTS, NOW)
    write(folder, authority, renewed)
    assert load(folder, NOW).serving.certificate == renewed.certificate


def test_a_renewal_cut_short_before_the_switch_changes_nothing(made: Path) -> None:
    before = read(made)
    cut = made / "..half"
    cut.mkdir()
    (cut / "tls.crt").write_bytes(b"-----BEGIN CERT")
    (made / "..new-data").symlink_to("..half")
    assert load(made, NOW).serving.certificate == before.serving.certificate

    assert before.authority is not None
    write(made, before.authority, issue(before.authority, HOSTS, NOW))
    assert load(made, NOW).serving.certificate != before.serving.certificate


def test_a_reader_never_sees_half_a_pair_while_pairs_are_replaced(made: Path) -> None:
    """The writer is a process of its own; the reader resolves the folder's current version once, as one look does."""
    script = (
        "import sys; from pathlib import Path; from datetime import datetime\n"
        "from certs.files import read, write; from certs.renewal import renew\n"
        "folder = Path(sys.argv[1]); now = datetime.fromisoformat(sys.argv[2])\n"
        "for _ in range(25): write(folder, renew(read(folder), now))\n"
    )
    seen: set[int] = set()
    with subprocess.Popen([sys.executable, "-c", script, str(made), NOW.isoformat()]) as writer:
        while writer.poll() is None:
            version = (made / "..data").resolve()
            try:
                seen.add(read(version).serving.certificate.serial_number)
            except CertificateError as error:
                # A version that was current a moment ago may be gone by now; what is there always matches.
                assert error.reason.startswith(("is missing", "cannot be read: no such file"))  # noqa: PT017
    assert writer.returncode == 0
    assert len(seen) > 1


def test_a_folder_that_is_replaced_while_it_is_read_is_read_again(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of an authority to come go away when it has come, after they were seen and before they are read."""
    steady = read(made)
    files.write(made, announce(steady, NOW))
    real, seen = files._bytes, list[str]()

    def slow(path: Path) -> bytes:
        seen.append(path.name)
        if seen == ["ca.crt"]:
            files.write(made, steady)
        return real(path)

    monkeypatch.setattr(files, "_bytes", slow)
    assert parts(read(made)) == parts(steady)
    assert seen.count("ca.crt") == 2


def test_a_change_is_seen_by_stat_alone(made: Path, tmp_path: Path) -> None:
    extra = tmp_path / "clients.crt"
    last = signature(made, extra)
    assert not changed(made, last, extra)

    extra.write_text("x")
    assert changed(made, last, extra)

    last = signature(made)
    authority = read(made).authority
    assert authority is not None
    write(made, authority, issue(authority, HOSTS, NOW))
    assert changed(made, last)

    plain = copy_plain(made, tmp_path / "plain", *STEADY)
    last = signature(plain)
    (plain / "tls.key").unlink()
    assert changed(plain, last)


def test_a_bundle_of_several_authorities_is_trusted_while_they_change(made: Path, tmp_path: Path) -> None:
    old, new = read(made), make_authority(NOW)
    folder = copy_plain(made, tmp_path / "plain", "tls.crt", "tls.key")
    (folder / "ca.crt").write_bytes(to_pem((new.certificate, *old.authorities)))
    assert load(folder, NOW).authorities == (new.certificate, *old.authorities)


def test_a_certificate_with_a_broken_extension_is_refused(made: Path, tmp_path: Path) -> None:
    folder = copy_plain(made, tmp_path / "plain", *STEADY)
    authority = read(made).authority
    assert authority is not None
    key = authority.key
    name = x509.Name([])
    broken = x509.CertificateBuilder(name, name, key.public_key(), 1, NOW, NOW + timedelta(days=9)).add_extension(
        x509.UnrecognizedExtension(x509.SubjectAlternativeName.oid, b"\x30\x05nonsense"), critical=False
    )
    pair = Pair((broken.sign(key, hashes.SHA256()),), key)
    (folder / "tls.crt").write_bytes(pair.certificate_pem())
    (folder / "tls.key").write_bytes(pair.key_pem())
    with pytest.raises(CertificateError, match="holds no readable PEM certificate"):
        load(folder, NOW)


def test_what_is_due_is_done_and_nothing_else(made: Path) -> None:
    before = read(made)
    assert parts(keep(made, HOSTS, NOW)) == parts(before)
    late = NOW + timedelta(days=70)
    renewed = keep(made, HOSTS, late)
    assert renewed.authorities == before.authorities
    assert load(made, late).serving.certificate == renewed.serving.certificate != before.serving.certificate
    more = keep(made, ["new.example"], late)
    assert set(hosts(more.serving.certificate)) == {*HOSTS, "new.example"}


def test_keeping_makes_nothing_where_there_is_nothing(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="is missing"):
        keep(tmp_path, HOSTS, NOW)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_has_the_parts_of_an_authority_that_is_replaced_only_meanwhile(made: Path) -> None:
    files.write(made, announce(read(made), NOW))
    assert stat.S_IMODE((made / "ca-next.key").stat().st_mode) == 0o600
    assert read(made).upcoming is not None
    files.write(made, switch(read(made), NOW))
    assert not (made / "ca-next.key").is_symlink()
    assert (made / "ca-old.crt").exists()
    files.write(made, drop(read(made)))
    assert sorted(path.name for path in made.iterdir() if not path.name.startswith("..")) == sorted(STEADY)
    load(made, NOW)


def test_who_locks_a_folder_waits_for_the_other(made: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from certs.files import locked\n"
        "with locked(Path(sys.argv[1])): print('in', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(made)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == b"in\n"
        got = threading.Event()

        def wait() -> None:
            with locked(made):
                got.set()

        waiting = threading.Thread(target=wait)
        waiting.start()
        assert not got.wait(0.2)
        other.stdin.close()
        assert got.wait(20)
        waiting.join()


def test_a_folder_that_cannot_be_locked_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CertificateError, match=r"file: cannot be written"), locked(tmp_path / "file"):
        pass
