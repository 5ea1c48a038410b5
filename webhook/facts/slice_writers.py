"""Who may write which ResourceSlice: its driver's accounts, a node-local one those of its node, another those of none,
or all.

The API server keeps only kubelets to their node; any account that may write slices at all may write every slice.
"""

from __future__ import annotations

from webhook.facts.writers import COLLECTORS, EMERGENCY, Writer, listed
from webhook.kube.finding import Finding
from webhook.kube.resource import Slice
from webhook.kube.rollout import ADMINISTRATORS
from webhook.kube.rollout import Writer as Account
from webhook.kube.snapshot import Snapshot

_DRIVER, _NODE = "spec.driver", "spec.nodeName"


def slice_writer_problems(
    writer: Writer, old: Slice | None, new: Slice | None, cleaning: bool, snapshot: Snapshot
) -> list[Finding]:
    """Why a slice is not this writer's to write or delete, as it is stored (``old``) and as it is to be (``new``).

    Of drivers whose writers are named (DriverRollout, params), errors: ``slice-of-other-node``,
    ``slice-of-several-nodes`` and ``slice-writer-without-node`` for an account that writes for its node only (a kubelet
    is one, of every driver), ``slice-not-its-profile``, ``slice-of-other-driver`` and ``slice-by-stranger``. Of other
    drivers ``slice-of-other-node`` alone, a warning. ``cleaning`` is a write that deletes the slice or leaves its spec
    alone: what ends with its node is deleted, and its owners and finalizers taken away, by the garbage collector.
    """
    if writer.exempt or (cleaning and writer.kind in COLLECTORS):
        return []
    stored = _problem(writer, old, snapshot, " (as stored)") if old is not None else None
    made = _problem(writer, new, snapshot, "") if new is not None else None
    if made is not None and stored is not None and made.rule == stored.rule:
        return [made]
    return [found for found in (made, stored) if found is not None]


def _problem(writer: Writer, item: Slice, snapshot: Snapshot, which: str) -> Finding | None:
    named = writer.named(item.driver, snapshot)
    if not named:
        return _of_other_node(writer, item, which, "warning")
    if writer.kind == "Kubelet":
        return _node_local(writer, item, which)
    match writer.profiles.get(item.driver):
        case None:
            return _no_writer(writer, item, which, named)
        case "MultiNode":
            return _not_its_profile(writer, item, which) if item.node else None
        case "AnyNode":
            return None
        case "Allocator":
            return _not_its_profile(writer, item, which)
    return _node_local(writer, item, which)


def _node_local(writer: Writer, item: Slice, which: str) -> Finding | None:
    if not item.node:
        has = f"{_selection(item)}{which}, by {writer.shown}, which writes for its own node only"
        fix = f"leave it to a writer of {item.driver} with profile MultiNode"
        return Finding("slice-of-several-nodes", "spec", has, "spec.nodeName, its own node", fix)
    if not writer.node:
        has = f"node {item.node}{which}, by {writer.shown}, {writer.without_node}"
        needs = "a writer whose node is known"
        return Finding("slice-writer-without-node", _NODE, has, needs, writer.node_fix)
    return _of_other_node(writer, item, which, "error")


def _of_other_node(writer: Writer, item: Slice, which: str, severity: str) -> Finding | None:
    if not writer.node or not item.node or writer.node == item.node:
        return None
    has = f"node {item.node}{which}, by {writer.shown} on node {writer.node}"
    if severity == "warning":
        fix = f"name the writers of {item.driver} in its DriverRollout"
        return Finding("slice-of-other-node", _NODE, has, f"{writer.node}, the writer's own node", fix, "warning")
    return Finding("slice-of-other-node", _NODE, has, f"{writer.node}, the writer's own node")


def _not_its_profile(writer: Writer, item: Slice, which: str) -> Finding:
    profile = writer.profiles[item.driver]
    if profile == "Allocator":
        has = f"driver {item.driver}{which}, by {writer.shown}, which has profile Allocator"
        return Finding("slice-not-its-profile", _DRIVER, has, "a writer with profile NodeLocal, MultiNode or AnyNode")
    has = f"node {item.node}{which}, by {writer.shown}, which has profile MultiNode for {item.driver}"
    fix = "leave it to the driver's account on that node, or give it profile AnyNode if it publishes for each node"
    return Finding("slice-not-its-profile", _NODE, has, "allNodes, nodeSelector or perDeviceNodeSelection", fix)


def _no_writer(writer: Writer, item: Slice, which: str, named: tuple[Account, ...]) -> Finding:
    """The finding about somebody who is none of the driver's writers."""
    needs = f"one of its writers: {listed(named)}"
    if writer.profiles:
        has = f"driver {item.driver}{which}, by {writer.shown}, which writes for {', '.join(sorted(writer.profiles))}"
        return Finding("slice-of-other-driver", _DRIVER, has, needs)
    has = f"driver {item.driver}{which}, by {writer.shown}"
    if writer.service_account:
        fix = f"add the account to spec.writers of DriverRollout {item.driver} if it is to publish devices"
    else:
        fix = f"name {EMERGENCY}, or write as a member of {ADMINISTRATORS}"
    return Finding("slice-by-stranger", _DRIVER, has, needs, fix)


def _selection(item: Slice) -> str:
    """How a slice without a node name chooses its nodes."""
    return next(iter(item.nodes), "no node")
