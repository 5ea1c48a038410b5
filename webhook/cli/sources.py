"""What a command works on: documents, the cluster, the policies. Whatever cannot be read is told with its place."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from webhook.cli.console import Unreachable, Unusable, note, problem

if TYPE_CHECKING:
    from webhook.cli.options import Where
    from webhook.cluster.files import Cluster
    from webhook.cluster.kinds import Kind
    from webhook.cluster.live import LiveCluster
    from webhook.cluster.recorder import Recorder
    from webhook.kube.documents import Document, Unreadable
    from webhook.kube.raw import Json
    from webhook.policy.revision import Revision

STDIN = "-"


def contents(paths: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file that ``paths`` name, in order; what cannot be read is told and skipped."""
    from webhook import folder

    for path in paths:
        try:
            names = list(folder.files([path]))
        except OSError as error:
            problem(_unopened(error, path))
            continue
        if not names:
            problem(_nothing_in(path))
        for name in names:
            try:
                yield name, folder.read(name, name == path)
            except OSError as error:
                problem(_unopened(error, name))


def documents(paths: Sequence[str]) -> list[Document]:
    """The documents of the files and folders that ``paths`` name, in order; the rest is told and skipped."""
    return [each for name, data in contents(paths) for each in parse(name, data)]


def parse(name: str, data: bytes) -> list[Document]:
    """The documents in the content of one file; the rest is told and skipped."""
    from webhook.kube.documents import Document, Unreadable, load

    items = load(data, name)
    unreadable(item for item in items if isinstance(item, Unreadable))
    return [item for item in items if isinstance(item, Document)]


def of_kinds(paths: Sequence[str], kinds: Sequence[str], beside: Sequence[str] = ()) -> list[Json]:
    """The objects of these kinds among the documents of ``paths``; others are told and skipped. Those ``beside`` are
    skipped without a word where there are any of these kinds: manifests have a pod with its claims.
    """
    read = documents(paths)
    found = [document.value for document in read if document.value.get("kind") in kinds]
    expected = (*kinds, *beside) if found else kinds
    for document in read:
        if document.value.get("kind") in expected:
            continue
        line, column = document.position("kind")
        place = f"{document.file}:{line}:{column}"
        problem(f"{place}: has the kind {document.value.get('kind')!r}, needs {' or '.join(kinds)}; leave it out")
    return found


def unreadable(items: Iterable[Unreadable]) -> None:
    """Tell what could not be read of files."""
    for item in items:
        problem(item.text)


def _nothing_in(path: str) -> str:
    return f"{path}: has no YAML or JSON file; name another folder, or files"


def _unopened(error: OSError, path: str) -> str:
    reason = (error.strerror or str(error)).lower()
    return f"{error.filename or path}: cannot be read: {reason}; check the path"


def check_stdin(*paths: Sequence[str]) -> None:
    """Refuse ``-`` given twice: standard input can be read once."""
    if sum(list(each).count(STDIN) for each in paths) > 1:
        raise click.UsageError("- is given twice, but standard input can be read once; use a file for one of them")


def in_files(where: Where, recorder: Recorder | None = None) -> Cluster:
    """The cluster in the files of ``where``, which may be none; ``recorder`` is told its objects. Raises Unusable for a
    path that is not there: a judgement against a part of the cluster would be another one.
    """
    from webhook import folder
    from webhook.cluster.files import Cluster

    try:
        found = Cluster(where.clusters, where.minor, where.gates, recorder)
    except OSError as error:
        raise Unusable(_unopened(error, where.clusters[0])) from error
    unreadable(found.problems)
    for each in found.notes:
        note(each)
    for path in where.clusters:
        if next(iter(folder.files([path])), None) is None:
            note(_nothing_in(path))
    # They stay until the command ends: the cycle collector need not visit them again and again.
    gc.freeze()
    return found


def live(where: Where, recorder: Recorder | None = None, kinds: Iterable[Kind] | None = None) -> LiveCluster:
    """The live cluster that ``where`` names, or kubectl would take, with all that is judged by or only ``kinds``;
    ``recorder`` is told its objects. Raises Unreachable for one that does not answer.
    """
    from webhook.cluster.access import CannotConnect, NoCluster
    from webhook.cluster.api import ApiError
    from webhook.cluster.api import Unreachable as NoAnswer
    from webhook.cluster.kinds import KINDS
    from webhook.cluster.reading import read_live

    reading = read_live(where.kubeconfig, where.context, where.minor, where.gates, recorder, kinds or KINDS)
    try:
        found, notes = asyncio.run(reading)
    except* NoCluster as error:
        raise Unreachable(_first(error)) from error
    except* CannotConnect as error:
        raise Unusable(_first(error)) from error
    except* ApiError as error:
        raise Unreachable(f"the API server refuses: {_first(error)}") from error
    except* NoAnswer as error:
        raise Unreachable(f"the API server does not answer: {_first(error)}") from error
    for each in notes:
        note(each)
    gc.freeze()
    return found


def _first(errors: BaseExceptionGroup[BaseException]) -> str:
    found: BaseException = errors
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return str(found)


def cluster(where: Where, recorder: Recorder | None = None) -> Cluster | LiveCluster:
    """The cluster in files or, without them, the live one; ``recorder`` is told its objects."""
    return in_files(where, recorder) if where.clusters else live(where, recorder)


def named_cluster(where: Where) -> Cluster | LiveCluster:
    """As ``cluster``, for commands that judge what is written in files: they ask no server that was not named."""
    if not where.clusters and not where.named_live:
        raise Unreachable("no cluster to judge by; give its objects with --cluster PATH, or --kubeconfig")
    return cluster(where)


def revision(paths: Sequence[str], objects: Mapping[str, Json] | None = None) -> Revision:
    """The compiled policies of ``paths``, or the shipped ones, and those of ``objects``, the AdmissionPolicy objects of
    a live cluster, as its server would serve them. Raises Exit after telling every problem of the files.
    """
    from webhook.policy.compile import PolicyErrors
    from webhook.store.policies import PolicyStore, shipped

    try:
        store = PolicyStore(paths or [shipped()])
    except PolicyErrors as errors:
        for each in errors.problems:
            problem(each.text)
        raise click.exceptions.Exit(2) from errors
    store.set_objects(objects or {})
    for each in store.problems:
        note(f"{each.text}; the policy does not count")
    return store.revision


def beside(file: str, name: str) -> bytes:
    """The content of the file ``name``, which a document in ``file`` names. Raises OSError."""
    from webhook import folder

    return folder.read(str(Path(file).parent / name))
