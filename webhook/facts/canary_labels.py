"""Who may change the labels that make a node a canary node."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from webhook.kube.finding import Finding
from webhook.kube.rollout import KUBELET, KUBELETS, DriverRollout, Editors
from webhook.kube.snapshot import Snapshot

# What kubelets tell of their node when they register it (NodeRestriction lets them). Refused, no node could join a
# cluster whose canary nodes are chosen by their names.
OWN_LABELS = frozenset(
    {
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "kubernetes.io/arch",
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    }
)


def canary_label_problems(
    user: str,
    groups: Collection[str],
    old_labels: Mapping[str, str],
    new_labels: Mapping[str, str],
    node: str,
    snapshot: Snapshot,
) -> list[Finding]:
    """``canary-label-editor`` for each label of the node called ``node`` that ``user`` sets, changes or removes, that
    the canary selector of a driver reads, and that ``user`` is no editor of: neither named nor in one of the groups of
    ``spec.canaryLabelEditors``, or a kubelet, which never is. ``old_labels`` are empty when the node is made. Nothing
    for a manifest that nobody writes (neither user nor groups: an API server gives everybody a group).
    """
    changed = sorted(key for key in {*old_labels, *new_labels} if old_labels.get(key) != new_labels.get(key))
    if not changed or not (user or groups):
        return []
    kubelet = user.startswith(KUBELET) or KUBELETS in groups
    found: list[Finding] = []
    for _, rollout in sorted(snapshot.rollouts.items()):
        for key in changed:
            if key not in rollout.canary_keys or (kubelet and key in OWN_LABELS and key not in old_labels):
                continue
            if kubelet or not _edits(rollout.editors, user, groups):
                what = _change(old_labels.get(key), new_labels.get(key))
                has = f"a canary label of {rollout.driver}, {what} on node {node} by {user or 'an unnamed user'}"
                found.append(_problem(f"metadata.labels[{key}]", has, rollout, kubelet))
    return found


def _edits(editors: Editors, user: str, groups: Collection[str]) -> bool:
    return user in editors.users or not editors.groups.isdisjoint(groups)


def _change(old: str | None, new: str | None) -> str:
    if new is None:
        return "removed"
    return f"set to {new!r}" if old is None else f"changed from {old!r} to {new!r}"


def _problem(path: str, has: str, rollout: DriverRollout, kubelet: bool) -> Finding:
    if kubelet:
        fix = "leave it out of the kubelet's --node-labels and label the node as one of the editors"
        return Finding("canary-label-editor", path, has, "an editor that is no kubelet", fix)
    needs = f"one of spec.canaryLabelEditors of DriverRollout {rollout.driver} ({', '.join(_named(rollout.editors))})"
    return Finding("canary-label-editor", path, has, needs, "ask one of them, or have yourself added")


def _named(editors: Editors) -> Iterator[str]:
    rows = [*(f"user {name}" for name in sorted(editors.users)), *(f"group {name}" for name in sorted(editors.groups))]
    yield from rows[:3] or ["nobody"]
    if len(rows) > 3:
        yield f"and {len(rows) - 3} more"
