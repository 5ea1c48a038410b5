"""What became of slices that this server saw before the API server drops what its gates do not let in: whether they are
stored with the costs that were sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from msgspec import Struct

from webhook.admission.decide import Verdict
from webhook.facts.pool_survey import survey
from webhook.kube.resource import Device, Slice, read_slice
from webhook.kube.snapshot import Snapshot
from webhook.telemetry.metrics import Metrics

# Seconds until a slice that was let in is seen as it was stored, and until nobody waits for it any more; and how long
# what it showed counts: gates change with the next start of an API server.
SETTLED, GONE, COUNTS = 2.0, 60.0, 300.0
# Slices that are waited for at once.
_MOST = 1024


class _Sent(Struct, frozen=True):
    """A slice by what a review tells of it, whose name the API server may be going to make up: its pool, a device that
    costs something, and the versions of the slices that the pool had by then.
    """

    driver: str
    pool: str
    device: str
    known: frozenset[str]
    at: float


class SliceReviews:
    """The slices with costs that came to one server. :meth:`judged` belongs to its event loop, the rest to any other
    thread.
    """

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._clock = clock
        self._sent: dict[tuple[str, str, str], _Sent] = {}
        self._shown: tuple[bool, str, float] | None = None

    def judged(self, verdict: Verdict) -> None:
        """Remember what ``verdict`` is about, if that is a slice that somebody writes with costs."""
        request, facts = verdict.request, verdict.evaluation.facts
        if verdict.endpoint != "mutate" or request.kind.name != "ResourceSlice" or request.dry_run:
            return
        # Costs that are stored already stay, whatever the gate.
        if request.object is None or (request.old_object is not None and read_slice(request.old_object).mapped):
            return
        item = read_slice(request.object)
        device = next((device.name for device in item.devices if device.costs), None)
        if device is None:
            return
        if len(self._sent) >= _MOST:
            # A copy is made at once, where an iterator may be met by what the other thread removes.
            for oldest in [*self._sent][:1]:
                self._sent.pop(oldest, None)
        known = frozenset(each.resource_version for each in facts.snapshot.pools.get(item.key, ()))
        self._sent[(*item.key, device)] = _Sent(*item.key, device, known, self._clock())

    def dropped(self, snapshot: Snapshot) -> Mapping[str, str]:
        """By driver the name of a slice that is stored without the costs that were sent, each told and counted once."""
        found: dict[str, str] = {}
        now = self._clock()
        for key, sent in list(self._sent.items()):
            stored = _stored(sent, snapshot) if now - sent.at >= SETTLED else None
            if stored is not None:
                self._sent.pop(key, None)
                item, device = stored
                self._shown = bool(device.costs), item.name, now
                if not device.costs:
                    found[sent.driver] = item.name
                    self._metrics.dropped(sent.driver)
            elif now - sent.at > GONE:
                self._sent.pop(key, None)
        return found

    def carried(self) -> tuple[bool | None, str]:
        """Whether the last slice that showed it is stored with its costs, None where none did lately; and its name."""
        shown = self._shown
        if shown is None or self._clock() - shown[2] > COUNTS:
            return None, ""
        return shown[0], shown[1]


def _stored(sent: _Sent, snapshot: Snapshot) -> tuple[Slice, Device] | None:
    """The slice that came of what was ``sent``, and its device; None before it is seen."""
    for item in snapshot.pools.get((sent.driver, sent.pool), ()):
        if item.resource_version not in sent.known:
            found = survey((item,)).devices.get(sent.device)
            if found is not None:
                return found
    return None
