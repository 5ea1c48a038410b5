"""What a command works on: documents, the cluster, the policies. Whatever cannot be read is told with its place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from webhook.cli.console import Unreachable, Unusable, note, problem

if TYPE_CHECKING:
    from webhook.cluster.files import Cluster
    from webhook.kube.documents import Document, Unreadable
    from webhook.policy.revision import Revision

STDIN = "-"


def documents(paths: Sequence[str]) -> list[Document]:
    """The documents of the files and folders that ``paths`` name, in order; the rest is told and skipped."""
    from webhook.cluster import files
    from webhook.kube.documents import Document, Unreadable

    found: list[Document] = []
    for path in paths:
        try:
            items = list(files.documents([path]))
        except OSError as error:
            problem(_unopened(error, path))
            continue
        unreadable(item for item in items if isinstance(item, Unreadable))
        found += [item for item in items if isinstance(item, Document)]
        if not items:
            problem(f"{path}: has no document; name a YAML or JSON file with objects, or a folder of such files")
    return found


def unreadable(items: Iterable[Unreadable]) -> None:
    """Tell what could not be read of files."""
    for item in items:
        problem(f"{item.file}:{item.line}:{item.column}: {item.message}; {item.fix}")


def _unopened(error: OSError, path: str) -> str:
    reason = (error.strerror or str(error)).lower()
    return f"{error.filename or path}: cannot be read: {reason}; check the path"


def check_stdin(*paths: Sequence[str]) -> None:
    """Refuse ``-`` given twice: standard input can be read once."""
    if sum(list(each).count(STDIN) for each in paths) > 1:
        raise click.UsageError("- is given twice, but standard input can be read once; use a file for one of them")


def cluster(paths: Sequence[str], minor: int | None, gates: Mapping[str, bool]) -> Cluster:
    """The cluster in the files that ``paths`` name. Raises Unusable for a path that is not there: a judgement against
    a part of the cluster would be another one.
    """
    from webhook.cluster.files import Cluster

    try:
        found = Cluster(paths, minor, gates)
    except OSError as error:
        raise Unusable(_unopened(error, paths[0])) from error
    unreadable(found.problems)
    for each in found.notes:
        note(each)
    return found


def needed_cluster(paths: Sequence[str], minor: int | None, gates: Mapping[str, bool]) -> Cluster:
    """As ``cluster``, for commands that make no sense without one."""
    if not paths:
        raise Unreachable("no cluster to ask: live clusters are not read yet; give its objects with --cluster PATH")
    return cluster(paths, minor, gates)


def revision(paths: Sequence[str]) -> Revision:
    """The compiled policies of ``paths``, or the shipped ones. Raises Exit after telling every problem."""
    from webhook.policy.compile import PolicyErrors
    from webhook.store import policies

    try:
        return policies.read(paths or [policies.shipped()])
    except PolicyErrors as errors:
        for each in errors.problems:
            problem(each.text)
        raise click.exceptions.Exit(2) from errors
