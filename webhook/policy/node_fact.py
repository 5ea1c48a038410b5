"""``node`` and ``driver``: the node that a write is about, and what the operator tells about a driver."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from webhook.cel import BOOL, STRING, list_of, map_of
from webhook.facts.canary_labels import canary_label_problems
from webhook.facts.rollout import qualifies, standing
from webhook.kube.core import Node, read_node
from webhook.kube.finding import Finding
from webhook.kube.quantity import of_resource
from webhook.kube.rollout import DriverRollout
from webhook.policy.fact import fact, struct
from webhook.policy.types import FINDINGS

if TYPE_CHECKING:
    from webhook.policy.facts import Facts


class NodeFact:
    """A node: the object of a write of nodes, else as the snapshot knows it."""

    def __init__(self, facts: Facts, node: Node) -> None:
        self._facts = facts
        self._node = node

    @fact(STRING)
    def name(self) -> str:
        """The node's name."""
        return self._node.name

    @fact(STRING)
    def uid(self) -> str:
        """The node's UID."""
        return self._node.uid

    @fact(map_of(STRING, STRING))
    def labels(self) -> dict[str, str]:
        """The node's labels."""
        return dict(self._node.labels)

    @fact(map_of(STRING, STRING))
    def allocatable(self) -> dict[str, str]:
        """`status.allocatable`, quantities by resource."""
        return {name: of_resource(name, amount) for name, amount in self._node.allocatable.items()}

    @fact(BOOL)
    def ready(self) -> bool:
        """Whether the node is Ready; true where no condition is known."""
        return self._node.ready is not False

    @fact(list_of(STRING))
    def declared_features(self) -> list[str]:
        """`status.declaredFeatures`; a 1.36 kubelet declares none of DRA."""
        return sorted(self._node.declared)

    @fact(STRING)
    def kubelet_version(self) -> str:
        """The kubelet's version, as `v1.36.3`."""
        return self._node.kubelet

    @fact(FINDINGS)
    def canary_label_problems(self) -> list[Finding]:
        """Labels that the canary selector of a driver reads, and that somebody else than its editors sets, changes or
        removes. Nothing for other writes than those of nodes.
        """
        request = self._facts.request
        if request.kind.name != "Node" or request.object is None:
            return []
        before = read_node(request.old_object).labels if request.old_object is not None else {}
        name, snapshot = self._node.name, self._facts.snapshot
        return canary_label_problems(request.user, request.groups, before, self._node.labels, name, snapshot)


class DriverFact:
    """What the DriverRollout of a driver says; without one the stage is General."""

    def __init__(self, name: str, rollout: DriverRollout | None, node: Node | None, now: datetime) -> None:
        self._name = name
        self._rollout = rollout
        self._node = node
        self._now = now

    @fact(STRING)
    def name(self) -> str:
        """The driver's name."""
        return self._name

    @fact(BOOL)
    def known(self) -> bool:
        """Whether there is a DriverRollout for the driver."""
        return self._rollout is not None

    @fact(STRING)
    def stage(self) -> str:
        """`Off`, `Canary`, `Expanding` or `General`."""
        return self._rollout.stage if self._rollout is not None else "General"

    @fact(BOOL)
    def held(self) -> bool:
        """Whether a hold stands, for all pools or for those with bad mappings; one whose `until` is over does not."""
        return standing(self._rollout, self._now)

    @fact(STRING)
    def hold_reason(self) -> str:
        """The reason of the hold that stands; empty without one."""
        rollout = self._rollout
        return rollout.hold.reason if rollout is not None and rollout.hold is not None and self.held else ""

    @fact(BOOL)
    def covers_node(self) -> bool:
        """Whether the stage lets mapped devices be used on the write's node; false where the node is not known and
        the stage asks for canary nodes.
        """
        if self._rollout is None or self._rollout.stage == "General":
            return True
        return self._node is not None and qualifies(self._rollout, self._node)


NODE = struct("Node", NodeFact)
DRIVER = struct("Driver", DriverFact)
