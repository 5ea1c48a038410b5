"""The one error of this package."""

from __future__ import annotations

from pathlib import Path


class CertificateError(Exception):
    """A certificate, key or folder that cannot serve: ``place`` is the path, ``reason`` what is wrong with it."""

    def __init__(self, place: Path, reason: str) -> None:
        super().__init__(f"{place}: {reason}")
        self.place = place
        self.reason = reason
