"""The commands of docs/install.md, in order, in one shell."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.guarding import kubelet
from tests.e2e.processes import free_port

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "install.md").read_text()
BLOCK = re.compile(r"^(?:<!-- (1\.\d+) -->\n)?```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STEP = re.compile(r"^\$ (.*\n(?:> .*\n)*)((?:(?!\$ ).*\n)*)", re.MULTILINE)


def steps(release: str) -> list[tuple[str, str]]:
    """Each command of that release with what it prints."""
    blocks = [body for given, body in BLOCK.findall(TEXT) if given in ("", release)]
    return [(command.replace("\n> ", "\n"), printed) for block in blocks for command, printed in STEP.findall(block)]


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


def test_the_page(cluster: Cluster, tmp_path: Path) -> None:
    with kubelet(cluster, "allocguard-system"):
        follow(cluster, tmp_path)


def follow(cluster: Cluster, tmp_path: Path) -> None:
    """Do what the page says."""
    if shutil.which("kubectl") is None or shutil.which("curl") is None:
        pytest.skip("the page is for people with kubectl and curl")
    cluster.node("n1")
    ports = {"8443": str(free_port()), "9443": str(free_port())}
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "allocguard"
    # Ports of its own: tests run beside each other.
    command.write_text(
        f'#!/bin/sh\nif [ "$1" = serve ]; then set -- "$@" --port={ports["8443"]} --metrics-port={ports["9443"]}; fi\n'
        f'exec "{sys.executable}" -m webhook.cli "$@"\n'
    )
    command.chmod(0o755)
    access = cluster.plane.kubeconfig("page", "system:masters")
    environment = {"PATH": f"{tmp_path}/bin:/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    environment |= {"KUBECONFIG": str(access), "HOME": str(tmp_path)}
    told = tmp_path / "stderr"
    with told.open("w") as stderr:
        shell = subprocess.Popen(
            ["bash", "--norc"],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    assert shell.stdin is not None
    assert shell.stdout is not None
    try:
        for command_text, expected in steps(cluster.release):
            said = told.stat().st_size
            shell.stdin.write(f"{command_text.replace('8443', ports['8443'])}\nstatus=$?; echo; echo ---done $status\n")
            shell.stdin.flush()
            printed = ""
            while not (end := re.search(r"\n---done (\d+)\n$", printed)):
                line = shell.stdout.readline()
                assert line, told.read_text()
                printed += line
            printed = printed[: end.start()].rstrip("\n")
            shown = f"{command_text}\n{printed}\n{told.read_text()}"
            assert re.fullmatch(as_pattern(expected.rstrip("\n")), f"{printed}\n" if printed else ""), shown
            # What "..." stands for may be anything, but no failure.
            assert (int(end[1]) != 0) == fails(expected), shown
            assert told.read_text()[said:] == "", shown
    finally:
        shell.stdin.write("kill $(jobs -p)\nwait\n")
        shell.stdin.close()
        shell.wait(30)
        shell.stdout.close()


def test_every_command_is_read() -> None:
    shown = len(re.findall(r"^\$ ", TEXT, re.MULTILINE))
    assert shown == len(steps("1.36")) + 2 == len(steps("1.37")) + 2 > 15


def test_what_dots_stand_for() -> None:
    assert re.fullmatch(as_pattern("a\n...\nb ... c"), "a\nany\nthing\nb 1 c\n")
    assert re.fullmatch(as_pattern("a\n...\nb"), "a\nb\n")
    assert not re.fullmatch(as_pattern("a ..."), "a 1\nError\n")
    assert not re.fullmatch(as_pattern("a"), "")
    assert re.fullmatch(as_pattern(""), "")
    assert fails("Error from server (Forbidden): ...")
