"""The allocguard command."""

from __future__ import annotations

import gc

# What a command reads stays until it ends, and it leaves few cycles behind: looking for them takes a third of its time.
_COLLECT_AFTER = (200_000, 50, 1000)


def main() -> None:
    """Run the command line with the arguments of the process and exit with its code."""
    from webhook.cli.program import program

    gc.set_threshold(*_COLLECT_AFTER)
    program()
