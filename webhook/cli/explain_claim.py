"""``allocguard explain --claim``: what happened to a claim, from its first moment to what it waits for now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import click

from webhook.cli import sources
from webhook.cli.console import note, paint, wrapped
from webhook.cli.deploying import connected
from webhook.cli.explain_text import folded, next_lines, remedy_lines
from webhook.cli.ledger_explain import claim_lines
from webhook.cli.report import plural
from webhook.kube.finding import one_line

if TYPE_CHECKING:
    from webhook.cli.options import Where
    from webhook.cluster.api import Api
    from webhook.kube.object_event import ObjectEvent
    from webhook.kube.snapshot import Snapshot

Tree = dict[str, Any]

# Pods whose events are asked for.
_MOST_PODS = 8
_COLOURS = {"refused": "red", "pending": "yellow", "held": "yellow", "charged": "green", "settled": "green"}


def story(given: str, where: Where, at: datetime) -> Tree:
    """The story of the claim ``given``, NAMESPACE/NAME or UID, as JSON values. Raises UsageError where neither the
    cluster nor any event knows it.
    """
    from webhook.admission.claim_story import claim_story, subject
    from webhook.ledger.book import Book

    sources.check_stdin(where.clusters)
    snapshot = sources.cluster(where).snapshot
    events = _in_files(where) if where.clusters else _live(where, given, snapshot)
    ref = subject(snapshot, given, events)
    if ref is None:
        kept = "the API server keeps events for an hour, unless it is told otherwise"
        raise click.UsageError(f"--claim {given}: has no such claim, nor an event about one; {kept}")
    return claim_story(Book(), snapshot, ref, events, at)


def _in_files(where: Where) -> list[ObjectEvent]:
    """The events among the objects of the cluster; what cannot be read was told when it was."""
    from webhook.cluster.files import documents
    from webhook.kube.documents import Document
    from webhook.kube.object_event import read_object_event

    paths = [path for path in where.clusters if path != sources.STDIN]
    read = [each.value for each in documents(paths) if isinstance(each, Document)]
    return [read_object_event(each) for each in read if each.get("kind") == "Event"]


def _live(where: Where, given: str, snapshot: Snapshot) -> list[ObjectEvent]:
    """The events about the claim and its pods; those of ours first, whoever else writes how many."""
    from webhook.cluster.api import ApiError

    found: list[ObjectEvent] = []

    async def look(api: Api) -> int:
        try:
            if await _read(api, given, snapshot, found):
                note("there are more events about it than are read; what others tell of it may be left out")
        except ApiError as error:
            if error.status != HTTPStatus.FORBIDDEN:
                raise
            note(f"events are not known: {error}")
        return 0

    connected(where.kubeconfig, where.context, look)
    return found


async def _read(api: Api, given: str, snapshot: Snapshot, found: list[ObjectEvent]) -> bool:
    """Read them into ``found``; whether there are more."""
    from webhook.admission.claim_story import pods_of, subject
    from webhook.cluster.object_events import object_events
    from webhook.kube.object_event import CLAIM_REFUSED, SOURCE

    namespace, _, name = given.rpartition("/")
    named = {"involvedObject_kind": "ResourceClaim", "involvedObject_name": name}
    about = named if namespace else {"involvedObject_uid": given}
    cut = False
    seen: set[ObjectEvent] = set()

    async def take(space: str, pages: int, **fields: str) -> None:
        nonlocal cut
        events, more = await object_events(api, space, pages, **fields)
        found.extend(each for each in events if each not in seen)
        seen.update(events)
        cut = cut or more

    await take(namespace, 4, **about, source=SOURCE)
    await take(namespace, 1, **about)
    ref = subject(snapshot, given, found)
    if ref is None:
        return cut
    await take(ref.namespace, 4, reason=CLAIM_REFUSED, source=SOURCE)
    for pod in pods_of(snapshot, ref, found)[:_MOST_PODS]:
        if pod.uid:
            await take(ref.namespace, 1, involvedObject_uid=pod.uid, source=SOURCE)
            await take(ref.namespace, 1, involvedObject_uid=pod.uid)
    return cut


def render(value: Tree) -> str:
    """The text of a :func:`story`."""
    return "\n".join(_lines(value))


def _lines(value: Tree) -> Iterator[str]:
    yield from folded(_who(value))
    yield from _moments(value)
    if value["ledger"] is not None:
        yield paint("what the ledger has of it", bold=True)
        yield from claim_lines(value["ledger"], "  ")
    if value["waits"] is not None:
        yield from folded(_waits(value["waits"]))
    if value["remedy"] is not None:
        yield from folded(remedy_lines(value["remedy"], ""))
    yield from next_lines(value["next"], value["trace"], value["runbooks"])


def _who(value: Tree) -> Iterator[str]:
    state = value["state"] if value["present"] else "not in the cluster any more; told by what is left of it"
    yield f"claim {value['claim']}: {state}"
    yield f"  uid {value['uid'] or 'unknown'}"
    if value["classes"]:
        yield f"  asks for {', '.join(value['classes'])}"
    if value["drivers"]:
        yield f"  by {', '.join(value['drivers'])}"
    for pod in value["pods"]:
        where = f" on {pod['node']}" if pod["node"] else ""
        yield f"  for pod {pod['namespace']}/{pod['name']}{where if pod['present'] else ', which is gone'}"


def _moments(value: Tree) -> Iterator[str]:
    yield paint("what happened", bold=True)
    if value["omitted"]:
        yield f"  {plural(value['omitted'], 'moment')} left out, older ones or of others"
    for each in value["moments"]:
        yield from _moment(each)
    if not value["moments"]:
        yield "  nothing that is known any more"


def _moment(each: Tree) -> Sequence[str]:
    parts = [each["about"], f"on node {each['node']}" if each["node"] else ""]
    if each["kind"] == "event":
        parts.append(" by ".join(filter(None, (each["reason"], each["by"]))))
    if each["count"] > 1:
        parts.append(f"{each['count']} times until {each['until']}")
    told = ", ".join(filter(None, parts))
    head = one_line(f"{each['at']}  {each['kind']}{f', {told}' if told else ''}: {each['text']}")
    first, *rest = wrapped(head, "  ", " " * 6) or [""]
    word = each["kind"]
    return (first.replace(word, paint(word, _COLOURS.get(word)), 1), *rest)


def _waits(waits: Tree) -> Iterator[str]:
    yield f"what it waits for: {waits['reason']}, since {waits['since']}"
    yield f"  {waits['text']}"
    if waits["refusal"]:
        yield f"  what was said to the last allocation: {waits['refusal']}"
