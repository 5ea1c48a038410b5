"""Which decisions are recorded: those that somebody will ask about, and a part of the others."""

from __future__ import annotations

from webhook.admission.record import Record
from webhook.kube.raw import mapping, text
from webhook.telemetry.sampling import Sampling


class Recorded:
    """Says of each decision whether it is recorded: those in trouble, what then becomes of their claims and pods, and
    the part ``ratio``, from 0 to 1, of all objects, which is the same for all replicas.
    """

    def __init__(self, ratio: float) -> None:
        self._sampling = Sampling(ratio)

    def __call__(self, record: Record) -> bool:
        """Whether ``record`` is recorded."""
        uids = [each.uid for each in (record.claim, *record.pods) if each is not None and each.uid]
        if record.troubled:
            for uid in uids:
                self._sampling.keep(uid)
            return True
        # Before an object is there it has no UID.
        own = text(mapping(record.request.target.get("metadata")).get("uid")) or record.request.uid
        return any(map(self._sampling.wanted, uids or [own]))
