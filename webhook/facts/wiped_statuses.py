"""The device statuses that go with an allocation: whoever may clear it takes away what every driver has told."""

from __future__ import annotations

from webhook.facts.claim_changes import claim_changes
from webhook.facts.writers import Writer
from webhook.kube.finding import Finding
from webhook.kube.raw import Json, mapping, members, text


def wiped_problems(writer: Writer, old: Json, new: Json) -> list[Finding]:
    """``device-statuses-wiped`` (info) for a write to the status of a raw claim that clears its allocation. The API
    server asks for the permission to bind alone then, and for none of the drivers'.
    """
    drivers = wiped(old, new)
    if not drivers:
        return []
    count = sum(text(each.get("driver")) in drivers for each in members(mapping(old.get("status")).get("devices")))
    told = f"{count} device status{'es' if count > 1 else ''} of {', '.join(drivers)}"
    has = f"{told}, which {'go' if count > 1 else 'goes'} with the allocation that {writer.shown} cleared"
    fix = "the drivers tell again after the next allocation; what they told before is in no object any more"
    return [Finding("device-statuses-wiped", "status.devices", has, "", fix, "info")]


def wiped(old: Json, new: Json) -> tuple[str, ...]:
    """The drivers whose device statuses go with the allocation of a raw claim, sorted."""
    before, after = mapping(old.get("status")), mapping(new.get("status"))
    if not before.get("devices") or not before.get("allocation") or after.get("allocation"):
        return ()
    return claim_changes(old, new).pruned
