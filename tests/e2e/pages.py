"""Pages of ``docs/`` whose commands are run, in order, in one shell."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.e2e.cluster import Cluster
from tests.e2e.processes import free_port

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^(?:<!-- (1\.\d+) -->\n)?```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_STEP = re.compile(r"^\$ (.*\n(?:> .*\n)*)((?:(?!\$ ).*\n)*)", re.MULTILINE)


def text(name: str) -> str:
    """The page ``name`` of ``docs/``."""
    return (ROOT / "docs" / name).read_text()


def shown(page: str) -> int:
    """How many commands the page has, whatever the release."""
    return len(re.findall(r"^\$ ", page, re.MULTILINE))


def steps(page: str, release: str) -> list[tuple[str, str]]:
    """Each command of that release with what it prints. A block is for one release after a comment that names it."""
    blocks = [body for given, body in _BLOCK.findall(page) if given in ("", release)]
    return [(command.replace("\n> ", "\n"), printed) for block in blocks for command, printed in _STEP.findall(block)]


def as_pattern(printed: str) -> str:
    """What has to come out: a line ``...`` stands for whole lines, any number of them, and ``...`` in a line for a part
    of that one.
    """
    lines = [
        r"(?:[^\n]*\n)*" if line == "..." else "[^\\n]*".join(map(re.escape, line.split("..."))) + r"\n"
        for line in printed.splitlines()
    ]
    return "".join(lines)


def fails(printed: str) -> bool:
    """Whether the page shows the command to fail."""
    return printed.startswith("Error ")


def surroundings(cluster: Cluster, folder: Path, serving: str = "") -> dict[str, str]:
    """The environment of who works through a page as administrator of ``cluster``: `allocguard` is on the path, made in
    ``folder``, and serves with the arguments ``serving`` beside its own.
    """
    (folder / "bin").mkdir()
    command = folder / "bin" / "allocguard"
    command.write_text(
        f'#!/bin/sh\nif [ "$1" = serve ]; then set -- "$@" {serving}; fi\nexec "{sys.executable}" -m webhook.cli "$@"\n'
    )
    command.chmod(0o755)
    access = cluster.plane.kubeconfig("page", "system:masters")
    environment = {"PATH": f"{folder}/bin:/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    return environment | {"KUBECONFIG": str(access), "HOME": str(folder)}


def follow(page: str, cluster: Cluster, folder: Path) -> None:
    """Do what the page says, in ``folder`` and on ``cluster``; what comes out is what is shown, and nothing else."""
    ports = {"8443": str(free_port()), "9443": str(free_port())}
    # Ports of its own: tests run beside each other.
    environment = surroundings(cluster, folder, f"--port={ports['8443']} --metrics-port={ports['9443']}")
    told = folder / "stderr"
    with told.open("w") as stderr:
        shell = subprocess.Popen(
            ["bash", "--norc"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    assert shell.stdin is not None
    assert shell.stdout is not None
    try:
        for command_text, expected in steps(page, cluster.release):
            said = told.stat().st_size
            for port, own in ports.items():
                command_text = command_text.replace(port, own)
            shell.stdin.write(f"{command_text}\nstatus=$?; echo; echo ---done $status\n")
            shell.stdin.flush()
            printed = ""
            while not (end := re.search(r"\n---done (\d+)\n$", printed)):
                line = shell.stdout.readline()
                assert line, told.read_text()
                printed += line
            printed = printed[: end.start()].rstrip("\n")
            whole = f"{command_text}\n{printed}\n{told.read_text()}"
            assert re.fullmatch(as_pattern(expected.rstrip("\n")), f"{printed}\n" if printed else ""), whole
            # What "..." stands for may be anything, but no failure.
            assert (int(end[1]) != 0) == fails(expected), whole
            assert told.read_text()[said:] == "", whole
    finally:
        shell.stdin.write("kill $(jobs -p)\nwait\n")
        shell.stdin.close()
        shell.wait(30)
        shell.stdout.close()
