"""A resize in place: whether what a bound pod asks for more fits its node, beside what claims cost there."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from webhook.facts.account import Account, Amount
from webhook.facts.fit import FitRow, node_rows
from webhook.facts.pods import PodRequest, Share, budget_problems, pod_claims, pod_id, pod_request, will_count
from webhook.kube.core import Pod
from webhook.kube.finding import Finding
from webhook.kube.quantity import Number, of_resource
from webhook.kube.snapshot import Snapshot

_NOTHING = Share(0, 0, 0, 0, 0, False)
_UNTOUCHED = Amount()


def resize_problems(pod: Pod, old: Pod, account: Account, snapshot: Snapshot) -> list[Finding]:
    """What the resize of ``old`` to ``pod`` asks for more and the node of ``account`` has no room for, and pod-level
    requests that it leaves further below what they must cover.

    What shrinks passes, however full the node is; so does a resource of which claims take nothing there, since a
    kubelet that knows no claims judges that as well.
    """
    # What is held meanwhile is no answer to what is wanted, and what the kubelet refused was another size.
    wanted, before = (_shares(replace(each, held={}, infeasible=False), account, snapshot) for each in (pod, old))
    had = _shares(old, account, snapshot)
    grown = {
        name: _own(share)
        for name, share in wanted.items()
        if _own(share) > _own(had.get(name, _NOTHING)) and _claimed(account.resources.get(name, _UNTOUCHED))
    }
    short = {name: share for name, share in wanted.items() if _lacking(share) > _lacking(before.get(name, _NOTHING))}
    rows = node_rows(account.without(pod=pod_id(pod)), {}, grown)
    return [*(_refusal(row, pod, account.node) for row in rows if not row.fits), *budget_problems(PodRequest(short))]


def _shares(pod: Pod, account: Account, snapshot: Snapshot) -> Mapping[str, Share]:
    counted = will_count(pod, pod_claims(pod, snapshot), snapshot, account.node)
    return pod_request(pod, counted.claims, counted.overhead).resources


def _own(share: Share) -> Number:
    return share.spec + share.overhead


def _lacking(share: Share) -> Number:
    return max(share.needed - share.total, 0)


def _claimed(held: Amount) -> bool:
    return bool(held.claims or held.overhead or held.reserved)


def _refusal(row: FitRow, pod: Pod, node: str) -> Finding:
    return Finding(
        "node-overcommit",
        "spec",
        f"{row.resource} {of_resource(row.resource, row.pod)} for pod {pod.key} on node {node} ({row.equation()})",
        f"at most {of_resource(row.resource, max(row.before or 0, 0))}, which is what is free there",
        "ask for less, or release a claim or move a pod there",
    )
