"""Where to look next: the commands that show more of what a decision rests on."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from webhook.admission.action import denies, holds, stopped_by
from webhook.admission.decide import Verdict
from webhook.admission.subject import claim_of, pods_of
from webhook.facts.drivers import claim_drivers
from webhook.facts.duplicates import DUPLICATES
from webhook.facts.pod_needs import wanted_claims
from webhook.policy.facts import Facts

Tree = dict[str, Any]

_MOST_DRIVERS = 3
# What rules begin with, and the page about it.
_RUNBOOKS = {
    "pool-": "pools-stuck",
    "slice-owner-gone": "pools-stuck",
    "view-stale": "snapshot-old",
    "zone-": "zones-unfit",
    "not-reserved": "reservations-fail",
    **dict.fromkeys(DUPLICATES, "duplicate-charges"),
}
_PENDING = "claims-pending"
_ACCOUNT = "system:serviceaccount:"


def where_next(verdict: Verdict) -> list[Tree]:
    """What to look at, ``why``, and the command that shows it, ``run``, fit for a shell whatever the names are. What is
    run as ``allocguard`` has to be told which cluster.
    """
    return [{"why": why, "run": shlex.join(command)} for why, command in _commands(verdict)]


def runbooks(verdict: Verdict) -> list[str]:
    """The pages of ``docs/runbooks`` about what refuses the write or makes it wait, the most fitting first."""
    stopping = [judged.finding.rule for judged in verdict.judged if denies(judged) or holds(judged)]
    return pages(stopping, bool(stopping) and verdict.request.kind.name in ("ResourceClaim", "Pod", "Binding"))


def pages(rules: Iterable[str], waits: bool) -> list[str]:
    """The pages of ``docs/runbooks`` about ``rules`` and, where something ``waits`` for them, about that."""
    found = dict.fromkeys(page for rule in rules for name, page in _RUNBOOKS.items() if rule.startswith(name))
    if waits:
        found[_PENDING] = None
    return [f"docs/runbooks/{page}.md" for page in found]


def _commands(verdict: Verdict) -> Iterator[tuple[str, list[str]]]:
    facts = verdict.evaluation.facts
    snapshot, claim, node = facts.snapshot, claim_of(verdict), facts.node_name
    if claim is not None and verdict.request.operation == "UPDATE":
        yield f"the story of claim {claim.key}", ["allocguard", "explain", "--claim", claim.key]
        yield f"what is charged for claim {claim.key}", ["allocguard", "ledger", "explain", f"claim/{claim.key}"]
    for pod in pods_of(verdict)[:1]:
        if (pod.namespace, pod.name) in snapshot.pods:
            yield f"what pod {pod.key} asks for", ["allocguard", "ledger", "explain", f"pod/{pod.key}"]
    if node in snapshot.nodes:
        if facts.slice is None:
            yield f"who is charged on node {node}", ["allocguard", "ledger", "explain", f"node/{node}"]
        else:
            yield f"account and pools of node {node}", ["allocguard", "ledger", "show", "--node", node]
    known = (each for each in _drivers(facts) if each in snapshot.rollouts or each in snapshot.driver_slices)
    for driver in islice(known, _MOST_DRIVERS):
        yield f"stage, hold and pools of driver {driver}", ["allocguard", "rollout", "status", driver]
    account = verdict.request.user.removeprefix(_ACCOUNT).replace(":", "/")
    if account != verdict.request.user and stopped_by(verdict, "writer"):
        yield f"what {account} may write", ["allocguard", "rbac", "lint", "--for-serviceaccount", account]


def _drivers(facts: Facts) -> list[str]:
    if facts.slice is not None:
        return [facts.slice.model.driver]
    if facts.claim is not None:
        return list(facts.claim.drivers)
    if facts.pod is None:
        return []
    claims = wanted_claims(facts.pod.model, facts.snapshot)
    return list(dict.fromkeys(driver for claim in claims for driver in claim_drivers(claim, facts.snapshot)))
