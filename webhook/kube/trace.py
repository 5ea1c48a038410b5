"""The trace of an object: whoever has its UID has its trace, whichever process wrote of it."""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256
from uuid import UUID

_BARE = re.compile(r"[0-9a-f]{32}")


# What is longer is no UID that the API server made, and others may make it as long as an object.
_LONGEST = 64


def trace_id(uid: str) -> str:
    """The trace of the object with this UID, 32 hexadecimal digits: the UID without its dashes, or, for one that is
    no UUID, of its SHA-256.
    """
    return _kept(uid) if len(uid) <= _LONGEST else _trace_id(uid)


def _trace_id(uid: str) -> str:
    bare = uid.replace("-", "").lower()
    if _BARE.fullmatch(bare) and bare.strip("0"):
        return bare
    return sha256(uid.encode()).hexdigest()[:32]


# Log, metrics, traces and recording each ask for the same one.
_kept = lru_cache(maxsize=4096)(_trace_id)


def traced_uid(given: str) -> str:
    """The UID whose trace ``given`` is, and ``given`` itself where it is none of a UUID."""
    return str(UUID(given)) if _BARE.fullmatch(given) else given
