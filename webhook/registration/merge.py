"""What to write over a stored webhook configuration, so that hand edits are put back and the user's own fields stay."""

from __future__ import annotations

from webhook.kube.raw import Json, integer, mapping, members, text
from webhook.kube.rollout import GROUP

UNMANAGED = f"{GROUP}/unmanaged"
# Fields of an entry that are left out of what is generated when they are empty.
_OPTIONAL = ("matchConditions",)
_TIMEOUTS = range(1, 6)


def unmanaged(current: Json | None) -> bool:
    """Whether the stored object says hands off."""
    return mapping(mapping(mapping(current).get("metadata")).get("annotations")).get(UNMANAGED) == "true"


def wanted(current: Json | None, generated: Json) -> Json:
    """``generated`` as it is to be written over ``current``; equal to ``current`` when nothing has to be written.

    The user's: labels and annotations that we do not set (those with our prefix that we set no longer are removed),
    finalizers and owners, an entry's ``timeoutSeconds`` from 1 to 5, and fields of an entry that this version does not
    know. The annotation ``allocguard.dev/unmanaged: "true"`` leaves everything as it is.
    """
    if current is None:
        return generated
    if unmanaged(current):
        return current
    metadata = dict(mapping(current.get("metadata")))
    for name in ("labels", "annotations"):
        ours = mapping(mapping(generated["metadata"]).get(name))
        foreign = {k: v for k, v in mapping(metadata.get(name)).items() if not k.startswith(f"{GROUP}/")}
        both = {**foreign, **ours}
        if both or name in metadata:
            metadata[name] = both
    stored = {text(entry.get("name")): entry for entry in members(current.get("webhooks"))}
    webhooks = [_entry(stored.get(entry["name"], {}), entry) for entry in generated["webhooks"]]
    result = {**current, "metadata": metadata, "webhooks": webhooks}
    if not webhooks and "webhooks" not in current:
        del result["webhooks"]
    return result


def _entry(current: Json, generated: Json) -> Json:
    kept = {name: value for name, value in current.items() if name not in _OPTIONAL}
    merged = {**kept, **generated}
    timeout = integer(current.get("timeoutSeconds"))
    if timeout in _TIMEOUTS:
        merged["timeoutSeconds"] = timeout
    return merged
