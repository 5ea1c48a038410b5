"""``allocguard serve``: the webhook."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from webhook.cli.console import Unreachable, Unusable, problem
from webhook.cli.options import Time, now, policies_option, version_options


@click.command(
    epilog="""\b
Examples:
  allocguard serve --cluster objects/ --certs allocguard-certs/
  allocguard serve --cluster objects/ --certs allocguard-certs/ --policies my-policies/ --port 0 --metrics-port 0
  curl --cacert allocguard-certs/ca.crt 'https://localhost:8443/readyz?verbose'
\b
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
    default=Path("allocguard-certs"),
    show_default=True,
    metavar="DIR",
    help="ca.crt, ca.key, tls.crt and tls.key; made when missing.",
)
@click.option("--cluster", "clusters", metavar="PATH", multiple=True, help="Objects of the cluster (repeatable).")
@click.option(
    "--at",
    type=Time(),
    show_default="the real clock",
    help="A clock that stands still, to try recorded reviews (RFC 3339).",
)
@policies_option
@version_options
def serve(
    host: str,
    port: int,
    metrics_port: int,
    certs: Path,
    clusters: tuple[str, ...],
    at: datetime | None,
    policies: tuple[str, ...],
    minor: int | None,
    gates: dict[str, bool],
) -> int:
    """Serve /validate and /mutate over HTTPS, with /healthz, /readyz and /metrics. Logs are JSON lines on stderr."""
    from certs.error import CertificateError
    from webhook.policy.compile import PolicyErrors
    from webhook.server.run import CannotListenError, Settings
    from webhook.server.run import serve as run

    if not clusters:
        raise Unreachable("no cluster to ask: live clusters are not read yet; give its objects with --cluster PATH")
    settings = Settings(
        certs=certs,
        cluster=clusters,
        policies=policies,
        host=host,
        port=port,
        metrics_port=metrics_port,
        minor=minor,
        gates=gates,
        clock=now if at is None else lambda: at,
    )
    try:
        run(settings)
    except PolicyErrors as errors:
        for each in errors.problems:
            problem(each.text)
        return 2
    except (CertificateError, CannotListenError) as error:
        raise Unusable(str(error)) from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise Unusable(f"{error.filename or clusters[0]}: cannot be read: {reason}; check the path") from error
    return 0
