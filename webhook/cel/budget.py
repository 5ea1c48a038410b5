"""The cost limit of an evaluation, in Kubernetes' units: about one a step, and one for ten characters read or made."""

from __future__ import annotations

from webhook.cel.errors import BudgetError

# The API server's limit of one call, k8s.io/apiserver/pkg/apis/cel PerCallLimit.
PER_CALL_LIMIT = 1_000_000

# Of an error that `||`, `&&`, `all` or `exists` absorb: raising one costs as much as many steps.
ERROR_COST = 20


class Budget:
    """What an evaluation may still spend. Share one budget between evaluations to limit their sum."""

    __slots__ = ("left", "limit")

    def __init__(self, limit: int = PER_CALL_LIMIT) -> None:
        self.limit = limit
        self.left = limit

    def spend(self, cost: int) -> None:
        """Take `cost` units; raise BudgetError when they are not there."""
        self.left -= cost
        if self.left < 0:
            raise self.exceeded()

    def exceeded(self) -> BudgetError:
        """The error for a budget that is used up, with the limit it had."""
        self.left = -1
        return BudgetError(f"cost limit exceeded: needs more than {self.limit} units")

    @property
    def spent(self) -> int:
        """Units spent so far."""
        return self.limit - self.left
