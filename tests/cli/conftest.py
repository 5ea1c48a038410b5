import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from webhook.cli.program import program


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run() -> Run:
    """Runs the command in this process."""

    def ran(*arguments: object, stdin: str | bytes = b"") -> Ran:
        result = CliRunner(catch_exceptions=False).invoke(program, list(map(str, arguments)), input=stdin)
        assert "failed: " not in result.stderr, result.stderr
        return Ran(result.exit_code, result.stdout, result.stderr)

    return ran


@pytest.fixture
def spawn() -> Run:
    """Runs the command in a process of its own."""

    def ran(*arguments: object, stdin: bytes = b"", **variables: str) -> Ran:
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **variables}
        command = [sys.executable, "-m", "webhook.cli", *map(str, arguments)]
        done = subprocess.run(command, input=stdin, env=environment, capture_output=True)
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    return ran


@pytest.fixture
def example() -> Path:
    return Path(__file__).parents[2] / "webhook" / "cli" / "example"
