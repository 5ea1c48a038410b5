"""``ledger``: the account of the node that a write is about."""

from __future__ import annotations

from webhook.cel import BOOL, INT, STRING, Field, StructType, list_of, map_of
from webhook.facts.account import Account, Amount, ZoneAmount
from webhook.kube.quantity import Number, of_resource
from webhook.policy.fact import fact, struct


class AmountFact:
    """One resource of a node, canonical quantities."""

    def __init__(self, resource: str, amount: Amount) -> None:
        self._resource = resource
        self._amount = amount

    def _text(self, value: Number) -> str:
        return of_resource(self._resource, value)

    @fact(STRING)
    def allocatable(self) -> str:
        """What the node has for pods."""
        return self._text(self._amount.allocatable)

    @fact(STRING)
    def pods(self) -> str:
        """What the pods' own requests take."""
        return self._text(self._amount.pods)

    @fact(STRING)
    def claims(self) -> str:
        """What the mappings of claims take, each claim once."""
        return self._text(self._amount.claims)

    @fact(STRING)
    def overhead(self) -> str:
        """What 1.37 claims add per pod and container."""
        return self._text(self._amount.overhead)

    @fact(STRING)
    def reserved(self) -> str:
        """What is on its way to the node."""
        return self._text(self._amount.reserved)

    @fact(STRING)
    def free(self) -> str:
        """What is left; may be negative."""
        return self._text(self._amount.free)


class ZoneFact:
    """One resource in one NUMA zone."""

    def __init__(self, zone: int, resource: str, amount: ZoneAmount) -> None:
        self.zone = zone
        self.resource = resource
        self.claims = of_resource(resource, amount.claims)
        self.capacity = "" if amount.capacity is None else of_resource(resource, amount.capacity)
        self.free = "" if amount.free is None else of_resource(resource, amount.free)


AMOUNT = struct("Amount", AmountFact)
ZONE = StructType(
    "Zone",
    fields={
        "zone": Field(INT, "zone", "The NUMA node's number."),
        "resource": Field(STRING, "resource", "The resource."),
        "capacity": Field(STRING, "capacity", "What the zone has; empty where it is not known."),
        "claims": Field(STRING, "claims", "What claims take there."),
        "free": Field(STRING, "free", "What is left; empty where the capacity is not known."),
    },
)


class LedgerFact:
    """The account of the write's node, before the write."""

    def __init__(self, account: Account | None) -> None:
        self._account = account

    @fact(BOOL)
    def known(self) -> bool:
        """Whether the write is about one node, and that node is known."""
        return self._account is not None

    @fact(STRING)
    def node(self) -> str:
        """The node's name; empty when it is not known."""
        return self._account.node if self._account is not None else ""

    @fact(map_of(STRING, AMOUNT))
    def resources(self) -> dict[str, AmountFact]:
        """The node's resources by name, as in `ledger.resources["cpu"].free`."""
        if self._account is None:
            return {}
        return {name: AmountFact(name, amount) for name, amount in self._account.resources.items()}

    @fact(list_of(ZONE))
    def zones(self) -> list[ZoneFact]:
        """The node's NUMA zones, one entry a zone and resource."""
        if self._account is None:
            return []
        return [
            ZoneFact(zone, name, amount)
            for zone, amounts in sorted(self._account.zones.items())
            for name, amount in sorted(amounts.items())
        ]


LEDGER = struct("Ledger", LedgerFact)
