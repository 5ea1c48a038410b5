"""The steps of deploy/Containerfile as plain commands: no container engine is needed to know that they work."""

from __future__ import annotations

import json
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.client import Json
from tests.e2e.processes import Process, free_port, until

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "deploy" / "Containerfile").read_text()
PLACE = "/opt/allocguard"


def lines(word: str) -> list[str]:
    return re.findall(rf"^{word} (.*)$", TEXT, re.MULTILINE)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder that the image has at /opt/allocguard, which nothing may write to."""
    folder = tmp_path_factory.mktemp("image")
    build, place = folder / "build", folder / "opt"
    build.mkdir()
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*wheel, "--wheel-dir", build / "dist", ROOT], check=True)
    shutil.copy(ROOT / "requirements.lock", build)
    for step in lines("RUN"):
        subprocess.run(["sh", "-ec", step.replace(PLACE, str(place))], cwd=build, check=True)
    for path in place.rglob("*"):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
    yield place
    for path in place.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            path.chmod(path.stat().st_mode | stat.S_IWUSR)


def run(image: Path, *arguments: str) -> str:
    [entry] = json.loads(lines("ENTRYPOINT")[0])
    command = [entry.replace(PLACE, str(image)), *arguments]
    done = subprocess.run(command, cwd="/", env={}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_image_has_everything_the_command_ships(image: Path) -> None:
    assert run(image, *json.loads(lines("CMD")[0])).startswith("Usage: allocguard")
    assert "no problem" in run(image, "policy", "lint")
    kinds = {each["kind"] for each in json.loads(run(image, "install", "-o", "json"))["items"]}
    assert {"CustomResourceDefinition", "Deployment"} <= kinds
    assert not list((image / "bin").glob("pip*"))


def test_it_runs_as_nobody_with_numbers_that_kubernetes_can_check() -> None:
    assert lines("USER") == ["65532:65532"]
    assert len(lines("FROM")) == 2


def test_it_serves_from_a_folder_that_it_cannot_write(image: Path, tmp_path: Path) -> None:
    port, metrics = free_port(), free_port()
    objects: Json = {"apiVersion": "v1", "kind": "List", "items": []}
    (tmp_path / "objects.json").write_text(json.dumps(objects))
    command = [image / "bin" / "allocguard", "serve", f"--cluster={tmp_path / 'objects.json'}", "--host=127.0.0.1"]
    command += [f"--port={port}", f"--metrics-port={metrics}", f"--certs={tmp_path / 'run' / 'certs'}"]
    server = Process("container", command, tmp_path / "container.log")
    server.start()
    try:

        def ready() -> bool:
            try:
                return httpx.get(f"https://127.0.0.1:{metrics}/readyz", verify=False).status_code == 200
            except httpx.HTTPError:
                return False

        until(ready, 30, "it is ready")
    finally:
        assert server.stop() == 0
