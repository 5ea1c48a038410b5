"""The registration as files of the API server (KEP-5793)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.client import ApiError
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import API_SERVER
from tests.e2e.guarding import malformed
from tests.e2e.kinds import path
from tests.e2e.processes import free_port
from tests.e2e.waiting import eventually

GATE = "ManifestBasedAdmissionControlConfig"


def write(folder: Path, port: int, authority: Path, *arguments: str) -> None:
    """``allocguard install --static --apply``."""
    command = [sys.executable, "-m", "webhook.cli", "install", "--static", "--apply", f"--folder={folder}"]
    command += [f"--url=https://127.0.0.1:{port}", f"--ca-file={authority}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_static_registration(fresh_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    """It holds without any object in the API, nobody can remove it through the API, and a new file counts by itself."""
    from datetime import UTC, datetime

    from certs.files import ensure

    port, folder, certificates = free_port(), tmp_path / "static", tmp_path / "certs"
    ensure(certificates, ["127.0.0.1"], datetime.now(UTC))
    write(folder, port, certificates / "ca.crt")
    cluster = fresh_cluster(
        component_gates={API_SERVER: {GATE: True}},
        flags={API_SERVER: [f"--admission-control-config-file={folder / 'admission.yaml'}"]},
    )
    driver = cluster.driver("cpu.example", cluster.node("n1"))

    def refusal() -> str:
        try:
            driver.publish([malformed(driver)])
        except ApiError as error:
            return error.message
        driver.withdraw()
        return ""

    # Nobody answers yet: what has to be judged waits.
    assert "mapped-slices.allocguard.dev" in eventually(refusal)
    driver.publish([driver.device("plain")])
    driver.withdraw()
    guard = cluster.guard(f"--port={port}", f"--certs={certificates}", objects=[], ready=False)
    eventually(lambda: "denied the request" in refusal())
    assert cluster.as_admin.items(path("ValidatingWebhookConfiguration")) == []
    # A name of this kind cannot be taken through the API.
    body = {"metadata": {"name": "allocguard.static.k8s.io"}}
    with pytest.raises(ApiError) as caught:
        cluster.as_admin.create(path("ValidatingWebhookConfiguration"), body)
    assert caught.value.code == 422
    # The files are followed: in audit mode nothing waits.
    guard.kill()
    write(folder, port, certificates / "ca.crt", "--mode=audit")
    eventually(lambda: not refusal(), within=90)
