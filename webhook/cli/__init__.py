"""The allocguard command."""

from __future__ import annotations


def main() -> None:
    """Run the command line with the arguments of the process and exit with its code."""
    from webhook.cli.program import program

    program()
