"""Why a claim waits, in the same words wherever somebody looks: at its pod, the refused write, the DriverRollout, the
rule that taints its devices, the metrics and the trace.
"""

from __future__ import annotations

import re

import pytest

from tests.e2e.client import ApiError
from tests.e2e.cluster import Cluster
from tests.e2e.driver import Driver
from tests.e2e.guarding import deployed
from tests.e2e.scenes import cpu_claim, shared_cpus
from tests.e2e.test_gates_held import gated, holding, told
from tests.e2e.test_rollout_status import Rollout, events
from tests.e2e.test_scenarios import allocation, bound, guarding
from tests.e2e.test_taints import rules, try_now, waiting
from tests.e2e.waiting import eventually, steady
from tests.telemetry.receiver import Receiver
from webhook.kube.core import GATE
from webhook.kube.taint_rule import REASON, rule_name

HOLD = {"reason": "books half", "by": "on-call", "since": "2026-11-20T09:00:00Z"}


def ageless(text: str) -> str:
    """Without how long ago something was, which goes on while people look."""
    return re.sub(r" \(\S+ ago\)", "", text)


def refusal(cluster: Cluster, driver: Driver, claim: str) -> str:
    """What is said to the scheduler that gives ``claim`` a device of ``driver``; nothing is stored."""
    body = allocation(driver, "group-0", "5a3ff3a4-5d45-4a4d-9d0a-1f5e1d0b8b36", cpus="2")
    with pytest.raises(ApiError) as raised:
        cluster.as_scheduler.patch(cluster.path("ResourceClaim", claim, "status"), body, dryRun="All")
    return ageless(raised.value.message)


def test_the_reason_of_a_hold_is_the_same_everywhere(cluster: Cluster) -> None:
    """The pod that was made before it has no gate, and is told all the same; once, whoever leads."""
    driver = shared_cpus(cluster)
    with Receiver() as receiver:
        guard = deployed(cluster, f"--otlp-endpoint={receiver.url}")
        guarding(cluster, guard, driver)
        waiting(cluster, "before")
        rollout = Rollout(cluster, stage="General", hold=HOLD)
        cpu_claim(cluster, "claim-after", 2)
        holding(cluster, "claim-after")
        cluster.pod("after", claims=["claim-after"])
        try_now(cluster, "before")
        assert (gated(cluster, "before"), gated(cluster, "after")) == ([], [GATE])

        [event] = eventually(lambda: told(cluster, "before"))
        assert (event["reason"], event["type"], event["count"]) == ("ClaimsHeld", "Warning", 1)
        reason = ageless(event["message"])
        rule, _, text = reason.partition(": ")
        assert rule == "driver-held"
        assert text == (
            f"has driver {driver.name} held: books half, by on-call, since 2026-11-20T09:00:00Z, needs the hold to be "
            f"taken back; bound claims stay; take spec.hold out of DriverRollout {driver.name} when it is repaired"
        )
        [other] = eventually(lambda: told(cluster, "after"))
        assert ageless(other["message"]) == reason
        refused = refusal(cluster, driver, "claim-before")
        assert f"claim-allocation/{rule}: " in refused
        assert text in refused

        assert rollout.wait("Held", "True")["message"].startswith(reason)
        assert [each["reason"] for each in rollout.status()["heldPools"]] == [reason]
        [held] = eventually(lambda: events(cluster, driver.name, "Held"))
        assert held["message"].startswith(reason)
        if cluster.minor >= 37:
            taint = eventually(lambda: cluster.as_admin.find(rules(cluster, rule_name(driver.name))))
            assert taint is not None
            assert ageless(taint["metadata"]["annotations"][REASON]) == reason
            assert taint["spec"]["taint"]["key"] == f"allocguard.dev/{rule}"
        eventually(lambda: guard.metric("allocguard_claims_pending", driver=driver.name, reason=rule) == 2)
        assert guard.metric("allocguard_pods_gated", reason=rule) == 1
        [span] = eventually(lambda: [each for each in receiver.spans if each.name == "rollout.hold"])
        assert span.attributes["allocguard.hold.reason"] == HOLD["reason"]
        assert span.attributes["allocguard.message"].startswith(reason)

        guard.restart()
        eventually(lambda: "unscheduled pods ok; 1 wait: driver-held" in guard.get("/readyz?verbose").text, within=40)
        steady(lambda: told(cluster, "before") == [event], during=6)
        assert not bound(cluster, "before")
        rollout.edit(hold=None)
        for pod in ("before", "after"):
            cluster.scheduled(pod, within=30)
        assert [len(told(cluster, pod)) for pod in ("before", "after")] == [1, 1]
