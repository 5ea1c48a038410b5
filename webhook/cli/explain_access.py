"""What the API server's own authorizers say of a writer whom a policy complains about, beside the policy's word."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from webhook.cli.console import note

if TYPE_CHECKING:
    from webhook.admission.decide import Verdict
    from webhook.cli.options import Where
    from webhook.cluster.access_reviews import Access
    from webhook.cluster.api import Api
    from webhook.kube.admission import Request

Json = dict[str, Any]

# The verbs by which a write may have come: a review does not tell a PUT from a PATCH, nor one delete from many.
_VERBS = {"CREATE": ("create",), "UPDATE": ("update", "patch"), "DELETE": ("delete", "deletecollection")}


def access_told(verdict: Verdict, where: Where) -> list[Json]:
    """What the live API server says that the writer of the review may do, as far as the write took it: ``asked``,
    ``allowed``, ``reason`` and ``problem`` of each question. Empty where no policy complains about the writer, or the
    cluster is in files.
    """
    if where.clusters or not verdict.request.user or not _complains(verdict):
        return []
    from webhook.cli.deploying import connected
    from webhook.cluster.access_reviews import AccessReviews, writer
    from webhook.cluster.api import ApiError

    told: list[Json] = []

    async def ask(api: Api) -> int:
        reviews, subject = AccessReviews(api), writer(verdict.request)
        try:
            for access in _questions(verdict.request):
                answer = await reviews.ask(subject, access)
                said = {"allowed": answer.allowed, "reason": answer.reason, "problem": answer.problem}
                told.append({"asked": str(access), **said})
        except ApiError as error:
            if error.status not in (HTTPStatus.FORBIDDEN, HTTPStatus.UNPROCESSABLE_ENTITY):
                raise
            note(f"what the API server allows the writer is not known: {error}")
        return 0

    connected(where.kubeconfig, where.context, ask)
    return told


def access_lines(told: list[Json]) -> list[str]:
    """The answers as lines of text."""
    if not told:
        return []
    lines = ["what the API server's authorizers say of the writer, whatever node or claim it is about"]
    for each in told:
        why = each["problem"] or each["reason"]
        lines.append(f"  {'allowed' if each['allowed'] else 'denied'}: {each['asked']}{f' ({why})' if why else ''}")
    return lines


def _complains(verdict: Verdict) -> bool:
    """Whether a policy that looks at the writer has something to say."""
    return any(
        "writer" in validation.program.names
        for result in verdict.evaluation.policies
        if result.findings
        for validation in result.compiled.validations
    )


def _questions(request: Request) -> Iterator[Access]:
    """What the API server asks, or would, before it stores the write."""
    from webhook.cluster.access_reviews import Access, binding_access, driver_access
    from webhook.facts.claim_changes import claim_changes
    from webhook.facts.rbac import ARBITRARY, ASSOCIATED

    resource = "/".join(filter(None, (request.resource.name, request.sub_resource)))
    verbs = _VERBS.get(request.operation, ())
    for verb in verbs:
        yield Access(verb, resource, request.resource.group, request.namespace, request.name)
    if resource != "resourceclaims/status" or request.object is None:
        return
    changes = claim_changes(request.old_object or {}, request.object)
    for verb in verbs:
        if changes.allocation or changes.reserved_for:
            yield binding_access(verb)
        for driver in changes.drivers:
            for prefix in (ASSOCIATED, ARBITRARY):
                yield driver_access(f"{prefix}{verb}", driver, request.namespace)
