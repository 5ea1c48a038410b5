"""Which devices the scheduler is to leave alone, since the guard would refuse them: what a taint steers away from.

A taint is on devices, whatever node asks for them. So it stands only where the answer is the same for all nodes; where
it depends on the node or the device, the refusal of the allocation decides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from webhook.facts.pool_survey import Reason
from webhook.facts.rollout import held
from webhook.kube.snapshot import Key, Snapshot
from webhook.kube.taint_rule import rule_name

_AGE = r"(?:\d+[dhms]){1,2} ago"
_ASIDE, _AGO = re.compile(rf" \({_AGE}\)"), re.compile(_AGE)


class TaintWanted(Struct, frozen=True):
    """Devices to taint: those of ``driver``, of its ``pool`` (empty: of all pools), the ``device`` (empty: all)."""

    driver: str
    pool: str
    device: str
    reason: Reason

    @property
    def name(self) -> str:
        """The name of the rule, the same whatever the reason is."""
        return rule_name(self.driver, self.pool, self.device)

    @property
    def text(self) -> str:
        """What a refusal says, without the ages in it: it stays as long as the reason does."""
        return _AGO.sub("too long ago", _ASIDE.sub("", self.reason.text))


def wanted_taints(
    snapshot: Snapshot,
    stopped: Mapping[Key, Reason],
    now: datetime,
    full: Sequence[TaintWanted] = (),
) -> tuple[TaintWanted, ...]:
    """The taints for pools that are ``stopped`` (driver and pool; see :mod:`webhook.facts.stopped_pool`) and for
    devices in zones that are ``full``: one for the driver where it is held as a whole, or all of its pools are stopped.
    """
    whole = {driver: reason for driver in snapshot.rollouts if (reason := _held(snapshot, driver, now)) is not None}
    by_driver: dict[str, dict[str, Reason]] = {}
    for (driver, pool), reason in sorted(stopped.items(), key=lambda item: item[0]):
        by_driver.setdefault(driver, {})[pool] = reason
    for driver, pools in by_driver.items():
        if len(pools) > 1 and driver not in whole and _pools(snapshot, driver) <= pools.keys():
            whole[driver] = next(iter(pools.values()))
    found = [TaintWanted(driver, "", "", reason) for driver, reason in sorted(whole.items())]
    for driver, pools in by_driver.items():
        if driver not in whole:
            found += [TaintWanted(driver, pool, "", reason) for pool, reason in pools.items()]
    found += [each for each in full if each.driver not in whole and (each.driver, each.pool) not in stopped]
    return tuple(found)


def _held(snapshot: Snapshot, driver: str, now: datetime) -> Reason | None:
    """Why every pool of ``driver`` is held, whatever mappings it has; None when some may not be."""
    rollout = snapshot.rollouts.get(driver)
    if rollout is None or rollout.hold is None or rollout.hold.bad_mappings or rollout.resume_digests:
        return None
    return held(rollout, frozenset(), now)


def _pools(snapshot: Snapshot, driver: str) -> set[str]:
    return {snapshot.slices[name].pool for name in snapshot.driver_slices.get(driver, ())}
