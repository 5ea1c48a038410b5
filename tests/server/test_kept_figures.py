"""Kept lines are those that would be made anew, whatever changes: each case is a cluster in which one thing does, and
that shows. The cases are enough: without any one of the inputs, lines of some case are kept that should not be.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from datetime import datetime, timedelta
from types import ModuleType
from typing import Any

import pytest

from tests.server.node_changes import NODES
from tests.server.pool_changes import NOW, POOLS, Case
from webhook.kube.snapshot import Snapshot
from webhook.ledger import book
from webhook.server import figures as subject
from webhook.server.figures import Figures

CASES = POOLS | NODES


def shown(figures: Figures, now: datetime) -> tuple[bytes, dict[str, int]]:
    return b"".join(figures.lines(now, lambda *_: None)), dict(figures.differences)


def fresh(snapshot: Snapshot, now: datetime) -> tuple[bytes, dict[str, int]]:
    figures = Figures()
    figures.refresh(snapshot, now)
    return shown(figures, now)


def stale(each: Case) -> bool:
    """Whether lines are kept that would be others, there or back."""
    kept, after, later = Figures(), each.change(each.before), NOW + timedelta(seconds=each.seconds)
    kept.refresh(each.before, NOW)
    kept.refresh(after, later)
    there = shown(kept, later) != fresh(after, later)
    kept.refresh(each.before, NOW)
    return there or shown(kept, NOW) != fresh(each.before, NOW)


@pytest.mark.parametrize("name", CASES)
def test_what_is_kept_is_what_would_be_made_anew(name: str) -> None:
    each = CASES[name]
    later = NOW + timedelta(seconds=each.seconds)
    before, after = (fresh(snapshot, later) for snapshot in (each.before, each.change(each.before)))
    assert before != after or (each.seconds and before != fresh(each.before, NOW))
    assert not stale(each)


class _Without(ast.NodeTransformer):
    """Leaves out the statement that is the ``number``-th to yield inputs."""

    def __init__(self, number: int) -> None:
        self.number = number

    def visit_Expr(self, statement: ast.Expr) -> ast.stmt:
        if isinstance(statement.value, ast.Yield | ast.YieldFrom):
            self.number -= 1
            if self.number == -1:
                return ast.copy_location(ast.Pass(), statement)
        return statement


def _yields(module: ModuleType) -> Iterator[tuple[ModuleType, int]]:
    found = [each for each in ast.walk(_source(module)) if isinstance(each, ast.Yield | ast.YieldFrom)]
    return ((module, number) for number in range(len(found)))


def _source(module: ModuleType) -> ast.Module:
    return ast.parse(inspect.getsource(module._inputs))


@pytest.mark.parametrize(("module", "number"), [*_yields(subject), *_yields(book)])
def test_every_input_counts(monkeypatch: pytest.MonkeyPatch, module: ModuleType, number: int) -> None:
    changed = _Without(number).visit(_source(module))
    made: dict[str, Any] = dict(vars(module))
    exec(compile(ast.fix_missing_locations(changed), module.__file__ or "", "exec"), made)
    monkeypatch.setattr(module, "_inputs", made["_inputs"])
    assert any(map(stale, CASES.values()))
