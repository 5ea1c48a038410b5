"""``allocguard policy``: check, test and export policies, and judge recorded decisions again."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from webhook.cli import sources
from webhook.cli.console import Unusable, note, out, problem, problems
from webhook.cli.options import Where, cluster_options, now, output_option, policies_option
from webhook.cli.policy_replay import replay

if TYPE_CHECKING:
    from webhook.cluster.kinds import Kind


@click.group(
    epilog="""\b
Examples:
  allocguard policy lint my-policies/
  allocguard policy test my-policies/
  allocguard policy export-vap | kubectl apply --server-side -f -
  allocguard policy replay recording/ --journal journal/ --policies my-policies/
\b
docs/policies.md lists fields and facts; a set of your own starts best as a copy of the folder policies/."""
)
def policy() -> None:
    """Check, test and export policies. Without PATHS: the shipped set."""


policy.add_command(replay)


@policy.command(
    short_help="Compile policies; name what is wrong, with its place.",
    epilog="""\b
Examples:
  allocguard policy lint
  allocguard policy lint my-policies/ -o junit
\b
Exit code 1: something is wrong with a policy; 2: a file cannot be read at all.""",
)
@click.argument("paths", nargs=-1, metavar="[PATHS...]")
@output_option("text", "json", "yaml", "junit")
def lint(paths: tuple[str, ...], output: str) -> int:
    """Compile policies and name everything that is wrong with them, with file, line and column."""
    from webhook.cli.output import dump
    from webhook.cli.policy_report import Lint
    from webhook.kube.documents import Unreadable, load
    from webhook.policy.compile import PolicyErrors, compile_files
    from webhook.store import policies

    sources.check_stdin(paths)
    files = dict(sources.contents(paths or [policies.shipped()]))
    broken = {
        (each.file, each.line, each.column)
        for name, data in files.items()
        for each in load(data, name)
        if isinstance(each, Unreadable)
    }
    try:
        result = Lint(tuple(files), compile_files(files), ())
    except PolicyErrors as errors:
        told = {each: (each.file, each.line, each.column) in broken for each in errors.problems}
        for each, unreadable in told.items():
            if unreadable:
                problem(each.text)
        result = Lint(tuple(files), None, tuple(each for each, unreadable in told.items() if not unreadable))
    if result.revision is not None and not result.revision.policies:
        problem(f"{', '.join(paths)}: has no policy; name files or folders with AdmissionPolicy documents")
    for compiled in result.revision.policies if result.revision is not None else ():
        for old in compiled.exceptions:
            if old.expires <= now():
                when = old.expires.isoformat()
                note(f"policy {compiled.name}: exception {old.name} ({old.ticket}) expired on {when}; remove it")
    out(result.junit() if output == "junit" else result.text() if output == "text" else dump(result.json(), output))
    return 1 if result.problems else 0


@policy.command(
    short_help="Run the cases beside policies.",
    epilog="""\b
Examples:
  allocguard policy test
  allocguard policy test my-policies/
  allocguard policy test my.test.yaml --policies my-policies/ -o junit
\b
Exit code 1: a case fails, a rule has no case that fails it or none that passes it, or a policy has no test.""",
)
@click.argument("paths", nargs=-1, metavar="[PATHS...]")
@policies_option
@output_option("text", "json", "yaml", "junit")
def test(paths: tuple[str, ...], policies: tuple[str, ...], output: str) -> int:
    """Run the cases of PolicyTest documents against the policies beside them (or those of --policies).

    A case whose expected rule never fires fails, and so does a policy whose cases prove nothing.
    """
    from webhook.cli.output import dump
    from webhook.cli.policy_report import Tests
    from webhook.policy.compile import PolicyErrors, compile_files
    from webhook.policy.suite import read_suites, run
    from webhook.store.policies import shipped

    sources.check_stdin(paths, policies)
    files = dict(sources.contents(paths or policies or [shipped()]))
    judged = dict(sources.contents(policies)) if policies and paths else files
    suites, problems = read_suites(files, sources.beside)
    try:
        revision = compile_files(judged)
        own = judged is files and bool(revision.policies)
        if not revision.policies:
            revision = sources.revision([])
    except PolicyErrors as errors:
        problems = [*problems, *errors.problems]
    for each in sorted(set(problems)):
        problem(each.text)
    if problems:
        return 2
    # Test files that are named one by one are what is asked about; the other policies are not.
    every = own or not paths or any(Path(path).is_dir() for path in paths)
    result = Tests(tuple(run(suites, revision, every)))
    out(result.junit() if output == "junit" else result.text() if output == "text" else dump(result.json(), output))
    return 0 if result.passed else 1


@policy.command(
    "export-vap",
    short_help="Print who may write slices, as policies of the API server.",
    epilog="""\b
Examples:
  allocguard policy export-vap > slice-writers.yaml
  allocguard policy export-vap --cluster rollouts.yaml | kubectl apply --server-side -f -
\b
Writers are those that DriverRollouts name, and params.drivers of the policy. Export again when they change.""",
)
@policies_option
@cluster_options
@output_option("yaml", "json")
def export_vap(policies: tuple[str, ...], where: Where, at: datetime, output: str) -> int:
    """Print ValidatingAdmissionPolicies and bindings that judge who writes a ResourceSlice as the guard does: own
    driver, own node. The API server holds to them while no guard answers, and where there is none.

    What such policies cannot say is not in them, and named: in a comment, with -o json on standard error.
    """
    from textwrap import wrap

    from webhook.cli.deploying import show
    from webhook.registration.vap import exportable, left_out, named_writers, slice_policies

    sources.check_stdin(where.clusters, policies)
    if where.clusters:
        rollouts = sources.in_files(where).snapshot.rollouts
        if problems():
            raise Unusable("nothing is exported: what cannot be read may name writers; correct it first")
        revision = sources.revision(policies)
    else:
        live = sources.live(where, kinds=_told())
        rollouts, revision = live.snapshot.rollouts, sources.revision(policies, live.policies)
    found = exportable(revision.policies)
    if len(found) != 1:
        names = " and ".join(each.name for each in found) or "none"
        raise Unusable(f"policies: {names} of them with writer.sliceProblems, needs one; name it with --policies")
    [judging] = found
    drivers = named_writers(rollouts, judging.writers) if judging.writers is not None else {}
    said = [
        f"Who may write slices of {', '.join(drivers) or 'no driver'}: policy {judging.name} of allocguard, as far as "
        "the object and the user tell. Export it again when writers change.",
        *(f"Not in it: {each}." for each in left_out(judging, at)),
    ]
    if not drivers:
        said.append(
            "No DriverRollout and no params name writers: slices for other nodes than the writer's are warned of."
        )
    if output == "yaml":
        out("\n".join(f"# {line}" for each in said for line in wrap(each, 118)))
    else:
        for each in said:
            note(each)
    show(slice_policies(rollouts, judging), output)
    return 0


def _told() -> list[Kind]:
    """The kinds of which the export is made. Without its rollouts a cluster would have no drivers with writers."""
    from dataclasses import replace

    from webhook.cluster.kinds import KINDS

    kinds = {"DriverRollout": False, "AdmissionPolicy": True}
    return [replace(each, optional=kinds[each.name]) for each in KINDS if each.name in kinds]
