"""The commands of docs/rollout.md, in order, in one shell, on a control plane that is as empty as the page has it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.guarding import kubelet
from tests.e2e.pages import follow, shown, steps, text

PAGE = text("rollout.md")


def test_the_page(fresh_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    if shutil.which("kubectl") is None or shutil.which("curl") is None:
        pytest.skip("the page is for people with kubectl and curl")
    cluster = fresh_cluster()
    for number in range(1, 6):
        cluster.node(f"n{number}")
    with kubelet(cluster, "allocguard-system"):
        follow(PAGE, cluster, tmp_path)


def test_every_command_is_read() -> None:
    # What is shown for one release only: a function in either, one more command in 1.36 and two in 1.37.
    assert shown(PAGE) == len(steps(PAGE, "1.36")) + 3 == len(steps(PAGE, "1.37")) + 2 > 50
