"""``allocguard free``: the optional controller for claims that were left allocated."""

from __future__ import annotations

import asyncio
import signal

import click

from webhook.cli.console import Unreachable, Unusable
from webhook.cli.options import live_options, now

# What is read of the cluster to find them.
_KINDS = frozenset({"Node", "Pod", "ResourceSlice", "ResourceClaim"})


@click.command(
    epilog="""\b
Examples:
  allocguard free --kubeconfig ~/.kube/config
  allocguard free                                  # in a pod, by its ServiceAccount
\b
It needs `patch` on resourceclaims/status and resourceclaims/binding, which the guard itself never has."""
)
@live_options
def free(kubeconfig: str | None, context: str | None) -> int:
    """Free claims that a failed attempt of a 1.36 scheduler left allocated: those with node costs that have been
    reserved for nobody for 30 seconds and that a pending pod needs. The scheduler then allocates and counts them anew.

    Runs until SIGTERM. On other releases there is nothing to free. Logs are JSON lines on stderr.
    """
    from webhook.cluster.access import CannotConnect, NoCluster

    try:
        asyncio.run(_run(kubeconfig, context))
    except NoCluster as error:
        raise Unreachable(str(error)) from error
    except CannotConnect as error:
        raise Unusable(str(error)) from error
    return 0


async def _run(kubeconfig: str | None, context: str | None) -> None:
    from webhook.cluster.access import connect
    from webhook.cluster.kinds import KINDS
    from webhook.cluster.live import LiveCluster
    from webhook.controllers.freeing import Freeing
    from webhook.telemetry.log import Log

    api = await connect(kubeconfig, context)
    log = Log()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        cluster = LiveCluster(api, now, log.write, kinds=[kind for kind in KINDS if kind.name in _KINDS])
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(part) for part in (cluster.run(), Freeing(api, cluster, log, now).run())]
            await stop.wait()
            for task in tasks:
                task.cancel()
    finally:
        await api.close()
        log.close()
