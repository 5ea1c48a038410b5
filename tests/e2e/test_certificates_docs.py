"""The commands of docs/certificates.md, in order, in one shell."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.guarding import kubelet
from tests.e2e.pages import follow, shown, steps, text

PAGE = text("certificates.md")


def test_the_page(cluster: Cluster, tmp_path: Path) -> None:
    if shutil.which("kubectl") is None or shutil.which("curl") is None:
        pytest.skip("the page is for people with kubectl and curl")
    with kubelet(cluster, "allocguard-system"):
        follow(PAGE, cluster, tmp_path)


def test_every_command_is_read() -> None:
    assert shown(PAGE) == len(steps(PAGE, "1.36")) == len(steps(PAGE, "1.37")) > 15
