"""Every recorded review gets the verdict wanted, through ``allocguard review`` and through the HTTPS server alike."""

from __future__ import annotations

import json
import ssl
import threading
import time
from base64 import b64decode
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from click.testing import CliRunner
from starlette.applications import Starlette
from starlette.routing import Mount

from certs.context import ServingContext
from certs.files import ensure
from webhook.cli.program import program
from webhook.cluster.files import Cluster
from webhook.server.app import build
from webhook.server.service import Service
from webhook.store.policies import PolicyStore, shipped
from webhook.telemetry.log import Log

REVIEWS = Path(__file__).parent / "reviews"
STEPS = sorted(path.parent for path in REVIEWS.glob("*/expected.json"))
GATES = {"DRAListTypeAttributes": True}
Json = dict[str, Any]


@cache
def expected(step: Path) -> Json:
    wanted: Json = json.loads((step / "expected.json").read_text())
    return wanted


def cases() -> Iterator[Any]:
    for step in STEPS:
        for file, wanted in expected(step)["reviews"].items():
            yield pytest.param(step, file, wanted, id=f"{step.name}-{file[:2]}")


def clock(step: Path) -> datetime:
    return datetime.fromisoformat(expected(step)["at"])


def cluster_paths(step: Path) -> list[str]:
    return [str(step / "cluster.json"), str(step / "rollouts.yaml")]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ssl.SSLContext]]:
    """One real HTTPS server, on which each step has its own cluster below its own path."""
    folder = tmp_path_factory.mktemp("certs")
    ensure(folder, ["127.0.0.1"], datetime.now(UTC))
    context = ServingContext(folder, datetime.now(UTC))
    log, policies = Log(), PolicyStore([shipped()])
    mounts = []
    for step in STEPS:
        service = Service(policies, Cluster(cluster_paths(step), None, GATES), log, lambda step=step: clock(step))
        mounts.append(Mount(f"/{step.name}", app=build(service)))
    config = uvicorn.Config(
        Starlette(routes=mounts),
        host="127.0.0.1",
        port=0,
        log_config=None,
        lifespan="off",
        ssl_context_factory=lambda _config, _default: context,
    )
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run)
    thread.start()
    while not running.started:
        assert thread.is_alive()
        time.sleep(0.01)
    port = running.servers[0].sockets[0].getsockname()[1]
    yield f"https://127.0.0.1:{port}", ssl.create_default_context(cafile=str(folder / "ca.crt"))
    running.should_exit = True
    thread.join()
    log.close()


@pytest.fixture(scope="session")
def client(server: tuple[str, ssl.SSLContext]) -> Iterator[httpx.Client]:
    url, trust = server
    with httpx.Client(base_url=url, verify=trust) as made:
        yield made


def why_wrong(wanted: Json, response: Json) -> list[str]:
    """In what the response differs from what is wanted."""
    warnings = response.get("warnings", [])
    findings = response["auditAnnotations"].get("findings", "")
    rules = {name.partition("/")[2] for name in findings.split(",")}
    wrong = []
    if "allowed" in wanted and response["allowed"] != wanted["allowed"]:
        wrong.append(f"allowed is {response['allowed']}: {response.get('status')}")
    if wanted.get("flagged") and response["allowed"] and not warnings:
        wrong.append("neither refused nor warned about")
    if wanted.get("warnings") is True and not warnings:
        wrong.append("no warning")
    if wanted.get("warnings") is False and warnings:
        wrong.append(f"warnings {warnings}")
    if wanted.get("rules") and not rules & set(wanted["rules"]):
        wrong.append(f"one of {wanted['rules']} wanted, got {rules}")
    patch = json.loads(b64decode(response.get("patch", "W10=")))
    if patch != (wanted.get("patch") or []):
        wrong.append(f"the patch {patch}")
    return wrong


@pytest.mark.parametrize(("step", "file", "wanted"), list(cases()))
def test_review(step: Path, file: str, wanted: Json, client: httpx.Client) -> None:
    body = (step / file).read_bytes()
    answer = client.post(f"/{step.name}/{wanted['endpoint']}?timeout=5s", content=body, headers=JSON)
    assert answer.status_code == 200, answer.text
    assert why_wrong(wanted, answer.json()["response"]) == []
    assert answer.json()["response"]["uid"] == json.loads(body)["request"]["uid"]

    clusters = [arg for path in cluster_paths(step) for arg in ("--cluster", path)]
    at = expected(step)["at"]
    gates = ",".join(f"{name}={str(on).lower()}" for name, on in GATES.items())
    args = [
        "review",
        str(step / file),
        "--endpoint",
        wanted["endpoint"],
        "--at",
        at,
        "--feature-gates",
        gates,
        *clusters,
    ]
    printed = CliRunner().invoke(program, args)
    assert printed.exit_code == 0, printed.output
    assert printed.stdout_bytes == answer.content + b"\n"


JSON = {"content-type": "application/json"}


@pytest.mark.parametrize("file", sorted((REVIEWS / "raw-1.37").glob("*.json")), ids=lambda path: path.stem)
def test_reviews_of_1_37_are_understood(file: Path) -> None:
    args = ["review", str(file), "--kubernetes-version", "1.37", "--cluster", str(STEPS[0] / "rollouts.yaml")]
    printed = CliRunner().invoke(program, args)
    assert printed.exit_code == 0, printed.output
    assert json.loads(printed.stdout)["response"]["uid"]
