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


def test_there_are_examples_of_every_state_in_the_order_of_a_claims_life() -> None:
    told = [output.splitlines()[0] for command, output in EXAMPLES if command.startswith("ledger explain ")]
    states = [re.match(r"claim shop/cores: (\w+)", line)[1] for line in told]
    assert list(dict.fromkeys(states)) == ["unallocated", "reserved", "allocated", "bound"]
    assert "0 charges" in EXAMPLES[-1][1]


def test_every_row_of_the_table_names_a_test_that_there_is() -> None:
    named = re.findall(r"`(test_\w+|Test\w+)`", TEXT)
    tests = "\n".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert len(named) >= 18
    assert [name for name in named if not re.search(rf"^(def |class )?{name}\b", tests, re.MULTILINE)] == []
