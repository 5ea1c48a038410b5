"""The certificate folder on disk: read, checked, made, and replaced as a whole.

Files are written as the kubelet writes a mounted Secret: all of them into a fresh sub-folder, then one rename of the
link ``..data`` makes them current. A reader never sees the certificate of one pair beside the key of another, and a
crash leaves either the old files or the new ones.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from pathlib import Path

from cryptography import x509

from certs.bundle import NAMES, Material
from certs.error import CertificateError
from certs.inspect import problems
from certs.pem import certificates
from certs.renewal import due
from certs.secret import PRIVATE, complete, material, parts

_CURRENT = "..data"
# How often files that are replaced while they are read are read again.
_TRIES = 5

Signature = tuple[tuple[int, int, int] | None, ...]


def ensure(folder: Path, hosts: Sequence[str], now: datetime) -> Material:
    """The content of ``folder``, made first where it is missing: the folder, an authority, a serving pair for
    ``hosts``.

    A folder with only the authority's pair gets a serving pair issued by it; a folder with only a serving pair is taken
    as it is. Raises CertificateError for half a pair, naming the missing file, and for anything unreadable; ValueError
    for a bad host.
    """
    found = _parts(folder)
    held = complete(found, folder, hosts, now)
    if parts(held).keys() - found.keys():
        with locked(folder):
            # Somebody else may have been faster.
            held = complete(_parts(folder), folder, hosts, now)
            write(folder, held)
    return read(folder)


def keep(folder: Path, hosts: Sequence[str], now: datetime, injected: Collection[x509.Certificate] = ()) -> Material:
    """The content of ``folder`` with everything done that is due; see :func:`certs.renewal.due` for the arguments.

    What is missing is not made: a folder that vanished for a moment must not come back with another authority. Raises
    CertificateError, and ValueError for a bad host.
    """
    held = read(folder)
    if due(held, now, hosts, injected) is None:
        return held
    with locked(folder):
        held = read(folder)
        while (step := due(held, now, hosts, injected)) is not None:
            write(folder, step)
            held = step
    return held


def load(folder: Path, now: datetime) -> Material:
    """The content of ``folder``, fit to serve at ``now``.

    Raises CertificateError, naming the file, where a file is missing or unreadable, a key belongs to another
    certificate, the chain does not lead to ``ca.crt``, a certificate is expired or not yet valid, or has no host.
    """
    held = read(folder)
    for problem in problems(held, now):
        raise problem
    return held


def read(folder: Path) -> Material:
    """The content of ``folder``, its keys matched with their certificates, whatever its dates say.

    Raises CertificateError, naming the file.
    """
    return material(_parts(folder), folder)


def write(folder: Path, held: Material) -> None:
    """Make ``held`` the content of ``folder``, all at once; keys are readable by the owner only.

    Raises CertificateError where the folder cannot be written.
    """
    contents = parts(held)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        version = Path(tempfile.mkdtemp(prefix="..", dir=folder))
        # Only the keys are secret: mkdtemp would hide the authority from everybody else who has to trust it.
        version.chmod(0o755)
        for name, data in contents.items():
            _write_file(version / name, data, 0o600 if name in PRIVATE else 0o644)
        current = folder / _CURRENT
        replaced = current.readlink() if current.is_symlink() else None
        _link(current, Path(version.name))
        for name in NAMES:
            if name not in contents:
                (folder / name).unlink(missing_ok=True)
            elif not (folder / name).is_symlink():
                _link(folder / name, Path(_CURRENT, name))
        if replaced is not None and replaced.name.startswith("..") and replaced.parent == Path():
            shutil.rmtree(folder / replaced, ignore_errors=True)
    except OSError as error:
        raise _unusable(folder, error, "written") from error


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep others who lock ``folder`` from changing it meanwhile. Raises CertificateError where that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise _unusable(folder, error, "written") from error
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)


def signature(folder: Path, *more: Path) -> Signature:
    """A value that differs once a file of ``folder``, or one of ``more``, was replaced, edited, added or removed.

    Take it before reading: a change that happens meanwhile then shows as a difference later.
    """
    return tuple(_stamp(path) for path in (*(folder / name for name in NAMES), *more))


def changed(folder: Path, last: Signature, *more: Path) -> bool:
    """Whether ``signature`` is no longer ``last``; a look costs a few microseconds, so it can be asked every second."""
    return signature(folder, *more) != last


def read_certificates(path: Path) -> tuple[x509.Certificate, ...]:
    """The PEM certificates of ``path``, at least one; raises CertificateError."""
    return certificates(_bytes(path), path)


def _parts(folder: Path) -> dict[str, bytes]:
    """The files that there are, of one state of the folder: read again where they were replaced meanwhile."""
    for left in reversed(range(_TRIES)):
        before = signature(folder)
        try:
            found = _present(folder)
        except CertificateError:
            if not left or signature(folder) == before:
                raise
            continue
        if signature(folder) == before:
            break
    return found


def _present(folder: Path) -> dict[str, bytes]:
    try:
        if folder.exists() and not folder.is_dir():
            raise CertificateError(folder, "is a file, needs to be a folder")
        present = [name for name in NAMES if (folder / name).exists()]
    except OSError as error:
        raise _unusable(folder, error, "read") from error
    return {name: _bytes(folder / name) for name in present}


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
