"""``allocguard certs``: make and look at the certificates of the webhook."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from webhook.cli.console import Unusable, out, paint
from webhook.cli.deploying import connected
from webhook.cli.options import Time, live_options, now, output_option
from webhook.cli.output import dump
from webhook.cli.serve import Reference

if TYPE_CHECKING:
    from certs.bundle import Material
    from certs.inspect import Description
    from webhook.cli.rotation import Turned
    from webhook.cluster.api import Api
    from webhook.controllers.secret import Stored

F = TypeVar("F", bound=Callable[..., Any])

_DEFAULT = Path("allocguard-certs")
_PHASES = {
    "announced": "a new authority is trusted and waits for every caBundle to have it",
    "retiring": "the old authority is trusted until its last certificate has ended",
}


def _folder(default: Path | None = _DEFAULT) -> Callable[[F], F]:
    return click.option(
        "--dir",
        "folder",
        type=click.Path(path_type=Path),
        default=default,
        show_default=str(_DEFAULT),
        metavar="D",
        help="The folder of ca.crt, ca.key, tls.crt and tls.key.",
    )


def _place(function: F) -> F:
    """``--dir`` or ``--secret``, and the cluster that has the Secret."""
    secret = click.option("--secret", type=Reference(), help="The Secret that the servers share, instead of a folder.")
    return _folder(None)(secret(live_options(function)))


@click.group(
    epilog="""\b
Examples:
  allocguard certs init --dir allocguard-certs --host allocguard.guard-system.svc
  allocguard certs show --dir my-certs
  allocguard certs rotate --secret allocguard-system/allocguard-certs
  allocguard certs rotate --ca --dir my-certs
  allocguard certs inject --dir my-certs"""
)
def certs() -> None:
    """Make, look at and replace the certificates of the webhook."""


@certs.command(
    short_help="Make what is missing; what is there stays.",
    epilog="""\b
Examples:
  allocguard certs init --dir allocguard-certs
  allocguard certs init --dir allocguard-certs --host allocguard.guard-system.svc --host 10.0.0.7""",
)
@_folder()
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
    epilog="""\b
Examples:
  allocguard certs show --dir certs -o json
  allocguard certs show --secret allocguard-system/allocguard-certs""",
)
@_place
@click.option("--at", type=Time(), show_default="now", help="The clock to judge by (RFC 3339).")
@output_option("text", "json", "yaml")
def show(
    folder: Path | None,
    secret: str | None,
    kubeconfig: str | None,
    context: str | None,
    at: datetime | None,
    output: str,
) -> int:
    """Show the certificates, and whether clients would accept them. Exit code 1: they would not."""

    async def shown(api: Api) -> int:
        stored, moment = await _stored(api, secret or ""), await _server_time(api)
        return _show(_content(stored, secret or ""), at or moment, output)

    if _asked(folder, secret):
        return connected(kubeconfig, context, shown)
    return _show(_read(folder or _DEFAULT), at or now(), output)


@certs.command(
    short_help="Renew the serving certificate, or replace the authority step by step.",
    epilog="""\b
Examples:
  allocguard certs rotate --dir certs
  allocguard certs rotate --ca --secret allocguard-system/allocguard-certs
\b
An authority is replaced in three steps, one with each run of rotate --ca: it is trusted beside the old one; it issues;
the old one is trusted no more. Servers that keep the Secret take the second step by themselves once every caBundle has
both, and the third once the last certificate of the old one has ended. Nothing restarts, and nobody is refused.""",
)
@_place
@click.option("--ca", is_flag=True, help="The next step of replacing the authority.")
@output_option("text", "json", "yaml")
def rotate(
    folder: Path | None, secret: str | None, kubeconfig: str | None, context: str | None, ca: bool, output: str
) -> int:
    """Renew the serving certificate now, or with --ca do the next step of replacing the authority.

    Servers take it in while they serve. With --dir, --kubeconfig or --context has the webhook configurations of that
    cluster looked at before a new authority issues. Exit code 1: one of them does not trust it yet.
    """
    from webhook.cli import rotation

    async def in_secret(api: Api) -> int:
        turned = await rotation.in_secret(api, secret or "", ca)
        return _show(turned.held, turned.at, output, turned=turned)

    async def with_cluster(api: Api) -> int:
        turned = await rotation.in_folder(folder or _DEFAULT, ca, now(), api)
        return _show(turned.held, turned.at, output, turned=turned)

    if _asked(folder, secret):
        return connected(kubeconfig, context, in_secret)
    if kubeconfig or context:
        return connected(kubeconfig, context, with_cluster)
    turned = asyncio.run(rotation.in_folder(folder or _DEFAULT, ca, now()))
    return _show(turned.held, turned.at, output, turned=turned)


@certs.command(
    short_help="Write the authorities into the registered webhooks.",
    epilog="""\b
Examples:
  allocguard certs inject --dir certs --kubeconfig admin.conf
  allocguard certs inject --secret allocguard-system/allocguard-certs""",
)
@_place
@output_option("text", "json", "yaml")
def inject(folder: Path | None, secret: str | None, kubeconfig: str | None, context: str | None, output: str) -> int:
    """Write ca.crt as caBundle of every webhook of the two configurations named allocguard, and nothing else.

    A server that registers itself does this by itself. Exit code 1: neither configuration is there.
    """

    async def injected(api: Api) -> int:
        from webhook.controllers.injection import inject as write
        from webhook.registration.configurations import NAME

        held = _content(await _stored(api, secret), secret) if secret else _read(folder or _DEFAULT)
        if not held.authorities:
            raise Unusable(f"{held.place / 'ca.crt'}: is missing; put the certificates to trust there")
        done = await write(api, held.authorities)
        if output == "text":
            for plural, counts in done.items():
                told = "is not there" if counts is None else f"{counts[1]} of {counts[0]} webhooks changed"
                out(f"{plural}/{NAME}: {told}")
        else:
            rows = [
                {"resource": plural, "name": NAME, "there": counts is not None}
                | ({"webhooks": counts[0], "changed": counts[1]} if counts else {})
                for plural, counts in done.items()
            ]
            out(dump({"configurations": rows}, output))
        return 0 if any(counts is not None for counts in done.values()) else 1

    _asked(folder, secret)
    return connected(kubeconfig, context, injected)


def _asked(folder: Path | None, secret: str | None) -> bool:
    """Whether a Secret was asked for."""
    if folder is not None and secret is not None:
        raise click.UsageError("--dir and --secret are given, but certificates are in one of them")
    return secret is not None


def _read(folder: Path) -> Material:
    from certs.error import CertificateError
    from certs.files import read

    try:
        return read(folder)
    except CertificateError as error:
        raise Unusable(str(error)) from error


async def _stored(api: Api, secret: str) -> Stored:
    from certs.error import CertificateError
    from webhook.controllers.secret import Secret

    try:
        return await Secret(api, secret).read()
    except CertificateError as error:
        raise Unusable(str(error)) from error


def _content(stored: Stored, secret: str) -> Material:
    if stored.held is None:
        told = "is not there" if stored.obj is None else "has no certificates"
        raise Unusable(f"secret {secret}: {told}; a server with --certs-secret makes it")
    return stored.held


async def _server_time(api: Api) -> datetime:
    from webhook.controllers.clock import server_time

    return await server_time(api) or now()


def _show(held: Material, at: datetime, output: str, hosts: tuple[str, ...] = (), turned: Turned | None = None) -> int:
    from certs.inspect import describe, problems
    from certs.renewal import phase

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
            "phase": phase(held),
        }
        if turned:
            value |= {"done": turned.done, "next": turned.then}
        out(dump(value, output))
    else:
        lines = [turned.done + (f"; next: {turned.then}" if turned.then else "")] if turned else []
        out("\n".join([*lines, *_text(held, serving, authorities, found)]))
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
    from certs.renewal import phase

    lines = [paint(str(held.place), bold=True)]
    for role, each in [("serving", serving), *(("authority", each) for each in authorities)]:
        lines += [
            f"  {role:<10} {each.subject}",
            f"  {'':<10} {each.key}, until {each.not_after:%Y-%m-%d} ({each.days_left} days left)",
        ]
        if each.hosts:
            lines.append(f"  {'':<10} for {', '.join(each.hosts)}")
    if phase(held) != "steady":
        lines.append(f"  {'rotation':<10} {_PHASES[phase(held)]}")
    lines += [paint(f"  problem    {each}", "red") for each in found] or [paint("  clients accept it", "green")]
    return lines
