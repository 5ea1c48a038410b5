"""``allocguard free`` where there is nothing to free from; what it frees is seen in tests/e2e."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run


def test_no_cluster_to_free_claims_of(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    ran = run("free")
    assert (ran.code, ran.out) == (3, "")


def test_a_kubeconfig_that_is_not_there(run: Run, tmp_path: Path) -> None:
    ran = run("free", "--kubeconfig", tmp_path / "none")
    assert ran.code == 2
    assert "none: is not there; name a kubeconfig" in ran.err


def test_its_help_says_what_it_needs(run: Run) -> None:
    told = run("free", "--help").out
    assert "resourceclaims/binding" in told
    assert "30 seconds" in told
