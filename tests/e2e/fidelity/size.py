"""How much is tried, and from which seed."""

from __future__ import annotations

import os
import random
from typing import Final

FACTOR: Final = max(1, int(os.environ.get("ALLOCGUARD_FIDELITY", "1")))
SEED: Final = int(os.environ.get("ALLOCGUARD_FIDELITY_SEED", "5517"))


def source(*words: object) -> random.Random:
    """The numbers of one part of one test: the same in every run with the same seed, whatever else runs."""
    return random.Random(":".join(map(str, (SEED, *words))))


def repeat(what: str) -> str:
    """How to see the same again."""
    return f"{what}: ALLOCGUARD_FIDELITY={FACTOR} ALLOCGUARD_FIDELITY_SEED={SEED}"
