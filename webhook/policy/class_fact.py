"""``deviceClass``: the DeviceClass of a write."""

from __future__ import annotations

from webhook.cel import STRING
from webhook.facts.classes import class_problems
from webhook.kube.admission import Request
from webhook.kube.finding import Finding
from webhook.kube.release import Release
from webhook.policy.fact import fact, struct
from webhook.policy.types import FINDINGS


class ClassFact:
    """A DeviceClass of any served version."""

    def __init__(self, request: Request, release: Release) -> None:
        self._request = request
        self._release = release

    @fact(STRING)
    def name(self) -> str:
        """The class's name."""
        return self._request.name

    @fact(FINDINGS)
    def structure_problems(self) -> list[Finding]:
        """What the API server refuses in a DeviceClass: selectors that do not compile, names, config."""
        return class_problems(self._request.target, self._release)


CLASS = struct("DeviceClass", ClassFact)
