"""What ``allocguard check`` says about an object by the API server's own rules, without its command line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from tests.e2e.client import Client
from tests.e2e.fidelity.objects import Object
from tests.e2e.fidelity.server import Errors
from webhook.admission.decide import decide
from webhook.cli.judge import SCHEMA, Judge
from webhook.kube.admission import raw_request, read_request
from webhook.kube.documents import Document, Positions
from webhook.kube.finding import Finding
from webhook.kube.release import Release
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book
from webhook.policy.document import ENDPOINTS
from webhook.policy.revision import Revision
from webhook.store import policies

NOW = datetime(2026, 11, 30, tzinfo=UTC)


@dataclass(frozen=True)
class Opinion:
    """``schema``: paths of what does not decode, or is unknown; ``errors``: field and cause of every other error;
    ``undeclared``: whether a node does not declare the feature; ``cut``: whether the server would panic.
    """

    schema: Errors
    errors: Errors
    undeclared: bool
    cut: bool

    @property
    def taken(self) -> bool:
        """Whether the API server would take the object."""
        return not (self.schema or self.errors or self.undeclared or self.cut)


class Ours:
    """The judge of one release, its gates and the objects of one cluster."""

    def __init__(self, minor: int, gates: Mapping[str, bool], client: Client) -> None:
        snapshot = Snapshot(release=Release(minor, dict(gates)))
        for kind, at in (("Node", "/api/v1/nodes"), ("Namespace", "/api/v1/namespaces")):
            for item in client.items(at):
                snapshot = snapshot.put({"apiVersion": "v1", "kind": kind, **item})
        self._snapshot = snapshot
        self._revision: Revision = policies.read([policies.shipped()])
        self._judge = Judge(self._revision, snapshot, NOW)

    def create(self, obj: Object) -> Opinion:
        """About a new object."""
        judged = self._judge.judge(Document(obj, "x", 1, Positions("", 1, True, 0, "")))
        return _opinion([(found.policy, found.finding) for found in judged.found])

    def update(self, obj: Object, old: Object) -> Opinion:
        """About a change of a stored object."""
        request = read_request(raw_request("UPDATE", obj, old))
        found = [
            (judged.policy, judged.finding)
            for endpoint in ENDPOINTS
            for judged in decide(request, endpoint, self._revision, self._snapshot, Book(), NOW).judged
        ]
        return _opinion(found)


def _opinion(found: list[tuple[str, Finding]]) -> Opinion:
    own = [(policy, finding) for policy, finding in found if finding.origin == "apiserver"]
    return Opinion(
        frozenset((finding.path, "") for policy, finding in own if policy == SCHEMA),
        frozenset((f.path, f.error_type) for policy, f in own if policy != SCHEMA and f.error_type),
        any(finding.rule == "node-not-declaring" for _, finding in own),
        any(finding.rule == "requestpolicy-step-zero" for _, finding in found),
    )


def as_decoder(errors: Errors) -> Errors:
    """Paths as the server's decoder writes them: map keys with a dot, too."""
    return frozenset((re.sub(r"\[([^\]0-9][^\]]*)\]", r".\1", path), kind) for path, kind in errors)
