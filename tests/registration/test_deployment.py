"""What the Deployment, its Service and its budget say of the server against the server itself."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.server.serving import serving
from webhook.cli.deploying import files
from webhook.cli.serve import serve
from webhook.registration.manifests import Target, manifests
from webhook.server.run import DRAIN, FLUSH, SETTLE

ROOT = Path(__file__).parents[2]
OBJECTS = {obj["kind"]: obj for obj in manifests(files(), Target()) if obj["metadata"]["name"] == "allocguard"}
SPEC = OBJECTS["Deployment"]["spec"]
LABELS = SPEC["template"]["metadata"]["labels"]
POD = SPEC["template"]["spec"]
[CONTAINER] = POD["containers"]
PORTS = {each["name"]: each["containerPort"] for each in CONTAINER["ports"]}


def component(name: str, file: str) -> Any:
    return yaml.safe_load((ROOT / "deploy" / "components" / name / file).read_text())


def test_its_ports_are_those_that_the_server_listens_on() -> None:
    listens = {each.name: each.default for each in serve.params}
    assert {"https": listens["port"], "metrics": listens["metrics_port"]} == PORTS
    assert listens["host"] == "0.0.0.0"
    assert not [each for each in CONTAINER["args"] if re.match("--(host|port|metrics-port)", each)]


def test_its_arguments_are_options_of_the_command() -> None:
    command, *arguments = CONTAINER["args"]
    assert command == serve.name
    given = {each["name"]: "enforce" if each["name"] == "MODE" else "ns" for each in CONTAINER["env"]}
    filled = [re.sub(r"\$\((\w+)\)", lambda name: given[name[1]], each) for each in arguments]
    told = serve.make_context("serve", filled).params
    assert (told["service"], told["secret"], told["namespace"]) == ("ns/allocguard:443", "ns/allocguard-certs", "ns")
    assert told["mode"] == "enforce"


def test_whoever_names_a_port_names_one_of_those() -> None:
    service = {each["name"]: each["targetPort"] for each in OBJECTS["Service"]["spec"]["ports"]}
    assert service == {name: name for name in PORTS}
    [rule] = component("network-policy", "networkpolicy.yaml")["spec"]["ingress"]
    assert {each["port"] for each in rule["ports"]} == set(PORTS)
    [scraped] = component("monitoring", "servicemonitor.yaml")["spec"]["endpoints"]
    assert scraped["port"] in service


def test_a_probe_asks_what_the_server_answers(tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "objects.yaml").write_text("apiVersion: v1\nkind: List\nitems: []\n")
    shutil.copytree(ROOT / "policies", tmp_path / "policies")
    asked = {name: CONTAINER[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    with serving(tmp_path) as server:
        urls = {"https": server.url, "metrics": server.metrics_url}
        for probe in asked.values():
            assert urls[probe["port"]].startswith(f"{probe['scheme'].lower()}://")
            answer = server.client.get(f"{urls[probe['port']]}{probe['path']}")
            assert (answer.status_code, answer.text) == (200, "ok\n")
    # One that is not ready has something to wait for, which it would have to wait for again if it were started anew.
    assert [probe["path"] for probe in asked.values()] == ["/healthz", "/healthz", "/readyz"]


def test_a_pod_has_the_time_to_end_in_good_order() -> None:
    """The kubelet counts from the beginning of preStop, and then kills."""
    before = CONTAINER["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert before + SETTLE + DRAIN + FLUSH < POD["terminationGracePeriodSeconds"]


def test_one_replica_is_always_there() -> None:
    """Through a rollout, through the drain of a node, and through the loss of a node or zone where there are two."""
    assert SPEC["selector"]["matchLabels"].items() <= LABELS.items()
    assert SPEC["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    budget = OBJECTS["PodDisruptionBudget"]["spec"]
    assert budget["selector"]["matchLabels"].items() <= LABELS.items()
    assert budget["maxUnavailable"] < SPEC["replicas"]
    assert OBJECTS["Service"]["spec"]["selector"].items() <= LABELS.items()
    spread = {each["topologyKey"]: each for each in POD["topologySpreadConstraints"]}
    assert set(spread) == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
    for each in spread.values():
        assert each["labelSelector"]["matchLabels"].items() <= LABELS.items()
        # Where there is one node, both go there.
        assert (each["maxSkew"], each["whenUnsatisfiable"]) == (1, "ScheduleAnyway")


@pytest.mark.parametrize("kind", ["Service", "PodDisruptionBudget", "Deployment"])
def test_nothing_beside_the_guard_is_taken_for_it(kind: str) -> None:
    """A program in the same namespace gets no reviews, and does not count as a replica."""
    selector = OBJECTS[kind]["spec"]["selector"]
    beside = component("free-claims", "deployment.yaml")["spec"]["template"]["metadata"]["labels"]
    assert not selector.get("matchLabels", selector).items() <= beside.items()
