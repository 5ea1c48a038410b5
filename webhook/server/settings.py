"""What ``allocguard serve`` is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from webhook.store.journal import Limits
from webhook.telemetry.tracing import Protocols


@dataclass(frozen=True, slots=True)
class Settings:
    """``hosts`` go into a certificate that has to be made; ``minor`` None chooses
    the Kubernetes release by the objects; ports 0 take free ones.

    Without ``cluster`` it is live, by ``kubeconfig`` and ``context`` as kubectl would have it. It registers itself
    where it has a ``service`` (``NAMESPACE/NAME[:PORT]``) or ``url`` to register; ``secret`` (``NAMESPACE/NAME``) is
    where certificates are shared, ``namespace`` its own, ``audit`` refuses nothing. ``journal`` is the folder where
    what is seen of the cluster is kept, within ``limits``; ``record`` is where decisions are recorded, and of those
    that nobody will ask about the part ``record_ratio``; ``otlp_endpoint`` is where spans go, by ``otlp_protocol``, and
    ``trace_ratio`` the part of claims and pods whose spans do. ``audit_token`` is the file with the token that senders
    of audit events show, ``audit_log`` one of such events to follow.
    """

    certs: Path
    cluster: Sequence[str] = ()
    policies: Sequence[str] = ()
    host: str = "0.0.0.0"
    port: int = 8443
    metrics_port: int | None = 9443
    hosts: Sequence[str] = ("localhost", "127.0.0.1", "::1")
    minor: int | None = None
    gates: Mapping[str, bool] = field(default_factory=dict)
    clock: Callable[[], datetime] | None = None
    kubeconfig: str | None = None
    context: str | None = None
    secret: str | None = None
    service: str | None = None
    url: str | None = None
    audit: bool = False
    namespace: str = "allocguard-system"
    journal: Path | None = None
    limits: Limits = field(default_factory=Limits)
    record: Path | None = None
    record_ratio: float = 0.02
    otlp_endpoint: str | None = None
    otlp_protocol: Protocols = "http/protobuf"
    trace_ratio: float = 0.05
    audit_token: Path | None = None
    audit_log: Path | None = None
