from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.controllers.playing import running, until
from webhook.cluster.access_reviews import PATH
from webhook.cluster.api import ApiError, Unreachable
from webhook.cluster.live import Changed
from webhook.controllers import rbac_sweep
from webhook.controllers.rbac_probes import OTHER
from webhook.controllers.rbac_sweep import RbacSweep
from webhook.kube.snapshot import Snapshot
from webhook.policy.revision import revision_of
from webhook.telemetry.log import Log

Json = dict[str, Any]
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
DRIVER, ACCOUNT = "gpu.example.com", "gpu-plugin"
RBAC = "rbac.authorization.k8s.io"


def role(rules: Iterable[Json], name: str = ACCOUNT) -> Json:
    return {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": list(rules)}


def binding(of: str = ACCOUNT) -> Json:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": of},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": of},
        "subjects": [{"kind": "ServiceAccount", "namespace": "gpu", "name": ACCOUNT}],
    }


def dra(resource: str, *verbs: str, names: Iterable[str] = ()) -> Json:
    named = {"resourceNames": list(names)} if names else {}
    return {"apiGroups": ["resource.k8s.io"], "resources": [resource], "verbs": list(verbs), **named}


ROLLOUT = {
    "apiVersion": "allocguard.dev/v1alpha1",
    "kind": "DriverRollout",
    "metadata": {"name": DRIVER},
    "spec": {"writers": [{"namespace": "gpu", "serviceAccount": ACCOUNT, "profile": "NodeLocal"}]},
}
NARROW = [
    dra("resourceclaims/status", "patch"),
    dra("resourceclaims/driver", "associated-node:patch", names=[DRIVER]),
]
WIDE = [dra("resourceclaims/status", "patch"), dra("resourceclaims/driver", "associated-node:patch")]


class Cluster:
    """A view that tests change."""

    def __init__(self, *objects: Json) -> None:
        self.on_change: list[Changed] = []
        self.snapshot = Snapshot()
        for obj in objects:
            self.put(obj)

    def put(self, obj: Json) -> None:
        before, self.snapshot = self.snapshot, self.snapshot.put(obj)
        for hear in self.on_change:
            hear(obj["kind"], ("", obj["metadata"]["name"]), before, self.snapshot)


class Server:
    """Allows what ``allows`` says; has no policies and no registration."""

    def __init__(self) -> None:
        self.allows: Callable[[Json], bool] = lambda attributes: False
        self.refusal: Exception | None = None
        self.asked: list[Json] = []

    async def create(self, path: str, obj: Json, **params: object) -> Json:
        assert path == PATH
        if self.refusal is not None:
            raise self.refusal
        attributes = obj["spec"]["resourceAttributes"]
        self.asked.append(attributes)
        allowed = self.allows(attributes)
        return {"status": {"allowed": allowed, "reason": "by the cloud" if allowed else ""}}

    async def get(self, path: str, **params: object) -> Json:
        if path.endswith("/allocguard"):
            raise ApiError(404, "NotFound", "no registration")
        return {"items": []}


class Policies:
    revision = revision_of([])


class Sweep:
    def __init__(self, *objects: Json) -> None:
        self.server, self.cluster, self.said = Server(), Cluster(*objects), io.StringIO()
        self.log = Log(self.said)
        self.counts: list[Mapping[tuple[str, str], int]] = []
        self.made = RbacSweep(
            self.server,  # type: ignore[arg-type]  # the same methods
            self.cluster,
            Policies(),  # type: ignore[arg-type]  # what is read of it
            self.log,
            lambda: NOW,
        )
        self.made.on_findings = self.counts.append

    async def run(self) -> None:
        await self.made.run()

    async def begun(self) -> None:
        await until(lambda: self.counts)

    def look(self) -> None:
        asyncio.run(self.made.look())

    def told(self, event: str) -> list[Json]:
        self.log.close()
        lines = [json.loads(line) for line in self.said.getvalue().splitlines()]
        self.log = self.made._log = Log(self.said)
        return [line for line in lines if line["event"] == event]


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rbac_sweep, "GATHER", 0.01)


def test_what_is_too_wide_is_counted_and_logged_with_what_to_do() -> None:
    sweep = Sweep(ROLLOUT, role(WIDE), binding())
    sweep.look()
    [counts] = sweep.counts
    assert counts["rbac-driver-without-names", "error"] >= 1
    told = [line for line in sweep.told("role finding") if line["rule"] == "rbac-driver-without-names"]
    assert {(line["kind"], line["name"], line["severity"]) for line in told} >= {("ClusterRole", ACCOUNT, "error")}
    assert all(line["message"].startswith("has ") for line in told)
    name, ready, detail = sweep.made.checks()[0]
    assert (name, ready) == ("roles", True)
    assert "error" in detail


def test_a_narrow_role_is_fine() -> None:
    sweep = Sweep(ROLLOUT, role(NARROW), binding())
    sweep.look()
    assert not [key for counts in sweep.counts for key in counts if key[1] == "error"]


def test_each_finding_is_told_once_and_again_when_it_is_over() -> None:
    sweep = Sweep(ROLLOUT, role(WIDE), binding())
    sweep.look()
    first = len(sweep.told("role finding"))
    sweep.look()
    assert len(sweep.told("role finding")) == first
    sweep.cluster.put(role(NARROW))
    sweep.look()
    over = [line for line in sweep.told("role finding over") if line["rule"] == "rbac-driver-without-names"]
    assert over
    assert not [key for key in sweep.counts[-1] if key[0] == "rbac-driver-without-names"]


@pytest.mark.parametrize(
    ("rule", "allows"),
    [
        ("rbac-everything", lambda asked: asked["verb"] == "*"),
        ("rbac-arbitrary-node", lambda asked: asked["verb"] == "arbitrary-node:patch" and asked["name"] == DRIVER),
        ("rbac-driver-without-names", lambda asked: asked["name"] == OTHER),
        ("rbac-binding-in-node-plugin", lambda asked: asked["subresource"] == "binding"),
    ],
)
def test_what_other_authorizers_allow_is_found_though_no_role_says_so(
    rule: str, allows: Callable[[Json], bool]
) -> None:
    sweep = Sweep(ROLLOUT, role(NARROW), binding())
    sweep.server.allows = allows
    sweep.look()
    [line] = [line for line in sweep.told("role finding") if line["rule"] == rule]
    assert (line["kind"], line["namespace"], line["name"]) == ("ServiceAccount", "gpu", ACCOUNT)
    assert "by the cloud" in line["message"]


def test_what_the_roles_show_already_is_not_told_again_as_the_servers_word() -> None:
    sweep = Sweep(ROLLOUT, role(WIDE), binding())
    sweep.server.allows = lambda asked: asked["name"] == OTHER
    sweep.look()
    told = [line for line in sweep.told("role finding") if line["rule"] == "rbac-driver-without-names"]
    assert told
    assert not [line for line in told if "by the cloud" in line["message"]]


@pytest.mark.parametrize(
    "refusal", [ApiError(403, "Forbidden", "cannot create resource subjectaccessreviews"), Unreachable("timed out")]
)
def test_without_answers_of_the_server_roles_are_looked_at_all_the_same(refusal: Exception) -> None:
    sweep = Sweep(ROLLOUT, role(WIDE), binding())
    sweep.server.refusal = refusal
    sweep.look()
    sweep.look()
    assert sweep.counts[-1]["rbac-driver-without-names", "error"] >= 1
    [check] = sweep.made.checks()
    assert check[1]
    assert str(refusal).rpartition(": ")[2] in check[2]
    assert len(sweep.told("accounts of drivers not asked about")) == 1


def test_accounts_of_no_driver_are_not_asked_about() -> None:
    sweep = Sweep(role(WIDE), binding())
    sweep.look()
    assert sweep.server.asked == []


def test_a_role_that_is_made_wider_is_seen_at_once_and_its_account_asked_about_anew() -> None:
    sweep = Sweep(ROLLOUT, role(NARROW), binding())

    async def play() -> None:
        async with running(sweep):
            asked = len(sweep.server.asked)
            sweep.cluster.put(role(WIDE))
            await until(lambda: sweep.counts[-1].get(("rbac-driver-without-names", "error"), 0))
            assert len(sweep.server.asked) == 2 * asked

    asyncio.run(play())
    # Who leads next counts them.
    assert sweep.counts[-1] == {}
    assert sweep.cluster.on_change == []


def test_a_rollouts_writers_wake_it_and_its_status_does_not() -> None:
    sweep = Sweep(ROLLOUT, role(NARROW), binding())

    async def play() -> None:
        async with running(sweep):
            sweep.cluster.put({**ROLLOUT, "status": {"observedSince": "2026-11-30T12:00:00Z"}})
            await asyncio.sleep(0.1)
            assert len(sweep.counts) == 1
            sweep.cluster.put({**ROLLOUT, "spec": {"writers": []}})
            await until(lambda: len(sweep.counts) == 2)

    asyncio.run(play())


def test_of_very_many_findings_some_are_logged_and_the_rest_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rbac_sweep, "TOLD", 3)
    annotations = {"allocguard.dev/profile": "NodeLocal", "allocguard.dev/driver": DRIVER}
    roles = [role(WIDE, f"r{number}") for number in range(10)]
    for each in roles:
        each["metadata"]["annotations"] = annotations
    sweep = Sweep(*roles)
    sweep.look()
    assert len(sweep.told("role finding")) == 3
    [more] = sweep.told("more role findings")
    assert more["count"] == sum(sweep.counts[-1].values()) - 3
