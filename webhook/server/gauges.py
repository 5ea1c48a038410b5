"""Metrics that are computed when somebody scrapes: the present state of policies, pools, rollouts and accounts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import get_args

from prometheus_client.core import GaugeMetricFamily, Metric

from webhook.facts.account import Account
from webhook.facts.gates_found import GateEvidence, gate_state
from webhook.facts.pending import pending_claims
from webhook.facts.pools import pool_state
from webhook.facts.times import instant
from webhook.facts.waiting import Waiting
from webhook.facts.zone_choice import Choosing
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book
from webhook.ledger.charges import Category
from webhook.ledger.differences import unplaced
from webhook.store.policies import PolicyStore
from webhook.telemetry.metrics import gauge

SOURCES = ("pods", "claims", "overhead", "reserved")
# The reason of pods that nothing keeps back any more: they go on one after the other.
DUE = "due"
CATEGORIES: tuple[Category, ...] = get_args(Category)


def gauges(
    policies: PolicyStore,
    snapshot: Snapshot,
    book: Book,
    now: datetime,
    ages: Mapping[str, float],
    refused: Mapping[str, str],
    evidence: GateEvidence,
) -> Iterator[Metric]:
    """The families; ``ages`` tells by kind how old the view of it is, seconds, ``refused`` by claim which rule refused
    its last allocation, ``evidence`` what is known of feature gates beside the snapshot.
    """
    yield gauge("policy_revision_info", "The revision that serves", ["revision"], [([policies.revision.hash], 1)])
    yield gauge("policy_problems", "What is wrong with the latest edits", [], [([], len(policies.problems))])
    rows = [([kind], round(age, 3)) for kind, age in ages.items()]
    yield gauge("snapshot_age_seconds", "Since the view of the kind was last known to be current", ["kind"], rows)
    yield from _pools(snapshot, now)
    rollouts = sorted(snapshot.rollouts.items())
    yield gauge("rollout_stage", "1 for the stage", ["driver", "stage"], [([d, r.stage], 1) for d, r in rollouts])
    yield gauge("rollout_hold", "1 while held", ["driver"], [([d], int(r.hold is not None)) for d, r in rollouts])
    states = [([each.name, each.state], 1) for each in gate_state(snapshot, evidence)]
    yield gauge("feature_gate", "1 for the state of the gate in the component", ["component", "state"], states)
    yield from _ledger(snapshot, book)
    waiting = sorted(pending_claims(snapshot, now, refused).items())
    rows = [([*names], count) for names, count in waiting]
    yield gauge("claims_pending", "Claims that pods wait for, and why", ["driver", "reason"], rows)
    rows = [([reason], count) for reason, count in sorted(_gated(snapshot, now).items())]
    yield gauge("pods_gated", "Pods with the scheduling gate, and why they wait", ["reason"], rows)


def _pools(snapshot: Snapshot, now: datetime) -> Iterator[GaugeMetricFamily]:
    phases: list[tuple[list[str], float]] = []
    ages: list[tuple[list[str], float]] = []
    for driver, pool in sorted(snapshot.pools):
        if driver not in snapshot.mapped_slices:
            continue
        state = pool_state(snapshot, driver, pool, None, now)
        phases.append(([driver, pool, state.phase], 1))
        since = instant(state.since)
        if since is not None:
            ages.append(([driver, pool], (now - since).total_seconds()))
    yield gauge("pool_phase", "1 for the current phase", ["driver", "pool", "phase"], phases)
    yield gauge("mapping_age_seconds", "Since the newest slice of the pool was made", ["driver", "pool"], ages)


def _gated(snapshot: Snapshot, now: datetime) -> Counter[str]:
    waits, zones = Waiting(snapshot, now), Choosing(snapshot)
    reasons = (waits.pod(pod) or zones.pod(pod) for pod in snapshot.gated_pods.values())
    return Counter(DUE if reason is None else reason.rule for reason in reasons)


def _ledger(snapshot: Snapshot, book: Book) -> Iterator[GaugeMetricFamily]:
    capacity: list[tuple[list[str], float]] = []
    used: list[tuple[list[str], float]] = []
    differences: dict[str, int] = dict.fromkeys(CATEGORIES, 0)
    for node in sorted(snapshot.nodes):
        # What other nodes use, everybody else's metrics tell; with them this would grow with the whole cluster.
        claims = node in snapshot.node_claims or any(pod.claim_names for pod in snapshot.node_pods.get(node, ()))
        if claims or node in snapshot.ledgers or any(item.mapped for item in snapshot.node_slices.get(node, ())):
            page = book.page(snapshot, node)
            if page is not None:
                _account(page.account, capacity, used)
                for difference in page.differences:
                    differences[difference.category] += 1
    for difference in unplaced(snapshot):
        differences[difference.category] += 1
    yield gauge("ledger_capacity", "What there is to charge", ["node", "zone", "resource"], capacity)
    yield gauge("ledger_used", "What is charged, by source", ["node", "zone", "resource", "source"], used)
    kinds = [([kind], count) for kind, count in differences.items()]
    yield gauge("ledger_differences", "What does not agree with the ledger", ["kind"], kinds)


def _account(account: Account, capacity: list[tuple[list[str], float]], used: list[tuple[list[str], float]]) -> None:
    for resource, amount in account.resources.items():
        capacity.append(([account.node, "", resource], float(amount.allocatable)))
        used += [([account.node, "", resource, source], float(getattr(amount, source))) for source in SOURCES]
    for zone, resources in account.zones.items():
        for resource, part in resources.items():
            if part.capacity is not None:
                capacity.append(([account.node, str(zone), resource], float(part.capacity)))
            used.append(([account.node, str(zone), resource, "claims"], float(part.claims)))
            used.append(([account.node, str(zone), resource, "reserved"], float(part.reserved)))
