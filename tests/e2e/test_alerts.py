"""Alerts and dashboard by promtool: on the shipped tests, and on what a real server and API server tell.

Scrapes are given to promtool as the beginning and end of an hour, in which counters grow evenly.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.bench import fleet
from tests.e2e import build
from tests.e2e.client import ApiError
from tests.e2e.cluster import Cluster
from tests.e2e.conftest import RELEASES
from tests.e2e.driver import per
from tests.e2e.guard import Guard
from tests.e2e.guarding import admission_policy, deployed, malformed
from tests.e2e.kinds import path
from tests.e2e.scenes import CPU_DRIVER, cpu_claim, shared_cpus
from tests.e2e.waiting import eventually
from tests.server.test_figures import HOSTILE, named
from tests.server.test_gauges import made
from webhook.kube.release import Release
from webhook.kube.rollout import API_VERSION
from webhook.kube.snapshot import build as snapshot_of
from webhook.telemetry.metrics import Metrics

ROOT = Path(__file__).parents[2]
MONITORING, RUNBOOKS = ROOT / "deploy" / "monitoring", ROOT / "docs" / "runbooks"
ALERTS = MONITORING / "alerts.yaml"
WEBHOOKS = "apiserver_admission_webhook_"
# Minutes between two scrapes, as promtool sees them.
APART = 60

# What panels show as zero where nobody tells of it.
ZERO = " or on () vector(0)"
# What nobody tells of in the scenes here: tests of their own count it.
ELSEWHERE = {
    "allocguard_status_write_failures_total",
    "allocguard_mappings_dropped_total",
    "allocguard_duplicate_charges_refused_total",
    "allocguard_series_dropped_total",
    "allocguard_rbac_findings",
}

# Name and labels of a series, as text; its value, and whether it is a counter.
Scrape = dict[str, tuple[float, bool]]
# An expression, and the samples that it gives.
Expected = tuple[str, list[dict[str, object]]]
ONE: list[dict[str, object]] = [{"labels": "{}", "value": 1}]


def promtool(*arguments: str | Path, given: str = "") -> str:
    """What promtool says, which must not be that something is wrong."""
    done = subprocess.run([build.promtool(), *arguments], input=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def read(text: str, **labels: str) -> Scrape:
    """The samples of an exposition, with more ``labels``."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            pairs = sorted({**sample.labels, **labels}.items())
            # The parser gives counters the ending that OpenMetrics wants, and the API server does not.
            name = sample.name if sample.name in text else sample.name.removesuffix("_total")
            series = f"{name}{{{', '.join(f'{name}={json.dumps(value)}' for name, value in pairs)}}}"
            if math.isfinite(sample.value):
                found[series] = (sample.value, family.type in ("counter", "histogram"))
    return found


def test_promtool_reads_whatever_others_call_their_things() -> None:
    snapshot = snapshot_of([*fleet.cluster(1), *(obj for name in HOSTILE for obj in named(name))], Release(36))
    gauges = made(lambda: snapshot)
    metrics = Metrics(gauges.families, gauges.lines)
    for name in HOSTILE:
        metrics.duplicate(name)
        metrics.finding(name, name, "Deny")
    text = b"".join(metrics.pieces()).decode()
    assert len(re.findall("^allocguard_pool_phase", text, re.MULTILINE)) == len(HOSTILE) + 3
    assert promtool("check", "metrics", given=text) == ""


def scrape(cluster: Cluster, guard: Guard | None) -> Scrape:
    """What the guard tells now, and the API server of its webhooks."""
    lines = [line for line in cluster.as_admin.text("/metrics").splitlines() if WEBHOOKS in line]
    found = read("\n".join(lines) + "\n")
    return found if guard is None else found | read(guard.get("/metrics", metrics=True).text, pod="allocguard-0")


def during(before: Scrape, after: Scrape) -> list[dict[str, str]]:
    """Series of ``APART`` minutes for promtool."""
    series = []
    for name in sorted(before.keys() | after.keys()):
        begun, counter = before.get(name, (None, after.get(name, (0, False))[1]))
        ended = after.get(name, (None, counter))[0]
        if ended is None:
            values = f"{begun:f}x10 stale"
        elif not counter:
            values = f"{ended:f}x{APART}"
        elif begun is None:
            # Counted for the first time, from nothing.
            values = f"_x5 0+{ended / (APART - 6):f}x{APART - 6}"
        else:
            values = f"{begun:f}+{(ended - begun) / APART:f}x{APART}"
        series.append({"series": name, "values": values})
    return series


def evaluate(
    folder: Path, series: list[dict[str, str]], expressions: list[tuple[str, list[dict[str, object]]]]
) -> None:
    """Have promtool evaluate each expression at the end, with our rules in force, and compare."""
    test = {
        "interval": "1m",
        "input_series": series,
        "promql_expr_test": [
            {"expr": expression, "eval_time": f"{APART - 1}m", "exp_samples": samples}
            for expression, samples in expressions
        ],
    }
    file = folder / "scraped_test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [test]}))
    promtool("test", "rules", file)


def firing(*names: str) -> Expected:
    """That these alerts fire, and no other. How fast this machine is, is not what is tested."""
    seen = 'group by (alertname) (ALERTS{alertstate="firing", alertname!="AllocguardAdmissionSlow"})'
    return seen, [{"labels": f'{{alertname="Allocguard{name}"}}', "value": 1} for name in names]


def test_the_rules_are_right_and_quiet_and_fire() -> None:
    """A healthy day, and each alert's own fault."""
    assert "SUCCESS" in promtool("check", "rules", ALERTS)
    assert "SUCCESS" in promtool("test", "rules", MONITORING / "alerts_test.yaml")


def test_a_claim_that_one_of_two_replicas_refused_is_one_that_waits(tmp_path: Path) -> None:
    series = []
    for pod, reason, count in [("a", "node-overcommit", 1), ("a", "unscheduled", 1), ("b", "unscheduled", 2)]:
        labels = f'pod="{pod}", driver="d", reason="{reason}"'
        series.append({"series": f"allocguard_claims_pending{{{labels}}}", "values": f"{count}x{APART}"})
    [shown] = [target["expr"] for target in targets("Claims waiting")]
    evaluate(tmp_path, series, [(shown, [{"labels": "{}", "value": 2}])])
    evaluate(tmp_path, [], [(shown, [{"labels": "{}", "value": 0}])])


def test_a_real_server_is_quiet_has_data_for_every_panel_and_its_faults_are_alerts(
    fresh_plane: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = fresh_plane(RELEASES[-1])
    # What is stored when the guard begins is what its scan finds.
    driver = shared_cpus(cluster, devices=2)
    guard = deployed(cluster, f"--journal={tmp_path / 'journal'}")
    fresh = scrape(cluster, guard)
    memory = cluster.driver("memory.example.org", driver.node)
    memory.publish([memory.device(f"zone{n}", {"bytes": "32Gi"}, {"memory": per("bytes")}, zone=n) for n in range(2)])
    cpu_claim(cluster, "c1", 2)
    cluster.pod("p1", claims=["c1"])
    cluster.scheduled("p1")
    with pytest.raises(ApiError, match="product-overflow"):
        driver.publish([malformed(driver)], pool="other")
    healthy = eventually(lambda: ledger_told(scrape(cluster, guard), driver.node))
    promtool("check", "metrics", given=guard.get("/metrics", metrics=True).text)
    shown = [(panel(target["expr"], driver.node), ONE) for target in targets()]
    evaluate(tmp_path, during(fresh, healthy), [firing(), *shown])

    # Faults that are seeded while the guard serves.
    bad = admission_policy("bad", ["configmaps"], ["CREATE"], validations=[{"name": "n", "expression": "object.a +"}])
    cluster.as_admin.create(path("AdmissionPolicy"), bad)
    # Half of a generation, in which the claim's device costs no memory any more.
    driver.publish([driver.device("group-0", {"cpus": "8"}, {"cpu": per("cpus")}, zone=0)], generation=2, count=2)
    cluster.as_admin.patch(path("Node", driver.node, sub="status"), {"status": {"allocatable": {"cpu": "1"}}})
    # A hold, and a pod that waits for the half: no faults.
    rollout = {"apiVersion": API_VERSION, "kind": "DriverRollout", "metadata": {"name": memory.name}}
    cluster.as_admin.create(path("DriverRollout"), {**rollout, "spec": {"hold": {"reason": "books half"}}})
    cpu_claim(cluster, "c2", 2)
    cluster.pod("p2", claims=["c2"])
    for _ in range(20):
        assert post(guard, b"{").status_code == 400
    broken = eventually(lambda: faults_told(scrape(cluster, guard)))
    faults = firing("LedgerDifferences", "Overcommitted", "PolicyRefused", "PoolsStuck", "WebhookErrors")
    evaluate(tmp_path, during(healthy, broken), [faults, *(told(target["expr"], driver.node) for target in targets())])

    for line in runbook_lines():
        follow(line, cluster, guard, tmp_path)

    # And when it is gone.
    guard.kill()
    for number in range(5):
        with pytest.raises(ApiError, match="failed calling webhook"):
            driver.publish([malformed(driver)], pool=f"other-{number}")
        cluster.claim(f"unjudged-{number}", "cpus")
    gone = eventually(lambda: calls_told(scrape(cluster, None)))
    evaluate(
        tmp_path,
        during({name: value for name, value in broken.items() if name.startswith(WEBHOOKS)}, gone),
        [firing("Absent", "FailsOpen", "Unreachable")],
    )


def runbook_lines() -> list[str]:
    """Every command of the runbooks that needs neither kubelet nor metrics of pods, nor what is not installed here."""
    text = "\n".join(file.read_text() for file in sorted(RUNBOOKS.glob("*.md")))
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = dict.fromkeys(line for block in blocks for line in block.splitlines())
    beside = [" top ", "/proxy/", "describe deployment", *([] if shutil.which("jq") else ["jq "])]
    return [line for line in lines if not any(part in line for part in beside)]


def follow(line: str, cluster: Cluster, guard: Guard, folder: Path) -> None:
    """Run a command of a runbook, about what the test has made, with the guard's log for that of its pods."""
    line = re.sub(r"kubectl .* logs .*?--tail=-1", f"cat {guard.process.log}", line)
    line = line.replace("allocguard-system", "guard")
    for word, mine in {"NAMESPACE": cluster.ns, "CLAIM": "c1", "NODE": "n1", "DRIVER": CPU_DRIVER}.items():
        line = re.sub(rf"\b{word}\b", mine, line)
    line = re.sub(r"(^|[|&] )allocguard ", rf"\1{sys.executable} -m webhook.cli ", line)
    environment = {**os.environ, "KUBECONFIG": str(cluster.plane.kubeconfig("dana", "system:masters"))}
    command = ["bash", "-o", "pipefail", "-c", line]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    # 1 is an answer, too: the answer no.
    assert done.returncode in ((0, 1) if "webhook.cli" in line else (0,)), (line, done.stdout, done.stderr)


def targets(title: str = "") -> list[dict[str, Any]]:
    """All queries of the dashboard, or of the panel with this title."""
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    return [target for each in panels if title in ("", each["title"]) for target in each.get("targets", ())]


def panel(expression: str, node: str) -> str:
    """Whether ``expression`` shows anything with all drivers and this node chosen."""
    for name, value in {"__rate_interval": "5m", "driver": ".+", "node": node}.items():
        expression = expression.replace(f"${name}", value)
    return f"count({expression}) > bool 0"


def told(expression: str, node: str) -> Expected:
    """That somebody tells what ``expression`` shows, and no zero takes its place; or nobody, if it is of ELSEWHERE."""
    nobody = any(name in expression for name in ELSEWHERE)
    return panel(expression.removesuffix(ZERO), node), [] if nobody else ONE


def post(guard: Guard, body: bytes) -> httpx.Response:
    """The answer to ``body`` as a review."""
    trust = ssl.create_default_context(cadata=guard.authority.decode())
    headers = {"content-type": "application/json"}
    return httpx.post(f"{guard.url}/validate", content=body, headers=headers, verify=trust, timeout=10, trust_env=False)


def value(scraped: Mapping[str, tuple[float, bool]], name: str, *parts: str) -> float:
    """The sum of the samples of ``name`` that have these parts in their labels."""
    return sum(
        number
        for series, (number, _) in scraped.items()
        if series.startswith(f"{name}{{") and all(part in series for part in parts)
    )


def ledger_told(scraped: Scrape, node: str) -> Scrape | None:
    """``scraped``, once the claim is charged and seen, and a scan has ended."""
    used = value(scraped, "allocguard_ledger_used", f'node="{node}"', 'source="claims"', 'zone=""', 'resource="cpu"')
    scanned = value(scraped, "allocguard_audit_scan_timestamp_seconds")
    return scraped if used == 2 and scanned else None


def faults_told(scraped: Scrape) -> Scrape | None:
    """``scraped``, once all that was broken is seen."""
    told = [
        value(scraped, "allocguard_policy_problems"),
        value(scraped, "allocguard_ledger_differences"),
        value(scraped, "allocguard_pool_phase", 'phase="Rebuilding"'),
        value(scraped, "allocguard_ledger_capacity", 'resource="cpu"', 'zone=""') == 1,
        value(scraped, "allocguard_rollout_hold"),
        value(scraped, "allocguard_claims_pending"),
        value(scraped, "allocguard_pods_gated"),
    ]
    return scraped if all(told) else None


def calls_told(scraped: Scrape) -> Scrape | None:
    """``scraped``, once calls that failed are counted."""
    told = [
        value(scraped, f"{WEBHOOKS}rejection_count", "calling_webhook_error"),
        value(scraped, f"{WEBHOOKS}fail_open_count"),
    ]
    return scraped if all(told) else None
