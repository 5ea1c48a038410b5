"""``allocguard serve``: the webhook."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator
from datetime import datetime
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from webhook.cli.console import Unreachable, Unusable, problem
from webhook.cli.options import Time, live_options, policies_option, version_options

if TYPE_CHECKING:
    from webhook.telemetry.tracing import Protocols

_CERTS = "allocguard-certs"
_NAME = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
_USER = re.compile("[^/]*@")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Reference(click.ParamType[str]):
    """An object of the cluster by its namespace and name; with ``port``, a port after them."""

    def __init__(self, port: bool = False) -> None:
        self.name = "NAMESPACE/NAME[:PORT]" if port else "NAMESPACE/NAME"
        self._pattern = re.compile(f"{_NAME}/{_NAME}" + (r"(:[1-9][0-9]{0,4})?" if port else ""))

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The reference as it was given."""
        if not self._pattern.fullmatch(str(value)):
            self.fail(f"{value!r} is not {self.name}", param, ctx)
        return str(value)


class Url(click.ParamType[str]):
    """Where a server is: by ``scheme`` or one of ``others``, without query and user, as webhooks want it."""

    def __init__(self, scheme: str, *others: str) -> None:
        self.name = f"{scheme}://HOST:PORT"
        self._schemes = (scheme, *others)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The URL, without a slash at its end."""
        try:
            parts = urlsplit(str(value))
            fine = parts.scheme in self._schemes and parts.hostname and parts.port != 0 and str(value).isprintable()
        except ValueError:
            fine = False
        if not fine or parts.query or parts.fragment or {"@", " "} & {*str(value)}:
            # What is before the @ may be a secret, and what a server says ends up in a log.
            self.fail(f"{_USER.sub('...@', str(value))!r} is not {self.name}", param, ctx)
        return str(value).rstrip("/")


class Ratio(click.FloatRange):
    """A part of something, from 0 to 1."""

    def __init__(self) -> None:
        super().__init__(0, 1)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number, which ``nan`` is none of."""
        ratio: float = super().convert(value, param, ctx)  # type: ignore[arg-type]  # text or a number
        if isnan(ratio):
            self.fail(f"{value!r} is not a number from 0 to 1", param, ctx)
        return ratio


@click.command(
    epilog="""\b
Examples:
  allocguard serve --cluster objects/ --certs allocguard-certs/
  allocguard serve --kubeconfig ~/.kube/config --url https://10.0.0.7:8443 --mode audit
  allocguard serve --service allocguard-system/allocguard --certs-secret allocguard-system/allocguard-certs
  curl --cacert allocguard-certs/ca.crt 'https://localhost:8443/readyz?verbose'
\b
Without --cluster it watches the live cluster: --kubeconfig/--context, KUBECONFIG, ~/.kube/config, or that of the pod.
Files of the cluster and policies are watched; a bad edit is refused and the last good set goes on serving."""
)
@click.option("--host", default="0.0.0.0", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8443, show_default=True, help="0: a free one.")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    default=9443,
    show_default=True,
    help="Metrics and health only, over HTTPS.",
)
@click.option(
    "--certs",
    type=click.Path(path_type=Path),
    metavar="DIR",
    show_default=f"{_CERTS}, or a temporary one with --certs-secret",
    help="ca.crt, ca.key, tls.crt and tls.key; made when missing.",
)
@click.option("--certs-secret", "secret", type=Reference(), help="Keep certificates in this Secret, for all replicas.")
@click.option("--service", type=Reference(port=True), help="Register this Service as the webhook.")
@click.option(
    "--url",
    type=Url("https"),
    help="Register this URL as the webhook, instead of a Service. --port is where it listens.",
)
@click.option(
    "--mode",
    type=click.Choice(("enforce", "audit")),
    default="enforce",
    show_default=True,
    help="audit: refuse nothing, tell everything, and register with failurePolicy Ignore.",
)
@click.option("--namespace", default="allocguard-system", show_default=True, help="Our own namespace.")
@click.option(
    "--journal",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Keep what is seen of the cluster in this folder, for `ledger export`; made when missing.",
)
@click.option(
    "--journal-size",
    type=click.IntRange(16),
    metavar="MEBIBYTES",
    default=512,
    show_default=True,
    help="What the journal takes at most; the oldest goes.",
)
@click.option(
    "--journal-days",
    type=click.IntRange(1),
    metavar="DAYS",
    default=7,
    show_default=True,
    help="How long the journal is kept at most.",
)
@click.option(
    "--record",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Record decisions in this folder, for `policy replay`; made when missing. No secret is in it.",
)
@click.option(
    "--record-ratio",
    type=Ratio(),
    default=0.02,
    show_default=True,
    help="Of how many objects every decision is recorded; what is refused, held or not judged always is.",
)
@click.option(
    "--otlp-endpoint",
    type=Url("http", "https"),
    envvar="OTEL_EXPORTER_OTLP_ENDPOINT",
    show_envvar=True,
    help="Send what happens to claims, pods and rollouts there as spans, a trace for each.",
)
@click.option(
    "--otlp-protocol",
    type=click.Choice(("http/protobuf", "grpc")),
    envvar="OTEL_EXPORTER_OTLP_PROTOCOL",
    show_envvar=True,
    default="http/protobuf",
    show_default=True,
    help="OTLP over HTTP, to /v1/traces below the endpoint, or over gRPC.",
)
@click.option(
    "--trace-ratio",
    type=Ratio(),
    default=0.05,
    show_default=True,
    help="Of how many claims and pods all spans are sent; those in trouble always are.",
)
@click.option(
    "--audit-token-file",
    "audit_token",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Hear only senders of audit events (POST /audit) who show the token in this file.",
)
@click.option(
    "--audit-log",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Follow this audit log of an API server, and tell which status writes failed.",
)
@click.option("--cluster", "clusters", metavar="PATH", multiple=True, help="Objects of the cluster (repeatable).")
@live_options
@click.option(
    "--at",
    type=Time(),
    show_default="the clock of the API server; our own for --cluster",
    help="A clock that stands still, to try recorded reviews (RFC 3339).",
)
@policies_option
@version_options
def serve(
    host: str,
    port: int,
    metrics_port: int,
    certs: Path | None,
    secret: str | None,
    service: str | None,
    url: str | None,
    mode: str,
    namespace: str,
    journal: Path | None,
    journal_size: int,
    journal_days: int,
    record: Path | None,
    record_ratio: float,
    otlp_endpoint: str | None,
    otlp_protocol: Protocols,
    trace_ratio: float,
    audit_token: Path | None,
    audit_log: Path | None,
    clusters: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
    at: datetime | None,
    policies: tuple[str, ...],
    minor: int | None,
    gates: dict[str, bool],
) -> int:
    """Serve /validate, /mutate and /audit over HTTPS, with /healthz, /readyz and /metrics. Logs are JSON lines on
    stderr.
    """
    from certs.error import CertificateError
    from webhook.cluster.access import CannotConnect, NoCluster
    from webhook.policy.compile import PolicyErrors
    from webhook.server.audit import BadTokenFileError, read_token
    from webhook.server.run import CannotListenError
    from webhook.server.serve import serve as run
    from webhook.server.settings import Settings
    from webhook.store.journal import JournalInUseError, limits
    from webhook.telemetry.tracing import CannotTraceError

    if service and url:
        raise click.UsageError("--service and --url are given, but one webhook has one address")
    live = {"--kubeconfig": kubeconfig, "--context": context, "--service": service, "--url": url}
    live |= {"--certs-secret": secret}
    if otlp_protocol == "grpc" and otlp_endpoint is not None and urlsplit(otlp_endpoint).path:
        raise click.UsageError(f"--otlp-endpoint: {otlp_endpoint} has a path, but grpc has none; take it away")
    given = next((name for name, value in live.items() if value is not None), None)
    if clusters and given:
        raise click.UsageError(f"{given} is for a live cluster, but --cluster has its objects in files")
    with _certificates(certs, secret) as folder:
        settings = Settings(
            certs=folder,
            cluster=clusters,
            policies=policies,
            host=host,
            port=port,
            metrics_port=metrics_port,
            hosts=(*_LOOPBACK, *_hosts(service, url)),
            minor=minor,
            gates=gates,
            clock=None if at is None else lambda: at,
            kubeconfig=kubeconfig,
            context=context,
            secret=secret,
            service=service,
            url=url,
            audit=mode == "audit",
            namespace=namespace,
            journal=journal,
            limits=limits(journal_size, journal_days),
            record=record,
            record_ratio=record_ratio,
            otlp_endpoint=otlp_endpoint,
            otlp_protocol=otlp_protocol,
            trace_ratio=trace_ratio,
            audit_token=audit_token,
            audit_log=audit_log,
        )
        try:
            if audit_token is not None:
                read_token(audit_token)
            run(settings)
        except PolicyErrors as errors:
            for each in errors.problems:
                problem(each.text)
            return 2
        except NoCluster as error:
            raise Unreachable(str(error)) from error
        except CannotListenError as error:
            raise Unusable(f"{error}; --host, --port and --metrics-port say where else to listen") from error
        except (
            BadTokenFileError,
            CertificateError,
            CannotConnect,
            JournalInUseError,
            CannotTraceError,
        ) as error:
            raise Unusable(str(error)) from error
        except OSError as error:
            place = error.filename or next(iter(clusters), folder)
            told = f"cannot be read: {(error.strerror or str(error)).lower()}"
            if isinstance(error, FileExistsError | NotADirectoryError):
                # One of the folders that are made when they are missing.
                told = "is no folder"
            raise Unusable(f"{place}: {told}; check the path") from error
    return 0


@contextlib.contextmanager
def _certificates(certs: Path | None, secret: str | None) -> Iterator[Path]:
    """The folder to serve from; a temporary one for what a Secret holds."""
    if certs is not None or secret is None:
        yield certs or Path(_CERTS)
        return
    with tempfile.TemporaryDirectory(prefix="allocguard-certs-") as made:
        yield Path(made)


def _hosts(service: str | None, url: str | None) -> Iterator[str]:
    """The names by which the API server will call."""
    if service:
        namespace, _, rest = service.partition("/")
        name = rest.partition(":")[0]
        yield f"{name}.{namespace}.svc"
        yield f"{name}.{namespace}.svc.cluster.local"
    if url:
        yield str(urlsplit(url).hostname)
