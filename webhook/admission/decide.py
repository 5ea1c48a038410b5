"""First step of three: the verdict, which is what the rules say, whatever is then made of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from msgspec import Struct

from webhook.kube.admission import Request
from webhook.kube.finding import Finding
from webhook.kube.raw import Json
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book
from webhook.policy.evaluate import Evaluation, evaluate
from webhook.policy.revision import Revision


class Judged(Struct, frozen=True):
    """A finding with the policy that made it and what is to be done with it (``Deny``, ``Warn``, ``Audit``,
    ``Hold``).

    ``exception`` names the policy's exception, with its ticket, where one covers the write.
    """

    policy: str
    action: str
    finding: Finding
    exception: str = ""

    @property
    def text(self) -> str:
        """``policy/rule: path: has X, needs Y; fix``."""
        return self.finding.text(self.policy)


class Verdict(Struct, frozen=True):
    """What the policies of ``revision`` say about ``request``: the findings in order of policies and rules.

    ``errors`` are evaluations that failed, those passed over (``failurePolicy: Ignore``) too; ``annotations`` are
    those that policies make, ``patch`` the operations (RFC 6902) that they make, in this order. Where pods must not be
    made to wait, as nobody could let them go, ``may_hold`` is false.
    """

    request: Request
    endpoint: str
    revision: str
    judged: tuple[Judged, ...]
    errors: tuple[str, ...]
    annotations: Mapping[str, str]
    evaluation: Evaluation
    patch: tuple[Json, ...] = ()
    may_hold: bool = True


def _never() -> bool:
    return False


def decide(
    request: Request,
    endpoint: str,
    revision: Revision,
    snapshot: Snapshot,
    book: Book,
    now: datetime,
    expired: Callable[[], bool] = _never,
    may_hold: bool = True,
) -> Verdict:
    """Judge ``request`` at ``endpoint`` (``validate`` or ``mutate``): a function of its arguments and nothing else.

    Once ``expired`` says that the time is spent, the policies that match and are not yet judged fail as their
    failurePolicy says.
    Not ``may_hold``: the action Hold only warns.
    """
    evaluation = evaluate(revision, request, endpoint, snapshot, book, now, expired=expired)
    judged: list[Judged] = []
    errors: list[str] = []
    annotations: dict[str, str] = {}
    for result in evaluation.policies:
        policy, action = result.policy, result.action
        for rule in result.rules:
            judged += [Judged(policy, action, finding, result.exception) for finding in rule.findings]
            if rule.error:
                errors.append(f"{policy}/{rule.name}: {rule.error}")
        annotations |= result.annotations
    patch = evaluation.patch if endpoint == "mutate" else ()
    return Verdict(
        request, endpoint, revision.hash, tuple(judged), tuple(errors), annotations, evaluation, patch, may_hold
    )
