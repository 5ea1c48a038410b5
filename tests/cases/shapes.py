"""Objects as each release writes them: cases are written once, in the shape of 1.36."""

from __future__ import annotations

from typing import Any


def converted(obj: dict[str, Any]) -> dict[str, Any]:
    """The object as the 1.37 release writes it; changed in place."""
    if obj["kind"] == "ResourceSlice":
        for device in obj["spec"].get("devices", []):
            old = device.pop("nodeAllocatableResourceMappings", None)
            if isinstance(old, dict):
                device["nodeAllocatableResources"] = {
                    name: {
                        "mapping": {"capacityKey": form["capacityKey"], "capacityMultiplier": amount}
                        if "capacityKey" in form
                        else {"deviceMultiplier": amount}
                    }
                    for name, form in old.items()
                    for amount in [form.get("allocationMultiplier", "1")]
                }
            elif old is not None:
                device["nodeAllocatableResources"] = old
    elif obj["kind"] == "Pod":
        for entry in obj.get("status", {}).get("nodeAllocatableResourceClaimStatuses", []):
            entry["mapping"] = [{"name": n, "quantity": q} for n, q in entry.pop("resources").items()]
    elif obj["kind"] == "Node":
        obj["status"]["declaredFeatures"] = ["DRANodeAllocatableResources"]
    return obj
