"""What `rollout hold`, `resume` and `promote` make of a DriverRollout, as merge patches; nothing here writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import click
from msgspec import structs

from webhook.cli.console import Unusable
from webhook.cli.report import plural
from webhook.facts.pool_survey import current
from webhook.facts.pools import pool_state
from webhook.facts.promotion import next_stage
from webhook.facts.rollout import held
from webhook.facts.rollout_document import document_problems
from webhook.facts.times import instant, stamp
from webhook.kube.finding import one_line
from webhook.kube.raw import Json, mapping, members, text
from webhook.kube.rollout import API_VERSION, DriverRollout, read_rollout
from webhook.kube.snapshot import Snapshot

HOLD_FIELDS = ("reason", "by", "since", "until", "badMappings")
# What a status tells of what was seen and done; the rest follows from the cluster as it is.
_SEEN = ("stage", "observedSince", "quietSince", "pending", "duplicates", "zoneFailures", "drills")


@dataclass(frozen=True, slots=True)
class Edit:
    """A merge patch of a DriverRollout (empty: it stays as it is), and what it comes to, in one sentence."""

    patch: Json
    said: str


def new(driver: str) -> Json:
    """The DriverRollout of a driver that has none, which is what it counts as without."""
    return {
        "apiVersion": API_VERSION,
        "kind": "DriverRollout",
        "metadata": {"name": driver},
        "spec": {"stage": "General"},
    }


def merged(value: Any, patch: Any) -> Any:
    """``value`` after the merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    made = {**value} if isinstance(value, dict) else {}
    for name, part in patch.items():
        if part is None:
            made.pop(name, None)
        else:
            made[name] = merged(made.get(name), part)
    return made


def to_apply(document: Json) -> Json:
    """A DriverRollout without what the API server and the guard write into it, as people keep it."""
    metadata = mapping(document.get("metadata"))
    notes = {
        name: value
        for name, value in mapping(metadata.get("annotations")).items()
        if name != "kubectl.kubernetes.io/last-applied-configuration"
    }
    kept = {name: metadata[name] for name in ("name", "labels") if name in metadata}
    head = {"apiVersion": document["apiVersion"], "kind": document["kind"]}
    return {**head, "metadata": {**kept, **({"annotations": notes} if notes else {})}, "spec": document.get("spec", {})}


def in_files(document: Json) -> Json:
    """A DriverRollout as people keep it, and what its status tells that no cluster in files shows."""
    status = mapping(document.get("status"))
    seen = {name: status[name] for name in _SEEN if name in status}
    return {**to_apply(document), **({"status": seen} if seen else {})}


def hold(document: Json, reason: str, by: str, until: datetime | None, bad: Sequence[str], now: datetime) -> Edit:
    """Hold the driver from ``now`` on. A hold that says the same already stands as it is; one that holds everything
    takes back what an earlier one was resumed at. Raises UsageError for what no DriverRollout may hold.
    """
    driver = _driver(document)
    spec = mapping(document.get("spec"))
    stands = mapping(spec.get("hold"))
    resumed = mapping(spec.get("resumeAt")).get("mappingDigests") if not bad else None
    wanted: Json = {
        "reason": reason.strip(),
        "by": by,
        "since": stamp(now),
        "until": stamp(until) if until is not None else None,
        "badMappings": sorted(set(bad)),
    }
    if not wanted["reason"]:
        raise click.UsageError("--reason: is empty; say what people are to read while their claims wait")
    if until is not None and until <= now:
        raise click.UsageError(f"--until {stamp(until)} is over already; give a later time, or leave it out")
    what = f"pools with {' or '.join(wanted['badMappings'])}" if bad else "all pools"
    if _same(stands, wanted, now) and not resumed:
        return Edit({}, f"{driver} is held already, since {one_line(text(stands.get('since')))}: nothing to change")
    if _same(stands, wanted, now):
        wanted["since"] = stands.get("since")
    patch: Json = {"hold": {name: wanted[name] or None for name in HOLD_FIELDS}}
    said = f"{driver} is held: no new claims on {what}; bound ones stay, and releases go on"
    if resumed:
        patch["resumeAt"] = None
        said += f"; it is no longer resumed at {plural(len(resumed), 'mapping')}"
    _check(merged(document, {"spec": patch}), "spec.hold", {"badMappings": "--bad-mapping"})
    return Edit({"spec": patch}, said)


def _same(stands: Json, wanted: Json, now: datetime) -> bool:
    end = instant(text(stands.get("until")))
    if not stands or (end is not None and end <= now):
        return False
    told = {name: stands.get(name) or None for name in HOLD_FIELDS}
    told["badMappings"] = sorted(told["badMappings"] or [])
    # Whoever says it again need not be who said it first.
    return all(told[name] == wanted[name] for name in ("reason", "until", "badMappings"))


def _check(document: Json, path: str, options: dict[str, str]) -> None:
    for each in document_problems(document):
        if each.path.startswith(path) and each.severity == "error":
            field = each.path.removeprefix(f"{path}.").partition("[")[0]
            fix = f"; {each.fix}" if each.fix else ""
            raise click.UsageError(f"{options.get(field, f'--{field}')}: {each.message}{fix}")


def resume(document: Json, digests: Sequence[str], snapshot: Snapshot, now: datetime) -> Edit:
    """Take the hold back, or, with ``digests``, let pools go on all of whose mappings are among them (and those given
    before). Raises Unusable for a digest that no pool of the driver has, and for one that is held as bad.
    """
    return _resume_at(document, digests, snapshot, now) if digests else _resume(document, snapshot, now)


def _resume_at(document: Json, digests: Sequence[str], snapshot: Snapshot, now: datetime) -> Edit:
    driver, spec = _driver(document), mapping(document.get("spec"))
    known = pool_digests(driver, snapshot)
    there = sorted(frozenset().union(*known.values()))
    before = mapping(spec.get("resumeAt")).get("mappingDigests") or []
    for digest in digests:
        # Said once more, as after a crash, it may be about a mapping that has gone since.
        if digest not in there and digest not in before:
            have = f"its pools have {', '.join(there)}" if there else "its pools have no mappings"
            raise Unusable(f"--at-mapping {digest}: no pool of {driver} has it; {have}")
        if digest in (mapping(spec.get("hold")).get("badMappings") or ()):
            raise Unusable(
                f"--at-mapping {digest}: is among the bad mappings of the hold; hold {driver} without it first"
            )
    listed = sorted({*before, *digests})
    after = read_rollout(merged(document, {"spec": {"resumeAt": {"mappingDigests": listed}}}))
    waiting = sum(held(after, each, now) is not None for each in known.values())
    if after.hold is None:
        said = f"{driver} is not held; claims that were booked by another mapping are taken for good at these"
    else:
        free = len(known) - waiting
        of = f"{free} of {plural(len(known), 'pool')} {'takes' if free == 1 else 'take'} claims"
        said = f"{driver} is resumed at {plural(len(listed), 'mapping')}: {of}"
        said += f", {waiting} {'stays' if waiting == 1 else 'stay'} held" if waiting else ""
    if listed == sorted(before):
        return Edit({}, f"{said}: nothing to change")
    return Edit({"spec": {"resumeAt": {"mappingDigests": listed}}}, said)


def _resume(document: Json, snapshot: Snapshot, now: datetime) -> Edit:
    driver, spec = _driver(document), mapping(document.get("spec"))
    resumed = mapping(spec.get("resumeAt")).get("mappingDigests") or []
    needed = acknowledging(read_rollout(document), snapshot, now)
    patch: Json = {}
    if spec.get("hold") is not None:
        patch["hold"] = None
        end = instant(text(mapping(spec["hold"]).get("until")))
        said = f"{driver} takes claims again"
        if end is not None and end <= now:
            said = f"the hold of {driver} was over at {stamp(end)} and is taken out"
    else:
        said = f"{driver} is not held"
    if resumed and not needed:
        patch["resumeAt"] = None
    elif needed:
        pools = f"{', '.join(needed[:3])}{f' and {len(needed) - 3} more' if len(needed) > 3 else ''}"
        said += f"; resumeAt stays while claims that were booked by an earlier mapping hold devices of {pools}"
    if not patch:
        return Edit({}, f"{said}: nothing to change")
    return Edit({"spec": patch}, said)


def acknowledging(rollout: DriverRollout, snapshot: Snapshot, now: datetime) -> list[str]:
    """The pools that are Fresh only because ``resumeAt`` takes their mapping for good, by name."""
    if not rollout.resume_digests:
        return []
    driver = rollout.driver
    without = snapshot.rollouts.set(driver, replace(rollout, resume_digests=frozenset()))
    bare = structs.replace(snapshot, rollouts=without)
    return [
        pool
        for pool in sorted(pool_digests(driver, snapshot))
        if any(each.rule == "mapping-changed" for each in pool_state(bare, driver, pool, None, now).reasons)
    ]


def pool_digests(driver: str, snapshot: Snapshot) -> dict[str, frozenset[str]]:
    """The mapping digests of each pool of the driver that has some."""
    pools = {snapshot.slices[name].pool for name in snapshot.mapped_slices.get(driver, ())}
    return {pool: current(snapshot, driver, pool, None).digests for pool in sorted(pools)}


def promote(document: Json, by: str, reason: str, now: datetime) -> Edit:
    """The next stage; with ``by`` in the name of somebody, who says so ``now``, whatever the gates say. Empty at the
    last stage.
    """
    driver, stage = _driver(document), read_rollout(document).stage
    following = next_stage(stage)
    if not following:
        return Edit({}, f"{driver} is at stage General, the last one: nothing to promote")
    spec: Json = {"stage": following}
    said = f"{driver} goes on from stage {stage} to {following}"
    if by:
        spec["promotion"] = {"override": {"by": by, "reason": reason, "stage": stage, "at": stamp(now)}}
        said += f", as {one_line(by)} decided: {one_line(reason)}"
    elif "override" in mapping(mapping(document.get("spec")).get("promotion")):
        spec["promotion"] = {"override": None}
    return Edit({"spec": spec}, said)


def record(document: Json, name: str, passed: bool, message: str, by: str, now: datetime) -> Edit:
    """A patch of the status: the drill ``name`` was done, which takes the place of its last time."""
    done: Json = {"name": name, "at": stamp(now), "passed": passed, "message": one_line(message)[:4096]}
    if by:
        done["by"] = by
    before = members(mapping(document.get("status")).get("drills"))
    drills = [*(each for each in before if each.get("name") != name), done]
    said = f"recorded in the status of DriverRollout {_driver(document)}"
    return Edit({"status": {"drills": sorted(drills, key=lambda each: text(each.get("name")))}}, said)


def _driver(document: Json) -> str:
    return text(mapping(document.get("metadata")).get("name"))
