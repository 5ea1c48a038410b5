"""The commands of docs/install.md, in order, in one shell."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.processes import free_port

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "install.md").read_text()
BLOCK = re.compile(r"^(?:<!-- (1\.\d+) -->\n)?```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STEP = re.compile(r"^\$ (.*\n(?:> .*\n)*)((?:(?!\$ ).*\n)*)", re.MULTILINE)


def steps(release: str) -> list[tuple[str, str]]:
    """Each command of that release with what it prints."""
    blocks = [body for given, body in BLOCK.findall(TEXT) if given in ("", release)]
    return [(command.replace("\n> ", "\n"), printed) for block in blocks for command, printed in STEP.findall(block)]


def test_the_page(cluster: Cluster, tmp_path: Path) -> None:
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
            shell.stdin.write(f"{command_text.replace('8443', ports['8443'])}\necho; echo ---done\n")
            shell.stdin.flush()
            printed = ""
            while not printed.endswith("\n---done\n"):
                line = shell.stdout.readline()
                assert line, told.read_text()
                printed += line
            printed = printed.removesuffix("---done\n").rstrip("\n")
            pattern = "(?s:.*)".join(map(re.escape, re.split(r"\.\.\.\n?", expected.rstrip("\n"))))
            assert re.fullmatch(pattern, printed), f"{command_text}\n{printed}\n{told.read_text()}"
    finally:
        shell.stdin.write("kill $(jobs -p)\nwait\n")
        shell.stdin.close()
        shell.wait(30)
        shell.stdout.close()


def test_every_command_is_read() -> None:
    shown = len(re.findall(r"^\$ ", TEXT, re.MULTILINE))
    assert shown == len(steps("1.36")) + 1 == len(steps("1.37")) + 1 > 15
