import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from webhook.cli.program import COMMANDS


def test_help_names_every_command_and_shows_examples(run):
    told = run("--help")
    assert told.code == 0
    assert all(f"  {name}" in told.out for name in COMMANDS)


@pytest.mark.parametrize(
    "command",
    ["check", "review", "explain", "serve", "ledger show", "ledger fit", "policy lint", "policy test", "certs init",
     "certs show", "completion", "demo", "ledger", "policy", "certs"],
)  # fmt: skip
def test_every_command_teaches_by_example(run, command):
    told = run(*command.split(), "--help")
    assert told.code == 0
    assert f"  allocguard {command}" in told.out or f"(allocguard {command}" in told.out


@pytest.mark.parametrize("command", [[], ["ledger"], ["policy"], ["certs"]])
def test_without_a_command_the_help_is_shown(run, command):
    ran = run(*command)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("Usage: allocguard")
    assert "Commands:" in ran.err


def test_help_reads_no_module_that_a_command_needs(spawn):
    script = "import sys; from webhook.cli.program import program; program(['--help'])"
    done = subprocess.run([sys.executable, "-X", "importtime", "-c", script], capture_output=True, text=True)
    assert done.returncode == 0
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert not loaded & {"webhook.admission", "webhook.policy", "starlette", "cryptography", "yaml", "cel_expr_python"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["reviw"], "no such command 'reviw'. Did you mean 'review'?; see `allocguard --help`"),
        (["nothing-like-it"], "no such command 'nothing-like-it'; see `allocguard --help`"),
        (["check"], "needs FILES, or --live for all that is stored; see `allocguard check --help`"),
        (["check", "x", "--at", "yesterday"], "is no time with an offset"),
        (["check", "x", "--at", "2026-11-20T09:00:00"], "is no time with an offset"),
        (["check", "x", "--kubernetes-version", "1.12"], "needs one of 1.36 and 1.37"),
        (["check", "x", "--feature-gates", "DRA=yes"], "needs NAME=true or NAME=false"),
        (["check", "x", "-o", "pdf"], "'pdf' is not one of"),
        (["check", "-", "--cluster", "-"], "standard input can be read once"),
    ],
)
def test_a_wrong_call_exits_with_2_and_says_what_to_do(run, arguments, told):
    ran = run(*arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith("allocguard: ")
    assert told in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("command", [["review", "x.json"], ["explain", "x.json"], ["ledger", "show"], ["serve"]])
def test_without_a_cluster_the_exit_code_is_3(run, command):
    ran = run(*command)
    assert ran.code == 3
    assert "--cluster" in ran.err


def test_a_reader_that_goes_away_is_no_error(example):
    command = [sys.executable, "-m", "webhook.cli", "ledger", "show", "--cluster", str(example / "cluster")]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert done.returncode == 0
    assert done.stderr == b""


def test_an_interrupted_run_ends_without_a_traceback(tmp_path: Path):
    fifo = tmp_path / "never-written.yaml"
    os.mkfifo(fifo)
    process = subprocess.Popen([sys.executable, "-m", "webhook.cli", "check", str(fifo)], stderr=subprocess.PIPE)
    # Opening the other end succeeds once the command waits for the first byte.
    for _ in range(600):
        try:
            end = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
            break
        except OSError:
            time.sleep(0.05)
    # A signal that comes between the last look for one and the system call that waits is not seen until the next.
    # One that comes while the interpreter ends is the system's to handle: the next is sent late.
    for _ in range(6):
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            _, told = process.communicate(timeout=10)
            break
    os.close(end)
    assert process.returncode == 130
    assert b"Traceback" not in told


def test_an_error_of_ours_is_one_line(run, monkeypatch):
    monkeypatch.setattr("webhook.cli.sources.revision", lambda *_: 1 / 0)
    from click.testing import CliRunner

    from webhook.cli.program import program

    ran = CliRunner().invoke(program, ["check", "x"])
    assert ran.exit_code == 2
    assert ran.stderr.startswith("allocguard: failed: ZeroDivisionError: ")
    assert ran.stderr.count("\n") == 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_ask_the_command_itself(run, shell):
    ran = run("completion", shell)
    assert ran.code == 0
    assert "_ALLOCGUARD_COMPLETE" in ran.out


def test_completion_completes_commands(spawn):
    ran = spawn(_ALLOCGUARD_COMPLETE="bash_complete", COMP_WORDS="allocguard le", COMP_CWORD="1")
    assert ran.out == "plain,ledger\n"


def test_no_colour_where_nobody_looks(run, example):
    assert "\x1b" not in run("ledger", "show", "--cluster", example / "cluster").out


def test_a_narrow_encoding_is_no_reason_to_fail(spawn, example):
    ran = spawn("ledger", "show", "--cluster", example / "cluster", PYTHONIOENCODING="ascii")
    assert ran.code == 0
    assert "\\xd7" in ran.out
