"""The live view against an API server that goes wrong byte by byte."""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import fake_server
from tests.cluster.fake_server import FakeServer, refusal
from tests.cluster.viewing import View
from webhook.cluster import api, live, reflector
from webhook.cluster.api import ApiError, Unreachable
from webhook.cluster.kinds import KINDS
from webhook.cluster.live import Changed
from webhook.kube.release import NODE_ALLOCATABLE

PATHS = {kind.name: kind.path for kind in KINDS}
NODES, SLICES, ROLLOUTS = PATHS["Node"], PATHS["ResourceSlice"], PATHS["DriverRollout"]
POLICIES = PATHS["AdmissionPolicy"]
Json = dict[str, Any]


def eventually(ask: Callable[[], object], within: float = 20) -> Any:
    end = time.monotonic() + within
    while not (answer := ask()):
        assert time.monotonic() < end, "not within time"
        time.sleep(0.01)
    return answer


def synced(seen: View) -> View:
    seen.start()
    eventually(lambda: seen.cluster.synced)
    return seen


def node(name: str, cpu: str = "8") -> Json:
    return {"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu}}}


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits that are seconds outside are short here; nothing else is different."""
    monkeypatch.setattr(reflector, "FIRST_DELAY", 0.02)
    monkeypatch.setattr(reflector, "LONGEST_DELAY", 0.1)
    monkeypatch.setattr(reflector, "UNKNOWN_DELAY", 0.05)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    made = FakeServer(PATHS.values())
    yield made
    made.close()


@pytest.fixture
def view(server: FakeServer, tmp_path: Path) -> Iterator[Callable[..., View]]:
    views: list[View] = []

    def make(user: Json | None = None, **options: Any) -> View:
        views.append(View(server.kubeconfig(tmp_path / f"kubeconfig-{len(views)}", **(user or {})), **options))
        return views[-1]

    yield make
    for each in views:
        each.close()


def test_lists_in_pages_and_follows(server: FakeServer, view: Callable[..., View]) -> None:
    server.fill(NODES, (node(f"n{number:03d}") for number in range(600)))
    seen = synced(view())
    assert len(seen.nodes()) == 600
    lists = server.requests(NODES, watches=False)
    assert [each.params["limit"] for each in lists] == ["250"] * 3
    assert [bool(each.params.get("continue")) for each in lists] == [False, True, True]
    [pods] = server.requests(PATHS["Pod"], watches=False)
    assert pods.params["fieldSelector"] == "status.phase!=Succeeded,status.phase!=Failed"
    server.put(NODES, node("n000", cpu="4"))
    server.put(NODES, node("n600"))
    server.delete(NODES, node("n001"))
    eventually(lambda: "n001" not in seen.cluster.snapshot.nodes)
    assert seen.cluster.snapshot.nodes["n000"].allocatable == {"cpu": 4}
    assert "n600" in seen.cluster.snapshot.nodes
    [watch] = server.requests(NODES, watches=True)
    assert watch.params["allowWatchBookmarks"] == "true"
    assert watch.params["resourceVersion"] == "1600"
    assert int(watch.params["timeoutSeconds"]) >= 240


def test_a_snapshot_in_hand_never_changes(server: FakeServer, view: Callable[..., View]) -> None:
    server.fill(NODES, [node("n1")])
    seen = synced(view())
    before = seen.cluster.snapshot
    server.put(NODES, node("n1", cpu="4"))
    eventually(lambda: seen.cluster.snapshot.nodes["n1"].allocatable["cpu"] == 4)
    assert before.nodes["n1"].allocatable["cpu"] == 8


@pytest.mark.parametrize("cut", ["mid-line", "between", "reset", "garbage", "no object", "odd type"])
def test_a_watch_that_breaks_is_taken_up_where_it_ended(
    server: FakeServer, view: Callable[..., View], cut: str
) -> None:
    server.fill(NODES, [node("n1")])
    seen = synced(view())
    server.put(NODES, node("n2"))
    eventually(lambda: seen.nodes() == ["n1", "n2"])
    half = b'{"type":"ADDED","object":{"metadata":{"name":"ghost"'
    match cut:
        case "mid-line":
            server.say(NODES, half, cut=True)
        case "between":
            server.say(NODES, b"\n", cut=True)
        case "reset":
            server.hold()
            server.resume()
        case "garbage":
            server.say(NODES, b"\x00\xff}{\n")
        case "no object":
            server.say(NODES, b'{"type":"ADDED","object":[1]}\n')
        case "odd type":
            server.say(NODES, b'{"type":"WHAT","object":{}}\n')
    eventually(lambda: len(server.requests(NODES, watches=True)) >= 2)
    server.put(NODES, node("n3"))
    eventually(lambda: seen.nodes() == ["n1", "n2", "n3"])
    assert server.requests(NODES, watches=True)[-1].params["resourceVersion"] == "1002"
    assert len(server.requests(NODES, watches=False)) == 1
    assert len(seen.events("API server lost")) == 1
    eventually(lambda: seen.events("view restored"))
    assert seen.check("view of Node")[0]


def test_a_bookmark_moves_the_place_to_resume_at_and_the_age(server: FakeServer, view: Callable[..., View]) -> None:
    server.fill(NODES, [node("n1")])
    seen = synced(view())
    server.fill(NODES, [node("unseen")])
    seen.now += timedelta(seconds=50)
    assert seen.cluster.ages(seen.now)["Node"] == 50
    server.bookmark(NODES)
    eventually(lambda: seen.cluster.ages(seen.now)["Node"] == 0)
    assert seen.cluster.snapshot.seen["Node"] == seen.now
    assert seen.cluster.ages(seen.now)["Pod"] == 50
    server.say(NODES, b"\n", cut=True)
    eventually(lambda: len(server.requests(NODES, watches=True)) == 2)
    assert server.requests(NODES, watches=True)[-1].params["resourceVersion"] == "1002"


@pytest.mark.parametrize("in_stream", [True, False])
def test_what_happened_while_the_version_got_too_old_is_listed(
    server: FakeServer, view: Callable[..., View], in_stream: bool
) -> None:
    server.fill(NODES, [node("n1"), node("n2")])
    server.gone_in_stream = in_stream
    seen = synced(view())
    server.hold()
    server.forget(NODES, node("n1"))
    server.fill(NODES, [node("n3")])
    server.expire()
    server.resume()
    eventually(lambda: seen.nodes() == ["n2", "n3"])
    server.put(NODES, node("n4"))
    eventually(lambda: seen.nodes() == ["n2", "n3", "n4"])


def test_a_store_that_was_put_back_is_listed(server: FakeServer, view: Callable[..., View]) -> None:
    """The watch is accepted from a version that was not reached again yet, and would tell nothing up to that one."""
    server.put(NODES, node("stays"))
    server.put(NODES, node("lost"))
    seen = synced(view())
    stale: list[str] = []
    seen.cluster.on_stale = stale.append
    server.forget(NODES, node("lost"))
    server.kept[NODES].events.clear()
    server.version = 900
    server._version = itertools.count(901)
    server.put(NODES, node("new"))
    eventually(lambda: seen.nodes() == ["new", "stays"])
    server.put(NODES, node("newer"))
    eventually(lambda: seen.nodes() == ["new", "newer", "stays"])
    assert len(server.requests(NODES, watches=False)) == 2
    assert stale == ["Node"]


def test_everybody_who_hears_is_told_of_every_change_with_what_was_before(
    server: FakeServer, view: Callable[..., View]
) -> None:
    seen = synced(view())
    heard: list[list[tuple[str, Any, bool, bool]]] = [[], []]

    def hearing(told: list[tuple[str, Any, bool, bool]]) -> Changed:
        return lambda kind, key, before, after: told.append((kind, key, "n" in before.nodes, "n" in after.nodes))

    seen.cluster.on_change += [hearing(told) for told in heard]
    server.put(NODES, node("n"))
    eventually(lambda: heard[1])
    server.delete(NODES, node("n"))
    eventually(lambda: len(heard[1]) == 2)
    assert heard[0] == heard[1] == [("Node", ("", "n"), False, True), ("Node", ("", "n"), True, False)]


def test_a_list_whose_rest_expires_is_begun_again(server: FakeServer, view: Callable[..., View]) -> None:
    server.fill(NODES, (node(f"n{number:03d}") for number in range(300)))
    expired = refusal(410, "Expired", "the provided continue parameter is too old")
    server.fail(lambda asked: "continue" in asked.params and asked.path == NODES, expired)
    assert len(synced(view()).nodes()) == 300
    assert [bool(each.params.get("continue")) for each in server.requests(NODES, watches=False)] == [0, 1, 0, 1]


@pytest.mark.parametrize(
    "raw",
    [
        fake_server.answer(200, b'{"metadata":{},"items":[')[:-5],
        fake_server.answer(200, b'{"metadata":{},"items":[{"metadata":'),
        fake_server.answer(200, b'{"metadata":{"resourceVersion":"5"},"items":[7]}'),
        fake_server.answer(200, b"<html>proxy</html>"),
        b"",
        b"nonsense\r\n\r\n",
        refusal(429, "TooManyRequests", "slow down", "Retry-After: 0"),
        refusal(500, "InternalError", "etcdserver: request timed out"),
        refusal(503, "ServiceUnavailable", "starting", "Retry-After: 0"),
        refusal(403, "Forbidden", "nodes is forbidden"),
    ],
)
def test_a_list_that_fails_is_tried_again_and_told_once(
    server: FakeServer, view: Callable[..., View], raw: bytes
) -> None:
    server.fill(NODES, [node("n1")])
    server.fail(lambda asked: asked.path == NODES, raw, times=4)
    seen = view().start()
    eventually(lambda: seen.told and seen.check("view of Node")[1].startswith("failed: the API server"))
    assert not seen.cluster.synced
    eventually(lambda: seen.cluster.synced)
    assert seen.nodes() == ["n1"]
    assert len(seen.events("API server lost") + seen.events("view refused")) == 1
    assert len(seen.events("view restored")) == 1


HALF = b'HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{"kind":"List","items":[' + b" " * 90_000


@pytest.mark.parametrize(
    ("limit", "sent", "pause"),
    [("READ", b"", 0.0), ("READ", HALF, 0.0), ("WHOLE", HALF, 0.01)],
    ids=["silent", "silent in the middle", "too slow"],
)
def test_a_list_that_does_not_end_is_given_up_and_begun_again(
    server: FakeServer,
    view: Callable[..., View],
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    sent: bytes,
    pause: float,
) -> None:
    monkeypatch.setattr(api, limit, 1.0)
    server.fill(NODES, [node("n1")])
    server.fail(lambda asked: asked.path == NODES and not asked.watches, sent, hang=True, pause=pause)
    seen = view().start()
    told = eventually(lambda: seen.events("API server lost"))
    assert told[0]["message"] == "the API server does not answer: timed out"
    eventually(lambda: seen.cluster.synced)
    assert seen.nodes() == ["n1"]
    eventually(lambda: seen.check("view of Node")[1].startswith("ok, seen"))


def test_it_waits_as_long_as_the_server_asks_for(server: FakeServer, view: Callable[..., View]) -> None:
    server.fail(lambda asked: asked.path == NODES, refusal(429, "TooManyRequests", "slow", "Retry-After: 1"))
    begun = time.monotonic()
    seen = synced(view())
    assert time.monotonic() - begun >= 1
    assert not seen.events("view refused"), "once is no refusal"


def test_a_server_that_is_silent_in_a_watch_is_left_at_the_deadline(
    server: FakeServer, view: Callable[..., View], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector, "DEADLINE", 0.3)
    server.fill(NODES, [node("n1")])
    seen = synced(view())
    eventually(lambda: len(server.requests(NODES, watches=True)) >= 2)
    server.put(NODES, node("n2"))
    eventually(lambda: seen.nodes() == ["n1", "n2"])
    assert len(server.requests(NODES, watches=False)) == 1
    assert not seen.events("API server lost")


def test_a_server_that_does_not_take_the_watch_is_told(
    server: FakeServer, view: Callable[..., View], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "BEGIN", 0.3)
    server.fill(NODES, [node("n1")])
    server.fail(lambda asked: asked.path == NODES and asked.watches, b"", times=1, hang=True)
    seen = view().start()
    [lost] = eventually(lambda: seen.events("API server lost"))
    assert lost["message"] == "the API server does not answer: timed out"
    eventually(lambda: seen.check("view of Node")[1].startswith("ok, seen"))


def test_a_watch_refused_again_and_again_is_begun_from_a_list(server: FakeServer, view: Callable[..., View]) -> None:
    server.fill(NODES, [node("n1")])
    refused = refusal(504, "Timeout", "Too large resource version")
    server.fail(lambda asked: asked.path == NODES and asked.watches, refused, times=3)
    seen = synced(view())
    eventually(lambda: len(server.requests(NODES, watches=True)) == 4)
    assert len(server.requests(NODES, watches=False)) == 2
    assert seen.nodes() == ["n1"]


def test_events_told_twice_change_nothing(server: FakeServer, view: Callable[..., View]) -> None:
    seen = synced(view())
    server.put(NODES, node("n1"))
    line = server.kept[NODES].events[-1][1]
    server.say(NODES, line + line)
    server.delete(NODES, node("n1"))
    server.say(NODES, server.kept[NODES].events[-1][1])
    server.put(NODES, node("n2"))
    eventually(lambda: seen.nodes() == ["n2"])


def test_a_server_that_goes_away_leaves_the_snapshot_and_is_told_once(
    server: FakeServer, view: Callable[..., View]
) -> None:
    server.fill(NODES, [node("n1")])
    seen = synced(view())
    server.hold()
    eventually(lambda: "does not answer" in seen.check("view of Node")[1])
    seen.now += timedelta(seconds=40)
    fine, detail = seen.check("view of Node")
    assert fine
    assert "last seen 40s ago" in detail
    assert seen.nodes() == ["n1"]
    assert seen.cluster.synced
    server.resume()
    server.put(NODES, node("n2"))
    eventually(lambda: seen.nodes() == ["n1", "n2"])
    assert [each["level"] for each in seen.events("API server lost")] == ["warning"]


def test_a_watch_taken_up_again_makes_a_quiet_kind_current(server: FakeServer, view: Callable[..., View]) -> None:
    seen = synced(view())
    server.hold()
    seen.now += timedelta(seconds=300)
    server.resume()
    eventually(lambda: seen.cluster.ages(seen.now)["Namespace"] == 0)


def test_nothing_is_synced_before_everything_was_seen(server: FakeServer, view: Callable[..., View]) -> None:
    for path in (SLICES, "/version", POLICIES):
        server.fail(lambda asked, path=path: asked.path == path, b"", times=3)
    seen = view()
    given: list[Any] = []
    seen.cluster.on_policies = lambda objs: given.append((seen.cluster.synced, dict(objs)))
    server.fill(POLICIES, [{"metadata": {"name": "p1"}, "spec": {"a": 1}}])
    synced(seen)
    assert [(synced, list(objs)) for synced, objs in given] == [(False, ["p1"])]
    server.put(POLICIES, {"metadata": {"name": "p2"}, "spec": {}})
    eventually(lambda: len(given) == 2)
    assert sorted(given[1][1]) == ["p1", "p2"]
    server.delete(POLICIES, {"metadata": {"name": "p1"}})
    eventually(lambda: len(given) == 3)
    assert list(seen.cluster.policies) == ["p2"]


def test_policies_that_cannot_be_taken_in_stop_nothing(server: FakeServer, view: Callable[..., View]) -> None:
    seen = view()

    def broken(_: object) -> None:
        raise RuntimeError("no")

    seen.cluster.on_policies = broken
    synced(seen)
    assert seen.events("policies not taken in")


def test_optional_kinds_may_be_missing_and_are_found_once_they_are_there(tmp_path: Path) -> None:
    server = FakeServer(path for name, path in PATHS.items() if path not in (ROLLOUTS, POLICIES))
    seen = View(server.kubeconfig(tmp_path / "kubeconfig"))
    try:
        synced(seen)
        assert seen.check("view of DriverRollout") == (True, "ok, but the API server has no group allocguard.dev")
        eventually(lambda: len(server.requests(ROLLOUTS)) > 3)
        assert len([each for each in seen.events("kind not served") if each["kind"] == "DriverRollout"]) == 1
        assert "DriverRollout" not in seen.cluster.ages(seen.now)
        server.kept[ROLLOUTS] = fake_server.Kept()
        server.fill(ROLLOUTS, [{"metadata": {"name": "d.example"}, "spec": {"stage": "Canary"}}])
        eventually(lambda: "d.example" in seen.cluster.snapshot.rollouts)
        eventually(lambda: seen.check("view of DriverRollout")[1].startswith("ok, seen"))
        assert [each["kind"] for each in seen.events("kind served")] == ["DriverRollout"]
        del server.kept[ROLLOUTS]
        server.hold()
        server.resume()
        eventually(lambda: not seen.cluster.snapshot.rollouts)
        [(level, gone)] = [(each["level"], each["gone"]) for each in seen.events("kind not served") if each["gone"]]
        assert (level, gone) == ("warning", 1)
    finally:
        seen.close()
        server.close()


@pytest.mark.parametrize(("group", "older"), [("allocguard.dev", "v1alpha0"), ("resource.k8s.io", "v1beta1")])
def test_a_group_in_older_versions_is_told(tmp_path: Path, group: str, older: str) -> None:
    server = FakeServer(path for path in PATHS.values() if group not in path)
    server.kept[f"/apis/{group}"] = fake_server.Kept()
    body = json.dumps({"kind": "APIGroup", "versions": [{"version": older}]}).encode()
    server.fail(lambda asked: asked.path == f"/apis/{group}", fake_server.answer(200, body), times=10_000)
    seen = View(server.kubeconfig(tmp_path / "kubeconfig"))
    try:
        seen.start()
        kind = "DriverRollout" if group == "allocguard.dev" else "ResourceSlice"
        needs = f"the API server has {group} in {older}, needs {'v1alpha1' if kind == 'DriverRollout' else 'v1'}"
        eventually(lambda: needs in seen.check(f"view of {kind}")[1])
        if kind == "DriverRollout":
            eventually(lambda: seen.cluster.synced)
        else:
            assert seen.check("view of ResourceSlice") == (False, f"failed: {needs}")
            assert [each["level"] for each in seen.events("kind not served")].count("error") >= 1
            with pytest.raises(ExceptionGroup, match="unhandled") as caught:
                seen.background.submit(seen.cluster.read()).result()
            assert f"404 NotFound: {needs}" in {str(each) for each in caught.value.exceptions}
    finally:
        seen.close()
        server.close()


@pytest.mark.parametrize("kind", ["DriverRollout", "ResourceSlice"])
def test_objects_of_a_kind_that_goes_on_in_another_version_stay(
    server: FakeServer, view: Callable[..., View], kind: str
) -> None:
    """A hold must not end, and a pool not be gone, because of what the API server serves: they are there still."""
    found = next(each for each in KINDS if each.name == kind)
    spec = {"driver": "d.example", "nodeName": "n1", "pool": {"name": "n1"}, "devices": []}
    server.fill(found.path, [{"metadata": {"name": "d.example"}, "spec": spec if kind == "ResourceSlice" else {}}])
    seen = synced(view())
    kept = server.kept.pop(found.path)
    group = f"/apis/{found.group}"
    answers = {
        group: {"versions": [{"version": "v9"}, {"version": found.version}]},
        f"{group}/v9": {"resources": [{"name": found.plural}]},
    }
    for path, body in answers.items():
        raw = fake_server.answer(200, json.dumps(body).encode())
        server.fail(lambda asked, path=path: asked.path == path, raw, times=10_000)
    server.hold()
    server.resume()
    told = f"the API server has {found.plural} of {found.group} in v9, needs {found.version}; what was seen counts on"
    eventually(lambda: told in seen.check(f"view of {kind}")[1])
    assert seen.cluster.snapshot.keys(kind) == {("", "d.example")}
    assert not [each for each in seen.events("kind not served") if each["kind"] == kind]
    server.kept[found.path] = kept
    eventually(lambda: seen.check(f"view of {kind}")[1].startswith("ok, seen"))


def test_a_server_that_does_not_tell_its_versions_has_the_kind_or_not(
    server: FakeServer, view: Callable[..., View]
) -> None:
    """Everybody may ask for them, unless a cluster was hardened."""
    del server.kept[ROLLOUTS]
    server.fail(lambda asked: asked.path == "/apis/allocguard.dev", refusal(403, "Forbidden", "no"), times=10_000)
    seen = synced(view())
    told = "ok, but the API server has no driverrollouts in allocguard.dev/v1alpha1"
    assert seen.check("view of DriverRollout") == (True, told)


@pytest.mark.parametrize(("version", "minor"), [("v1.36.3", 36), ("v1.37.0-rc.1", 37), ("v1.38+", 37), ("v1.34.0", 36)])
def test_the_release_is_the_servers(server: FakeServer, view: Callable[..., View], version: str, minor: int) -> None:
    server.versions = version
    seen = synced(view())
    assert seen.cluster.snapshot.release.minor == minor
    assert seen.check("release")[0]


def test_both_releases_fields_are_kept(server: FakeServer, view: Callable[..., View]) -> None:
    costs = [
        {"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "2"}}},
        {"nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "3"}}}},
    ]
    devices = [{"name": f"d{number}", **cost} for number, cost in enumerate(costs)]
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d.example", "nodeName": "n1", "pool": pool, "devices": devices}
    server.fill(SLICES, [{"metadata": {"name": "s"}, "spec": spec}])
    found = synced(view()).cluster.snapshot.slices["s"].devices
    assert [(device.shape, device.costs[0].multiplier) for device in found] == [("1.36", 2), ("1.37", 3)]


def test_a_token_that_expires_is_read_again(server: FakeServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    server.token = "first"
    seen = View(server.kubeconfig(tmp_path / "kubeconfig", tokenFile=str(token)))
    try:
        synced(seen)
        token.write_text("second")
        server.token = "second"
        server.hold()
        server.resume()
        server.put(NODES, node("n1"))
        eventually(lambda: seen.nodes() == ["n1"])
        assert not seen.events("view refused")
    finally:
        seen.close()


def test_a_plugin_gives_a_new_token_when_the_old_one_is_refused(server: FakeServer, tmp_path: Path) -> None:
    token, plugin = tmp_path / "token", tmp_path / "plugin.py"
    token.write_text("first")
    server.token = "first"
    plugin.write_text(
        "import json, pathlib\n"
        f"status = {{'token': pathlib.Path({str(token)!r}).read_text()}}\n"
        "kind = {'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential'}\n"
        "print(json.dumps({**kind, 'status': status}))\n"
    )
    version = "client.authentication.k8s.io/v1"
    run = {"apiVersion": version, "command": sys.executable, "args": [str(plugin)], "interactiveMode": "Never"}
    seen = View(server.kubeconfig(tmp_path / "kubeconfig", exec=run))
    try:
        synced(seen)
        token.write_text("second")
        server.token = "second"
        server.hold()
        server.resume()
        server.put(NODES, node("n1"))
        eventually(lambda: seen.nodes() == ["n1"])
    finally:
        seen.close()


def test_a_token_that_stays_refused_is_told_until_it_is_not(server: FakeServer, view: Callable[..., View]) -> None:
    server.token = "other"
    seen = view({"token": "mine"}).start()
    eventually(lambda: "401 Unauthorized" in seen.check("view of Node")[1])
    assert not seen.cluster.synced
    server.token = "mine"
    eventually(lambda: seen.cluster.synced)


def test_reading_once_raises_what_goes_wrong(server: FakeServer, view: Callable[..., View]) -> None:
    server.fill(NODES, [node("n1")])
    server.fail(lambda asked: asked.path == ROLLOUTS, refusal(403, "Forbidden", "driverrollouts is forbidden"))
    seen = view()
    seen.background.submit(seen.cluster.read()).result()
    assert seen.nodes() == ["n1"]
    assert [each["part"] for each in seen.events("view refused")] == ["DriverRollout"]
    server.fail(lambda asked: asked.path == NODES, refusal(403, "Forbidden", "nodes is forbidden"))
    again = view()
    with pytest.raises(ExceptionGroup) as raised:
        again.background.submit(again.cluster.read()).result()
    assert raised.group_contains(ApiError, match="403 Forbidden: nodes is forbidden")
    server.hold()
    with pytest.raises(Unreachable):
        again.background.submit(again.cluster.read()).result()


def test_the_gates_are_the_servers_and_followed(
    server: FakeServer, view: Callable[..., View], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "ASK_RELEASE", 0.05)
    seen = view(gates={"DRADeviceTaints": False}).start()
    eventually(lambda: seen.cluster.synced)
    release = seen.cluster.snapshot.release
    assert (release.enabled(NODE_ALLOCATABLE), release.enabled("DRADeviceTaints")) == (True, False)
    assert seen.check("release") == (True, "ok, 1.36")
    server.fail(lambda asked: asked.path == "/metrics", refusal(403, "Forbidden", "no"))
    eventually(lambda: seen.events("view refused"))
    told = "but its feature gates cannot be read any more: those read last count"
    eventually(lambda: told in seen.check("release")[1])
    server.gates = {NODE_ALLOCATABLE: False, "DRADeviceTaints": True}
    eventually(lambda: not seen.cluster.snapshot.release.enabled(NODE_ALLOCATABLE))
    assert not seen.cluster.snapshot.release.enabled("DRADeviceTaints"), "what is given goes before"
    assert seen.check("release")[1].startswith(f"ok, 1.36, but {NODE_ALLOCATABLE} is off")
    assert [each["gatesOff"] for each in seen.events("release")] == [
        ["DRADeviceTaints"],
        ["DRADeviceTaints", NODE_ALLOCATABLE],
    ]


@pytest.mark.parametrize(
    "raw",
    [
        refusal(403, "Forbidden", "nonResourceURL /metrics is forbidden"),
        fake_server.answer(200, b"# TYPE up gauge\nup 1\n"),
        fake_server.answer(200, b""),
        b"",
    ],
)
def test_gates_that_cannot_be_read_are_those_of_the_release(
    server: FakeServer, view: Callable[..., View], monkeypatch: pytest.MonkeyPatch, raw: bytes
) -> None:
    """Refused, metrics of somebody else, a proxy that cuts the connection: the guard becomes ready all the same."""
    monkeypatch.setattr(live, "ASK_RELEASE", 0.05)
    monkeypatch.setattr(live, "_INSIST", 2)
    server.fail(lambda asked: asked.path == "/metrics", raw, times=6)
    seen = view().start()
    eventually(lambda: seen.cluster.synced)
    assert seen.cluster.snapshot.release.enabled(NODE_ALLOCATABLE)
    assert "feature gates" in [each["part"] for each in seen.told if each["level"] == "warning"] or not raw
    eventually(lambda: seen.check("release") == (True, "ok, 1.36"))


def test_where_the_gates_cannot_be_read_what_is_stored_tells(
    server: FakeServer, view: Callable[..., View], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "ASK_RELEASE", 0.05)
    server.fail(lambda asked: asked.path == "/metrics", refusal(403, "Forbidden", "no"), times=10**6)
    seen = synced(view())

    def shown(costs: bool) -> bool:
        async def tell() -> None:
            seen.cluster.stored(costs)

        seen.background.submit(tell()).result()
        return seen.cluster.snapshot.release.drops_costs

    assert shown(costs=False)
    asked = len(server.requests("/metrics"))
    eventually(lambda: len(server.requests("/metrics")) > asked + 2)
    assert seen.cluster.snapshot.release.drops_costs, "it is not forgotten with the next question"
    assert seen.cluster.snapshot.release.enabled(NODE_ALLOCATABLE)
    assert seen.check("release")[1].endswith("and a slice shows that it drops what devices cost")
    assert len(seen.events("release")) == 1
    assert not shown(costs=True)
    assert shown(costs=False)
    server.faults.clear()
    eventually(lambda: not seen.cluster.snapshot.release.drops_costs)
    assert seen.check("release") == (True, "ok, 1.36")


def test_metrics_that_do_not_come_are_waited_for_before_defaults_count(
    server: FakeServer, view: Callable[..., View]
) -> None:
    server.gates = {NODE_ALLOCATABLE: False}
    server.fail(lambda asked: asked.path == "/metrics", b"", times=1)
    seen = synced(view())
    assert not seen.cluster.snapshot.release.enabled(NODE_ALLOCATABLE)


def test_a_clock_that_is_set_back_leaves_no_view_from_the_future(server: FakeServer, view: Callable[..., View]) -> None:
    seen = synced(view())
    server.put(NODES, node("a"))
    eventually(lambda: seen.nodes() == ["a"])
    seen.now -= timedelta(hours=1)
    server.put(NODES, node("b"))
    eventually(lambda: seen.nodes() == ["a", "b"])
    eventually(lambda: seen.cluster.snapshot.seen["Node"] == seen.now)
