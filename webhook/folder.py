"""Files that are watched: which ones a list of paths names, and which of them changed since the last look.

Polling ``stat`` sees what file events miss: the swap of the link ``..data`` in a mounted ConfigMap, network file
systems, and events lost in a burst.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from webhook.kube.documents import MAX_BYTES

SUFFIXES = (".yaml", ".yml", ".json")
STDIN = "-"

Stamp = tuple[int, int, int]
_NO_FILE: Stamp = (0, 0, 0)
# Looks after which a file that differs at each of them counts as it is.
_PATIENCE = 3


def files(paths: Sequence[str]) -> Iterator[str]:
    """The files that ``paths`` name, in order: a file as it is, a folder's YAML and JSON files with those of its
    sub-folders, sorted by path, hidden ones left out. ``-`` stays. Raises OSError for a path that is not there.
    """
    for path in paths:
        if path == STDIN:
            yield path
        elif os.path.isdir(path):
            yield from _within(path)
        else:
            os.stat(path)
            yield path


def _within(folder: str, above: tuple[tuple[int, int], ...] = ()) -> Iterator[str]:
    status = os.stat(folder)
    identity = (status.st_dev, status.st_ino)
    if identity in above:  # a link back to a folder that this one is in
        return
    with os.scandir(folder) as entries:
        found = sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)
    for entry in found:
        if _is_folder(entry):
            yield from _within(entry.path, (*above, identity))
        elif entry.name.endswith(SUFFIXES):
            yield entry.path


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads nowhere, which reading it then says
        return False


def read(path: str, named: bool = False) -> bytes:
    """The content of one file, or of standard input for ``-``; of more than MAX_BYTES, one byte more than those.

    A pipe or a device is read only where somebody ``named`` it (``<(kubectl get …)``): one that merely lies in a
    folder could keep its reader waiting for ever. Raises OSError.
    """
    if path == STDIN:
        if sys.stdin is None:
            raise OSError(errno.EBADF, "is closed", path)
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    with open(path, "rb") if named else regular(path) as file:
        return file.read(MAX_BYTES + 1)


def regular(path: str | Path, buffering: int = -1) -> BinaryIO:
    """The file at ``path``, opened to be read; ``buffering`` as for ``open``. Never waits: a pipe or a device is
    refused. Raises OSError.
    """
    file: BinaryIO = open(path, "rb", buffering, opener=_at_once)  # noqa: SIM115 - the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "is no regular file", str(path))
    return file


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def stamp(path: str) -> Stamp:
    """What differs once the file was edited or replaced; always the same for what is no file that can be read twice."""
    try:
        status = os.stat(path)
    except OSError:
        return _NO_FILE
    if not stat.S_ISREG(status.st_mode):
        return _NO_FILE
    return status.st_mtime_ns, status.st_size, status.st_ino


@dataclass(frozen=True, slots=True)
class Changes:
    """What a look saw: all ``files`` in order, those of them that are new or ``changed``, those that are ``gone``."""

    files: list[str]
    changed: list[str]
    gone: list[str]


class Watch:
    """Tells which files under ``paths`` are new, changed or gone. A difference counts once two looks in a row see it
    the same, so that a file which is just being written is left alone, or once it was there at three looks in a row,
    so that one which never rests comes in too.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = [path for path in paths if path != STDIN]
        self._known: dict[str, Stamp] = {}
        self._pending: dict[str, tuple[Stamp | None, int]] = {}

    def mark(self, path: str) -> None:
        """Take ``path`` as known the way it is now; to be called before it is read for the first time."""
        self._known[path] = stamp(path)

    def look(self) -> Changes:
        """What is different since the last look. Raises OSError for a folder that is there and cannot be listed."""
        order = list(self._present())
        seen = {path: stamp(path) for path in order}
        pending: dict[str, tuple[Stamp | None, int]] = {}
        changed: list[str] = []
        gone: list[str] = []
        for path, now in seen.items():
            if now == self._known.get(path):
                continue
            before, looks = self._pending.get(path, (None, 0))
            if before == now or looks + 1 >= _PATIENCE:
                self._known[path] = now
                changed.append(path)
            else:
                pending[path] = now, looks + 1
        for path in [path for path in self._known if path not in seen]:
            if self._pending.get(path, (_NO_FILE, 0))[0] is None:
                del self._known[path]
                gone.append(path)
            else:
                pending[path] = None, 1
        self._pending = pending
        return Changes(order, changed, gone)

    def _present(self) -> Iterator[str]:
        for path in self._paths:
            try:
                yield from list(files([path]))
            except FileNotFoundError:
                continue
