"""``check --live``: a cluster in files and the same one live are found to have the same things wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.fake_server import Asked, FakeServer, Fault, answer, refusal, status
from webhook.cluster import stored
from webhook.cluster.files import documents
from webhook.cluster.kinds import KINDS
from webhook.kube.documents import Document

SAMPLES = Path(__file__).parents[1] / "cases" / "samples"
# One cluster, without the objects of others that a live one would not have let in.
FILES = [
    next(SAMPLES.glob(f"{number}-*.yaml")) for number in ("01", "02", "03", "04", "05", "12", "13", "15", "16", "18")
]
PATHS = {kind.name: kind.path for kind in KINDS}
AT = ("--at", "2026-11-20T09:20:00Z", "--kubernetes-version", "1.36", "-o", "json")
GATES = ("--feature-gates", "DRANodeAllocatableResources=true,DRAListTypeAttributes=true")


@pytest.fixture
def server() -> Iterator[FakeServer]:
    made = FakeServer(PATHS.values())
    for each in documents([*map(str, FILES)]):
        assert isinstance(each, Document)
        made.fill(PATHS[each.value["kind"]], [each.value])
    yield made
    made.close()


@pytest.fixture
def kubeconfig(server: FakeServer, tmp_path: Path) -> str:
    return server.kubeconfig(tmp_path / "kubeconfig")


def told(output: str) -> set[tuple[str, ...]]:
    names = ("policy", "rule", "severity", "kind", "namespace", "name", "path", "message")
    return {tuple(each[name] for name in names) for each in json.loads(output)["findings"]}


def test_live_is_as_in_files(run: Any, kubeconfig: str) -> None:
    files = run("check", "--live", *(part for file in FILES for part in ("--cluster", file)), *AT, *GATES)
    live = run("check", "--live", "--kubeconfig", kubeconfig, *AT, *GATES)
    assert (files.code, live.code) == (1, 1)
    # Who is stored has a version, and can be deleted while it is in use.
    versions = {each for each in told(live.out) if each[1] == "delete-protection-missing"}
    assert told(live.out) - versions == told(files.out)
    assert {each[1] for each in told(live.out)} >= {"leftover-reservation", "leftover-claims", "shareid-duplicate"}
    first = json.loads(live.out)["findings"][0]
    assert (first["file"], first["line"]) == ("live cluster", 0)
    counted = sum(json.loads(live.out)["summary"][f"{name}s"] for name in ("error", "warning", "info"))
    assert counted == len(json.loads(live.out)["findings"])


def test_every_format_has_it(run: Any, kubeconfig: str) -> None:
    for name in ("text", "yaml", "junit", "sarif", "github", "markdown"):
        ran = run("check", "--live", "--kubeconfig", kubeconfig, *AT[:-1], name, *GATES)
        assert (ran.code, "media-live/left-behind" in ran.out) == (1, True), name


def test_pages_whose_beginning_is_forgotten_go_on_where_they_were(
    run: Any, server: FakeServer, kubeconfig: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run("check", "--live", "--kubeconfig", kubeconfig, *AT, *GATES)
    monkeypatch.setattr("webhook.cli.scan.JUDGED", tuple(replace(kind, page=3) for kind in stored.JUDGED))
    path = PATHS["ResourceClaim"]

    def forgets(asked: Asked) -> bool:
        token = asked.params.get("continue", "")
        if asked.path != path or not token or fault.raw:
            return False
        # As when etcd was compacted: the rest is to be had by another token, as it is now.
        server._tokens["now"] = server._tokens.pop(token)
        expired = status(410, "Expired", "The provided continue parameter is too old")
        fault.raw = answer(410, json.dumps({**expired, "metadata": {"continue": "now"}}).encode())
        return True

    fault = Fault(forgets, b"")
    server.faults.append(fault)
    paged = run("check", "--live", "--kubeconfig", kubeconfig, *AT, *GATES)
    assert [each.params.get("continue") == "now" for each in server.requests(path)].count(True) == 1
    assert paged.out == whole.out


def test_a_list_that_is_refused_is_no_clean_cluster(run: Any, server: FakeServer, kubeconfig: str) -> None:
    # The view is read first, then the whole objects.
    seen = iter(range(100))
    fits = lambda asked: asked.path == PATHS["Pod"] and next(seen) > 0  # noqa: E731
    server.fail(fits, refusal(403, "Forbidden", "pods is forbidden"), times=9)
    ran = run("check", "--live", "--kubeconfig", kubeconfig, *AT, *GATES)
    assert (ran.code, ran.out) == (3, "")
    assert "pods is forbidden" in ran.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(["x.yaml", "--live"], "needs FILES, or --live"), ([], "needs FILES"), (["--live", "--alone"], "is for FILES")],
)
def test_either_files_or_all_that_is_stored(run: Any, arguments: list[str], told: str) -> None:
    ran = run("check", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err


def test_standard_input_is_not_read_twice(run: Any) -> None:
    ran = run("check", "--live", "--cluster", "-", stdin="")
    assert (ran.code, ran.out) == (2, "")
    assert "standard input can be read once" in ran.err


def test_kinds_that_a_cluster_may_do_without_are_done_without(run: Any, server: FakeServer, kubeconfig: str) -> None:
    whole = run("check", "--live", "--kubeconfig", kubeconfig, *AT, *GATES)
    del server.kept[PATHS["DriverRollout"]]
    forbidden = refusal(403, "Forbidden", "roles is forbidden")
    server.fail(lambda asked: asked.path == PATHS["Role"], forbidden, times=9)
    ran = run("check", "--live", "--kubeconfig", kubeconfig, *AT, *GATES)
    assert (ran.code, ran.out) == (1, whole.out)
    assert "roles is forbidden; none of them count" in ran.err
