"""Writes to the status of claims that the API server refused: who, where, and which mistake it is.

Nobody is asked about a write that was refused before validating admission, so audit events are the only place where
the cluster tells. What to do about one is told by :mod:`webhook.facts.write_failure_advice`.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from webhook.facts.rbac import BINDING, DRIVER, STATUS, grants, names_resource
from webhook.facts.rbac_profile import ALLOCATOR
from webhook.facts.times import instant
from webhook.facts.write_failure_causes import Refusal, refusals
from webhook.facts.write_failure_scope import Lack, lack
from webhook.facts.writers import Writer, WriterParams, writer_of
from webhook.kube.audit import AuditEvent
from webhook.kube.claims import Claim
from webhook.kube.raw import child, mapping, objects, text
from webhook.kube.rollout import SEVERAL_NODES
from webhook.kube.snapshot import Snapshot

LASTING = frozenset(
    {
        "status-role-missing",
        "binding-missing",
        "driver-verb-missing",
        "verb-mismatch",
        "wrong-driver-names",
        "not-associated",
        "other-driver",
        "immutable",
        "admin-access",
        "not-allocated",
        "claim-replaced",
        "malformed",
        "refused-by-admission",
        "unauthenticated",
        "other",
    }
)
"""Causes that stay until somebody does something."""
PASSING = frozenset({"conflict", "load", "gone", "webhook-unavailable", "server-fault"})
"""Causes that pass by themselves, and are worth telling where they do not."""
OWN = "refused-by-guard"
"""The cause that the guard itself has told the writer already."""
CAUSES = LASTING | PASSING | {OWN}

# What the roles show, as one of the usual causes. The third of four, (c), is a token of another node.
_USUAL = {"missing": "a", "scope": "a", "granted": "a", "verb": "b", "names": "d"}
_RESOURCES = {"status-role-missing": STATUS, "binding-missing": BINDING}


class Failure(Struct, frozen=True):
    """One cause of one refused write.

    ``usual`` is the usual cause that applies: (a) the role is not rolled out yet, (b) it has another verb, (c) the
    token is of another node than the claim, (d) the role names another driver; empty for what is none of them, or
    cannot be told. ``claim`` is None where it is not known. ``drivers`` are those that it is about; ``missing`` are the
    permissions that were asked for, any of which would do, and ``lack`` what roles show of them. ``strange`` is whether
    others are named to write for these drivers.
    """

    cause: str
    usual: str
    event: AuditEvent
    refusal: Refusal
    writer: Writer
    claim: Claim | None
    drivers: tuple[str, ...]
    missing: tuple[str, ...]
    lack: Lack
    strange: bool

    @property
    def uid(self) -> str:
        """The claim's uid, empty where it is not known."""
        return self.claim.uid if self.claim is not None else self.event.uid

    @property
    def allocated_node(self) -> str:
        """The one node that the claim is allocated to, empty where there is none."""
        return self.claim.allocation.node if self.claim is not None and self.claim.allocation is not None else ""


_DEFAULTS = WriterParams()


def failures(event: AuditEvent, snapshot: Snapshot, params: WriterParams = _DEFAULTS) -> tuple[Failure, ...]:
    """The causes of a refused write, each once; none for a write that was not refused, or only tried."""
    if event.dry_run:
        return ()
    writer = writer_of(event.user, event.groups, event.extra, snapshot, params)
    claim = known_claim(event, snapshot)
    found: dict[str, Failure] = {}
    for refusal in refusals(event):
        made = _failure(event, refusal, writer, claim, snapshot)
        other = found.get(made.cause)
        if other is not None:
            drivers = tuple(dict.fromkeys((*other.drivers, *made.drivers)))
            made = replace(other, drivers=drivers, missing=tuple(dict.fromkeys((*other.missing, *made.missing))))
        found[made.cause] = made
    return tuple(found.values())


def known_claim(event: AuditEvent, snapshot: Snapshot) -> Claim | None:
    """The claim that the write was to; None where it is not known, or another one has the name by now."""
    claim = snapshot.claims.get((event.namespace, event.name))
    if claim is None or event.uid not in ("", claim.uid):
        return None
    at, created = instant(event.at), instant(claim.created)
    return None if at is not None and created is not None and at < created else claim


def _failure(event: AuditEvent, refusal: Refusal, writer: Writer, claim: Claim | None, snapshot: Snapshot) -> Failure:
    cause, shown = refusal.cause, Lack("")
    resource = _RESOURCES.get(cause, DRIVER)
    if cause in ("driver-verb-missing", "not-associated"):
        if _of_others(event, refusal.driver, writer, claim, snapshot):
            cause = "other-driver"
        elif writer.profiles.get(refusal.driver) in SEVERAL_NODES:
            # Of no node, and needs none: it is its role that has to say so.
            cause = "driver-verb-missing"
    if cause in ("status-role-missing", "binding-missing", "driver-verb-missing"):
        name = refusal.driver if resource == DRIVER else event.name
        shown = lack(writer, resource, refusal.verbs, name, event.namespace, snapshot)
        if shown.mistake == "verb":
            cause = "verb-mismatch"
        elif shown.mistake == "names" and resource == DRIVER:
            cause = "wrong-driver-names"
    drivers = (refusal.driver,) if refusal.driver else _drivers(writer, claim)
    return Failure(
        cause=cause,
        usual="c" if cause == "not-associated" else _USUAL.get(shown.mistake, ""),
        event=event,
        refusal=refusal,
        writer=writer,
        claim=claim,
        drivers=drivers,
        missing=tuple(f"{verb} on {resource}" for verb in refusal.verbs),
        lack=shown,
        strange=any(name not in writer.profiles and writer.named(name, snapshot) for name in drivers),
    )


def _drivers(writer: Writer, claim: Claim | None) -> tuple[str, ...]:
    """The drivers that a write to ``claim`` is about where the refusal names none: the writer's own, or all."""
    if claim is None or claim.allocation is None:
        return ()
    held = dict.fromkeys(result.driver for result in claim.allocation.results)
    return tuple(name for name in held if name in writer.profiles) or tuple(held)


def _of_others(event: AuditEvent, driver: str, writer: Writer, claim: Claim | None, snapshot: Snapshot) -> bool:
    """Whether ``driver``, whose entries the API server says were changed, is none that the writer writes for."""
    sent = _sent_drivers(event.body)
    if sent is not None and driver not in sent:
        return True
    own = {name for name, profile in writer.profiles.items() if profile != ALLOCATOR}
    if not own and writer.service_account:
        # Nobody names it; what its role names tells where the claim has a device of that driver.
        held = claim.allocation.results if claim is not None and claim.allocation is not None else ()
        named = {
            name
            for grant in grants((writer.namespace, writer.service_account), snapshot)
            if names_resource(grant.rule, DRIVER)
            for name in grant.rule.resource_names
        }
        own = named & {result.driver for result in held}
    return bool(own) and bool(driver) and driver not in own


def _sent_drivers(body: object) -> set[str] | None:
    """The drivers of the entries that were sent; None where that cannot be told, as of a JSON patch."""
    devices = child(mapping(body), "status", "devices")
    return {text(row.get("driver")) for _, row in objects(devices)} if isinstance(devices, list) else None
