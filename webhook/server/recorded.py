"""Which decisions are recorded: those that somebody will ask about, and a part of the others."""

from __future__ import annotations

from webhook.admission.record import Record
from webhook.kube.raw import mapping, text
from webhook.telemetry.sampling import Sampling, wanted

# Attempts of which it is remembered how often they ended alike: 10 MB, however long the names are that others choose.
_MOST_ALIKE = 65_536


class Recorded:
    """Says of each decision whether it is recorded: those in trouble, what then becomes of their claims and pods, and
    the part ``ratio``, from 0 to 1, of all objects, which is the same for all replicas. Of attempts that end alike, as
    a scheduler or a controller makes them for hours, the first is recorded, the second, the fourth, the eighth and so
    on.
    """

    def __init__(self, ratio: float) -> None:
        self._ratio = ratio
        self._sampling = Sampling(ratio)
        self._alike: dict[int, int] = {}

    def __call__(self, record: Record) -> bool:
        """Whether ``record`` is recorded."""
        # Before an object is there it has no UID.
        own = _uid(record) or record.request.uid
        uids = [each.uid for each in (record.claim, *record.pods) if each is not None and each.uid]
        if record.troubled:
            for uid in uids if not record.in_vain else ():
                self._sampling.keep(uid)
            return wanted(own, self._ratio) or self._first_of_many(record)
        return any(map(self._sampling.wanted, uids or [own]))

    def _first_of_many(self, record: Record) -> bool:
        alike = hash((*_tried(record), record.resource, record.outcome, record.rule, record.node, record.revision))
        count = self._alike.pop(alike, 0) + 1
        self._alike[alike] = count
        if len(self._alike) > _MOST_ALIKE:
            del self._alike[next(iter(self._alike))]
        return count & (count - 1) == 0


def _tried(record: Record) -> tuple[str, ...]:
    """What attempts at the same have in common: the object. Where there will be none each has a UID of its own, or, as
    an eviction, none: who tries, and under which name.
    """
    request, uid = record.request, _uid(record)
    if record.in_vain or not (uid or record.creates):
        made_up = text(mapping(request.target.get("metadata")).get("generateName"))
        return request.user, request.namespace, made_up or request.name
    return (uid or request.uid,)


def _uid(record: Record) -> str:
    return text(mapping(record.request.target.get("metadata")).get("uid"))
