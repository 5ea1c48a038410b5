"""The certificate folder on disk: read, checked, made, and replaced as a whole.

Files are written as the kubelet writes a mounted Secret: all of them into a fresh sub-folder, then one rename of the
link ``..data`` makes them current. A reader never sees the certificate of one pair beside the key of another, and a
crash leaves either the old files or the new ones.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import get_args

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from certs.authority import issue, make_authority
from certs.bundle import AUTHORITY_CERTIFICATE, AUTHORITY_KEY, SERVING_CERTIFICATE, SERVING_KEY, Bundle, Pair
from certs.error import CertificateError
from certs.inspect import problems

FILES = (AUTHORITY_CERTIFICATE, AUTHORITY_KEY, SERVING_CERTIFICATE, SERVING_KEY)
_CURRENT = "..data"

Signature = tuple[tuple[int, int, int] | None, ...]


def ensure(folder: Path, hosts: Sequence[str], now: datetime) -> Bundle:
    """The bundle of ``folder``, made first where it is missing: the folder, an authority, a serving pair for ``hosts``.

    A folder with only the authority's pair gets a serving pair issued by it; a folder with only a serving pair is taken
    as it is. Raises CertificateError for half a pair, naming the missing file, and for anything unreadable; ValueError
    for a bad host.
    """
    present = _present(folder)
    if SERVING_CERTIFICATE not in present and SERVING_KEY not in present:
        authority = _authority_pair(folder) if present else make_authority(now)
        try:
            serving = issue(authority, hosts, now)
        except ValueError as error:
            if not present:
                raise
            raise CertificateError(folder / AUTHORITY_CERTIFICATE, str(error)) from error
        write(folder, authority, serving)
    return read(folder)


def load(folder: Path, now: datetime) -> Bundle:
    """The bundle of ``folder``, fit to serve at ``now``.

    Raises CertificateError, naming the file, where a file is missing or unreadable, a key belongs to another
    certificate, the chain does not lead to ``ca.crt``, a certificate is expired or not yet valid, or has no host.
    """
    bundle = read(folder)
    for problem in problems(bundle, now):
        raise problem
    return bundle


def read(folder: Path) -> Bundle:
    """The bundle of ``folder``, its keys matched with their certificates, whatever its dates say.

    Raises CertificateError, naming the file.
    """
    present = _present(folder)
    for name, other in ((SERVING_CERTIFICATE, SERVING_KEY), (SERVING_KEY, SERVING_CERTIFICATE)):
        if name not in present:
            beside = f" beside {other}" if other in present else ""
            raise CertificateError(folder / name, f"is missing{beside}; put the whole pair there")
    serving = _pair(folder / SERVING_CERTIFICATE, folder / SERVING_KEY)
    if AUTHORITY_KEY in present:
        authority = _authority_pair(folder)
        return Bundle(folder, serving, authority.chain, authority)
    trusted = folder / AUTHORITY_CERTIFICATE
    # Issuers that do not tell their authority leave the file empty in the Secrets they fill.
    if AUTHORITY_CERTIFICATE not in present or not _bytes(trusted).strip():
        return Bundle(folder, serving)
    return Bundle(folder, serving, read_certificates(trusted))


def write(folder: Path, authority: Pair, serving: Pair) -> None:
    """Make ``authority`` and ``serving`` the content of ``folder``, all at once; keys are readable by the owner only.

    Raises CertificateError where the folder cannot be written.
    """
    contents = {
        AUTHORITY_CERTIFICATE: (authority.certificate_pem(), 0o644),
        AUTHORITY_KEY: (authority.key_pem(), 0o600),
        SERVING_CERTIFICATE: (serving.certificate_pem(), 0o644),
        SERVING_KEY: (serving.key_pem(), 0o600),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        version = Path(tempfile.mkdtemp(prefix="..", dir=folder))
        # Only the keys are secret: mkdtemp would hide the authority from everybody else who has to trust it.
        version.chmod(0o755)
        for name, (data, mode) in contents.items():
            _write_file(version / name, data, mode)
        current = folder / _CURRENT
        replaced = current.readlink() if current.is_symlink() else None
        _link(current, Path(version.name))
        for name in contents:
            if not (folder / name).is_symlink():
                _link(folder / name, Path(_CURRENT, name))
        if replaced is not None and replaced.name.startswith("..") and replaced.parent == Path():
            shutil.rmtree(folder / replaced, ignore_errors=True)
    except OSError as error:
        raise _unusable(folder, error, "written") from error


def signature(folder: Path, *more: Path) -> Signature:
    """A value that differs once a file of ``folder``, or one of ``more``, was replaced, edited, added or removed.

    Take it before reading: a change that happens meanwhile then shows as a difference later.
    """
    return tuple(_stamp(path) for path in (*(folder / name for name in FILES), *more))


def changed(folder: Path, last: Signature, *more: Path) -> bool:
    """Whether ``signature`` is no longer ``last``; a look costs a few microseconds, so it can be asked every second."""
    return signature(folder, *more) != last


def read_certificates(path: Path) -> tuple[x509.Certificate, ...]:
    """The PEM certificates of ``path``, at least one; raises CertificateError."""
    try:
        certificates = x509.load_pem_x509_certificates(_bytes(path))
        for certificate in certificates:
            # Parsing is lazy: ask now for what is read later, so that a broken certificate is refused here.
            _ = certificate.extensions, certificate.subject, certificate.issuer, certificate.public_key()
    except (ValueError, x509.DuplicateExtension, UnsupportedAlgorithm) as error:
        raise CertificateError(path, "holds no readable PEM certificate") from error
    return tuple(certificates)


def _present(folder: Path) -> set[str]:
    try:
        if folder.exists() and not folder.is_dir():
            raise CertificateError(folder, "is a file, needs to be a folder")
        return {name for name in FILES if (folder / name).exists()}
    except OSError as error:
        raise _unusable(folder, error, "read") from error


def _authority_pair(folder: Path) -> Pair:
    for name, other in ((AUTHORITY_CERTIFICATE, AUTHORITY_KEY), (AUTHORITY_KEY, AUTHORITY_CERTIFICATE)):
        if not (folder / name).exists():
            raise CertificateError(folder / name, f"is missing beside {other}; put the whole pair there")
    return _pair(folder / AUTHORITY_CERTIFICATE, folder / AUTHORITY_KEY)


def _pair(certificate_path: Path, key_path: Path) -> Pair:
    chain = read_certificates(certificate_path)
    try:
        key = load_pem_private_key(_bytes(key_path), password=None)
    except TypeError as error:
        raise CertificateError(key_path, "is encrypted, needs a key without a password") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise CertificateError(key_path, "holds no PEM private key") from error
    if not isinstance(key, get_args(CertificateIssuerPrivateKeyTypes)):
        raise CertificateError(key_path, f"holds a {type(key).__name__}, needs a key that can sign (ECDSA, RSA)")
    if key.public_key() != chain[0].public_key():
        raise CertificateError(key_path, f"belongs to another certificate than {certificate_path.name}")
    return Pair(chain, key)


def _bytes(path: Path) -> bytes:
    try:
        # A pipe or a device would keep its reader waiting, and a server with it.
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise CertificateError(path, "is no regular file")
        return path.read_bytes()
    except OSError as error:
        raise _unusable(path, error, "read") from error


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _write_file(path: Path, data: bytes, mode: int) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _link(path: Path, target: Path) -> None:
    # A link cannot be pointed elsewhere in place; a rename over it is atomic.
    fresh = path.with_name(f"..new-{path.name.lstrip('.')}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(path)


def _unusable(path: Path, error: OSError, done: str) -> CertificateError:
    return CertificateError(path, f"cannot be {done}: {(error.strerror or str(error)).lower()}")
