"""Builds the real control plane, and what reads its traces and metrics, from the Go module proxy, once, into a cache
outside the checkout.

``python -m tests.e2e.build [RELEASE|TOOL…]`` builds what is not there yet and says how long that took. Without
arguments it builds the releases of ``ALLOCGUARD_E2E_RELEASES`` (``1.36,1.37``), which are those that tests run on, and
all tools. A folder of the cache is named by version and by the hash of go.mod and go.sum, so that an edit of either
builds anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MODULES = Path(__file__).parent / "controlplane"
KUBERNETES = {"1.36": "v1.36.3", "1.37": "v1.37.2"}
ETCD = "go.etcd.io/etcd/server/v3"
COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
JAEGER = "github.com/jaegertracing/jaeger/cmd/jaeger"
PROMTOOL = "github.com/prometheus/prometheus/cmd/promtool"


class NotBuilt(Exception):  # noqa: N818 - what the run cannot go on without
    """Why a binary is not there."""


def cache() -> Path:
    """The folder that keeps binaries: ``ALLOCGUARD_E2E_CACHE``, else ``allocguard/e2e`` in the user's cache."""
    given = os.environ.get("ALLOCGUARD_E2E_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(home) / "allocguard" / "e2e"


def releases() -> list[str]:
    """The releases to test on: ``ALLOCGUARD_E2E_RELEASES``, else all that can be built."""
    given = os.environ.get("ALLOCGUARD_E2E_RELEASES", "")
    return [each.strip() for each in given.split(",") if each.strip()] or list(KUBERNETES)


def etcd() -> Path:
    """The etcd binary, built first where it is missing."""
    return _built(MODULES / "etcd", "etcd", {"etcd": ETCD}, [])["etcd"]


def kubernetes(release: str) -> dict[str, Path]:
    """The binaries of the components of ``release`` (``1.36``, ``1.37``), built first where they are missing."""
    version = KUBERNETES[release]
    major, minor, _ = version.removeprefix("v").split(".")
    package = "k8s.io/component-base/version"
    # Without a version the server calls itself v0.0.0 and checks nothing that depends on one.
    flags = [f"-X {package}.gitVersion={version}", f"-X {package}.gitMajor={major}", f"-X {package}.gitMinor={minor}"]
    tools = {name: f"k8s.io/kubernetes/cmd/{name}" for name in COMPONENTS}
    return _built(MODULES / f"v{release}", version, tools, flags)


def jaeger() -> Path:
    """The Jaeger binary, all in one, built first where it is missing."""
    return _built(MODULES / "jaeger", "jaeger", {"jaeger": JAEGER}, [])["jaeger"]


def promtool() -> Path:
    """The promtool binary, built first where it is missing."""
    # Without what finds targets in every cloud, which no check and no test of rules needs: less than half to build.
    return _built(MODULES / "promtool", "promtool", {"promtool": PROMTOOL}, [], "remove_all_sd")["promtool"]


TOOLS = {"jaeger": jaeger, "promtool": promtool}


def _built(module: Path, name: str, tools: dict[str, str], flags: list[str], tags: str = "") -> dict[str, Path]:
    digest = hashlib.sha256((module / "go.mod").read_bytes() + (module / "go.sum").read_bytes()).hexdigest()[:12]
    folder = cache() / f"{name}-{digest}"
    if not folder.is_dir():
        cache().mkdir(parents=True, exist_ok=True)
        with (cache() / ".lock").open("w") as lock:
            # Whoever else builds makes the same: wait for it.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                _build(module, folder, tools, flags, tags)
    return {tool: folder / tool for tool in tools}


def _build(module: Path, folder: Path, tools: dict[str, str], flags: list[str], tags: str) -> None:
    go = shutil.which("go")
    if go is None:
        raise NotBuilt("go is not on the path; the control plane is built from source: install Go 1.26 or newer")
    _tell(f"building {', '.join(tools)} into {folder}: once, some minutes")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".building-") as scratch:
        for tool, package in tools.items():
            command = [go, "build", "-mod=readonly", f"-tags={tags}", f"-ldflags={' '.join(['-s', '-w', *flags])}"]
            done = subprocess.run(
                [*command, "-o", str(Path(scratch) / tool), package], cwd=module, capture_output=True, text=True
            )
            if done.returncode:
                raise NotBuilt(f"{tool} cannot be built:\n{done.stderr[-4000:]}")
        Path(scratch).rename(folder)
        # The scratch folder is removed at the end, under its old name.
        Path(scratch).mkdir()
    _tell(f"built {folder.name} in {time.monotonic() - began:.0f} s")


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def main(asked: list[str]) -> int:
    """Build the releases asked for, with their etcd, and the tools."""
    wanted = asked or [*releases(), *TOOLS]
    for each in wanted:
        if each not in KUBERNETES and each not in TOOLS:
            _tell(f"has {each}, needs one of {', '.join([*KUBERNETES, *TOOLS])}")
            return 2
    try:
        for each in wanted:
            if each in TOOLS:
                TOOLS[each]()
            else:
                etcd()
                kubernetes(each)
    except NotBuilt as problem:
        _tell(str(problem))
        return 1
    _tell(f"{', '.join(wanted)}: in {cache()}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
