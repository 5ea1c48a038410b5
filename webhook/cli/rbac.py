"""``allocguard rbac``: roles and bindings of those who write for drivers."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from webhook.cli import sources
from webhook.cli.console import Unusable, out, problem, problems
from webhook.cli.formats import FORMATS
from webhook.cli.options import Where, cluster_options, output_option

if TYPE_CHECKING:
    from webhook.cli.rbac_read import World
    from webhook.cli.report import Judgement
    from webhook.kube.snapshot import Key

# The shipped policy that has the same rules, for writes.
LINT = "rbac-scope"


class Account(click.ParamType[tuple[str, str]]):
    """``NAMESPACE/NAME`` of a ServiceAccount."""

    name = "ns/name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Namespace and name."""
        from webhook.kube.names import dns_label, dns_subdomain

        if isinstance(value, tuple):
            return value
        namespace, slash, name = str(value).removeprefix("system:serviceaccount:").replace(":", "/", 1).partition("/")
        if not slash or dns_label(namespace) or dns_subdomain(name):
            self.fail(f"{value!r} is no NAMESPACE/NAME of a ServiceAccount", param, ctx)
        return namespace, name


@click.group(
    epilog="""\b
Examples:
  allocguard rbac lint
  allocguard rbac lint charts/gpu-driver/ -o github
  allocguard rbac lint --for-serviceaccount gpu-system/gpu-plugin"""
)
def rbac() -> None:
    """Roles and bindings of drivers, fabric controllers and allocators: what is wider than it has to be, and what does
    not work. Nothing is ever written: what to use instead is printed.
    """


@rbac.command(
    short_help="What is wrong with roles and bindings.",
    epilog="""\b
Examples:
  allocguard rbac lint                                   # all of the cluster that kubectl would take
  allocguard rbac lint role.yaml binding.yaml
  allocguard rbac lint charts/ --cluster rollouts.yaml
  allocguard rbac lint --for-serviceaccount gpu-system/gpu-plugin
\b
Whose a role is says the DriverRollout that names its account among spec.writers, or its annotations
allocguard.dev/profile (NodeLocal, MultiNode, AnyNode, Allocator) and allocguard.dev/driver.
\b
Exit code 1: an error was found.""",
)
@click.argument("files", nargs=-1, metavar="[FILES...]")
@click.option(
    "--for-serviceaccount",
    "account",
    type=Account(),
    metavar="NS/NAME",
    help="What this account may do over all roles and bindings, and the narrowest role for it.",
)
@cluster_options
@output_option(*FORMATS)
def lint(files: tuple[str, ...], account: Key | None, where: Where, at: datetime, output: str) -> int:
    """Judge roles and bindings: those in FILES, together with the cluster where one is given, or all of the cluster.

    Only those are judged that reach a driver, a fabric controller or an allocator, or that let anybody write what only
    these may. What is shown to use instead is never wider than what such a writer needs.
    """
    from webhook.cli.formats import render
    from webhook.cli.rbac_read import world
    from webhook.cli.report import Report

    sources.check_stdin(files, where.clusters)
    found = world(files, where)
    if account is not None:
        return _scope(found, account, where, at, output)
    if files and not found.documents and not problems():
        raise Unusable(f"{', '.join(files)}: has no role, no binding and no DriverRollout; name files that have")
    report = Report(tuple(_judgements(found, at)), str(found.snapshot.release))
    out(render(report, output))
    return 1 if report.counts["error"] else 0


def _judgements(found: World, at: datetime) -> list[Judgement]:
    from webhook.cli.rbac_read import key_of, malformed
    from webhook.cli.report import judgement
    from webhook.facts.rbac_survey import survey
    from webhook.kube.rbac import ACCOUNT, BINDINGS, ROLES

    snapshot = found.snapshot
    keys = [key_of(document.value) for document in found.documents]
    roles = [snapshot.roles[key[1:]] for key in keys if key[0] in ROLES]
    bindings = [snapshot.bindings[key[1:]] for key in keys if key[0] in BINDINGS]
    accounts = [key[1:] for key in keys if key[0] == ACCOUNT]
    told = {
        (each.kind, each.namespace, each.name): [(LINT, finding) for finding in each.findings]
        for each in survey(snapshot, roles, bindings, accounts, found.guarded(at), found.reports)
    }
    # What does not decode counts as absent, and would be right.
    return [
        judgement(document, [*malformed(document.value, snapshot.release), *told.get(key, ())])
        for document, key in zip(found.documents, keys, strict=True)
    ]


def _scope(found: World, account: Key, where: Where, at: datetime, output: str) -> int:
    from webhook.cli.formats import render
    from webhook.cli.output import dump
    from webhook.cli.rbac_read import LIVE, beyond_roles, malformed, named
    from webhook.cli.rbac_scope import Scope
    from webhook.cli.report import Report, judgement
    from webhook.facts.rbac_lint import account_problems
    from webhook.kube.rbac import ACCOUNT

    snapshot = found.snapshot
    for document in found.documents:
        for each in judgement(document, malformed(document.value, snapshot.release)).found:
            problem(f"{document.file}:{each.line}:{each.column}: {each.finding.text(each.policy)}")
    scope = Scope(account, snapshot)
    wrong = account_problems(*account, snapshot, found.guarded(at)(account), found.reports)
    if found.live:
        wrong += beyond_roles(where, account, scope.holder, wrong)
    place = LIVE if found.live else "files"
    judged = judgement(named("v1", ACCOUNT, account, place), [(LINT, each) for each in wrong])
    report = Report((judged,), str(snapshot.release))
    if output in ("json", "yaml"):
        out(dump(scope.as_json(report), output))
    elif output == "text":
        out("\n".join(scope.text(report)))
    else:
        out(render(report, output))
    return 1 if report.counts["error"] else 0
