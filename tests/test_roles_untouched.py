"""Nothing of the guard writes a role or a binding: not by its code, and not by what it is allowed."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.fake_server import FakeServer
from webhook.cluster.access import connect
from webhook.cluster.api import Api

ROOT = Path(__file__).resolve().parent.parent
GROUP = "rbac.authorization.k8s.io"
KINDS = ("roles", "rolebindings", "clusterroles", "clusterrolebindings")
# What opens connections to others, by the top of its name.
NETWORK = {"aiohttp", "kubernetes", "httpx", "requests", "urllib3", "websockets", "grpc", "socket", "http"}
READS = {"get", "list", "watch"}


def sources() -> Iterator[tuple[str, ast.AST]]:
    for package in ("webhook", "certs"):
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())


def imported(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_all_requests_to_the_api_server_go_through_one_place() -> None:
    """What may talk to others at all, and the one module that sends what the client of the API server has."""
    network = {
        file: names
        for file, tree in sources()
        if (
            names := {
                each
                for each in imported(tree)
                if each.partition(".")[0] in NETWORK and not each.startswith("http.HTTPStatus")
            }
        )
    }
    assert network == {
        "webhook/cluster/access.py": {
            "aiohttp",
            "kubernetes.aio.client.Configuration",
            "kubernetes.aio.client.rest.RESTClientObject",
            "kubernetes.aio.config.load_incluster_config",
            "kubernetes.aio.config.load_kube_config",
        },
        "webhook/cluster/api.py": {"aiohttp"},  # its errors
        "webhook/cli/demo_server.py": {"http.client"},  # reads its own server
        "webhook/controllers/runner.py": {"socket"},  # the host's name
        "webhook/server/run.py": {"socket"},  # what is listened on
        "webhook/server/serve.py": {"socket"},  # the host's name
        "webhook/telemetry/otlp.py": {"requests", "socket"},  # spans go to their receiver; the host's name
    }
    sends = [file for file, tree in sources() for node in ast.walk(tree) if _calls(node, "_access", "request")]
    assert sends == ["webhook/cluster/api.py"]


def test_only_install_and_uninstall_may_write_roles() -> None:
    named = {
        (file, where)
        for file, tree in sources()
        for node in ast.walk(tree)
        for where in _installing(node)
        if not (file == "webhook/cluster/api.py" and where == "read")
    }
    assert named == {
        ("webhook/cluster/api.py", "assigned False"),
        ("webhook/cli/deploying.py", "assigned installing"),
        ("webhook/cli/install.py", "given True"),
        ("webhook/cli/uninstall.py", "given True"),
    }


def _calls(node: ast.AST, owner: str, name: str) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == name
        and isinstance(node.func.value, ast.Attribute)
        and node.func.value.attr == owner
    )


def _installing(node: ast.AST) -> Iterator[str]:
    """How ``node`` has to do with the permission: what it is set to, or given as; or that it is read."""
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(each, ast.Attribute) and each.attr == "installing" for each in targets):
            yield f"assigned {ast.unparse(node.value) if node.value else ''}"
    elif isinstance(node, ast.keyword) and node.arg == "installing":
        yield f"given {ast.unparse(node.value)}"
    elif isinstance(node, ast.Attribute) and node.attr == "installing" and isinstance(node.ctx, ast.Load):
        yield "read"
    elif isinstance(node, ast.Constant) and node.value == "installing":
        yield "named in a string"


@pytest.fixture
def server() -> Iterator[FakeServer]:
    made = FakeServer([f"/apis/{GROUP}/v1/{kind}" for kind in KINDS])
    yield made
    made.close()


WRITES: dict[str, Callable[[Api, str], Coroutine[Any, Any, object]]] = {
    "create": lambda api, path: api.create(path, {}),
    "update": lambda api, path: api.update(path, {}),
    "merge": lambda api, path: api.patch(path, {}, "merge"),
    "json": lambda api, path: api.patch(path, [], "json"),
    "apply": lambda api, path: api.apply(path, {}, "allocguard"),
    "delete": lambda api, path: api.delete(path),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_of_one_is_not_even_sent(
    server: FakeServer, tmp_path: Path, kind: str, write: Callable[[Api, str], Coroutine[Any, Any, object]]
) -> None:
    space = "" if kind.startswith("cluster") else "namespaces/team/"
    path = f"/apis/{GROUP}/v1/{space}{kind}/x"

    async def run() -> None:
        api = await connect(server.kubeconfig(tmp_path / "kubeconfig"))
        try:
            with pytest.raises(AssertionError, match="writes a role"):
                await write(api, path)
        finally:
            await api.close()

    asyncio.run(run())
    assert server.asked == []


def deployed() -> Iterator[tuple[str, dict[str, Any]]]:
    for file in sorted((ROOT / "deploy").rglob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            if document and document.get("kind") in ("Role", "ClusterRole"):
                for rule in document["rules"]:
                    yield f"{file.relative_to(ROOT)}: {document['kind']} {document['metadata']['name']}", rule


def test_no_deployed_role_may_write_one_or_become_somebody_who_may() -> None:
    rules = list(deployed())
    assert len(rules) > 20
    for where, rule in rules:
        verbs, resources = set(rule["verbs"]), set(rule.get("resources", ()))
        assert "*" not in verbs | resources | set(rule.get("apiGroups", ())), where
        assert not verbs & {"escalate", "bind", "impersonate"}, where
        assert not resources & {"serviceaccounts/token", "pods/exec", "nodes/proxy"}, where
        if GROUP in rule.get("apiGroups", ()):
            assert verbs <= READS, where
        if resources & {"secrets"} and verbs & {"get", "list", "watch"}:
            assert rule.get("resourceNames"), where
        # A pod that one may make runs as any account of its namespace.
        if resources & {
            "pods",
            "deployments",
            "daemonsets",
            "statefulsets",
            "replicasets",
            "jobs",
            "cronjobs",
            "replicationcontrollers",
        }:
            assert "create" not in verbs, where
