"""The steps of a rollout as spans, in one trace that is found by the UID of the DriverRollout."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from tests.e2e.cluster import Cluster
from tests.e2e.guarding import deployed
from tests.e2e.kinds import path
from tests.e2e.scenes import CPU_DRIVER, cpu_claim, shared_cpus
from tests.e2e.test_rollout_cli import digests, ran, standing
from tests.e2e.test_rollout_status import CANARY, SELECTED, Rollout, events
from tests.e2e.waiting import eventually, steady
from tests.telemetry.receiver import Receiver, Span
from webhook.cli.program import program


def steps(receiver: Receiver) -> list[Span]:
    """The spans that are no claim's and no pod's."""
    return [span for span in receiver.spans if span.name.startswith("rollout.")]


def test_every_step_is_a_span_and_a_receiver_that_is_gone_disturbs_nobody(cluster: Cluster) -> None:
    with Receiver() as receiver:
        guard = deployed(cluster, f"--otlp-endpoint={receiver.url}")
        driver = shared_cpus(cluster, labels=CANARY)  # type: ignore[arg-type] # amounts and labels alike
        rollout = Rollout(cluster, **SELECTED, promotion={"quietDays": 7})
        rollout.wait("Held", "False")
        cpu_claim(cluster, "c1", 2)
        cluster.pod("p1", claims=["c1"])
        cluster.scheduled("p1")
        before = standing(cluster)
        name = driver.name

        def step(reason: str, *command: str) -> None:
            code, out, err = ran(cluster, *command)
            assert code == 0, (out, err)
            eventually(lambda: events(cluster, name, reason))

        step("Held", "hold", name, "--reason", "books half")
        rollout.wait("Held", "True")
        (digest,) = digests(cluster, driver)
        step("ResumedAt", "resume", name, "--at-mapping", digest)
        step("DrillPassed", "drill", name, "Rollback", "--record")
        eventually(lambda: len(steps(receiver)) == 3)

    # Nobody listens any more.
    step("Resumed", "resume", name)
    rollout.wait("Held", "False")
    [told] = eventually(lambda: guard.lines(event="spans not sent"))
    assert (told["level"], told["url"]) == ("warning", receiver.url)
    steady(lambda: len(guard.lines(event="spans not sent")) == 1, during=12)
    with Receiver(receiver.port) as back:
        step("StageChanged", "promote", name, "--override", "dana", "--reason", "demo")
        eventually(lambda: rollout.status()["stage"] == "Expanding")
        # What is queued is sent at the end.
        assert guard.stop() == 0
    spans = [*steps(receiver), *steps(back)]
    assert [span.name for span in spans][:3] == ["rollout.hold", "rollout.resume", "rollout.drill"]
    assert spans[-1].name == "rollout.stage"
    uid = cluster.as_admin.get(path("DriverRollout", name))["metadata"]["uid"]
    assert {span.trace for span in spans} == {uid.replace("-", "")}
    assert {span.attributes["allocguard.driver"] for span in spans} == {cluster.name(CPU_DRIVER)}
    hold, resume, drill, *_, stage = (span.attributes for span in spans)
    assert hold["allocguard.hold.reason"] == "books half"
    assert resume["allocguard.mapping.digest"] == [digest]
    assert (drill["allocguard.drill"], drill["allocguard.verdict"]) == ("Rollback", "passed")
    assert stage["allocguard.message"].endswith("by the word of dana: demo")
    known = {each["message"] for each in events(cluster, name)}
    assert {span.attributes["allocguard.message"] for span in spans} <= known
    assert standing(cluster) == before


def test_an_export_and_a_check_are_steps_too_by_the_rights_of_who_runs_them(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hold, export, check: said again they are counted. Who may only read is told that nobody hears of it."""
    deployed(cluster)
    driver = shared_cpus(cluster)
    rollout = Rollout(cluster, stage="General", hold={"reason": "books half"})
    rollout.wait("Held", "True")
    name = driver.name
    cluster.service_account(
        "reading",
        [
            {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]},
            {"nonResourceURLs": ["*"], "verbs": ["get"]},
        ],
    )
    with Receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        admin = str(cluster.plane.kubeconfig("dana", "system:masters"))
        code, out, err = command("ledger", "export", "--kubeconfig", admin)
        assert (code, err) == (0, "")
        digest = json.loads(out)["digest"]
        for _ in range(2):
            assert command("rollout", "check", name, "--kubeconfig", admin)[::2] == (1, "")
        reader = str(cluster.plane.kubeconfig("reading", token=cluster.token("reading")))
        code, _, err = command("rollout", "check", name, "--kubeconfig", reader)
        assert code == 1
        assert err.startswith(
            "allocguard: no event Checked: the API server refuses: 403 Forbidden: events is forbidden"
        )
        assert len(err.splitlines()) == 1
    [exported] = events(cluster, name, "LedgerExported")
    assert exported["message"] == f"the ledger was exported, {digest}"
    [checked] = events(cluster, name, "Checked")
    assert (checked["count"], checked["type"]) == (2, "Warning")
    assert checked["message"].startswith("check at stage General; failed: hold")
    assert [span.name for span in receiver.spans] == ["rollout.export", *["rollout.check"] * 3]
    uid = cluster.as_admin.get(path("DriverRollout", name))["metadata"]["uid"]
    assert {span.trace for span in receiver.spans} == {uid.replace("-", "")}
    assert receiver.spans[0].attributes["allocguard.export.digest"] == digest
    assert {span.attributes["allocguard.message"] for span in receiver.spans} == {
        exported["message"],
        checked["message"],
    }


def command(*arguments: str) -> tuple[int, str, str]:
    """Exit code, output and notes of our command."""
    result = CliRunner(catch_exceptions=False).invoke(program, arguments)
    return result.exit_code, result.stdout, result.stderr
