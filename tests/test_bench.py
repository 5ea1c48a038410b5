"""``python -m tests.bench`` tells what it measures; what it measures is nobody's verdict, and runs by hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.bench.__main__ import APART, FIGURES, main


def test_every_figure_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Each module that can be started is one, but for the server that is measured."""
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    started = {each.stem for each in (Path(__file__).parent / "bench").glob("*.py") if "__main__" in each.read_text()}
    started -= {"__main__", "server"}
    assert {name.split()[0] for name in APART} == started - FIGURES.keys()
    for name, (_, about) in FIGURES.items():
        assert f"  {name} " in told
        assert about in told
    assert all(f"python -m tests.bench.{name}\n" in told for name in APART)


def test_a_figure_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["ledger", "speed"])
    assert ended.value.code == 2
    assert "there is no figure 'speed', needs one of https, " in capsys.readouterr().err


@pytest.mark.parametrize(("asked", "printed"), [([], list(FIGURES)), (["ledger", "https"], ["ledger", "https"])])
def test_those_that_are_named_are_printed(
    monkeypatch: pytest.MonkeyPatch, asked: list[str], printed: list[str]
) -> None:
    # The cores are left to the tests.
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    ran: list[str] = []
    for name, (_, about) in FIGURES.items():
        monkeypatch.setitem(FIGURES, name, (lambda folder, core, name=name: ran.append(name), about))
    main(asked)
    assert ran == printed
