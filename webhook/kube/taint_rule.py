"""DeviceTaintRule (``resource.k8s.io``): devices that schedulers are to leave alone for a while.

Ours are named after the devices they select, so that whoever leads finds those of the one before. Somebody else's are
never touched.
"""

from __future__ import annotations

import re
from hashlib import sha256

from webhook.kube.finding import one_line
from webhook.kube.raw import Json, mapping, text
from webhook.kube.rollout import GROUP

KIND, PLURAL, API_GROUP = "DeviceTaintRule", "devicetaintrules", "resource.k8s.io"
# Newest first: 1.37 has v1, 1.36 has v1beta2 where it is switched on.
VERSIONS = ("v1", "v1beta2")
GATE = "DRADeviceTaintRules"
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "allocguard"
REASON = f"{GROUP}/reason"

_NAME = re.compile(r"allocguard-[0-9a-f]{16}")
# An annotation is no place for a book.
_LONGEST = 1024


def rule_name(driver: str, pool: str = "", device: str = "") -> str:
    """The name of our rule about ``device`` of ``pool`` of ``driver``; without a device about the whole pool, without a
    pool about the whole driver.
    """
    return f"allocguard-{sha256(f'{driver}/{pool}/{device}'.encode()).hexdigest()[:16]}"


def taint_rule(version: str, driver: str, pool: str, device: str, rule: str, reason: str) -> Json:
    """The rule that keeps new claims off these devices (see :func:`rule_name`). ``rule`` is the guard's rule that holds
    them, ``reason`` what it says about them.
    """
    selector = {"driver": driver, "pool": pool, "device": device}
    return {
        "apiVersion": f"{API_GROUP}/{version}",
        "kind": KIND,
        "metadata": {
            "name": rule_name(driver, pool, device),
            "labels": {MANAGED_BY: MANAGER},
            "annotations": {REASON: one_line(reason)[:_LONGEST]},
        },
        "spec": {
            "deviceSelector": {name: value for name, value in selector.items() if value},
            "taint": {"key": f"{GROUP}/{rule}", "effect": "NoSchedule"},
        },
    }


def ours(rule: Json) -> bool:
    """Whether the guard made the stored ``rule``: by its name, whatever somebody has made of the rest."""
    return _NAME.fullmatch(text(mapping(rule.get("metadata")).get("name"))) is not None


def put_right(current: Json, wanted: Json) -> Json:
    """``wanted`` as it is to be written over the stored rule ``current``; equal to it when nothing has to be written.

    Labels and annotations of others stay, and the time since when the taint is there, which the server has filled in.
    """
    metadata = dict(mapping(current.get("metadata")))
    for name in ("labels", "annotations"):
        metadata[name] = {**mapping(metadata.get(name)), **wanted["metadata"][name]}
    taint = mapping(mapping(current.get("spec")).get("taint"))
    kept = {name: value for name, value in taint.items() if name == "timeAdded"}
    return {**current, "metadata": metadata, "spec": {**wanted["spec"], "taint": {**kept, **wanted["spec"]["taint"]}}}
