"""``allocguard explain --claim``: what happened to a claim, from its first moment to what it waits for now."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from difflib import get_close_matches
from http import HTTPStatus
from itertools import islice
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

# What an API server may have a claim called, or its UID.
_NAMED = re.compile(r"[\w.:-]{1,253}(/[\w.:-]{1,253})?", re.ASCII)
# Pods whose events are asked for.
_MOST_PODS = 8
# Names that a mistyped one is compared with.
_MOST_NAMES = 10_000
_COLOURS = {"refused": "red", "pending": "yellow", "held": "yellow", "charged": "green", "settled": "green"}


def story(given: str, where: Where, at: datetime) -> Tree:
    """The story of the claim ``given``, NAMESPACE/NAME, UID or trace, as JSON values. Raises UsageError where neither
    the cluster nor any event knows it.
    """
    from webhook.admission.claim_story import claim_story, subject
    from webhook.kube.trace import traced_uid
    from webhook.ledger.book import Book

    sources.check_stdin(where.clusters)
    snapshot = sources.cluster(where).snapshot
    wanted = traced_uid(given)
    events = _in_files(where) if where.clusters else _live(where, wanted, snapshot)
    ref = subject(snapshot, wanted, events)
    if ref is None:
        why = f"has no such claim, nor an event about one, needs NAMESPACE/NAME or a UID; {_meant(given, snapshot)}"
        raise click.UsageError(one_line(f"--claim {given}: {why}"))
    return claim_story(Book(), snapshot, ref, events, at)


def _meant(given: str, snapshot: Snapshot) -> str:
    """What may have been meant: claims of that name elsewhere, those of a pod of that name, similar names."""
    from webhook.facts.pod_needs import wanted_claims
    from webhook.ledger.moments import some

    namespace, _, name = given.rpartition("/")
    meant = ["/".join(key) for key in snapshot.claims if key[1] == name]
    if not meant:
        pods = [pod for pod in snapshot.pods.values() if given in (pod.key, pod.name, pod.uid)]
        of_pods = [claim.key for pod in pods for claim in wanted_claims(pod, snapshot)]
        if pods:
            return f"a pod has this name, and uses {some(of_pods) or 'no claim that is there'}"
        near = [key for key in islice(snapshot.claims, _MOST_NAMES) if namespace in ("", key[0])]
        alike = get_close_matches(name, {key[1] for key in near}, 3)
        meant = ["/".join(key) for key in near if key[1] in alike]
    if meant:
        return f"did you mean {some(meant)}?"
    return "of one that is gone there are events, which API servers keep for an hour if not told otherwise"


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

    if not _NAMED.fullmatch(given):
        raise click.UsageError(one_line(f"--claim {given[:300]!r}: is no name, needs NAMESPACE/NAME or a UID"))
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
        node = value["waits"]["node"]
        here = f"node {node} has room for it now, and its last allocation was refused there"
        yield from folded(remedy_lines(value["remedy"], node, here))
    yield from next_lines(value["next"], value["trace"], value["runbooks"])


def _who(value: Tree) -> Iterator[str]:
    state = value["state"] if value["present"] else "not in the cluster any more; told by what is left of it"
    yield f"claim {value['claim']}: {state}"
    yield f"  uid {value['uid'] or 'unknown'}"
    if value["classes"]:
        yield f"  asks for devices of class {', '.join(value['classes'])}"
    if value["drivers"]:
        yield f"  which come from driver {', '.join(value['drivers'])}"
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
