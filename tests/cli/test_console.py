"""What is written where, when a stream is closed or full."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from webhook.cli.console import out, paint, table

ROOT = Path(__file__).parents[2]
COMMAND = f"{shlex.quote(sys.executable)} -m webhook.cli"


def shell(line: str) -> tuple[int, str, str]:
    done = subprocess.run(["sh", "-c", line], cwd=ROOT, env=dict(os.environ), capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("command", ["ledger show --cluster webhook/cli/example/cluster", "--help", "completion bash"])
def test_a_full_disk_is_told_in_one_line(command: str) -> None:
    code, _, told = shell(f"{COMMAND} {command} > /dev/full")
    assert code == 2
    assert told.startswith("allocguard: ")
    assert "no space left on device" in told
    assert told.count("\n") == 1


def test_where_nothing_can_be_told_the_exit_code_still_tells() -> None:
    assert shell(f"{COMMAND} check /nope > /dev/full 2> /dev/full")[0] == 2


def test_a_closed_stream_swallows_what_would_go_there() -> None:
    assert shell(f"exec >&-; {COMMAND} check webhook/cli/example/cluster")[::2] == (0, "")
    code, out, _ = shell(f"exec 2>&-; {COMMAND} check /nope")
    assert (code, out.count("\n")) == (2, 1)


def test_a_closed_standard_input_is_told() -> None:
    code, _, told = shell(f"exec <&-; {COMMAND} check -")
    assert (code, told) == (2, "allocguard: -: cannot be read: is closed; check the path\n")


@pytest.mark.parametrize("tty", [False, True])
def test_a_terminal_is_told_nothing_but_text_and_our_colours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tty: bool
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: tty, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    painted = paint("a", "red", bold=True)
    out(f"{painted}\x1b]0;title\x07\x1b[2J\u202eb\x9b1m\u2028c\n\td \N{MULTIPLICATION SIGN} \x1b[8me")
    red, end = ("\x1b[31m\x1b[1m", "\x1b[0m") if tty else ("", "")
    assert capsys.readouterr().out == f"{red}a{end} ]0;title  [2J b 1m c\n\td \N{MULTIPLICATION SIGN}  [8me\n"


def test_exact_text_is_changed_for_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out("a\u202eb", exact=True)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    out("a\u202eb", exact=True)
    assert capsys.readouterr().out == "a\u202eb\na b\n"


def test_a_cell_of_a_table_stays_on_its_line() -> None:
    assert table(["name", "n"], [["a\nb\x1b[2J", "1"]]) == ["name     n", "a b [2J  1"]
