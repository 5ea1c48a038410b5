"""``claim``: the ResourceClaim or template of a write, what it asks for, and whether its allocation holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from webhook.cel import BOOL, STRING, list_of, map_of
from webhook.facts.constraints import constraint_problems
from webhook.facts.devices import device_problems
from webhook.facts.drivers import claim_drivers
from webhook.facts.fit import Fit, FitRow, fit_problems
from webhook.facts.footprint import Footprint, footprint
from webhook.facts.interval import interval_problems
from webhook.facts.placement import claim_node, consumers
from webhook.facts.pools import allocation_pool_problems
from webhook.facts.requests import request_problems
from webhook.facts.rollout import allocation_rollout_problems, request_hold_problems
from webhook.facts.sharing import sharing_problems
from webhook.facts.siblings import sibling_problems
from webhook.kube.claims import Claim, read_claim, read_template
from webhook.kube.core import Pod
from webhook.kube.finding import Finding
from webhook.kube.quantity import of_resource
from webhook.policy.fact import Once, fact, struct
from webhook.policy.node_fact import DRIVER, DriverFact
from webhook.policy.types import FINDINGS

if TYPE_CHECKING:
    from webhook.policy.facts import Facts


class RowFact:
    """One sum of a fit, canonical quantities."""

    def __init__(self, row: FitRow) -> None:
        self._row = row

    @fact(STRING)
    def resource(self) -> str:
        """The resource."""
        return self._row.resource

    @fact(STRING)
    def zone(self) -> str:
        """The NUMA zone; empty for the node as a whole."""
        return "" if self._row.zone is None else str(self._row.zone)

    @fact(STRING)
    def equation(self) -> str:
        """The sum as people read it."""
        return self._row.equation()

    @fact(STRING)
    def free(self) -> str:
        """What is left after the write; negative when it does not fit, empty where it is not known."""
        free = self._row.free
        return "" if free is None else of_resource(self._row.resource, free)


ROW = struct("FitRow", RowFact)


class ClaimFact:
    """A ResourceClaim of any served version, or the claim that a template stands for."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._template = facts.request.kind.name == "ResourceClaimTemplate"
        self._raw = facts.request.target
        self.model: Claim = read_template(self._raw) if self._template else read_claim(self._raw)

    @fact(STRING)
    def namespace(self) -> str:
        """The claim's namespace."""
        return self.model.namespace

    @fact(STRING)
    def name(self) -> str:
        """The claim's name; empty where the server has not made one up yet."""
        return self.model.name

    @fact(STRING)
    def uid(self) -> str:
        """The claim's UID."""
        return self.model.uid

    @fact(BOOL)
    def allocated(self) -> bool:
        """Whether the claim is allocated after the write."""
        return self.model.allocation is not None

    @fact(BOOL)
    def allocating(self) -> bool:
        """Whether the write sets an allocation, or replaces it by another."""
        new, old = self.model.allocation, self.old.allocation if self.old is not None else None
        return new is not None and new != old

    @fact(BOOL)
    def adds_consumers(self) -> bool:
        """Whether the write adds somebody to `status.reservedFor`."""
        before = self.old.reserved_for if self.old is not None else ()
        return self.model.allocation is not None and any(each not in before for each in self.model.reserved_for)

    @fact(STRING)
    def node(self) -> str:
        """The node of the allocation; empty when there is none or it is not one node."""
        return claim_node(self.model, self._facts.snapshot, self.newcomer)

    @fact(list_of(STRING))
    def drivers(self) -> list[str]:
        """The drivers of the allocated devices; before allocation those that the requests' selectors name."""
        if self.model.allocation is not None:
            return sorted({result.driver for result in self.model.allocation.results})
        return list(claim_drivers(self.model, self._facts.snapshot))

    @fact(list_of(DRIVER))
    def rollouts(self) -> list[DriverFact]:
        """What the operator tells about each of `claim.drivers`."""
        snapshot, now = self._facts.snapshot, self._facts.now
        node = snapshot.nodes.get(self.node)
        return [DriverFact(name, snapshot.rollouts.get(name), node, now) for name in self.drivers]

    @fact(BOOL)
    def mapped(self) -> bool:
        """Whether an allocated device has a mapping; 1.37 overhead alone does not count."""
        return self.cost.mapped

    @fact(map_of(STRING, STRING))
    def footprint(self) -> dict[str, str]:
        """What the allocation costs its node by mappings: quantities by resource."""
        return {name: of_resource(name, amount) for name, amount in self.cost.amounts.items()}

    @fact(FINDINGS)
    def request_problems(self) -> list[Finding]:
        """What is wrong with the requests: the API server's rules, and amounts, names and classes that cannot work."""
        return request_problems(self._raw, self._facts.snapshot, self._facts.request.user or None)

    @fact(FINDINGS)
    def hold_problems(self) -> list[Finding]:
        """Drivers the requests need that are held or off now (warnings: the claim may wait)."""
        return self._below_spec(request_hold_problems(self.model, self._facts.snapshot, self._facts.now))

    @fact(FINDINGS)
    def interval_problems(self) -> list[Finding]:
        """Whether the claim could fit on any node if it were empty: `fits-nowhere` (warning), `fits-somewhere` and
        `no-device-yet` (info).
        """
        return self._below_spec(interval_problems(self.model, self._facts.snapshot, self._facts.now))

    @fact(FINDINGS)
    def rollout_problems(self) -> list[Finding]:
        """Stage and hold of the drivers of the allocation."""
        return allocation_rollout_problems(self.model, self._facts.snapshot, self._facts.now)

    @fact(FINDINGS)
    def pool_problems(self) -> list[Finding]:
        """Pools of the allocation that are not Fresh, where their driver costs the node something."""
        return allocation_pool_problems(self.model, self._facts.snapshot, self._facts.now)

    @fact(FINDINGS)
    def device_problems(self) -> list[Finding]:
        """Devices that are unknown, taken or overcommitted, and consumed capacity that is missing or off."""
        return device_problems(self.model, self._facts.snapshot, self.cost)

    @fact(FINDINGS)
    def constraint_problems(self) -> list[Finding]:
        """Constraints between devices that the allocation breaks."""
        return constraint_problems(self.model, self._facts.snapshot)

    @fact(FINDINGS)
    def sharing_problems(self) -> list[Finding]:
        """Consumers that a mapped claim must not have, by release."""
        return sharing_problems(self.model, self.old, self._facts.snapshot, self._facts.now)

    @fact(FINDINGS)
    def sibling_problems(self) -> list[Finding]:
        """On 1.36: other mapped claims of the same pod that could not be allocated after this one."""
        facts = self._facts
        return sibling_problems(self.model, facts.snapshot, facts.account, facts.now, self.cost)

    @fact(FINDINGS)
    def fit_problems(self) -> list[Finding]:
        """Whether the claim, with the whole request of the pod that reserves it, fits its node and NUMA zone."""
        return list(self.fitted.findings)

    @fact(list_of(ROW))
    def fit(self) -> list[RowFact]:
        """The sums behind `claim.fitProblems`: one for each resource of the node, one for each of a zone."""
        return [RowFact(row) for row in self.fitted.rows]

    @property
    def old(self) -> Claim | None:
        """The stored claim, on UPDATE."""
        request = self._facts.request
        if request.operation != "UPDATE" or request.old_object is None or self._template:
            return None
        return self._stored

    @Once
    def _stored(self) -> Claim:
        return read_claim(self._facts.request.old_object)

    @Once
    def cost(self) -> Footprint:
        """The footprint of the claim after the write."""
        return footprint(self.model, self._facts.snapshot, self._facts.node_name)

    @Once
    def newcomer(self) -> Pod | None:
        """The pod that needs room: the one that this write adds (the others are charged already), else the first."""
        before = {consumer.uid for consumer in self.old.reserved_for} if self.old is not None else set()
        pods = consumers(self.model, self._facts.snapshot)
        return next((pod for pod in pods if pod.uid not in before), pods[0] if pods else None)

    @Once
    def fitted(self) -> Fit:
        """The fit of the claim and its pod."""
        facts = self._facts
        return fit_problems(self.model, self.newcomer, facts.account, facts.snapshot, self.cost)

    def _below_spec(self, found: list[Finding]) -> list[Finding]:
        """Paths of a template's claim stand below ``spec.spec``."""
        return [replace(each, path=f"spec.{each.path}") for each in found] if self._template else found


CLAIM = struct("Claim", ClaimFact)
