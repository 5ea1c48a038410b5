"""Options that several commands share, as interface documents promise them, and the values they give."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import wraps
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Where:
    """Which cluster a command works on, and the release it is judged by where that is asked for."""

    clusters: Sequence[str]
    kubeconfig: str | None = None
    context: str | None = None
    minor: int | None = None
    gates: Mapping[str, bool] = field(default_factory=dict)

    @property
    def named_live(self) -> bool:
        """Whether a live cluster was asked for by name."""
        return self.kubeconfig is not None or self.context is not None


class Time(click.ParamType[datetime]):
    """An RFC 3339 time with its offset."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """The moment that ``value`` names."""
        from webhook.facts.times import instant

        moment = value if isinstance(value, datetime) else instant(str(value))
        if moment is None:
            self.fail(f"{value!r} is no time with an offset, as 2026-11-20T09:00:00Z", param, ctx)
        return moment


class Version(click.ParamType[int]):
    """A Kubernetes release, as its minor number."""

    name = "1.36|1.37"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The minor of ``value``."""
        from webhook.kube.release import parse_version

        if isinstance(value, int):
            return value
        try:
            return parse_version(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Gates(click.ParamType[dict[str, bool]]):
    """Feature gates of the API server."""

    name = "A=true,B=false"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, bool]:
        """The gates by name."""
        from webhook.kube.release import parse_gates

        if isinstance(value, dict):
            return value
        try:
            return parse_gates(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def now() -> datetime:
    """The clock of a command that got no ``--at``."""
    return datetime.now(UTC)


def _chain(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for each in reversed(decorators):
            function = each(function)
        return function

    return decorate


def cluster_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--cluster``, ``--kubeconfig``, ``--context``, ``--kubernetes-version`` and ``--feature-gates``, given to the
    command as ``where``; and ``--at``.
    """

    @wraps(function)
    def gathered(
        *,
        clusters: tuple[str, ...],
        kubeconfig: str | None,
        context: str | None,
        minor: int | None,
        gates: dict[str, bool],
        **rest: Any,
    ) -> Any:
        if clusters and (kubeconfig is not None or context is not None):
            raise click.UsageError("--kubeconfig and --context are for a live cluster, but --cluster has it in files")
        return function(where=Where(clusters, kubeconfig, context, minor, gates), **rest)

    return _chain(
        click.option(
            "--cluster",
            "clusters",
            metavar="PATH",
            multiple=True,
            help="Objects of the cluster: a file, a folder, or - (repeatable; a later one wins).",
        ),
        live_options,
        click.option("--at", type=Time(), default=now, show_default="now", help="The clock to judge by (RFC 3339)."),
        version_options,
    )(gathered)


def live_options(function: F) -> F:
    """``--kubeconfig`` and ``--context``."""
    return _chain(
        click.option("--kubeconfig", metavar="PATH", help="A live cluster, by this kubeconfig."),
        click.option("--context", metavar="NAME", help="A live cluster, by this context of the kubeconfig."),
    )(function)


def version_options(function: F) -> F:
    """``--kubernetes-version`` and ``--feature-gates``."""
    return _chain(
        click.option(
            "--kubernetes-version",
            "minor",
            type=Version(),
            help="The release to judge by; default: the live server's, or the newest that fits the objects.",
        ),
        click.option(
            "--feature-gates",
            "gates",
            type=Gates(),
            default=dict,
            show_default="the live server's, or the release's and DRANodeAllocatableResources=true",
            help="Gates of the API server, merged over the defaults.",
        ),
    )(function)


def policies_option(function: F) -> F:
    """``--policies``."""
    return click.option(
        "--policies",
        metavar="PATH",
        multiple=True,
        help="Policy files or folders (repeatable); default: the shipped set.",
    )(function)


def output_option(*formats: str) -> Callable[[F], F]:
    """``-o`` with these formats, the first one the default."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        help="How to print the result.",
    )
