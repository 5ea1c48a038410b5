"""``allocguard completion``: the completion script of a shell."""

from __future__ import annotations

import click

from webhook.cli.console import out

SHELLS = ("bash", "zsh", "fish")


@click.command(
    epilog="""\b
Examples:
  source <(allocguard completion bash)
  allocguard completion zsh > "${fpath[1]}/_allocguard"
  allocguard completion fish > ~/.config/fish/completions/allocguard.fish"""
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> int:
    """Print the script that completes commands and options in SHELL."""
    from click.shell_completion import get_completion_class

    from webhook.cli.program import program

    script = get_completion_class(shell)
    assert script is not None
    out(script(program, {}, "allocguard", "_ALLOCGUARD_COMPLETE").source())
    return 0
