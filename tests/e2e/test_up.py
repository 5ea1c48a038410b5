"""The control plane that is started by hand."""

from __future__ import annotations

import json
import signal
import ssl
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.e2e import build
from tests.e2e.failed_writes import COMPONENT

COMMAND = [sys.executable, "-m", "tests.e2e.up"]


def test_it_runs_until_it_is_interrupted(tmp_path: Path) -> None:
    audited = [f"--audit-policy-file={COMPONENT / 'policy.yaml'}", f"--audit-log-path={tmp_path / 'audit.log'}"]
    command = [*COMMAND, build.releases()[0], "2", *audited]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            told, export = process.stdout.readline(), process.stdout.readline()
            assert build.releases()[0] in told
            access = Path(export.strip().removeprefix("export KUBECONFIG="))
            found = json.loads(access.read_text())
            user = found["users"][0]["user"]
            trust = ssl.create_default_context(cafile=str(access.parent / "pki" / "ca.crt"))
            trust.load_cert_chain(user["client-certificate"], user["client-key"])
            server = found["clusters"][0]["cluster"]["server"]
            with httpx.Client(verify=trust, trust_env=False) as client:
                nodes = client.get(f"{server}/api/v1/nodes").json()["items"]
            assert [node["metadata"]["name"] for node in nodes] == ["n1", "n2"]
            assert (tmp_path / "audit.log").exists()
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
            assert not access.parent.exists()
        finally:
            process.kill()


def test_another_release_is_refused() -> None:
    done = subprocess.run([*COMMAND, "1.12"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"has 1.12, needs one of {', '.join(build.KUBERNETES)}\n"


@pytest.mark.parametrize("asked", [["0"], ["x"], ["2", "3"]])
def test_a_number_of_nodes_that_is_none_is_refused(asked: list[str]) -> None:
    done = subprocess.run([*COMMAND, build.releases()[0], *asked], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"has {' '.join(asked)}, needs how many nodes it is to have, 1 to 99\n"
