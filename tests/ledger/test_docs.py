"""What docs/ledger.md shows is what comes out, and every rule in its table is a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from webhook.cli.program import program

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "ledger.md").read_text()
EXAMPLES = re.findall(r"```console\n\$ allocguard ([^\n]*)\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize(("command", "output"), EXAMPLES, ids=[command[:60] for command, _ in EXAMPLES])
def test_the_documented_output_is_what_the_command_prints(
    command: str, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "100")
    done = CliRunner().invoke(program, command.split())
    assert done.exit_code in (0, 1), done.output
    assert done.stdout.split() == output.split()


def test_there_are_examples_of_every_state() -> None:
    assert len(EXAMPLES) >= 5
    for state in ("reserved", "allocated", "bound", "unallocated"):
        assert any(state in output or "0 charges" in output for _, output in EXAMPLES), state


def test_every_row_of_the_table_names_a_test_that_there_is() -> None:
    named = re.findall(r"`(test_\w+|Test\w+)`", TEXT)
    tests = "\n".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert len(named) >= 18
    assert [name for name in named if not re.search(rf"^(def |class )?{name}\b", tests, re.MULTILINE)] == []
