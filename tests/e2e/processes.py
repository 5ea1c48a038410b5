"""Processes of the control plane: started on ports of their own, watched, told about with their log when they die."""

from __future__ import annotations

import ctypes
import fcntl
import itertools
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

# Below the range that the kernel takes ports of outgoing connections from, so that none of those is in the way.
PORTS = range(20000, 30000)
_PDEATHSIG = 1
_SELDOM = 0.2

_libc = ctypes.CDLL(None, use_errno=True)
_ports = itertools.cycle(range(os.getpid() % len(PORTS), os.getpid() % len(PORTS) + len(PORTS)))
_held: dict[int, int] = {}
_running: list[Process] = []


class Died(Exception):  # noqa: N818 - what ends a test at once, however patient it is
    """A process that should run has ended; the message has the end of its log."""


def free_port() -> int:
    """A loopback port that nobody else who asks here gets while this process lives, on any of the machine's workers."""
    folder = Path(tempfile.gettempdir()) / f"allocguard-e2e-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    for offset in itertools.islice(_ports, len(PORTS)):
        port = PORTS[offset % len(PORTS)]
        if port in _held:
            continue
        # A descriptor, since a file object would complain when the process ends with it open, as it is to.
        lock = os.open(folder / str(port), os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
        except OSError:
            os.close(lock)
            continue
        _held[port] = lock
        return port
    raise RuntimeError("no free port")


class Process:
    """One process: ``name`` for messages, its command line, and the file that takes what it writes.

    When it ends by itself because ``depends`` was stopped under it, it is started again, as a kubelet would.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        environment: Mapping[str, str] | None = None,
        depends: Process | None = None,
    ) -> None:
        self.name, self.command, self.log = name, [str(part) for part in command], log
        self.environment, self._depends = environment, depends
        self._starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self.log.touch()

    @property
    def pid(self) -> int:
        """Its process id; it has one from its first start on."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it; the log goes on where it ended."""
        with self.log.open("ab") as file:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=self.environment,
                preexec_fn=_die_with_parent,
            )
        self._starts += 1
        _running.append(self)

    def stop(self, within: float = 15) -> int:
        """Ask it to end, and make it end when it does not; gives its exit code."""
        return self._end(signal.SIGTERM, within)

    def kill(self) -> int:
        """End it as a crash does."""
        return self._end(signal.SIGKILL, 15)

    def restart(self) -> None:
        """End it and start it again, on the same port and data."""
        self.stop()
        self.start()

    def wait(self, within: float) -> int:
        """The exit code of a process that is expected to end by itself."""
        assert self._process is not None
        code = self._process.wait(within)
        self._forget()
        return code

    def check(self) -> None:
        """Raise Died when it has ended by itself."""
        if self in _running and not self.running:
            assert self._process is not None
            if self._depends is not None and (self._depends._starts > 1 or not self._depends.running):
                if self._depends.running:
                    self._forget()
                    self.start()
                return
            self._forget()
            raise Died(f"{self.name} ended with code {self._process.returncode}:\n{self.tail(40)}")

    def tail(self, lines: int, since: int = 0) -> str:
        """The last ``lines`` of what it wrote after the byte ``since`` of its log."""
        with self.log.open("rb") as file:
            file.seek(since)
            return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])

    def _end(self, number: int, within: float) -> int:
        self._forget()
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.send_signal(number)
        try:
            return self._process.wait(within)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def _forget(self) -> None:
        if self in _running:
            _running.remove(self)


def running() -> tuple[Process, ...]:
    """Every process that was started and not ended from here."""
    return tuple(_running)


def check() -> None:
    """Raise Died when one of the running processes has ended by itself."""
    for process in running():
        process.check()


def pause(since: float, every: float = 0.05) -> None:
    """Sleep ``every`` seconds before one asks again, and longer the longer one has asked, ``since`` that moment of the
    monotonic clock: to ask takes the time of those who are waited for.
    """
    time.sleep(max(every, min((time.monotonic() - since) / 8, _SELDOM)))


def until(condition: object, within: float, what: str) -> None:
    """Wait until ``condition()`` holds; raises Died, or TimeoutError with the log of what runs."""
    assert callable(condition)
    start = time.monotonic()
    while not condition():
        check()
        if time.monotonic() > start + within:
            logs = "\n".join(f"--- {process.name}\n{process.tail(15)}" for process in running())
            raise TimeoutError(f"{what}: not within {within} s\n{logs}")
        pause(start)


def _die_with_parent() -> None:
    # A run that is killed must not leave its control plane behind.
    _libc.prctl(_PDEATHSIG, signal.SIGKILL)
