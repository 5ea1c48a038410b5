"""Reviews as commands take them: recorded ones from files, or built around a bare object; and their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from webhook.cli import sources
from webhook.cli.console import Unusable, problem

if TYPE_CHECKING:
    from webhook.admission.decide import Verdict
    from webhook.cli.options import Where
    from webhook.kube.admission import Request
    from webhook.kube.documents import Document
    from webhook.kube.raw import Json

OPERATIONS = ("CREATE", "UPDATE", "DELETE")


class Pair(click.ParamType[tuple[str, str]]):
    """``KEY=VALUE``."""

    name = "K=V"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Key and value."""
        if isinstance(value, tuple):
            return value
        key, separator, rest = str(value).partition("=")
        if not key or not separator:
            self.fail(f"{value!r} is no KEY=VALUE", param, ctx)
        return key, rest


@dataclass(frozen=True, slots=True)
class Write:
    """How the bare objects of ``objects`` are written, and by whom."""

    objects: tuple[str, ...]
    operation: str
    old: tuple[str, ...]
    user: str
    groups: tuple[str, ...]
    extra: tuple[tuple[str, str], ...]
    sub_resource: str

    def check(self) -> None:
        """Raise click.UsageError where the options do not go with each other."""
        beside = self.old or self.user or self.groups or self.extra or self.sub_resource or self.operation != "CREATE"
        if beside and not self.objects:
            raise click.UsageError("--operation, --old, --user, --group, --extra and --subresource need --object")
        if self.old and self.operation != "UPDATE":
            raise click.UsageError("--old needs --operation UPDATE")
        if self.objects and self.operation == "UPDATE" and not self.old:
            raise click.UsageError("--operation UPDATE needs --old, the object before")


def review_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say which review: ``--endpoint``; and ``--object`` with what goes with it, given to the command
    as ``described``, for what is not recorded in FILES.
    """

    @wraps(function)
    def gathered(**given: Any) -> Any:
        described = Write(**{each.name: given.pop(each.name) for each in fields(Write)})
        return function(described=described, **given)

    options = [
        click.option(
            "--endpoint",
            type=click.Choice(["validate", "mutate"]),
            default="validate",
            show_default=True,
            help="The endpoint that is asked.",
        ),
        click.option("--object", "objects", metavar="F", multiple=True, help="Build the review of writing it."),
        click.option(
            "--operation",
            type=click.Choice(OPERATIONS, case_sensitive=False),
            default="CREATE",
            show_default=True,
            help="With --object: what is done to it.",
        ),
        click.option("--old", metavar="F", multiple=True, help="With --object and UPDATE: the object before."),
        click.option("--user", default="", metavar="U", help="With --object: who writes."),
        click.option("--group", "groups", metavar="G", multiple=True, help="With --object: a group of the user."),
        click.option("--extra", type=Pair(), multiple=True, help="With --object: an extra of the user."),
        click.option("--subresource", "sub_resource", default="", metavar="S", help="With --object: as status."),
    ]
    command: Callable[..., Any] = gathered
    for option in reversed(options):
        command = option(command)
    return command


def requests(files: Sequence[str], described: Write) -> Iterator[Request]:
    """The requests of the recorded reviews in ``files``, then those of the described write. What is none is told."""
    from webhook.admission.decode import BadReview, decode
    from webhook.kube.documents import Unreadable, load

    for name, data in sources.contents(files):
        refused: BadReview | None = None
        if data.lstrip()[:1] == b"{":
            # One review as the API server sends it: read by the server's own reader.
            try:
                yield decode(data)
            except BadReview as error:
                refused = error
            else:
                continue
        found = load(data, name)
        sources.unreadable(each for each in found if isinstance(each, Unreadable))
        for each in found:
            if isinstance(each, Unreadable):
                continue
            # The reader's refusal of several is about there being several, also where a recording was cut off.
            if (request := _recorded(each, refused if len(found) == 1 else None)) is not None:
                yield request
    yield from _built(described)


def _recorded(document: Document, refused: Exception | None) -> Request | None:
    from webhook.admission.decode import KIND, BadReview, read_review

    kind = document.value.get("kind")
    if kind != KIND:
        line, column = document.position("kind")
        fix = "name the object with --object, or judge it with `allocguard check`"
        problem(f"{document.file}:{line}:{column}: has the kind {kind!r}, needs {KIND}; {fix}")
        return None
    try:
        if refused is not None:
            raise refused
        return read_review(document.value)
    except BadReview as error:
        path = str(error).partition(": ")[0]
        line, column = document.position(path if path.startswith("request") else "")
        problem(f"{document.file}:{line}:{column}: {error}; send it as the API server does")
        return None


def _built(described: Write) -> Iterator[Request]:
    from webhook.kube.admission import raw_request, read_request

    before = {_identity(each.value): each.value for each in sources.documents(described.old)}
    extra: dict[str, list[str]] = {}
    for key, value in described.extra:
        extra.setdefault(key, []).append(value)
    for document in sources.documents(described.objects):
        new: Json | None = document.value
        old: Json | None = None
        if described.operation == "DELETE":
            new, old = None, document.value
        elif described.operation == "UPDATE":
            old = before.get(_identity(document.value))
            if old is None:
                kind, namespace, name = _identity(document.value)
                label = f"{kind} {'/'.join(filter(None, (namespace, name)))}"
                raise Unusable(f"{', '.join(described.old)}: has no {label}; put the object as it was before there")
        yield read_request(
            raw_request(
                described.operation,
                new,
                old,
                user=described.user,
                groups=described.groups,
                extra=extra,
                sub_resource=described.sub_resource,
            )
        )


def _identity(obj: Json) -> tuple[str, str, str]:
    from webhook.kube.raw import mapping, text

    metadata = mapping(obj.get("metadata"))
    return text(obj.get("kind")), text(metadata.get("namespace")), text(metadata.get("name"))


class Bench:
    """Judges requests as the server does, at a fixed time."""

    def __init__(self, policies: Sequence[str], where: Where, at: datetime) -> None:
        from webhook.cluster.files import Cluster
        from webhook.ledger.book import Book

        self.cluster = sources.named_cluster(where)
        objects = {} if isinstance(self.cluster, Cluster) else self.cluster.policies
        self.revision = sources.revision(policies, objects)
        self.book = Book()
        self.at = at

    def verdict(self, request: Request, endpoint: str) -> Verdict:
        """What the policies say about ``request``."""
        from webhook.admission.decide import decide

        snapshot = self.cluster.snapshot_for(request.object)
        return decide(request, endpoint, self.revision, snapshot, self.book, self.at)
