"""``check --live``: everything that a cluster has stored, whole objects page by page, none of them kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from webhook.admission.scan import Scan, Stored
from webhook.cli import sources
from webhook.cli.deploying import connected
from webhook.cli.rbac_read import LIVE, named
from webhook.cli.report import Judgement, Report, judgement
from webhook.cluster.files import documents
from webhook.cluster.stored import JUDGED, pages, seen
from webhook.kube.documents import Document

if TYPE_CHECKING:
    from webhook.cli.options import Where
    from webhook.cluster.api import Api


def scanned(where: Where, policies: Sequence[str], at: datetime) -> Report:
    """What is wrong with everything stored in the cluster of ``where``, in files or live. Raises Unreachable."""
    return _in_files(where, policies, at) if where.clusters else _live(where, policies, at)


def _in_files(where: Where, policies: Sequence[str], at: datetime) -> Report:
    if sources.STDIN in where.clusters:
        raise click.UsageError("--live reads the files of the cluster twice, but standard input can be read once")
    scan, snapshot = Scan(sources.revision(policies)), sources.in_files(where).snapshot
    kinds = {kind.name for kind in JUDGED}
    # What cannot be read was told when the cluster was.
    read = [Judgement(each) for each in documents(where.clusters) if isinstance(each, Document)]
    # Of an object given twice the later one counts.
    counting = {(each.kind, each.namespace, each.name): each.document for each in read if each.kind in kinds}
    _exhaust(scan.look(snapshot, at))
    found = [(document, scan.judge(document.value, snapshot, at)) for document in counting.values()]
    judged = [judgement(document, stored.problems) for document, stored in found if stored is not None]
    rest = [_judgement(each, ", ".join(where.clusters)) for each in scan.rest(snapshot)]
    return Report((*judged, *rest), str(snapshot.release), len(found) - len(judged))


def _live(where: Where, policies: Sequence[str], at: datetime) -> Report:
    there = sources.live(where)
    scan = Scan(sources.revision(policies, there.policies))
    _exhaust(scan.look(there.snapshot, at))
    judged: list[Judgement] = []
    fine = 0

    async def look(api: Api) -> int:
        nonlocal fine
        snapshot = there.snapshot
        for kind in JUDGED:
            async for page in pages(api, kind):
                for obj in page:
                    if not seen(obj, snapshot):
                        snapshot = snapshot.put(obj)
                    stored = scan.judge(obj, snapshot, at)
                    if stored is None:
                        fine += 1
                    else:
                        judged.append(_judgement(stored, LIVE))
        return 0

    connected(where.kubeconfig, where.context, look)
    judged += [_judgement(each, LIVE) for each in scan.rest(there.snapshot)]
    return Report(tuple(judged), str(there.snapshot.release), fine)


def _judgement(stored: Stored, place: str) -> Judgement:
    return judgement(named(stored.api_version, stored.kind, (stored.namespace, stored.name), place), stored.problems)


def _exhaust(steps: Iterator[None]) -> None:
    for _ in steps:
        pass
