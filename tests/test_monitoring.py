"""What is shipped for Prometheus, Grafana and whoever is on call agrees with the code and with itself."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.bench import fleet
from tests.server.test_gauges import NOW, made
from tests.tools.make_prometheus_rule import ALERTS, PAGE, page
from webhook.admission import where_next
from webhook.cli.program import program
from webhook.kube.core import GATE
from webhook.kube.release import Release
from webhook.kube.snapshot import build
from webhook.telemetry.metrics import Metrics

ROOT = Path(__file__).resolve().parent.parent
RUNBOOKS = ROOT / "docs" / "runbooks"
DASHBOARD = json.loads((ROOT / "deploy" / "monitoring" / "dashboard.json").read_text())
GROUPS = yaml.safe_load(ALERTS.read_text())["groups"]
RULES = [rule for group in GROUPS for rule in group["rules"]]
NAMES = sorted({rule["alert"] for rule in RULES if "alert" in rule})
TESTS = yaml.safe_load((ALERTS.parent / "alerts_test.yaml").read_text())["tests"]

# What the API server tells of webhooks; tests/e2e/test_alerts.py sees them on a real one.
API_SERVER = {
    "apiserver_admission_webhook_rejection_count": {"name", "type", "operation", "error_type", "rejection_code"},
    "apiserver_admission_webhook_fail_open_count": {"name", "type"},
}
_SELECTED = re.compile(r"\b((?:[a-z_]+:)?(?:allocguard|apiserver)_[a-z_]+(?::[a-z]+)?)(?:\{([^}]*)\})?")
_LABEL = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"[^"]*"')
_GROUPED = re.compile(r"\b(?:by|on) \(([^)]*)\)")
_SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def exposed() -> dict[str, set[str]]:
    """Every series that the server can tell, with its labels, and those recorded from them."""
    held = fleet.rollout()
    held["spec"]["hold"] = {"reason": "books half"}
    gated = fleet.pod(90, "claim-0")
    gated["spec"]["schedulingGates"] = [{"name": GATE}]
    snapshot = build([*fleet.cluster(2), held, gated], Release(36))
    gauges = made(lambda: snapshot)
    metrics = Metrics(gauges.families, gauges.lines)
    metrics.review("validate", "pods", "CREATE", "allowed", 0.1)
    metrics.finding("slice-mappings", "key-unknown", "Deny")
    metrics.duplicate("cpu.example.org")
    metrics.placement("cpu.example.org", "fit")
    metrics.dropped("cpu.example.org")
    metrics.write_failure("kubelet", "conflict")
    metrics.series_dropped("pool_phase", 1)
    metrics.role_findings({("rule", "warning"): 1})
    metrics.audit_scan({("policy", "rule", "error"): 1}, NOW)
    metrics.certificates({"serving": NOW})
    found: dict[str, set[str]] = {name: set(labels) for name, labels in API_SERVER.items()}
    for family in text_string_to_metric_families(b"".join(metrics.pieces()).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    for rule in RULES:
        if "record" in rule:
            # By convention the name begins with the labels that are left.
            left = set(rule["record"].split(":")[0].split("_"))
            assert set(re.split(r"[ ,]+", _GROUPED.findall(rule["expr"])[0])) == left
            found[rule["record"]] = left
    return found


def strange(expression: str, exposed: dict[str, set[str]]) -> list[str]:
    """What ``expression`` asks for and nobody tells: metrics, labels of them, labels to group by."""
    # The label of a target is that of docs/monitoring.md, and of the operator.
    found, known = [], {"le", "pod"}
    for name, selectors in _SELECTED.findall(expression):
        labels = exposed.get(name)
        if labels is None:
            found.append(name)
            continue
        known |= labels
        found += [f"{name}{{{label}}}" for label in _LABEL.findall(selectors) if label not in labels]
    grouped = {label.strip() for group in _GROUPED.findall(expression) for label in group.split(",") if label.strip()}
    return found + sorted(grouped - known)


def commands() -> list[tuple[str, str]]:
    """Every command of ours in a runbook, with the page, in blocks and in sentences."""
    found = []
    for file in sorted(RUNBOOKS.glob("*.md")):
        text = file.read_text()
        lines = [line for block in _SHELL.findall(text) for line in block.splitlines()]
        lines += re.findall(r"`(allocguard [^`]*)`", text)
        parts = [part.strip() for line in lines for part in re.split(r"&&|\||>", line)]
        found += [(file.name, part) for part in parts if part.startswith("allocguard ")]
    return found


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    wanted = {}
    for rule in RULES:
        if "alert" in rule:
            assert {"summary", "description", "runbook_url"} == set(rule["annotations"])
            assert rule["labels"]["severity"] in ("critical", "warning", "info")
            wanted[rule["alert"]] = rule["annotations"]["runbook_url"].rpartition("/docs/runbooks/")[2]
    titles = {file.read_text().splitlines()[0].removeprefix("# "): file.name for file in RUNBOOKS.glob("*.md")}
    assert titles.pop("Runbooks") == "README.md"
    assert wanted == titles
    index = (RUNBOOKS / "README.md").read_text()
    assert sorted(re.findall(r"^\| \[\w+\]\((.*?)\)", index, re.MULTILINE)) == sorted(titles.values())


@pytest.mark.parametrize("name", NAMES)
def test_every_alert_is_tested_quiet_firing_and_quiet_again(name: str) -> None:
    def fires(case: dict[str, object]) -> bool:
        return bool(case["exp_alerts"])

    severities = set()
    for test in TESTS:
        cases = [each for each in test.get("alert_rule_test", ()) if each["alertname"] == name]
        if any(map(fires, cases)):
            # At the seeded fault, not before it, and not after it.
            assert [fires(each) for each in (cases[0], cases[-1])] == [False, False], test["name"]
            severities |= {
                alert["exp_labels"]["severity"] for each in cases if fires(each) for alert in each["exp_alerts"]
            }
    assert severities == {rule["labels"]["severity"] for rule in RULES if rule.get("alert") == name}


def test_the_manifest_for_the_operator_has_the_same_rules() -> None:
    assert page(ALERTS.read_text()) == PAGE.read_text(), "run python tests/tools/make_prometheus_rule.py"
    assert yaml.safe_load(PAGE.read_text())["spec"]["groups"] == GROUPS


def test_labels_of_ours_are_not_those_of_the_target() -> None:
    """The operator gives each target a label ``endpoint``."""
    monitor = yaml.safe_load((PAGE.parent / "servicemonitor.yaml").read_text())
    [endpoint] = monitor["spec"]["endpoints"]
    assert endpoint["honorLabels"] is True
    service = yaml.safe_load((ROOT / "deploy" / "base" / "service.yaml").read_text())
    assert endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()


def test_the_component_as_kustomize_reads_it(tmp_path: Path) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not on the path")
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    recipe = {"resources": ["../deploy/overlays/enforce"], "components": ["../deploy/components/monitoring"]}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "kustomization.yaml").write_text(yaml.safe_dump(recipe))
    rendered = subprocess.run([kubectl, "kustomize", tmp_path / "mine"], check=True, capture_output=True).stdout
    kinds = {each["kind"]: each for each in yaml.safe_load_all(rendered)}
    assert kinds["PrometheusRule"]["spec"]["groups"] == GROUPS
    assert kinds["ServiceMonitor"]["metadata"]["namespace"] == kinds["Service"]["metadata"]["namespace"]


def test_what_runbooks_look_for_in_the_log_is_written_there() -> None:
    source = "".join(file.read_text() for file in (ROOT / "webhook").rglob("*.py"))
    wanted = {
        event for file in RUNBOOKS.glob("*.md") for event in re.findall(r'\.event == "([^"]+)"', file.read_text())
    }
    # Made from the outcome of an edit.
    wanted -= {"policies loaded", "policies refused"}
    assert {event for event in wanted if f'"{event}"' not in source} == set()


@pytest.mark.parametrize(("file", "line"), commands(), ids=lambda value: value)
def test_commands_of_runbooks_are_commands_of_ours(file: str, line: str) -> None:
    command: click.Command = program
    words = shlex.split(line)[1:]
    context = click.Context(command)
    while isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        assert found is not None, f"{file}: {line}"
        command, words = found, words[1:]
    # What is parsed is not run; a file that has to be there is not.
    words = ["-" if word.endswith((".yaml", ".json")) else word for word in words]
    command.make_context(command.name, words)


def test_metrics_and_labels_of_the_rules_are_told_by_somebody(exposed: dict[str, set[str]]) -> None:
    assert {rule.get("alert", rule.get("record")): strange(rule["expr"], exposed) for rule in RULES} == {
        rule.get("alert", rule.get("record")): [] for rule in RULES
    }
    for rule in RULES:
        for text in rule.get("annotations", {}).values():
            left = {label for group in _GROUPED.findall(rule["expr"]) for label in re.split(r"[ ,]+", group)}
            assert set(re.findall(r"\$labels\.(\w+)", text)) <= left, rule["alert"]


def test_metrics_and_labels_of_runbooks_are_told_by_somebody(exposed: dict[str, set[str]]) -> None:
    for file in RUNBOOKS.glob("*.md"):
        for block in re.findall(r"^```promql\n(.*?)^```$", file.read_text(), re.MULTILINE | re.DOTALL):
            assert [strange(line, exposed) for line in block.splitlines()] == [[]] * len(block.splitlines()), file.name


def test_every_panel_of_the_dashboard_shows_what_is_told(exposed: dict[str, set[str]]) -> None:
    panels = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    for panel in panels:
        assert panel["targets"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        for target in panel["targets"]:
            assert _SELECTED.search(target["expr"]), panel["title"]
            assert strange(target["expr"], exposed) == [], panel["title"]
    variables = {each["name"] for each in DASHBOARD["templating"]["list"]}
    asked = {name for panel in panels for target in panel["targets"] for name in re.findall(r"\$(\w+)", target["expr"])}
    assert asked - {"__rate_interval"} <= variables
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            name, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"]).groups()  # type: ignore[union-attr]
            assert label in exposed[name]


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells


def test_the_pages_that_explain_names_are_there() -> None:
    assert {*where_next._RUNBOOKS.values(), where_next._PENDING} <= {file.stem for file in RUNBOOKS.glob("*.md")}


def test_links_between_runbooks_and_pages_lead_somewhere() -> None:
    for file in RUNBOOKS.glob("*.md"):
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", file.read_text()):
            assert (file.parent / target).exists(), f"{file.name}: {target}"
