"""The steps of deploy/Containerfile as plain commands: no container engine is needed to know that they work."""

from __future__ import annotations

import json
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml

from tests.e2e.client import Json
from tests.e2e.processes import Process, free_port, until

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "deploy" / "Containerfile").read_text()
PLACE, BELOW = "/opt/allocguard", "/usr/local"
_, BUILD, FINAL = re.split(r"^(?=FROM )", TEXT, flags=re.MULTILINE)

MINE = """
apiVersion: allocguard.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: mine}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  validations: [{name: none, expression: "false", message: is a pod}]
  action: Deny
"""


def lines(word: str, text: str = FINAL) -> list[str]:
    return re.findall(rf"^{word} (.*)$", text, re.MULTILINE)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder that the image has at /opt/allocguard, which nothing may write to."""
    folder = tmp_path_factory.mktemp("image")
    build, place = folder / "build", folder / "opt"
    build.mkdir()
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*wheel, "--wheel-dir", build / "dist", ROOT], check=True)
    shutil.copy(ROOT / "requirements.lock", build)
    for step in lines("RUN", BUILD):
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


def test_what_it_runs_on_has_no_pip_and_nothing_that_brings_it_back(tmp_path: Path) -> None:
    """A Python as the base image has it below /usr/local, with pip, and the steps that are taken there."""
    below = tmp_path / "local"
    library = below / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    (library / "site-packages").mkdir(parents=True)
    (below / "bin").mkdir()
    python = shutil.copy(Path(sys.executable).resolve(), below / "bin" / "python3")
    theirs = Path(sysconfig.get_path("stdlib"))
    for entry in theirs.iterdir():
        if entry.name not in ("ensurepip", "site-packages"):
            (library / entry.name).symlink_to(entry)
    shutil.copytree(theirs / "ensurepip", library / "ensurepip")

    def works(module: str, *arguments: str) -> bool:
        done = subprocess.run([python, "-I", "-m", module, *arguments], env={}, capture_output=True, text=True)
        assert done.returncode == 0 or f"No module named {module}" in done.stderr, done.stderr
        return done.returncode == 0

    assert works("ensurepip", "--default-pip")
    assert works("pip", "--version")
    assert (below / "bin" / "pip").is_file()
    for step in lines("RUN"):
        here = step.replace(BELOW, str(below))
        # What is below /usr/local of this machine is nobody's to remove.
        assert BELOW not in here
        subprocess.run(["sh", "-ec", here], check=True)
    assert not works("pip", "--version")
    assert not works("ensurepip", "--version")
    assert not list((below / "bin").glob("pip*"))
    assert works("json.tool", "--help")


@contextmanager
def served(image: Path, folder: Path, *arguments: str) -> Iterator[str]:
    """A server of the image, ready; where its port for metrics and health is."""
    port, metrics = free_port(), free_port()
    objects: Json = {"apiVersion": "v1", "kind": "List", "items": []}
    (folder / "objects.json").write_text(json.dumps(objects))
    command = [image / "bin" / "allocguard", "serve", f"--cluster={folder / 'objects.json'}", "--host=127.0.0.1"]
    command += [f"--port={port}", f"--metrics-port={metrics}", f"--certs={folder / 'run' / 'certs'}", *arguments]
    server = Process("container", command, folder / "container.log")
    server.start()
    try:

        def ready() -> bool:
            try:
                return httpx.get(f"https://127.0.0.1:{metrics}/readyz", verify=False).status_code == 200
            except httpx.HTTPError:
                return False

        until(ready, 30, "it is ready")
        yield f"https://127.0.0.1:{metrics}"
    finally:
        assert server.stop() == 0


def test_it_serves_from_a_folder_that_it_cannot_write(image: Path, tmp_path: Path) -> None:
    with served(image, tmp_path):
        pass


def test_policies_of_a_cluster_serve_beside_the_shipped_ones(image: Path, tmp_path: Path) -> None:
    """Those that the component mounts. Its second argument alone would have them serve in place of the shipped ones."""
    recipe = yaml.safe_load((ROOT / "deploy" / "components" / "policies" / "kustomization.yaml").read_text())
    [patch] = [yaml.safe_load(each["patch"]) for each in recipe["patches"]]
    arguments = [each["value"] for each in patch if each["path"].endswith("/args/-")]
    [mount] = [each["value"] for each in patch if each["path"].endswith("/volumeMounts/-")]
    # As a kubelet mounts a ConfigMap.
    mounted = tmp_path / "mounted"
    (mounted / "..v1").mkdir(parents=True)
    (mounted / "..v1" / "mine.yaml").write_text(MINE)
    (mounted / "..data").symlink_to("..v1")
    (mounted / "mine.yaml").symlink_to("..data/mine.yaml")
    for place, here in ((PLACE, image), (mount["mountPath"], mounted)):
        arguments = [each.replace(place, str(here)) for each in arguments]

    def set_of(*folders: str) -> tuple[int, str]:
        told = re.match(r"(\d+) polic(?:y|ies), no problem, revision (\w+)$", run(image, "policy", "lint", *folders))
        assert told is not None
        return int(told[1]), told[2]

    shipped, all_of_them = set_of(), set_of(*(each.removeprefix("--policies=") for each in arguments))
    assert all_of_them[0] == shipped[0] + 1 > 20
    with served(image, tmp_path, *arguments) as url:
        told = httpx.get(f"{url}/readyz?verbose", verify=False).text
    assert f"[+]policies ok, revision {all_of_them[1]}\n" in told
