"""The request of an AdmissionReview (``admission.k8s.io/v1``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from webhook.kube.raw import Json


@dataclass(frozen=True, slots=True)
class GroupVersionName:
    """A group, version and kind or resource."""

    group: str
    version: str
    name: str


@dataclass(frozen=True, slots=True)
class Request:
    """One admission request. ``object`` is None on DELETE, ``old_object`` on CREATE; both are raw JSON.

    ``raw`` is the request as it came, for expressions that read fields not named here.
    """

    uid: str
    kind: GroupVersionName
    resource: GroupVersionName
    operation: str
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    user: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    dry_run: bool = False
    object: Json | None = None
    old_object: Json | None = None
    raw: Mapping[str, Any] = field(default_factory=dict)

    @property
    def target(self) -> Json:
        """The object the write is about: the new one, or the old one on DELETE."""
        return self.object if self.object is not None else (self.old_object or {})
