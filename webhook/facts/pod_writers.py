"""Who says what the claims of a pod cost, and who binds such a pod: a scheduler, which counts both (KEP-5517)."""

from __future__ import annotations

from collections.abc import Iterator

from webhook.facts.drivers import claim_drivers
from webhook.facts.footprint import footprint
from webhook.facts.writers import Writer
from webhook.kube.claims import Claim
from webhook.kube.core import Pod
from webhook.kube.finding import Finding, Severity
from webhook.kube.resource import POD_FIELD, Entry
from webhook.kube.snapshot import Snapshot

BASE = f"status.{POD_FIELD}"

_SCHEDULERS = "name it in params.schedulers where it is one"


def entry_writer_problems(writer: Writer, old: Pod, new: Pod, snapshot: Snapshot) -> list[Finding]:
    """Who but a scheduler changes what the claims of a pod are said to cost (amounts are compared by value).

    ``claim-statuses-by-kubelet``: an error, a warning where all entries are gone, which kubelets of 1.36 did by
    themselves. ``claim-statuses-by-stranger``: an error where a driver of one of the claims names its writers; where
    none does, a warning, as a second scheduler may not be named yet.
    """
    claims = _changed(old, new)
    if not claims or writer.exempt or writer.kind == "Scheduler":
        return []
    severity: Severity = "error"
    if writer.kind == "Kubelet":
        rule, fix = "claim-statuses-by-kubelet", "the scheduler counts the pod by these entries; upgrade the kubelet"
        if not new.entries:
            severity = "warning"
    else:
        rule, fix = "claim-statuses-by-stranger", f"the scheduler counts the pod by these entries; {_SCHEDULERS}"
        drivers = {
            driver for name in claims for driver in _drivers(snapshot.claims.get((new.namespace, name)), snapshot)
        }
        if not any(writer.named(driver, snapshot) for driver in drivers):
            severity = "warning"
    what = "a change of" if new.entries else "no word any more of"
    has = f"{what} what {_listed(claims)} of pod {new.key} costs, by {writer.shown}"
    return [Finding(rule, BASE, has, "what the scheduler wrote there", fix, severity)]


def binding_writer_problems(writer: Writer, pod: Pod, snapshot: Snapshot) -> list[Finding]:
    """``binding-by-stranger`` (warning): a pod, whose claims cost its node something or will, bound by somebody who is
    no scheduler.
    """
    if writer.exempt or writer.kind == "Scheduler":
        return []
    names = sorted(
        {name for name in pod.claim_names.values() if _costs(snapshot.claims.get((pod.namespace, name)), snapshot)}
    )
    if not names:
        return []
    has = f"pod {pod.key}, whose {_listed(names)} costs its node something, bound by {writer.shown}"
    fix = f"else the pod runs uncounted: nobody has written down what it costs; {_SCHEDULERS}"
    return [Finding("binding-by-stranger", "target.name", has, "a scheduler", fix, "warning")]


def _changed(old: Pod, new: Pod) -> list[str]:
    """The names of the claims whose entries differ, sorted."""
    before, after = _by_claim(old), _by_claim(new)
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _by_claim(pod: Pod) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    for entry in pod.entries:
        found.setdefault(entry.claim, []).append(entry)
    return found


def _listed(claims: list[str]) -> str:
    return f"claim {', '.join(claims)}"


def _drivers(claim: Claim | None, snapshot: Snapshot) -> Iterator[str]:
    """The drivers of the devices that a claim has, or could get as far as it says."""
    if claim is not None and claim.allocation is not None:
        yield from (result.driver for result in claim.allocation.results)
    elif claim is not None:
        yield from claim_drivers(claim, snapshot)


def _costs(claim: Claim | None, snapshot: Snapshot) -> bool:
    if claim is not None and claim.allocation is not None:
        return footprint(claim, snapshot).costs
    return any(driver in snapshot.mapped_slices for driver in _drivers(claim, snapshot))
