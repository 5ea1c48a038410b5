"""The command ``allocguard``: its sub-commands, its exit codes, and what happens when a run ends early."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

import click

from webhook.cli.console import Session, note, silence
from webhook.kube.finding import one_line

# Every command reads its own module only when it is asked for: `allocguard check` pays for nothing of `serve`.
COMMANDS = {
    "check": "judge manifests at rest, with the API server's own rules too",
    "review": "answer AdmissionReviews exactly as the server would",
    "explain": "why a review came out so, or the story of a claim that waits",
    "serve": "serve the webhook over HTTPS",
    "ledger": "what every node has, and who is charged for it",
    "policy": "check, test and export policies, judge recorded decisions again",
    "rollout": "hold, resume, check and promote a driver",
    "rbac": "judge roles and bindings: too wide, without effect, missing",
    "free": "free claims that failed attempts left allocated (optional, 1.36)",
    "certs": "make and look at the certificates of the webhook",
    "install": "print or apply what runs in a cluster",
    "uninstall": "remove it from a cluster",
    "demo": "the whole story on the shipped example cluster",
    "completion": "print the completion script of a shell",
}
NAME = "allocguard"
INTERRUPTED = 130


class Program(click.Group):
    """The group of all commands. Exit codes: 0 fine, 1 the answer is no, 2 input or usage, 3 nothing to reach."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands, in the order people meet them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, its module read now."""
        if cmd_name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(f"webhook.cli.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the arguments begin with. Raises NoSuchCommand, with names that may have been meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            raise click.NoSuchCommand(error.command_name, possibilities=COMMANDS, ctx=ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands in ``--help``, without reading their modules."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> NoReturn:  # type: ignore[override]  # never returns
        """Run and exit. A command gives 0 or 1; a problem with the input makes it 2."""
        # A stream that was closed before the start (``>&-``) is none at all.
        sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the end
        sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        for stream in (sys.stdout, sys.stderr):
            # Names and messages hold any character, whatever the terminal can show.
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        session = Session()
        code = self._run(args, session, extra)
        for stream in (sys.stdout, sys.stderr):
            with suppress(ValueError):
                try:
                    stream.flush()
                except OSError:
                    silence(stream)
        sys.exit(code)

    def _run(self, args: Sequence[str] | None, session: Session, extra: dict[str, Any]) -> int:
        extra = {**extra, "standalone_mode": False, "obj": session}
        try:
            code = super().main(args, NAME, **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
            return 2
        except click.UsageError as error:
            where = error.ctx.command_path if error.ctx else NAME
            note(f"{_plain(error.format_message())}; see `{where} --help`")
            return 2
        except click.ClickException as error:
            note(error.format_message())
            return error.exit_code
        except (click.Abort, KeyboardInterrupt):
            return INTERRUPTED
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            note(f"{error.filename or 'input or output'}: {reason}; make it readable, or make room")
            return 2
        except Exception as error:  # noqa: BLE001 - the last resort: one line, never a traceback
            note(f"failed: {type(error).__name__}: {one_line(str(error))[:300]}; please report what you ran")
            return 2
        return 2 if session.problems else int(code or 0)


def _plain(message: str) -> str:
    """A message of click as ours are: lower case, no final stop."""
    message = message.replace("\n\t", " ").strip().removesuffix(".")
    return message[:1].lower() + message[1:]


@click.command(
    cls=Program,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="""\b
Start here:
  allocguard demo
  allocguard check manifests/ --cluster cluster.yaml
  allocguard explain --claim NAMESPACE/NAME
  allocguard completion bash
\b
Exit codes: 0 fine; 1 the answer is no; 2 input or usage problem; 3 cluster not reachable.""",
)
@click.version_option(package_name="allocguard", message="allocguard %(version)s")
def program() -> None:
    """Guard and account book for Kubernetes DRA devices that cost a node's cpu, memory and hugepages.

    Works on files (YAML or JSON, as kubectl prints them) without a cluster, and serves the same judgement as an
    admission webhook.
    """
