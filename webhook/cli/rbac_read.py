"""What `rbac lint` works on: roles and bindings of files or of a live cluster, and what guards slices there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING

from webhook.cli import sources
from webhook.cli.console import Unusable, note
from webhook.facts.rbac import Grant, grants
from webhook.facts.rollout_document import document_problems
from webhook.kube.documents import Document, from_object
from webhook.kube.raw import Json, mapping, text
from webhook.kube.rbac import ACCOUNT, BINDINGS, GROUP, ROLES, rbac_key
from webhook.kube.rollout import read_rollout
from webhook.kube.schema import problems as schema_problems
from webhook.kube.snapshot import Key, Snapshot

if TYPE_CHECKING:
    from webhook.cli.options import Where
    from webhook.cluster.api import Api
    from webhook.facts.rbac_profile import Holder
    from webhook.kube.finding import Finding
    from webhook.kube.release import Release
    from webhook.registration.slice_guards import SliceGuards

LIVE = "live cluster"
ROLLOUT = "DriverRollout"
# What is read of a live cluster: who may do what, whom drivers have, and whether they report on claims.
_KINDS = frozenset({*ROLES, *BINDINGS, ROLLOUT, "ResourceClaim", "AdmissionPolicy"})


@dataclass(frozen=True, slots=True)
class World:
    """A cluster and the documents to judge in it; ``guards`` is None where nothing is known of them, ``live`` whether
    a server may be asked for more.
    """

    snapshot: Snapshot
    documents: Sequence[Document]
    guards: SliceGuards | None
    live: bool

    @property
    def reports(self) -> dict[str, bool]:
        """By driver whether any claim in use has a report of it."""
        from webhook.facts.reporting import reporting_drivers

        return reporting_drivers(self.snapshot)

    def guarded(self, now: datetime) -> Callable[[Key], bool | None]:
        """Whether an account is kept to slices of its own, as far as that is known."""
        from webhook.registration.slice_guards import remembered

        return remembered(self.guards, self.snapshot, now)


def world(files: tuple[str, ...], where: Where) -> World:
    """The documents of ``files`` in the cluster that ``where`` names, or in none; without files the whole cluster.
    Raises Unreachable where its roles cannot be read.
    """
    found = sources.documents(files)
    live = where.named_live or not (files or where.clusters)
    snapshot, guards = _live(where) if live else _in_files(where, found)
    for document in found:
        snapshot = snapshot.put(document.value)
    if not files:
        return World(snapshot, list(_all(snapshot, LIVE if live else ", ".join(where.clusters))), guards, live)
    places = {file: index for index, file in enumerate(dict.fromkeys(each.file for each in found))}
    return World(snapshot, sorted(_judged(found, snapshot), key=lambda each: places[each.file]), guards, live)


def _in_files(where: Where, found: Iterable[Document]) -> tuple[Snapshot, SliceGuards | None]:
    """The objects of the files that make the cluster, and the guards among them and the documents that are judged, of
    which nothing is known where there are none.
    """
    from webhook.cluster.recorder import Kept
    from webhook.registration.slice_guards import KINDS, slice_guards

    kept = Kept()
    cluster = sources.in_files(where, kept)
    objects = [*kept.objects, *(each.value for each in found)]
    guarding = [each for each in objects if each.get("kind") in KINDS]
    return cluster.snapshot, slice_guards(guarding, sources.revision(())) if guarding else None


def _live(where: Where) -> tuple[Snapshot, SliceGuards | None]:
    from dataclasses import replace

    from webhook.cli.deploying import connected
    from webhook.cluster.api import ApiError
    from webhook.cluster.kinds import KINDS
    from webhook.cluster.slice_guards import read_slice_guards

    # Judged without its roles, a cluster would have none that are too wide.
    kinds = [replace(each, optional=each.group != GROUP) for each in KINDS if each.name in _KINDS]
    cluster = sources.live(where, kinds=kinds)
    revision = sources.revision((), cluster.policies)
    guards: list[SliceGuards] = []

    async def look(api: Api) -> int:
        try:
            guards.append(await read_slice_guards(api, revision))
        except ApiError as error:
            note(f"admission policies: the API server refuses: {error}; whether slices are guarded is not judged")
        return 0

    connected(where.kubeconfig, where.context, look)
    return cluster.snapshot, guards[0] if guards else None


def beyond_roles(where: Where, account: Key, holder: Holder | None, known: Sequence[Finding]) -> list[Finding]:
    """What the live API server allows the account beyond what its roles show, but for rules of ``known``. Raises
    Unusable for an account that is not there.
    """
    from webhook.cli.deploying import connected
    from webhook.cluster.access_reviews import AccessReviews
    from webhook.cluster.api import ApiError
    from webhook.controllers.rbac_probes import too_much

    found: list[Finding] = []

    async def ask(api: Api) -> int:
        try:
            await api.get(f"/api/v1/namespaces/{account[0]}/serviceaccounts/{account[1]}")
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                fix = "check the name; `kubectl get serviceaccounts --all-namespaces` lists those that there are"
                raise Unusable(f"ServiceAccount {'/'.join(account)}: is not there; {fix}") from error
        try:
            found.extend(await too_much(AccessReviews(api), holder) if holder is not None else ())
        except ApiError as error:
            note(f"SubjectAccessReview: the API server refuses: {error}; only roles and bindings are looked at")
        return 0

    connected(where.kubeconfig, where.context, ask)
    rules = {each.rule for each in known}
    return [each for each in found if each.rule not in rules]


def _judged(documents: Sequence[Document], snapshot: Snapshot) -> Iterator[Document]:
    """Those that something is said about: roles, bindings, and accounts of drivers, also where these have no document
    but a DriverRollout that names them, or what they have by a role or a binding that is there.
    """
    accounts: dict[Key, Document] = {}
    files: dict[tuple[str, str, str], str] = {}
    for document in documents:
        kind = document.value.get("kind")
        if kind in (*ROLES, *BINDINGS):
            files[key_of(document.value)] = document.file
            yield document
        elif kind == ACCOUNT:
            accounts[_account(document.value)] = document
        elif kind == ROLLOUT:
            if document_problems(document.value):
                yield document
            for each in read_rollout(document.value).writers:
                account = (each.namespace, each.service_account)
                accounts.setdefault(account, named("v1", ACCOUNT, account, document.file))
    for account in sorted(snapshot.writers):
        held = (key for each in grants(account, snapshot) for key in _having(each))
        file = next((files[key] for key in held if key in files), "")
        if file or account in accounts:
            yield accounts.get(account) or named("v1", ACCOUNT, account, file)


def malformed(obj: Json, release: Release) -> list[tuple[str, Finding]]:
    """What the API server would not decode of a role, a binding or a DriverRollout, as `check` tells it."""
    if obj.get("kind") == ROLLOUT:
        return [("rollout", each) for each in document_problems(obj)]
    if obj.get("kind") in (*ROLES, *BINDINGS):
        return [("schema", each) for each in schema_problems(obj, release)]
    return []


def _having(grant: Grant) -> Iterator[tuple[str, str, str]]:
    """Kind, namespace and name of what gives it: the binding, the role that is bound, the one that has the rule."""
    yield (grant.binding.kind, *grant.binding.key)
    yield grant.binding.role
    yield grant.role.reference


def key_of(obj: Json) -> tuple[str, str, str]:
    """Kind, namespace and name of a role, a binding or a ServiceAccount as the snapshot has them."""
    return (text(obj.get("kind")), *(_account(obj) if obj.get("kind") == ACCOUNT else rbac_key(obj)))


def _account(obj: Json) -> Key:
    metadata = mapping(obj.get("metadata"))
    return text(metadata.get("namespace")) or "default", text(metadata.get("name"))


def _all(snapshot: Snapshot, place: str) -> Iterator[Document]:
    """Everything that is judged of a whole cluster, by its name alone."""
    for key in sorted(snapshot.roles):
        yield named(f"{GROUP}/v1", snapshot.roles[key].kind, key, place)
    for key in sorted(snapshot.bindings):
        yield named(f"{GROUP}/v1", snapshot.bindings[key].kind, key, place)
    for account in sorted(snapshot.writers):
        yield named("v1", ACCOUNT, account, place)


def named(api_version: str, kind: str, key: Key, place: str) -> Document:
    """A document that stands for an object of ``place``, with nothing but its name."""
    metadata = {name: value for name, value in zip(("namespace", "name"), key, strict=True) if value}
    return from_object({"apiVersion": api_version, "kind": kind, "metadata": metadata}, place)
