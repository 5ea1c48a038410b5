"""An object at rest, judged as if it were created now and its status written now, by the policies of admission."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from msgspec.structs import replace

from webhook.admission.decide import decide
from webhook.facts.coverage import selector_problems, stage_nodes
from webhook.facts.rollout_document import document_problems
from webhook.kube.admission import Request, raw_request, read_request
from webhook.kube.finding import Finding
from webhook.kube.raw import Json, text
from webhook.kube.rollout import GROUP, read_rollout
from webhook.kube.schema import problems as schema_problems
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book
from webhook.policy.document import ENDPOINTS
from webhook.policy.revision import Revision

# Names that stand where a policy's name would, for what no policy judges, or could.
SCHEMA, ROLLOUT, GUARD = "schema", "rollout", "guard"

Problem = tuple[str, Finding]


def at_rest(obj: Json, revision: Revision, snapshot: Snapshot, book: Book, now: datetime) -> list[Problem]:
    """What is wrong with ``obj``, each finding with the policy that made it: as if it were created now, and its status,
    where it has one, written now, in a cluster in which it is not yet. Nobody is taken to be the writer. An error is
    what would be refused.
    """
    if obj.get("kind") == "DriverRollout" and text(obj.get("apiVersion")).partition("/")[0] == GROUP:
        return [(ROLLOUT, each) for each in _rollout_problems(obj, snapshot)]
    refused = schema_problems(obj, snapshot.release)
    told = {(finding.rule, _unified(finding.path)) for finding in refused}
    found = [(SCHEMA, finding) for finding in refused]
    for request, endpoint in _writes(obj):
        for policy, finding in judged(request, endpoint, revision, snapshot, book, now):
            # What the decoder and a policy both see is told once, as the decoder tells it.
            if (finding.rule, _unified(finding.path)) not in told:
                found.append((policy, finding))
    return found


def _rollout_problems(obj: Json, snapshot: Snapshot) -> list[Finding]:
    found = document_problems(obj)
    if any(each.severity == "error" for each in found):
        return found
    rollout = read_rollout(obj)
    return found + selector_problems(rollout, len(stage_nodes(rollout, snapshot)), len(snapshot.nodes))


def judged(
    request: Request, endpoint: str, revision: Revision, snapshot: Snapshot, book: Book, now: datetime
) -> Iterator[Problem]:
    """What the policies say about ``request``, as grave as they take it, as if its object were not there yet."""
    verdict = decide(request, endpoint, revision, snapshot.remove(request.target), book, now)
    for each in verdict.judged:
        yield each.policy, softened(each.finding, "Audit" if each.exception else each.action)


def softened(finding: Finding, action: str) -> Finding:
    """``finding`` as grave as ``action`` lets it be: a policy that only warns, or makes pods wait, has no errors, one
    that only writes to the audit log nothing above info.
    """
    if action == "Audit":
        return replace(finding, severity="info")
    if action in ("Warn", "Hold") and finding.severity == "error":
        return replace(finding, severity="warning")
    return finding


def _unified(path: str) -> str:
    """The path as v1 has it: policies do not tell the ``basic`` of v1beta1, as the server's own errors do not."""
    return path.replace("].basic.", "].", 1)


def _writes(obj: Json) -> Iterator[tuple[Request, str]]:
    """The writes that would bring ``obj`` into a cluster, with the endpoints that see them."""
    bare = {name: value for name, value in obj.items() if name != "status"}
    # What is wrong with a pod's spec depends on whether it has ended, and on the claims made for it.
    created = read_request(raw_request("CREATE", obj if obj.get("kind") == "Pod" else bare))
    for endpoint in ENDPOINTS:
        yield created, endpoint
    if isinstance(obj.get("status"), dict):
        written = read_request(raw_request("UPDATE", obj, bare, sub_resource="status"))
        for endpoint in ENDPOINTS:
            yield written, endpoint
