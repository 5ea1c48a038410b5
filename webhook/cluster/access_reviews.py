"""What the API server's authorizers say that somebody may do (``SubjectAccessReview``), never on the way of a decision.

They answer for the permission alone: whether a writer of claim statuses is on the node of the claim they are not asked,
and so ``associated-node:patch`` being allowed says nothing about any one claim.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import Struct

from webhook.kube.admission import Request
from webhook.kube.raw import Json, flag, mapping, text

PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
DRA = "resource.k8s.io"
# How long an answer counts, seconds, as with authorizers that are asked over a network; and how many are kept.
KEPT, MOST = 10.0, 4096
# The group that every ServiceAccount is in, beside those by its namespace and of everybody.
_ACCOUNTS = "system:serviceaccounts"


class Subject(Struct, frozen=True):
    """Who is asked about: as authentication has it, groups and the keys of extras sorted."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Access(Struct, frozen=True):
    """What is asked: a verb on a resource, ``resourceclaims/driver`` as one with its subresource. An empty
    ``namespace`` asks for the whole cluster, an empty ``name`` for all names.
    """

    verb: str
    resource: str
    group: str = DRA
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        """``patch resourceclaims/status team/c1``."""
        named = "/".join(filter(None, (self.namespace, self.name)))
        where = named if self.name else f"in {named}" if named else ""
        return " ".join(filter(None, (self.verb, self.resource, where)))


class Answer(Struct, frozen=True):
    """``reason`` names the role and the binding where one allows it; ``problem`` is why it could not be looked at
    whole, which counts as not allowed.
    """

    allowed: bool
    reason: str = ""
    problem: str = ""


class Server(Protocol):
    """What is used of the API server."""

    async def create(self, path: str, obj: Json, **params: object) -> Json:
        """POST."""


def account(namespace: str, name: str) -> Subject:
    """The ServiceAccount, by a token that is bound to nothing."""
    groups = ("system:authenticated", _ACCOUNTS, f"{_ACCOUNTS}:{namespace}")
    return Subject(f"system:serviceaccount:{namespace}:{name}", groups)


def writer(request: Request) -> Subject:
    """Who made the request."""
    uid = text(mapping(request.raw.get("userInfo")).get("uid"))
    return Subject(request.user, tuple(sorted(request.groups)), uid, tuple(sorted(request.extra.items())))


def driver_access(verb: str, driver: str, namespace: str = "") -> Access:
    """What a change of ``status.devices`` of ``driver`` takes, in a claim of ``namespace``: ``verb`` is that of the
    write with its prefix, as ``arbitrary-node:patch``.
    """
    return Access(verb, "resourceclaims/driver", namespace=namespace, name=driver)


def binding_access(verb: str) -> Access:
    """What a change of ``status.allocation`` or ``status.reservedFor`` takes: in all namespaces, whatever the claim."""
    return Access(verb, "resourceclaims/binding")


class AccessReviews:
    """Asks, and remembers each answer for ten seconds by ``clock``. Belongs to the event loop of ``api``."""

    def __init__(self, api: Server, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._answers: OrderedDict[tuple[Subject, Access], tuple[float, Answer]] = OrderedDict()
        self._forgotten = 0

    async def ask(self, subject: Subject, access: Access) -> Answer:
        """Whether ``subject`` may do it. Raises ApiError and Unreachable, which are not remembered, nor is an answer
        with a problem.
        """
        key = (subject, access)
        until, known = self._answers.get(key, (0.0, None))
        if known is not None and self._clock() < until:
            self._answers.move_to_end(key)
            return known
        forgotten = self._forgotten
        answer = _answer(mapping(await self._api.create(PATH, _review(subject, access))))
        # What was under way when a role changed may be about the one before.
        if not answer.problem and forgotten == self._forgotten:
            self._answers[key] = (self._clock() + KEPT, answer)
            self._answers.move_to_end(key)
            if len(self._answers) > MOST:
                self._answers.popitem(last=False)
        return answer

    def forget(self) -> None:
        """Ask for everything anew: a role or a binding has changed."""
        self._answers.clear()
        self._forgotten += 1


def _review(subject: Subject, access: Access) -> Json:
    resource, _, sub = access.resource.partition("/")
    attributes = {
        "verb": access.verb,
        "group": access.group,
        "resource": resource,
        "subresource": sub,
        "namespace": access.namespace,
        "name": access.name,
    }
    extra: Mapping[str, list[str]] = {key: list(values) for key, values in subject.extra}
    spec = {"user": subject.user, "groups": list(subject.groups), "uid": subject.uid, "extra": extra}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {**{name: value for name, value in spec.items() if value}, "resourceAttributes": attributes},
    }


def _answer(review: Json) -> Answer:
    status = mapping(review.get("status"))
    problem = " ".join(text(status.get("evaluationError")).split())
    reason = " ".join(text(status.get("reason")).split())
    allowed = flag(status.get("allowed")) and not flag(status.get("denied")) and not problem
    return Answer(allowed, reason, problem)
