"""The distribution: what is in the wheel is what is in the checkout, and it runs on its own."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run([*command, "--no-deps", "--no-index"], check=True, cwd=ROOT)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    pip("wheel", "--no-build-isolation", "--wheel-dir", str(folder), ".")
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    pip("install", "--target", str(folder), str(wheel))
    return folder


def test_the_wheel_holds_every_file_of_the_packages_and_the_shipped_policies(wheel: Path) -> None:
    files = [
        path.relative_to(ROOT).as_posix()
        for package in ("webhook", "certs", "policies")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    expected = {f"webhook/_shipped/{name}" if name.startswith("policies/") else name for name in files}
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    assert expected <= packed
    assert not {name for name in packed if name.startswith("tests/") or "__pycache__" in name}


def run_installed(installed: Path, folder: Path, *command: str | Path) -> str:
    """Standard output of a command that sees the installed wheel before the checkout."""
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_installed_packages_are_whole(installed: Path, tmp_path: Path) -> None:
    script = (
        "import importlib, pkgutil, certs, webhook\n"
        "for package in (webhook, certs):\n"
        "    for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        print(importlib.import_module(module.name).__file__)\n"
    )
    files = run_installed(installed, tmp_path, sys.executable, "-c", script).splitlines()
    assert len(files) > 10
    assert all(Path(file).is_relative_to(installed) for file in files)


@pytest.mark.parametrize("arguments", [["--help"], ["policy", "lint"]], ids=" ".join)
def test_the_installed_command_runs_without_the_checkout(installed: Path, tmp_path: Path, arguments: list[str]) -> None:
    assert run_installed(installed, tmp_path, installed / "bin" / "allocguard", *arguments)


def test_lock_files_name_hashes_and_no_address() -> None:
    for name in ("requirements.lock", "requirements-dev.lock"):
        lines = (ROOT / name).read_text().splitlines()
        pinned = [line for line in lines if "==" in line and not line.startswith(" ")]
        assert len(pinned) > 10
        assert all(line.endswith("\\") for line in pinned)
        assert not [line for line in lines if "://" in line or line.startswith("-")]
