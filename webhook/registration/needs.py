"""Which entries the loaded policies need: their rules, and what their own match conditions say about a write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from webhook.cel.ast import Call, Const, Ident, Node, Select
from webhook.kube.admission import GroupVersionName
from webhook.policy.document import Policy
from webhook.policy.facts import ENVIRONMENT
from webhook.policy.revision import CompiledPolicy
from webhook.registration.rows import IGNORE, Row

# What an expression may name and mean the same to the API server.
_COMMON = frozenset({"object", "oldObject", "request"})


def named_cells(row: Row, policy: Policy) -> set[tuple[str, str]]:
    """The resources and operations of ``row`` that a rule of ``policy`` names."""
    return {
        (resource, operation)
        for resource, operations in row.operations.items()
        for operation in operations
        if takes(policy, row.group, resource, operation)
    }


def takes(policy: Policy, group: str, resource: str, operation: str) -> bool:
    """Whether a rule of ``policy`` names this operation of ``resource[/subresource]`` in v1 of ``group``."""
    name, _, sub = resource.partition("/")
    asked = GroupVersionName(group, "v1", name)
    return any(rule.takes(asked, sub, operation, exact=False) for rule in policy.match.rules)


def may_judge(policy: CompiledPolicy, implied: Mapping[str, bool]) -> bool:
    """Whether some write in which the facts have the ``implied`` values gets past the policy's match conditions."""
    if not implied:
        return True
    return not any(
        _truth(ENVIRONMENT.checker.check(each.program.source), implied) is False for each in policy.conditions
    )


def _truth(node: Node, implied: Mapping[str, bool]) -> bool | None:
    """The value of a condition by the ``implied`` facts alone; None when they do not settle it."""
    match node:
        case Const(value=bool() as value):
            return value
        case Select(operand=Ident(name=name), field=field, test=False):
            return implied.get(f"{name}.{field}")
        case Call(function="!_", arguments=(inner,)):
            known = _truth(inner, implied)
            return None if known is None else not known
        case Call(function="_&&_" | "_||_" as function, arguments=arguments):
            decisive = function == "_||_"
            values = [_truth(each, implied) for each in arguments]
            if decisive in values:
                return decisive
            return None if None in values else not decisive
        case Call(function="_?_:_", arguments=(condition, left, right)):
            chosen = _truth(condition, implied)
            both = (_truth(left, implied), _truth(right, implied))
            return (both[0] if both[0] == both[1] else None) if chosen is None else both[not chosen]
    return None


def pushed(failure: str, policies: Sequence[CompiledPolicy]) -> str:
    """One condition that is true for every write that some of the ``policies`` judges, as far as their own match
    conditions can be asked of the API server; empty when that narrows nothing.

    An error in a condition makes the API server pass over an entry that says Ignore. That is what such a policy does
    with its own errors when it says Ignore too; no other one is moved.
    """
    alternatives = []
    for policy in policies:
        own = [each.program.source for each in policy.conditions if each.program.names <= _COMMON]
        if failure != IGNORE or policy.policy.failure_policy != IGNORE or not own:
            return ""
        # An expression may end in a comment.
        alternatives.append(" && ".join(f"({source}\n)" for source in own))
    return " ||\n".join(dict.fromkeys(alternatives))
