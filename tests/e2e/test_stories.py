"""What became of a claim, from its trace alone as Jaeger has it, from the log alone, and from ``explain`` alone: all
three tell one story.
"""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from tests.e2e.client import ApiError, Json
from tests.e2e.cluster import Cluster
from tests.e2e.guard import Guard
from tests.e2e.guarding import deployed
from tests.e2e.jaeger import Jaeger
from tests.e2e.scenes import cpu_claim, shared_cpus
from tests.e2e.test_gates_held import gated, holding
from tests.e2e.test_one_reason import HOLD, ageless
from tests.e2e.test_reservations import seen, sums
from tests.e2e.test_rollout_status import Rollout
from tests.e2e.test_scenarios import guarding
from tests.e2e.waiting import eventually
from webhook.cli.program import program
from webhook.kube.core import GATE

# What all three tell of: what the log also says of every allowed write, events leave to the charge.
KINDS = ("refused", "pending", "settled", "charged", "released")
# A claim that waits for nothing but the scheduler has a span for it, and nobody is told.
SHORT = 15_000_000_000
SPANS = {"ledger.charge", "ledger.release", "claim.pending"}


class Step(NamedTuple):
    """One thing that happened to a claim: ``reason`` is a rule, ``text`` what people are told."""

    kind: str
    reason: str
    node: str
    text: str


def first_of_each(steps: list[Step]) -> list[Step]:
    """Each step once, at its first time: writes are tried again, and waits are told again while they last."""
    told: dict[tuple[str, str, str], Step] = {}
    for step in steps:
        told.setdefault((step.kind, step.reason, step.node), step._replace(text=ageless(step.text)))
    return list(told.values())


def from_trace(jaeger: Jaeger, uid: str) -> list[Step]:
    """The spans of the claim's trace."""
    spans = jaeger.trace(uid.replace("-", ""))
    steps = []
    for span in sorted(spans, key=lambda span: span.ended):
        said = span.attributes
        verdict, node = said.get("allocguard.verdict", ""), said.get("allocguard.node", "")
        if span.name == "admission.review" and verdict == "denied":
            below = [each.attributes for each in spans if each.parent == span.id and each.name == "policy.evaluate"]
            rules = [each["allocguard.rule"] for each in below if each["allocguard.verdict"] == "Deny"]
            steps.append(Step("refused", rules[0], node, said["allocguard.message"]))
        elif span.name in SPANS and not (
            said.get("allocguard.rule") == "unscheduled" and span.ended - span.begun < SHORT
        ):
            steps.append(Step(verdict, said.get("allocguard.rule", ""), node, said["allocguard.message"]))
    return first_of_each(steps)


def from_log(guard: Guard, uid: str) -> list[Step]:
    """The lines about the claim."""
    steps = []
    for line in guard.lines(claimUID=uid):
        if line["event"] == "denied":
            steps.append(Step("refused", line["reason"], line["node"], line["message"]))
        elif line["event"] in KINDS:
            steps.append(Step(line["event"], line["reason"], line["node"], line["message"]))
    return first_of_each(steps)


def explained(cluster: Cluster, claim: str, output: str = "json") -> str:
    """What ``explain --claim`` prints of the live cluster."""
    kubeconfig = str(cluster.plane.kubeconfig("dana", "system:masters"))
    command = ["explain", "--claim", claim, "--kubeconfig", kubeconfig, "-o", output]
    ran = CliRunner(catch_exceptions=False).invoke(program, command)
    assert ran.exit_code == 0, ran.stderr
    return ran.stdout


def from_explain(cluster: Cluster, uid: str) -> list[Step]:
    """The moments of the claim's story. Where there is no rule it has the reason of the event in its place."""
    moments: list[Json] = json.loads(explained(cluster, uid))["moments"]
    return first_of_each(
        [
            Step(each["kind"], "" if each["reason"][:1].isupper() else each["reason"], each["node"], each["text"])
            for each in moments
            if each["kind"] in KINDS and not each["about"]
        ]
    )


def agreed(cluster: Cluster, guard: Guard, jaeger: Jaeger, uid: str, *kinds: str) -> list[Step]:
    """The story as all three tell it, once it has a step of each of ``kinds``."""

    def look() -> list[Step]:
        by_log, by_trace, by_explain = from_log(guard, uid), from_trace(jaeger, uid), from_explain(cluster, uid)
        assert {step.kind for step in by_log} >= set(kinds), by_log
        assert sorted(by_trace) == sorted(by_log)
        assert sorted(by_explain) == sorted(by_log)
        return by_log

    return eventually(look, within=45, every=0.5)


def test_trace_log_and_explain_tell_one_story(cluster: Cluster, jaeger: Jaeger) -> None:
    guard = deployed(cluster, f"--otlp-endpoint={jaeger.otlp_http}", "--trace-ratio=1")
    driver = shared_cpus(cluster, cpu="16")
    guarding(cluster, guard, driver)

    # One is released.
    released = cpu_claim(cluster, "released", 3)["metadata"]["uid"]
    cluster.pod("ended", claims=["released"])
    cluster.scheduled("ended")
    agreed(cluster, guard, jaeger, released, "charged")
    cluster.delete("Pod", "ended")
    story = agreed(cluster, guard, jaeger, released, "charged", "released")
    assert [step.kind for step in story] == ["charged", "released"]
    assert {step.node for step in story} == {driver.node}
    assert all("3 cpu" in step.text for step in story)
    assert "deallocated" in story[-1].reason

    # One waits, and gets its devices later.
    rollout = Rollout(cluster, stage="General", hold=HOLD)
    waits = cpu_claim(cluster, "waits", 2)["metadata"]["uid"]
    holding(cluster, "waits")
    cluster.pod("patient", claims=["waits"])
    assert gated(cluster, "patient") == [GATE]
    [step] = agreed(cluster, guard, jaeger, waits, "pending")
    assert (step.kind, step.reason) == ("pending", "driver-held")
    assert HOLD["reason"] in step.text
    rollout.edit(hold=None)
    cluster.scheduled("patient")
    story = agreed(cluster, guard, jaeger, waits, "settled", "charged")
    first, *then = [step.kind for step in story]
    assert (first, {*then[-2:]}) == ("pending", {"settled", "charged"})

    # One is refused.
    cluster.pod("other", cpu="13", node="n1")
    denied = cpu_claim(cluster, "denied", 3)["metadata"]["uid"]
    pod = cluster.pod("hungry", claims=["denied"], cpu="1", spec={"schedulerName": "e2e"})
    eventually(lambda: seen(guard, driver) and sums(cluster, "n1").get("free") == "1")
    with pytest.raises(ApiError) as raised:
        cluster.allocate("denied", driver, "group-0", pod="hungry", cpus="3")
    story = agreed(cluster, guard, jaeger, denied, "refused", "pending")
    [step] = [step for step in story if step.kind == "refused"]
    assert (step.reason, step.node) == ("node-overcommit", driver.node)
    assert step.text in raised.value.message

    # A person who has but the name of a claim is told all of it, and so is one who has but the pod's trace.
    text = explained(cluster, f"{cluster.ns}/denied", "text")
    assert "node-overcommit" in text
    assert "what it waits for" in text
    assert denied.replace("-", "") in text
    links = {trace for span in jaeger.trace(denied.replace("-", "")) for trace, _ in span.links}
    assert pod["metadata"]["uid"].replace("-", "") in links
