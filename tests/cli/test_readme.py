"""The console examples of the README and of docs/history.md work as written; a line or the rest of one may be `...`."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
HISTORY = (ROOT / "docs" / "history.md").read_text()


def examples(text):
    return re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


BLOCKS = [*examples(README), "".join(examples(HISTORY))]


@pytest.fixture
def clone(tmp_path):
    """A folder that looks like a clone, in which examples may write."""
    # Copies: examples edit policies, and `cp -r` of a link is a link.
    for name in ("webhook/cli/example", "policies"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "allocguard"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m webhook.cli "$@"\n')
    command.chmod(0o755)
    return tmp_path


def steps(block):
    """Each command of a block with what it prints."""
    for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, printed = step.partition("\n")
        yield command, printed


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_an_example_prints_what_the_readme_shows(clone, block):
    environment = {**os.environ, "PATH": f"{clone}/bin:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    for command, expected in steps(block):
        done = subprocess.run(["bash", "-c", command], cwd=clone, env=environment, capture_output=True, text=True)
        pattern = "(?s:.*)".join(map(re.escape, re.split(r"\.\.\.\n?", expected)))
        assert re.fullmatch(pattern, done.stdout), f"{command}\n{done.stdout}{done.stderr}"


def test_there_are_examples():
    lines = [command for block in BLOCKS for command, _ in steps(block)]
    told = [line.split()[1:3] for line in lines if line.startswith("allocguard ")]
    groups = ("ledger", "policy", "certs", "rollout", "rbac")
    commands = {" ".join(words) if words[0] in groups else words[0] for words in told}
    assert commands == {"check", "review", "explain", "ledger show", "ledger explain", "ledger fit", "ledger export",
                        "ledger replay", "ledger diff", "policy lint", "policy test", "policy export-vap",
                        "rbac lint", "certs init", "rollout status", "rollout resume", "completion"}  # fmt: skip


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)#:]+)\)", README))))
def test_links_lead_somewhere(target):
    assert (ROOT / target).exists()
