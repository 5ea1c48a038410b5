"""What a command that only looks tells about it, as a step of a rollout: an event about the DriverRollout, by the
rights of who runs it, and a span of its trace where ``OTEL_EXPORTER_OTLP_ENDPOINT`` says where to. What cannot be told
is a line on standard error and changes nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from webhook.cli.console import note
from webhook.cli.deploying import connected
from webhook.cli.options import now
from webhook.controllers.events import tell_again
from webhook.controllers.rollout_steps import Step, step_event, trace
from webhook.facts.rollout import standing
from webhook.facts.times import stamp
from webhook.telemetry.spans import CHECK, EXPORT, EXPORT_KEY, VERDICT_KEY
from webhook.telemetry.tracing import CannotTraceError, Tracing

if TYPE_CHECKING:
    from webhook.cli.options import Where
    from webhook.cluster.api import Api
    from webhook.facts.promotion import Report
    from webhook.kube.rollout import DriverRollout
    from webhook.kube.snapshot import Snapshot

_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"

Told = tuple["DriverRollout", Step]


def exported(where: Where, snapshot: Snapshot, digest: str, begun: datetime) -> None:
    """Tell of an export of a live cluster, which began to be made at ``begun``: to every driver that is held."""
    ended = now()
    message = f"the ledger was exported, {digest}"
    step = Step("LedgerExported", message, digest, EXPORT, stamp(begun, "auto"), {EXPORT_KEY: digest})
    _tell(where, [(rollout, step) for rollout in snapshot.rollouts.values() if standing(rollout, ended)], ended)


def checked(where: Where, snapshot: Snapshot, report: Report, begun: datetime) -> None:
    """Tell of the promotion report of a driver of a live cluster; nothing where it has no DriverRollout to tell of."""
    failed, passed = ([gate.name for gate in report.gates if gate.passed is kind] for kind in (False, True))
    parts = [f"{word}: {', '.join(names)}" for word, names in (("failed", failed), ("passed", passed)) if names]
    message = f"check at stage {report.stage}" + (f", {report.next_stage} is next" if report.next_stage else "")
    step = Step(
        "Checked",
        f"{message}; {'; '.join(parts)}",
        (report.stage, *failed),
        CHECK,
        stamp(begun, "auto"),
        {VERDICT_KEY: "passed" if report.passed else "failed"},
        "Normal" if report.passed else "Warning",
    )
    rollout = snapshot.rollouts.get(report.driver)
    _tell(where, [] if rollout is None else [(rollout, step)], now())


def _tell(where: Where, told: Sequence[Told], at: datetime) -> None:
    if not told:
        return

    async def write(api: Api) -> int:
        for rollout, step in told:
            await tell_again(api, step_event(step, rollout, at))
        return 0

    try:
        connected(where.kubeconfig, where.context, write)
    except click.ClickException as error:
        note(f"no event {told[0][1].reason}: {error.message}")
    _trace(told, at)


def _trace(told: Sequence[Told], at: datetime) -> None:
    from webhook.cli.serve import Url

    endpoint = os.environ.get(_ENDPOINT)
    if not endpoint:
        return
    try:
        tracing = Tracing(Url("http", "https").convert(endpoint, None, None), _Notes())
    except click.BadParameter as error:
        note(f"no span {told[0][1].span}: {_ENDPOINT}: {error.message}")
        return
    except CannotTraceError as error:
        note(f"no span {told[0][1].span}: {error}")
        return
    for rollout, step in told:
        trace(tracing, step, rollout, at)
    tracing.close()


class _Notes:
    """What is said of spans, as a line of a command."""

    def write(self, level: str, event: str, **fields: object) -> None:
        """Tell of trouble; that it is over is nothing to tell."""
        if level != "info":
            note(f"{event} to {fields['url']}: {fields['message']}")
