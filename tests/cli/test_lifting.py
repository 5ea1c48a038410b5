"""What uninstalling leaves behind: no gate and no taint of ours, and those of others."""

from __future__ import annotations

import asyncio
from typing import Any

import jsonpatch
import pytest

from tests.controllers.memory import Memory
from webhook.cli import lifting
from webhook.cli.console import Unreachable
from webhook.cli.lifting import release_pods, remove_reports, remove_taints
from webhook.cluster.api import ApiError
from webhook.kube.core import GATE
from webhook.kube.taint_rule import rule_name

Json = dict[str, Any]
RULES = "/apis/resource.k8s.io/{}/devicetaintrules"


class Server(Memory):
    """Pods of all namespaces in one list, JSON patches, and taint rules in the versions ``served``."""

    def __init__(self, *served: str) -> None:
        super().__init__()
        self.served = served
        self.asked: list[str] = []
        self.refusals: list[ApiError] = []
        self.late: list[Json] = []

    def pod(self, name: str, *gates: str) -> None:
        metadata = {"namespace": "ns", "name": name, "uid": f"uid-{name}"}
        spec = {"schedulingGates": [{"name": gate} for gate in gates]}
        self.put(f"/api/v1/namespaces/ns/pods/{name}", {"metadata": metadata, "spec": spec})

    def gates(self) -> dict[str, list[str]]:
        pods = [obj for place, obj in self.objects.items() if "/pods/" in place]
        return {pod["metadata"]["name"]: [gate["name"] for gate in pod["spec"]["schedulingGates"]] for pod in pods}

    def rules(self) -> list[str]:
        return sorted(place.rpartition("/")[2] for place in self.objects if "/devicetaintrules/" in place)

    async def get(self, path: str, **params: object) -> Json:
        self.asked.append(path)
        if path == "/api/v1/pods":
            assert params["fieldSelector"] == "status.phase=Pending"
            return await super().get("/api/v1/namespaces/ns/pods", **params)
        version = path.split("/")[3]
        if version not in self.served:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        return {"items": [obj for place, obj in self.objects.items() if place.startswith(path)]}

    async def patch(self, path: str, body: Any, kind: str, **params: object) -> Json:
        if self.refusals:
            raise self.refusals.pop(0)
        if self.late:
            self.pod("late", GATE)
            self.late.clear()
        try:
            return self.put(path, jsonpatch.apply_patch(self.objects[path], body))
        except jsonpatch.JsonPatchException as error:
            raise ApiError(422, "Invalid", "the server rejected our request") from error


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifting, "SETTLE", 0.01)


def test_only_our_gate_is_taken_and_from_every_pod() -> None:
    api = Server()
    for number in range(600):
        api.pod(f"p{number}", *(("other",) if number % 2 else ()), GATE)
    api.pod("foreign", "other")
    api.pod("none")
    assert asyncio.run(release_pods(api)) == 600  # type: ignore[arg-type]  # the same methods
    found = api.gates()
    assert {tuple(each) for each in found.values()} == {(), ("other",)}
    assert found["foreign"] == found["p1"] == ["other"]


def test_a_pod_that_gets_the_gate_meanwhile_goes_on_too() -> None:
    api = Server()
    api.pod("p", GATE)
    api.late.append({})
    assert asyncio.run(release_pods(api)) == 2  # type: ignore[arg-type]  # the same methods
    assert api.gates() == {"p": [], "late": []}


def test_what_somebody_else_changed_is_looked_at_again() -> None:
    api = Server()
    api.pod("p", GATE)
    api.refusals += [ApiError(409, "Conflict", "changed"), ApiError(422, "Invalid", "changed")]
    assert asyncio.run(release_pods(api)) == 1  # type: ignore[arg-type]  # the same methods


def test_a_refusal_and_a_gate_that_stays_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Server()
    api.pod("p", GATE)
    api.refusals.append(ApiError(403, "Forbidden", "cannot patch pods"))
    with pytest.raises(ApiError, match="cannot patch pods"):
        asyncio.run(release_pods(api))  # type: ignore[arg-type]  # the same methods
    monkeypatch.setattr(lifting, "PATIENCE", 0.05)
    api.refusals += [ApiError(422, "Invalid", "no")] * 1000
    with pytest.raises(Unreachable, match="for 1 pod with the scheduling gate; look at p"):
        asyncio.run(release_pods(api))  # type: ignore[arg-type]  # the same methods


def test_what_a_server_elsewhere_puts_back_is_told_and_not_taken_away_for_ever() -> None:
    class Fought(Server):
        async def patch(self, path: str, body: Any, kind: str, **params: object) -> Json:
            self.pod(f"p{len(self.objects)}", GATE)
            return await super().patch(path, body, kind, **params)

        async def delete(self, path: str, **params: object) -> Json:
            rule = self.objects[path]
            return self.put(path, await super().delete(path, **params) and rule)

    api = Fought("v1")
    api.pod("p0", GATE)
    with pytest.raises(Unreachable, match=r"with the scheduling gate taken away, .* again, as p\d+; stop the server"):
        asyncio.run(release_pods(api))  # type: ignore[arg-type]  # the same methods
    name = rule_name("d.example")
    api.put(f"{RULES.format('v1')}/{name}", {"metadata": {"name": name}})
    with pytest.raises(Unreachable, match=f"of the guard taken away, .* again, as {name}; stop the server"):
        asyncio.run(remove_taints(api))  # type: ignore[arg-type]  # the same methods


@pytest.mark.parametrize("version", ["v1", "v1beta2"])
def test_our_taint_rules_go_in_whichever_version_there_is(version: str) -> None:
    api = Server(version)
    for name in (rule_name("d.example"), rule_name("d.example", "n1"), "somebody-elses"):
        api.put(f"{RULES.format(version)}/{name}", {"metadata": {"name": name}})
    assert asyncio.run(remove_taints(api)) == 2  # type: ignore[arg-type]  # the same methods
    assert api.rules() == ["somebody-elses"]


def test_an_api_server_without_taint_rules_has_none() -> None:
    api = Server()
    assert asyncio.run(remove_taints(api)) == 0  # type: ignore[arg-type]  # the same methods
    assert api.asked == [RULES.format("v1"), RULES.format("v1beta2")]


class Reporting(Memory):
    """Reports of the newer group, in namespaces and of the cluster; the older group is not there."""

    BASE = "/apis/openreports.io/v1alpha1"

    def report(self, namespace: str, name: str = "allocguard", by: str = "allocguard") -> None:
        middle = f"namespaces/{namespace}/reports" if namespace else "clusterreports"
        metadata = {"name": name, "labels": {"app.kubernetes.io/managed-by": by}}
        self.put(f"{self.BASE}/{middle}/{name}", {"metadata": {**metadata, "namespace": namespace}})

    async def get(self, path: str, **params: object) -> Json:
        if not path.startswith(self.BASE):
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        plural = path.rpartition("/")[2]
        found = [obj for place, obj in sorted(self.objects.items()) if f"/{plural}/" in place]
        key, _, value = str(params["labelSelector"]).partition("=")
        limit = int(str(params["limit"]))
        return {"items": [obj for obj in found if obj["metadata"]["labels"].get(key) == value][:limit]}


def test_our_reports_go_and_those_of_others_stay() -> None:
    api = Reporting()
    for number in range(45):
        api.report(f"ns{number}")
    api.report("")
    api.report("ns1", "theirs", "kyverno")
    api.report("ns1", "mine")
    assert asyncio.run(remove_reports(api)) == 46  # type: ignore[arg-type]  # the same methods
    assert sorted(place.rpartition("/")[2] for place in api.objects) == ["mine", "theirs"]


def test_an_api_server_without_reports_has_none() -> None:
    assert asyncio.run(remove_reports(Server())) == 0  # type: ignore[arg-type]  # the same methods
