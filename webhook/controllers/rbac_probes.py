"""What the API server's own authorizers allow a driver's account, asked for what it must not have.

Roles and bindings tell nothing of other authorizers, nor of what a role gives to somebody by a group that only
authentication knows: these answers do.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.cluster.access_reviews import Access, AccessReviews, account, binding_access, driver_access
from webhook.facts.rbac import ARBITRARY, ASSOCIATED, DRIVER, STATUS_VERBS
from webhook.facts.rbac_profile import NODE_LOCAL, Holder
from webhook.kube.finding import Finding

# A driver that nobody has: who may report for it may for all.
OTHER = "other.probe.allocguard.dev"

EVERYTHING, ARBITRARY_NODE = "rbac-everything", "rbac-arbitrary-node"
WITHOUT_NAMES, BINDING_HELD = "rbac-driver-without-names", "rbac-binding-in-node-plugin"


async def too_much(reviews: AccessReviews, holder: Holder) -> list[Finding]:
    """What ``holder``, an account that DriverRollouts name, is allowed and should not be: a finding for each rule, by
    the names of the lint. Raises ApiError and Unreachable.
    """
    subject = account(*holder.account)
    found: dict[str, Finding] = {}
    for rule, access in _forbidden(holder):
        if rule not in found:
            answer = await reviews.ask(subject, access)
            if answer.allowed:
                found[rule] = _finding(rule, access, answer.reason, "/".join(holder.account))
    return list(found.values())


def _forbidden(holder: Holder) -> Iterator[tuple[str, Access]]:
    """What is asked, the widest first, with the rule that says that the answer has to be no."""
    yield EVERYTHING, Access("*", DRIVER)
    for verb in STATUS_VERBS:
        for prefix in (ASSOCIATED, ARBITRARY):
            yield WITHOUT_NAMES, driver_access(f"{prefix}{verb}", OTHER)
        for driver, profile in sorted(holder.profiles.items()):
            if profile == NODE_LOCAL:
                yield ARBITRARY_NODE, driver_access(f"{ARBITRARY}{verb}", driver)
        if not holder.allocates:
            yield BINDING_HELD, binding_access(verb)


def _finding(rule: str, access: Access, reason: str, holder: str) -> Finding:
    has = f"{access.verb} on {access.resource}" + (f" of {access.name}" if access.name else "")
    by = f", as the API server says ({reason})" if reason else ", as the API server says"
    fix = f"take it away; `allocguard rbac lint --for-serviceaccount {holder}` shows the narrowest role"
    return Finding(rule, "", f"{has}{by}", _NEEDS[rule], fix)


_NEEDS = {
    EVERYTHING: "single verbs",
    WITHOUT_NAMES: "its own drivers alone, in resourceNames",
    ARBITRARY_NODE: f"{ASSOCIATED} verbs alone, for claims of its own node",
    BINDING_HELD: "no right to allocate: a driver reports",
}
