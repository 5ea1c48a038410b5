"""A scan of everything that is stored: what would be refused today, what does not agree, and what is left over."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from webhook.admission.at_rest import GUARD, Problem, at_rest
from webhook.kube.finding import SEVERITY_ORDER
from webhook.kube.raw import Json, mapping, text
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book
from webhook.ledger.stored import not_judged, stored_differences
from webhook.ledger.views import POLICY
from webhook.policy.revision import Revision

# Kind, namespace, name.
Key = tuple[str, str, str]


class Stored(Struct, frozen=True):
    """A stored object that something is wrong with; ``problems``, each with its policy (``ledger`` for what does not
    agree with the book), stand gravest first. ``uid`` is empty where it is not known.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    problems: tuple[Problem, ...]


class Scan:
    """One scan by the policies of ``revision``, bit by bit: first :meth:`look`, then :meth:`judge` for every object,
    and :meth:`rest` at the end. Each is told what is known at that moment.
    """

    def __init__(self, revision: Revision) -> None:
        self._revision = revision
        self._book = Book()
        self._differences: dict[Key, tuple[str, list[Problem]]] = {}

    def look(self, snapshot: Snapshot, now: datetime) -> Iterator[None]:
        """Find what does not agree: one step a node."""
        for found in stored_differences(self._book, snapshot, now):
            for each in found:
                key = (each.kind, each.namespace, each.name)
                self._differences.setdefault(key, (each.api_version, []))[1].append((POLICY, each.finding))
            yield

    def judge(self, obj: Json, snapshot: Snapshot, now: datetime) -> Stored | None:
        """What is wrong with ``obj``, a whole stored object; None where nothing is. What is only so today is an info:
        it is no fault of what is stored. One that nobody can judge is told too, so that the others are judged.
        """
        metadata = mapping(obj.get("metadata"))
        namespace, name = text(metadata.get("namespace")), text(metadata.get("name"))
        kind = text(obj.get("kind"))
        try:
            found = [
                (policy, replace(finding, severity="info") if finding.passing else finding)
                for policy, finding in at_rest(obj, self._revision, snapshot, self._book, now)
            ]
        except Exception as error:  # noqa: BLE001 - a mistake of ours about one object must not keep the others
            found = [(GUARD, not_judged(error))]
        rules = {finding.rule for _, finding in found}
        _, differences = self._differences.pop((kind, namespace, name), ("", []))
        # What a policy and the book both see is told once, as the policy tells it.
        found += [each for each in differences if each[1].rule not in rules]
        uid = text(metadata.get("uid"))
        return _stored(text(obj.get("apiVersion")), (kind, namespace, name), uid, found) if found else None

    def rest(self, snapshot: Snapshot) -> Iterator[Stored]:
        """What does not agree of objects that were not judged."""
        for key, (api_version, found) in sorted(self._differences.items()):
            yield _stored(api_version, key, _uid(key, snapshot), found)


def _stored(api_version: str, key: Key, uid: str, found: list[Problem]) -> Stored:
    told: dict[tuple[str, str, str], Problem] = {}
    for each in sorted(found, key=lambda problem: SEVERITY_ORDER[problem[1].severity]):
        told.setdefault((each[1].rule, each[1].path, each[1].message), each)
    return Stored(api_version, *key, uid, tuple(told.values()))


def _uid(key: Key, snapshot: Snapshot) -> str:
    kind, namespace, name = key
    match kind:
        case "Node" if name in snapshot.nodes:
            return snapshot.nodes[name].uid
        case "Pod" if (namespace, name) in snapshot.pods:
            return snapshot.pods[namespace, name].uid
        case "ResourceClaim" if (namespace, name) in snapshot.claims:
            return snapshot.claims[namespace, name].uid
    return ""
