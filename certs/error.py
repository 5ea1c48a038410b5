"""The one error of this package."""

from __future__ import annotations

from pathlib import PurePath


class CertificateError(Exception):
    """A certificate, key, folder or Secret that cannot serve: ``place`` names it, ``reason`` is what is wrong."""

    def __init__(self, place: PurePath, reason: str) -> None:
        super().__init__(f"{place}: {reason}")
        self.place = place
        self.reason = reason
