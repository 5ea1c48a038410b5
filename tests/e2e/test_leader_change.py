"""Two replicas, and the one that leads is killed while a driver is held: the other goes on where it stopped."""

from __future__ import annotations

from dataclasses import dataclass

from tests.e2e.client import Json
from tests.e2e.cluster import Cluster
from tests.e2e.driver import Driver
from tests.e2e.guard import Guard
from tests.e2e.guarding import deployed
from tests.e2e.scenes import cpu_claim, entry, shared_cpus
from tests.e2e.test_gates_held import gated, hold, holding, resume, told
from tests.e2e.test_scenarios import guarding
from tests.e2e.test_taints import heeding, rules, said, tainted  # noqa: F401 - heeding is a fixture
from tests.e2e.waiting import eventually
from webhook.kube.core import GATE
from webhook.kube.taint_rule import rule_name

# Seconds: a Lease is free 15 after its holder's last sign, and all that follows takes its time where much else runs.
TAKEN_OVER = 120
OPTIONS = ("--kubeconfig=", "--namespace=", "--certs-secret=")


@dataclass
class Held:
    """A held driver with its taint, ``rule``, and the pod ``p1`` that waits at its gate; who leads, and who is next."""

    driver: Driver
    rule: Json
    leader: Guard
    other: Guard


def leads(guard: Guard) -> bool:
    """Whether ``guard`` says that it leads."""
    return "leader ok, leading" in guard.get("/readyz?verbose").text


def held(cluster: Cluster) -> Held:
    """Two replicas by the account of ``deploy/``, of which the leader has put on gate and taint."""
    driver = shared_cpus(cluster)
    first = deployed(cluster)
    eventually(lambda: leads(first))
    second = cluster.guard(*[each for each in first.process.command if each.startswith(OPTIONS)])
    guarding(cluster, first, driver)
    cpu_claim(cluster, "c1", 1)
    hold(cluster, first, driver)
    holding(cluster, "c1")
    cluster.pod("p1", claims=["c1"])
    assert gated(cluster, "p1") == [GATE]
    eventually(lambda: told(cluster, "p1"))
    rule = eventually(lambda: cluster.as_admin.find(rules(cluster, rule_name(driver.name))))
    assert rule is not None
    leader, other = (first, second) if leads(first) else (second, first)
    assert (leads(leader), leads(other)) == (True, False)
    return Held(driver, rule, leader, other)


def lifted(cluster: Cluster, scene: Held, *pods: str) -> None:
    """Wait until ``pods`` run with what they asked for and nothing holds anybody any more, by the other one's work."""
    for pod in pods:
        running = cluster.scheduled(pod, within=TAKEN_OVER)
        assert entry(cluster, running)[f"c{pod[1:]}"]["cpu"] == "1"
        assert gated(cluster, pod) == []
    eventually(lambda: tainted(cluster, scene.driver) == {}, within=TAKEN_OVER)
    # Counted when the API server has answered, which others may see first.
    eventually(lambda: scene.other.metric("allocguard_pods_released_total") == len(pods))
    eventually(lambda: scene.other.metric("allocguard_pods_gated") == 0)
    assert len(told(cluster, "p1")) == 1


def test_who_takes_over_keeps_what_is_held_and_lets_it_go_when_the_hold_ends(heeding: Cluster) -> None:  # noqa: F811
    """Gate and taint stand as they were while nobody leads and after it; who comes then waits, too."""
    cluster = heeding
    scene = held(cluster)
    scene.leader.kill()
    eventually(lambda: leads(scene.other), within=TAKEN_OVER)
    # It has looked at pods and rules.
    eventually(lambda: scene.other.metric("allocguard_pods_gated", reason="driver-held") == 1, within=TAKEN_OVER)
    eventually(lambda: "device taints ok, 1 rule" in scene.other.get("/readyz?verbose").text, within=TAKEN_OVER)
    assert gated(cluster, "p1") == [GATE]
    assert said(cluster.as_admin.find(rules(cluster, rule_name(scene.driver.name)))) == said(scene.rule)
    # API servers ask it now.
    cpu_claim(cluster, "c2", 1)
    eventually(lambda: holding(cluster, "c2") is None, within=TAKEN_OVER)
    cluster.pod("p2", claims=["c2"])
    assert gated(cluster, "p2") == [GATE]
    resume(cluster, scene.driver)
    lifted(cluster, scene, "p1", "p2")


def test_a_hold_that_ends_while_nobody_leads(heeding: Cluster) -> None:  # noqa: F811
    cluster = heeding
    scene = held(cluster)
    scene.leader.kill()
    resume(cluster, scene.driver)
    lifted(cluster, scene, "p1")
