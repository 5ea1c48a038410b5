"""Why somebody lacks a permission for status writes: which of the usual mistakes the roles show."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from webhook.facts.rbac import BINDING, DRA, grants, names_resource
from webhook.facts.writers import Writer
from webhook.kube.snapshot import Snapshot

# Of names and verbs in a message.
_MOST = 5


class Lack(Struct, frozen=True):
    """What the roles show: ``mistake`` is ``missing`` (no role has it), ``verb`` (one has other verbs), ``names`` (one
    has it for other names), ``scope`` (one has it where it does not count), ``granted`` (it is there by now) or
    ``unknown`` (roles are not seen). ``told`` is half a sentence about it, empty where there is nothing to add.
    """

    mistake: str
    told: str = ""


def lack(writer: Writer, resource: str, verbs: Collection[str], name: str, namespace: str, snapshot: Snapshot) -> Lack:
    """Why ``writer`` has none of ``verbs`` on ``resource`` for ``name`` in ``namespace``; ``resourceclaims/binding`` is
    asked for all names in all namespaces.
    """
    if not snapshot.roles or not writer.service_account:
        return Lack("unknown")
    whole = resource == BINDING
    other_verbs: dict[str, None] = {}
    other_names: dict[str, None] = {}
    elsewhere = ""
    for grant in grants((writer.namespace, writer.service_account), snapshot):
        rule, role = grant.rule, grant.role
        if not (DRA in rule.api_groups or "*" in rule.api_groups) or not names_resource(rule, resource):
            continue
        if "*" not in rule.verbs and not set(verbs) & set(rule.verbs):
            other_verbs |= dict.fromkeys(rule.verbs)
        elif whole and (grant.namespace or (rule.resource_names and "" not in rule.resource_names)):
            where = (
                f"RoleBinding {'/'.join(grant.binding.key)}" if grant.namespace else f"names in {role.kind} {role.name}"
            )
            elsewhere = elsewhere or where
        elif grant.namespace not in ("", namespace):
            elsewhere = elsewhere or f"RoleBinding {'/'.join(grant.binding.key)}"
        elif rule.resource_names and name not in rule.resource_names:
            other_names |= dict.fromkeys(rule.resource_names)
        else:
            return Lack("granted", f"{role.kind} {role.name} has it by now")
    if other_names:
        return Lack("names", f"a role has it for {_listed(other_names)}")
    if other_verbs:
        return Lack("verb", f"a role has {_listed(other_verbs)}")
    if elsewhere:
        return Lack("scope", f"it is there by {elsewhere}, which does not count")
    return Lack("missing")


def _listed(values: Collection[str]) -> str:
    shown = sorted(values)[:_MOST]
    more = len(values) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
