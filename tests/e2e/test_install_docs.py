"""The commands of docs/install.md, in order, in one shell."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.guarding import kubelet
from tests.e2e.pages import as_pattern, fails, follow, shown, steps, text

PAGE = text("install.md")


def test_the_page(cluster: Cluster, tmp_path: Path) -> None:
    if shutil.which("kubectl") is None or shutil.which("curl") is None:
        pytest.skip("the page is for people with kubectl and curl")
    cluster.node("n1")
    with kubelet(cluster, "allocguard-system"):
        follow(PAGE, cluster, tmp_path)


def test_every_command_is_read() -> None:
    assert shown(PAGE) == len(steps(PAGE, "1.36")) + 2 == len(steps(PAGE, "1.37")) + 2 > 15


def test_what_dots_stand_for() -> None:
    assert re.fullmatch(as_pattern("a\n...\nb ... c"), "a\nany\nthing\nb 1 c\n")
    assert re.fullmatch(as_pattern("a\n...\nb"), "a\nb\n")
    assert not re.fullmatch(as_pattern("a ..."), "a 1\nError\n")
    assert not re.fullmatch(as_pattern("a"), "")
    assert re.fullmatch(as_pattern(""), "")
    assert fails("Error from server (Forbidden): ...")
