"""Status writes that a real API server refuses, as our server hears of them: by its audit webhook, and from its log."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.e2e.client import Json
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import API_SERVER
from tests.e2e.failed_writes import COMPONENT, LEVELS, ROWS, Scene, audit_policy
from tests.e2e.guard import Guard
from tests.e2e.guarding import asked, definitions
from tests.e2e.kinds import path
from tests.e2e.waiting import eventually, steady
from tests.facts.refused import EXPECTED
from webhook.facts.write_failures import LASTING, PASSING

TOKEN = "a-token-of-this-test"
TOLD = "status write failed"
COUNT = "allocguard_status_write_failures_total"


def sink(folder: Path, guard: Guard) -> list[str]:
    """Flags of an API server that sends its audit events to ``guard``, and writes them to ``folder`` too."""
    shipped = (COMPONENT / "kubeconfig.yaml").read_text()
    for ours, here in (
        ("https://CLUSTER-IP", guard.url),
        # The certificate of the test is for that name, too.
        ("allocguard.allocguard-system.svc", "localhost"),
        ("/etc/kubernetes/allocguard/ca.crt", str(guard.certificates / "ca.crt")),
        ("/etc/kubernetes/allocguard/token", str(folder / "token")),
    ):
        assert shipped.count(ours) == 1
        shipped = shipped.replace(ours, here)
    (folder / "audit.kubeconfig").write_text(shipped)
    return [
        f"--audit-policy-file={audit_policy(folder)}",
        f"--audit-webhook-config-file={folder / 'audit.kubeconfig'}",
        "--audit-webhook-batch-max-wait=1s",
        f"--audit-log-path={folder / 'audit.log'}",
    ]


def told(guard: Guard, namespace: str) -> dict[str, tuple[tuple[str, str], ...]]:
    """The alerts in the log of ``guard``: by claim the causes, each with the usual one."""
    found: dict[str, tuple[tuple[str, str], ...]] = {}
    for line in guard.lines(event=TOLD):
        if line["namespace"] == namespace:
            found[line["name"]] = (*found.get(line["name"], ()), (line["cause"], line["usual"]))
    return found


@pytest.fixture
def audited(fresh_cluster: Callable[..., Cluster], tmp_path: Path) -> tuple[Cluster, Guard, Guard]:
    """A control plane that tells one of our servers what happens, and writes it down for another."""
    (tmp_path / "token").write_text(TOKEN)
    for level in LEVELS:
        (tmp_path / level).mkdir()
    cluster = fresh_cluster()
    definitions(cluster)
    # What the API server refuses is looked at, so the guard refuses nothing itself.
    options = [f"--namespace={cluster.namespace('guard')}", f"--audit-token-file={tmp_path / 'token'}", "--mode=audit"]
    by_post = cluster.guard(*options, start=False)
    server = cluster.plane.processes[API_SERVER]
    server.command += sink(tmp_path, by_post)
    server.restart()
    cluster.plane.ready()
    by_post.start()
    asked(cluster, by_post)
    by_log = cluster.guard(*options, f"--audit-log={tmp_path / 'audit.log'}")
    return cluster, by_post, by_log


def test_every_way_to_be_refused(audited: tuple[Cluster, Guard, Guard], tmp_path: Path) -> None:
    """Whichever way the events come: what stays is told once for each cause, claim and writer, with an event about the
    claim, and what passes is counted; a claim whose devices nobody could report on has its devices still.
    """
    fresh, *guards = audited
    cluster = Cluster(fresh.plane, "metadata", tmp_path / "Metadata")
    scene = Scene(cluster)
    for name, row in ROWS.items():
        row(scene, name)
    wanted = {
        name: tuple(each for each in causes if each[0] in LASTING)
        for name, causes in EXPECTED.items()
        if any(cause in LASTING for cause, _ in causes)
    }
    for guard in guards:
        eventually(lambda guard=guard: len(told(guard, cluster.ns)) >= len(wanted))
        assert told(guard, cluster.ns) == wanted
        for cause in {cause for causes in EXPECTED.values() for cause, _ in causes}:
            assert guard.metric(COUNT, reason=cause), cause
        assert guard.metric("allocguard_audit_events_total", outcome="written")
        assert not guard.metric("allocguard_audit_events_total", outcome="unreadable")
        assert not guard.lines(level="error")
        ready = guard.get("/readyz?verbose").text
        assert "[+]audit events ok, the last came" in ready

    def written() -> bool:
        held = [name for name in wanted if cluster.as_admin.find(cluster.path("ResourceClaim", name))]
        events = {name: cluster.events(name, "StatusWriteFailed") for name in held}
        assert {name: len(events[name]) for name in held} == {name: len(wanted[name]) for name in held}
        return True

    eventually(written)
    steady(written, during=1)
    [message] = cluster.events("driver-wrong-names", "StatusWriteFailed")
    driver = scene.driver.name
    assert f"on node {scene.driver.node} with no associated-node:patch or arbitrary-node:patch" in message
    assert f"resourceNames: [{driver}], verbs: [associated-node:patch]" in message
    assert "a role has it for gpu.example.org" in message
    assert all(cause in PASSING or name in wanted for name, causes in EXPECTED.items() for cause, _ in causes)
    charged(cluster, scene.driver.node, "driver-verb-missing")
    cluster.abandon()
    # Where requests are sent along, they tell what was touched, whatever roles say.
    cluster = Cluster(fresh.plane, "requestresponse", tmp_path / "RequestResponse")
    scene = Scene(cluster)
    for name in ("foreign-data", "both"):
        ROWS[name](scene, name)
    for guard in guards:
        eventually(lambda guard=guard: len(told(guard, cluster.ns)) == 2)
        assert told(guard, cluster.ns) == {name: EXPECTED[name] for name in ("foreign-data", "both")}
    cluster.abandon()


def charged(cluster: Cluster, node: str, claim: str) -> None:
    """The ledger of ``node`` books ``claim``, which is allocated and has nothing said of its devices."""
    obj = cluster.get("ResourceClaim", claim)
    assert "devices" not in obj["status"]
    uid = obj["metadata"]["uid"]

    def booked() -> bool:
        ledger = cluster.as_admin.get(path("NodeLedger", node))
        return uid in json.dumps(ledger["status"])

    eventually(booked)


def test_nobody_else_is_heard(cluster: Cluster, tmp_path: Path) -> None:
    """Without the token nothing is taken in; with it, whatever is sent, the server goes on."""
    (tmp_path / "token").write_text(TOKEN)
    guard = cluster.guard(f"--audit-token-file={tmp_path / 'token'}", objects=[])
    place = {"apiGroup": "resource.k8s.io", "resource": "resourceclaims", "subresource": "status", "name": "c"}
    event: Json = {"objectRef": place, "verb": "patch", "stage": "ResponseComplete", "responseStatus": {"code": 403}}
    body = {"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "items": [event, 7, {**event, "user": []}]}
    trust = ssl.create_default_context(cadata=guard.authority.decode())

    def post(content: bytes, token: str) -> int:
        headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
        return httpx.post(f"{guard.url}/audit", content=content, headers=headers, verify=trust).status_code

    good = json.dumps(body).encode()
    assert post(good, "other") == 401
    for bad in (b"", good[:-40], b"[" * 100_000, b'{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":7}'):
        assert post(bad, TOKEN) == 400
    assert post(b" " * 12 * 1024 * 1024, TOKEN) == 413
    assert not guard.metric(COUNT)
    assert post(good, TOKEN) == 200
    eventually(lambda: guard.metric(COUNT, reason="other", writer="unauthenticated") == 2)
    assert not guard.lines(level="error")
    assert {line["code"] for line in guard.lines(event="audit events refused")} == {400, 401, 413}
