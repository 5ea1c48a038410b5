"""Credentials: where they are found, what is said when they are not, and when they are read again."""

from __future__ import annotations

import pwd
import ssl
from collections.abc import Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from kubernetes.aio.config import incluster_config

from certs.authority import issue, make_authority
from tests.cluster.fake_server import FakeServer
from webhook.cluster.access import CannotConnect, NoCluster, connect
from webhook.cluster.api import Api, Unreachable
from webhook.cluster.background import Background

NODES = "/api/v1/nodes"
NOW = datetime.now(UTC)
T = TypeVar("T")


@pytest.fixture
def background() -> Iterator[Background]:
    made = Background()
    yield made
    made.stop()


@pytest.fixture
def server() -> Iterator[FakeServer]:
    made = FakeServer([NODES])
    yield made
    made.close()


class Pod:
    """A pod's folder of credentials for ``server``, and the clock by which its token is old."""

    def __init__(self, server: FakeServer, folder: Path, background: Background) -> None:
        self.server, self.token, self._background = server, folder / "token", background
        self.now = NOW

    def connect(self) -> Api:
        return self.does(connect())

    def does(self, asking: Coroutine[Any, Any, T]) -> T:
        return self._background.submit(asking).result()

    def shown(self, api: Api) -> str:
        """The token that the server is shown by a request."""
        self.does(api.get(NODES))
        return self.server.asked[-1].headers["authorization"].removeprefix("bearer ")


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, background: Background) -> Iterator[Pod]:
    authority = make_authority(NOW)
    serving = issue(authority, ["127.0.0.1"], NOW)
    (tmp_path / "ca.crt").write_bytes(authority.certificate_pem())
    (tmp_path / "pair.pem").write_bytes(serving.certificate_pem() + serving.key_pem())
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "pair.pem")
    server = FakeServer([NODES], tls=tls)
    made = Pod(server, tmp_path, background)
    made.token.write_text("first\n")
    nowhere(monkeypatch, tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    # The client has these as constants: they are where a kubelet puts them.
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(made.token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    clock = SimpleNamespace(datetime=SimpleNamespace(now=lambda: made.now), timedelta=timedelta)
    monkeypatch.setattr(incluster_config, "datetime", clock)
    yield made
    server.close()


def nowhere(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


def test_the_token_of_a_pod_is_read_again_every_minute(pod: Pod) -> None:
    """Kubelets write a new one long before the old one ends: nobody has to be refused first."""
    api = pod.connect()
    assert pod.shown(api) == "first"
    pod.token.write_text("second")
    pod.now += timedelta(seconds=59)
    assert pod.shown(api) == "first"
    pod.now += timedelta(seconds=1)
    assert pod.shown(api) == "second"
    pod.does(api.close())


def test_a_token_of_a_pod_that_is_refused_is_read_at_once(pod: Pod) -> None:
    pod.server.token = "first"
    api = pod.connect()
    assert pod.shown(api) == "first"
    pod.token.write_text("second")
    pod.server.token = "second"
    assert pod.shown(api) == "second"
    assert [each.headers["authorization"] for each in pod.server.asked] == [
        "bearer first",
        "bearer first",
        "bearer second",
    ]
    pod.does(api.close())


@pytest.mark.parametrize("wrong", [b"", b"\xff\xfe", None], ids=["empty", "no text", "gone"])
def test_a_token_of_a_pod_that_cannot_be_read_is_a_failure_like_any_other(pod: Pod, wrong: bytes | None) -> None:
    """It ends nothing: the next request reads it again."""
    api = pod.connect()
    pod.token.unlink() if wrong is None else pod.token.write_bytes(wrong)
    pod.now += timedelta(minutes=1)
    with pytest.raises(Unreachable, match="the ServiceAccount of the pod: credentials cannot be read: "):
        pod.does(api.get(NODES))
    pod.token.write_text("second")
    assert pod.shown(api) == "second"
    pod.does(api.close())


@pytest.mark.parametrize("missing", ["token", "ca.crt"])
def test_a_pod_without_its_credentials_says_so(pod: Pod, missing: str) -> None:
    (pod.token.parent / missing).unlink()
    with pytest.raises(CannotConnect, match="the ServiceAccount of the pod: credentials cannot be read: Service"):
        pod.connect()


def test_who_has_no_home_has_no_kubeconfig_there(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container's user has no entry among those of the system, and maybe no $HOME either."""
    monkeypatch.delenv("HOME")

    def unknown(number: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    api = pod.connect()
    assert pod.shown(api) == "first"
    pod.does(api.close())
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    with pytest.raises(NoCluster, match=r"there is no ~/.kube/config"):
        pod.connect()


def connected(kubeconfig: str | None, context: str | None = None) -> None:
    background = Background()
    try:
        background.submit(connect(kubeconfig, context)).result()
    finally:
        background.stop()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "is not there"),
        ("", "cannot be read"),
        ("[1, 2", "cannot be read"),
        ("- a\n", "cannot be read"),
        ("contexts: 7\ncurrent-context: a\n", "cannot be read"),
        ("current-context: a\ncontexts: []\nclusters: []\n", "there is no context a"),
    ],
)
def test_a_kubeconfig_that_is_none_is_told_in_one_line(tmp_path: Path, content: str | None, told: str) -> None:
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_text(content)
    with pytest.raises(CannotConnect, match=told) as raised:
        connected(str(path))
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_plugin_that_fails_is_told(server: FakeServer, tmp_path: Path) -> None:
    run = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/false"}
    with pytest.raises(CannotConnect, match="exec: process returned 1"):
        connected(server.kubeconfig(tmp_path / "kubeconfig", exec=run))


def test_without_a_word_about_the_cluster_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere(monkeypatch, tmp_path)
    with pytest.raises(NoCluster):
        connected(None)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    with pytest.raises(CannotConnect, match="KUBECONFIG"):
        connected(None)


@pytest.mark.parametrize("path", ["~nobody-of-this-name/config", "x" * 300])
def test_a_kubeconfig_that_cannot_be_there_is_not(path: str) -> None:
    with pytest.raises(CannotConnect, match=f"^{path}: is not there"):
        connected(path)
