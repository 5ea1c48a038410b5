"""``slice``: the ResourceSlice of a write, and what is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.cel import BOOL, INT, STRING, list_of
from webhook.facts.gate import slice_gate_problems
from webhook.facts.rollout import slice_canary_problems
from webhook.facts.slice_mappings import mapping_problems
from webhook.facts.slice_sets import set_problems
from webhook.facts.slice_structure import structure_problems
from webhook.kube.finding import Finding
from webhook.kube.raw import mapping, sequence
from webhook.kube.resource import Slice, read_slice
from webhook.policy.fact import Once, fact, struct
from webhook.policy.types import FINDINGS

if TYPE_CHECKING:
    from webhook.policy.facts import Facts


class SliceFact:
    """A ResourceSlice of any served version: the new object, on DELETE the old one."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._raw = facts.request.target
        self.model: Slice = read_slice(self._raw)

    @fact(STRING)
    def name(self) -> str:
        """The slice's name."""
        return self.model.name or self._facts.request.name

    @fact(STRING)
    def driver(self) -> str:
        """`spec.driver`."""
        return self.model.driver

    @fact(STRING)
    def pool(self) -> str:
        """`spec.pool.name`."""
        return self.model.pool

    @fact(INT)
    def generation(self) -> int:
        """`spec.pool.generation`."""
        return self.model.generation

    @fact(STRING)
    def node(self) -> str:
        """`spec.nodeName`; empty for a slice of several nodes."""
        return self.model.node

    @fact(INT)
    def device_count(self) -> int:
        """How many devices the slice has."""
        return len(self.model.devices)

    @fact(BOOL)
    def mapped(self) -> bool:
        """Whether any device costs its node something, in the shape of 1.36 or 1.37."""
        return self.model.mapped

    @fact(BOOL)
    def was_mapped(self) -> bool:
        """Whether any device of the stored slice did before this write."""
        return self.old is not None and self.old.mapped

    @fact(BOOL)
    def changed(self) -> bool:
        """Whether the write creates the slice or changes its `spec`, though it be deleted: schedulers go by it until it
        is gone.
        """
        request = self._facts.request
        if request.operation != "UPDATE":
            return request.operation == "CREATE"
        return self._raw.get("spec") != mapping(request.old_object).get("spec")

    @fact(BOOL)
    def lifetime_changed(self) -> bool:
        """Whether the write changes how long the slice is there: other `metadata.ownerReferences`, with which the
        garbage collector deletes it, or a finalizer that it did not have, without which it is not gone.
        """
        request = self._facts.request
        if request.operation != "UPDATE":
            return False
        new, old = (mapping(mapping(obj).get("metadata")) for obj in (self._raw, request.old_object))
        added = [each for each in sequence(new.get("finalizers")) if each not in sequence(old.get("finalizers"))]
        return bool(added) or (new.get("ownerReferences") or []) != (old.get("ownerReferences") or [])

    @fact(BOOL)
    def deleted(self) -> bool:
        """Whether the write deletes the slice."""
        return self._facts.request.operation == "DELETE"

    @fact(list_of(STRING))
    def digests(self) -> list[str]:
        """The mapping digests of the devices, sorted."""
        return sorted(self.model.digests)

    @fact(FINDINGS)
    def structure_problems(self) -> list[Finding]:
        """What the API server refuses in a slice beside mappings: names, counts, taints, what is immutable."""
        request = self._facts.request
        old = request.old_object if request.operation == "UPDATE" else None
        return structure_problems(self._raw, self._facts.snapshot.release, old)

    @fact(FINDINGS)
    def mapping_problems(self) -> list[Finding]:
        """What is wrong with node-allocatable mappings: the API server's rules and the guard's own."""
        return mapping_problems(self._raw, self._facts.snapshot.release, self.model)

    @fact(FINDINGS)
    def set_problems(self) -> list[Finding]:
        """What is wrong with the slice beside others of its pool and beside its node: sums, names, generations, one
        device on two nodes.
        """
        return set_problems(self.model, self._facts.snapshot)

    @fact(FINDINGS)
    def canary_problems(self) -> list[Finding]:
        """What the rollout stage of the driver says against mappings on the slice's nodes."""
        return slice_canary_problems(self.model, self._facts.snapshot)

    @fact(FINDINGS)
    def gate_problems(self) -> list[Finding]:
        """What a feature gate that is off, or a node that does not declare it, does to the mappings."""
        return slice_gate_problems(self._raw, self.model, self._facts.snapshot, self.old)

    @Once
    def old(self) -> Slice | None:
        """The stored slice, on UPDATE."""
        request = self._facts.request
        if request.operation != "UPDATE" or request.old_object is None:
            return None
        return read_slice(request.old_object)


SLICE = struct("Slice", SliceFact)
