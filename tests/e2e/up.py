"""One control plane to work with by hand: ``python -m tests.e2e.up [RELEASE [NODES]] [--FLAG=VALUE …]`` runs it until
Ctrl-C.

It has one ready node, ``n1``, or so many, up to 99, and prints the line that tells kubectl and allocguard of it. Flags
are given to its API server. Nothing of it is kept.
"""

from __future__ import annotations

import re
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.e2e import build, processes
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import API_SERVER, ControlPlane

_COUNT = re.compile("[1-9][0-9]?")


def main(asked: list[str]) -> int:
    """Run it; gives the exit code."""
    flags = [each for each in asked if each.startswith("--")]
    asked = [each for each in asked if not each.startswith("--")]
    release = asked[0] if asked else build.releases()[-1]
    nodes = asked[1] if len(asked) > 1 else "1"
    if not _COUNT.fullmatch(nodes) or len(asked) > 2:
        sys.stderr.write(f"has {' '.join(asked[1:])}, needs how many nodes it is to have, 1 to 99\n")
        return 2
    if release not in build.KUBERNETES:
        sys.stderr.write(f"has {release}, needs one of {', '.join(build.KUBERNETES)}\n")
        return 2
    # Who starts it in the background of a script has it ignore Ctrl-C.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        with tempfile.TemporaryDirectory(prefix="allocguard-e2e-") as folder:
            _run(Path(folder), release, int(nodes), flags)
    except KeyboardInterrupt:
        return 0
    except (build.NotBuilt, processes.Died, TimeoutError) as problem:
        sys.stderr.write(f"{problem}\n")
        return 1


def _run(folder: Path, release: str, nodes: int, flags: list[str]) -> None:
    plane = ControlPlane(folder, release, flags={API_SERVER: flags})
    try:
        plane.start()
        cluster = Cluster(plane, "", folder)
        for number in range(1, nodes + 1):
            cluster.node(f"n{number}")
        access = plane.kubeconfig("admin", "system:masters")
        sys.stdout.write(f"Kubernetes {release} runs, logs are in {folder}; Ctrl-C ends it. In another terminal:\n")
        sys.stdout.write(f"export KUBECONFIG={access}\n")
        sys.stdout.flush()
        while True:
            processes.check()
            time.sleep(1)
    finally:
        plane.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
