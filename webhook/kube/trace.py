"""The trace of an object: whoever has its UID has its trace, whichever process wrote of it."""

from __future__ import annotations

from hashlib import sha256
from string import hexdigits


def trace_id(uid: str) -> str:
    """The trace of the object with this UID, 32 hexadecimal digits: the UID without its dashes, or, for one that is
    no UUID, of its SHA-256.
    """
    bare = uid.replace("-", "").lower()
    if len(bare) == 32 and set(bare) <= set(hexdigits) and bare.strip("0"):
        return bare
    return sha256(uid.encode()).hexdigest()[:32]
