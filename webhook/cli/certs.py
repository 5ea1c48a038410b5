"""``allocguard certs``: make and look at the certificates of the webhook."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from webhook.cli.console import Unusable, out, paint
from webhook.cli.options import Time, now, output_option

if TYPE_CHECKING:
    from certs.bundle import Material
    from certs.inspect import Description

_folder = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path),
    default=Path("allocguard-certs"),
    show_default=True,
    metavar="D",
    help="The folder of ca.crt, ca.key, tls.crt and tls.key.",
)


@click.group(
    epilog="""\b
Examples:
  allocguard certs init --dir allocguard-certs --host allocguard.guard-system.svc
  allocguard certs show --dir my-certs"""
)
def certs() -> None:
    """Make and look at the certificates of the webhook."""


@certs.command(
    short_help="Make what is missing; what is there stays.",
    epilog="""\b
Examples:
  allocguard certs init --dir allocguard-certs
  allocguard certs init --dir allocguard-certs --host allocguard.guard-system.svc --host 10.0.0.7""",
)
@_folder
@click.option("--host", "hosts", multiple=True, metavar="H", help="A name or address to serve (repeatable).")
@output_option("text", "json", "yaml")
def init(folder: Path, hosts: tuple[str, ...], output: str) -> int:
    """Make an authority and a serving certificate where they are missing; what is there stays."""
    from certs.authority import DEFAULT_HOSTS
    from certs.error import CertificateError
    from certs.files import ensure

    moment = now()
    try:
        held = ensure(folder, hosts or DEFAULT_HOSTS, moment)
    except CertificateError as error:
        raise Unusable(str(error)) from error
    except ValueError as error:
        raise click.UsageError(f"--host {error}") from error
    return _show(held, moment, output, hosts)


@certs.command(
    short_help="Show certificates, and whether clients would accept them.",
    epilog="\b\nExample:\n  allocguard certs show --dir certs -o json",
)
@_folder
@click.option("--at", type=Time(), default=now, show_default="now", help="The clock to judge by (RFC 3339).")
@output_option("text", "json", "yaml")
def show(folder: Path, at: datetime, output: str) -> int:
    """Show the certificates, and whether clients would accept them. Exit code 1: they would not."""
    from certs.error import CertificateError
    from certs.files import read

    try:
        held = read(folder)
    except CertificateError as error:
        raise Unusable(str(error)) from error
    return _show(held, at, output)


def _show(held: Material, at: datetime, output: str, hosts: tuple[str, ...] = ()) -> int:
    from certs.inspect import describe, problems
    from webhook.cli.output import dump

    found = [str(each) for each in problems(held, at)]
    serving = describe(held.serving.chain[0], at)
    missing = [host for host in hosts if host not in serving.hosts]
    if missing:
        place = held.place / "tls.crt"
        found.append(f"{place}: is not for {', '.join(missing)}; remove tls.crt and tls.key, then run init again")
    authorities = [describe(each, at) for each in held.authorities]
    if output != "text":
        value = {
            "folder": str(held.place),
            "serving": _as_json(serving),
            "authorities": [_as_json(each) for each in authorities],
            "problems": found,
        }
        out(dump(value, output))
    else:
        out("\n".join(_text(held, serving, authorities, found)))
    return 1 if found else 0


def _as_json(each: Description) -> dict[str, Any]:
    return {
        "subject": each.subject,
        "issuer": each.issuer,
        "hosts": list(each.hosts),
        "key": each.key,
        "notBefore": each.not_before.isoformat(),
        "notAfter": each.not_after.isoformat(),
        "daysLeft": each.days_left,
        "sha256": each.fingerprint,
    }


def _text(held: Material, serving: Description, authorities: list[Description], found: list[str]) -> list[str]:
    lines = [paint(str(held.place), bold=True)]
    for role, each in [("serving", serving), *(("authority", each) for each in authorities)]:
        lines += [
            f"  {role:<10} {each.subject}",
            f"  {'':<10} {each.key}, until {each.not_after:%Y-%m-%d} ({each.days_left} days left)",
        ]
        if each.hosts:
            lines.append(f"  {'':<10} for {', '.join(each.hosts)}")
    lines += [paint(f"  problem    {each}", "red") for each in found] or [paint("  clients accept it", "green")]
    return lines
