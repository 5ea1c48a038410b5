"""The webhook configurations on real API servers: what they send to whom, and that they are kept."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy

import pytest

from tests.e2e.client import ApiError, Json
from tests.e2e.cluster import Cluster
from tests.e2e.driver import each, mappings
from tests.e2e.guard import Guard
from tests.e2e.guarding import admission_policy, definitions, guarded
from tests.e2e.kinds import path
from tests.e2e.recorder import Recorder
from tests.e2e.waiting import eventually, steady
from webhook.policy.compile import compile_files
from webhook.registration.configurations import NAME, Address, configurations
from webhook.store.policies import read, shipped

KINDS = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
# A policy that asks for all that any row is about.
EVERYTHING = b"""
apiVersion: allocguard.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: everything}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: ["*"], apiVersions: [v1], operations: ["*"], resources: ["*", "*/*"]}
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}
  validations: [{name: never, expression: "true"}]
  action: Warn
  failurePolicy: Ignore
"""


def everywhere(endpoint: str) -> bytes:
    return EVERYTHING.replace(b"spec:", f"spec:\n  endpoint: {endpoint}".encode()).replace(
        b"everything", f"{endpoint}-everything".encode()
    )


class Sent:
    """All rows, registered for a recorder: what the API server sends where."""

    def __init__(self, cluster: Cluster, recorder: Recorder, drivers: frozenset[str]) -> None:
        self._cluster, self._recorder = cluster, recorder
        address = Address(url=f"https://127.0.0.1:{recorder.port}")
        revision = compile_files({each: everywhere(each) for each in ("validate", "mutate")})
        for obj in configurations(revision, address, recorder.authority, drivers, namespace="allocguard-system"):
            cluster.as_admin.create(path(obj["kind"]), obj)

    def live(self) -> None:
        """Wait until both configurations are in force."""
        number = 0

        def probe() -> bool:
            nonlocal number
            number += 1
            self._cluster.create("ConfigMap", {"metadata": {"name": f"probe-{number}"}})
            return {"validate/configmaps", "mutate/configmaps"} <= {seen.endpoint for seen in self._recorder.seen}

        eventually(probe)
        self._recorder.seen.clear()

    def rows(self, user: str = "") -> list[str]:
        """The rows that got something since the last call, validating ones first; of ``user`` alone where given.

        Each once: what conflicts with another write is asked about again.
        """
        found = {seen.endpoint for seen in self._recorder.seen if user in ("", seen.user)}
        self._recorder.seen.clear()
        return [name.partition("/")[2] for name in sorted(found, key=lambda name: (name.startswith("mutate"), name))]


@pytest.fixture
def sent(cluster: Cluster) -> Sent:
    made = Sent(cluster, cluster.recorder(endpoints=()), frozenset({cluster.name("listed.example")}))
    made.live()
    return made


def errors(cluster: Cluster) -> list[str]:
    """The API server's count of conditions of ours that failed, other than zero."""
    metrics = cluster.as_admin.text("/metrics").splitlines()
    counts = [
        line for line in metrics if line.startswith("apiserver_admission_match_condition_evaluation_errors_total")
    ]
    return [line for line in counts if '.allocguard.dev"' in line and not line.endswith(" 0")]


def test_slices(cluster: Cluster, sent: Sent) -> None:
    node = cluster.node("n1")
    other, listed = cluster.driver("other.example", node), cluster.driver("listed.example", node)
    sent.rows()
    other.publish([other.device("d")])
    assert sent.rows(other.user) == ["other-slices", "sent-other-slices"]
    other.publish([other.device("d", costs={"cpu": each("1")})])
    assert sent.rows(other.user) == ["mapped-slices", "sent-mapped-slices"]
    other.publish([other.device("e")])
    assert sent.rows(other.user) == ["mapped-slices", "sent-mapped-slices"]
    listed.publish([listed.device("d")])
    assert sent.rows(listed.user) == ["guarded-slices", "sent-other-slices"]
    where = path("ResourceSlice", listed.slice([])["metadata"]["name"])
    listed.client.patch(where, {"metadata": {"labels": {"a": "b"}}})
    assert sent.rows(listed.user) == ["unchanged-slices", "sent-unchanged-slices"]
    listed.client.patch(where, {"metadata": {"finalizers": ["e2e.allocguard.dev/wait"]}})
    listed.client.delete(where)
    sent.rows()
    listed.client.patch(where, {"metadata": {"finalizers": []}})
    assert sent.rows(listed.user) == ["unchanged-slices", "sent-unchanged-slices"]
    other.withdraw()
    assert sent.rows(other.user) == ["slice-deletions"]
    assert errors(cluster) == []


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_slices_of_older_versions(cluster: Cluster, sent: Sent, version: str) -> None:
    driver = cluster.driver("old.example", cluster.node("n1"))
    slice_of = driver.slice([driver.device("d", costs={"cpu": each("1")})])
    if version == "v1beta1":
        for device in slice_of["spec"]["devices"]:
            device["basic"] = {key: device.pop(key) for key in list(device) if key != "name"}
    sent.rows()
    driver.client.create(
        f"/apis/resource.k8s.io/{version}/resourceslices", {**slice_of, "apiVersion": f"resource.k8s.io/{version}"}
    )
    assert sent.rows(driver.user) == ["mapped-slices", "sent-mapped-slices"]
    assert errors(cluster) == []


def test_the_field_of_the_other_release_is_gone_before_conditions_are_asked(cluster: Cluster, sent: Sent) -> None:
    driver = cluster.driver("other.example", cluster.node("n1"))
    device = {"name": "d", **mappings({36: 37, 37: 36}[cluster.minor], {"cpu": each("1")})}
    sent.rows()
    driver.client.create(path("ResourceSlice"), driver.slice([device]))
    assert sent.rows(driver.user) == ["other-slices", "sent-other-slices"]
    assert errors(cluster) == []


def test_claims(cluster: Cluster, sent: Sent) -> None:
    node = cluster.node("n1")
    other, listed = cluster.driver("other.example", node), cluster.driver("listed.example", node)
    cluster.device_class("none", cel="false")
    scheduler = "system:kube-scheduler"
    sent.rows()
    cluster.claim("a", "none")
    assert sent.rows("admin") == ["new-claims"]
    cluster.claim_template("t", "none")
    assert sent.rows("admin") == ["new-claims"]
    cluster.claim("b", "none")
    sent.rows()
    cluster.allocate("a", other, "d")
    assert sent.rows(scheduler) == ["other-allocations"]
    cluster.allocate("b", listed, "d")
    assert sent.rows(scheduler) == ["guarded-allocations"]
    where = cluster.path("ResourceClaim", "b", "status")
    consumers = [{"resource": "pods", "name": f"p{number}", "uid": f"u{number}"} for number in range(256)]
    # Claims with the most consumers there can be: conditions have a budget.
    cluster.as_scheduler.patch(where, {"status": {"reservedFor": consumers[:255]}})
    assert sent.rows(scheduler) == ["guarded-allocations"]
    cluster.as_scheduler.patch(where, {"status": {"reservedFor": consumers}})
    assert sent.rows(scheduler) == ["guarded-allocations"]
    cluster.as_scheduler.patch(where, {"status": {"reservedFor": consumers[:254]}})
    assert sent.rows(scheduler) == ["claim-releases"]
    listed.client.patch(
        where,
        {"status": {"devices": [{"driver": listed.name, "pool": listed.node, "device": "d", "data": {"a": 1}}]}},
    )
    assert sent.rows(listed.user) == ["claim-releases"]
    cluster.as_scheduler.patch(where, {"status": {"allocation": None, "reservedFor": None, "devices": None}})
    assert sent.rows(scheduler) == ["claim-releases"]
    assert errors(cluster) == []


def test_pods_and_heartbeats(cluster: Cluster, sent: Sent) -> None:
    node = cluster.node("n1")
    sent.rows()
    cluster.device_class("none", cel="false")
    cluster.claim("c", "none")
    sent.rows()
    cluster.pod("p", claims=["c"], node=node)
    assert sent.rows("admin") == ["new-pods", "sent-pods"]
    kubelet, status = cluster.as_kubelet(node), cluster.path("Pod", "p", "status")
    for phase in ("Pending", "Running"):
        kubelet.patch(status, {"status": {"phase": phase}})
    assert sent.rows(f"system:node:{node}") == []
    entry: Json = {"resourceClaimName": "c", "containers": ["main"]}
    entry |= {"resources": {"cpu": "1"}} if cluster.minor < 37 else {}
    cluster.as_admin.patch(status, {"status": {"nodeAllocatableResourceClaimStatuses": [entry]}})
    assert sent.rows("admin") == ["pod-claim-status"]
    kubelet.patch(status, {"status": {"message": "beat"}})
    kubelet.patch(path("Node", node, sub="status"), {"status": {"nodeInfo": {"kubeletVersion": "v1"}}})
    assert sent.rows(f"system:node:{node}") == []
    cluster.as_admin.patch(path("Node", node), {"metadata": {"labels": {"canary": "yes"}}})
    assert sent.rows("admin") == ["node-changes"]
    cluster.pod("q")
    cluster.scheduled("q")
    assert "pod-bindings" in sent.rows("system:kube-scheduler")
    assert errors(cluster) == []


def test_roles_and_tokens(cluster: Cluster, sent: Sent) -> None:
    sent.rows()
    cluster.service_account("driver", [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}])
    assert sent.rows("admin") == ["role-changes"]
    cluster.token("driver")
    assert sent.rows("admin") == ["token-requests"]
    assert errors(cluster) == []


def test_kube_system_is_left_alone(cluster: Cluster, sent: Sent) -> None:
    pod = {"metadata": {"name": cluster.name("p")}, "spec": {"containers": [{"name": "main", "image": "i"}]}}
    sent.rows()
    cluster.create("Pod", pod, "kube-system")
    cluster.delete("Pod", pod["metadata"]["name"], "kube-system")
    assert sent.rows("admin") == []


def test_long_lists_of_drivers_are_taken(cluster: Cluster) -> None:
    drivers = frozenset(f"driver-{number:04}.{'x' * 43}.example" for number in range(1200))
    for obj in configurations(read([shipped()]), Address(url="https://127.0.0.1:1"), b"", drivers, audit=True):
        for entry in obj["webhooks"]:
            entry["clientConfig"].pop("caBundle")
        cluster.as_admin.create(path(obj["kind"]), obj, dryRun="All")


def stored(cluster: Cluster, kind: str = KINDS[0]) -> Json:
    """The configuration as the API server has it."""
    return cluster.as_admin.get(path(kind, NAME))


def webhooks(cluster: Cluster, kind: str = KINDS[0]) -> list[Json]:
    """Its entries; none where it is not there."""
    return (cluster.as_admin.find(path(kind, NAME)) or {}).get("webhooks", [])


def never(cluster: Cluster, name: str, **spec: object) -> Json:
    """A policy about new ConfigMaps that has nothing against any."""
    validations = [{"name": "never", "expression": "true"}]
    return admission_policy(cluster.name(name), ["configmaps"], ["CREATE"], validations=validations, **spec)


def entries(cluster: Cluster) -> dict[str, Json]:
    """The entries of both configurations by their short names."""
    found = [entry for kind in KINDS for entry in webhooks(cluster, kind)]
    return {entry["name"].removesuffix(".allocguard.dev"): entry for entry in found}


def drivers(cluster: Cluster) -> set[str]:
    """The drivers that are listed, of those of this test."""
    given = stored(cluster)["metadata"].get("annotations", {}).get("allocguard.dev/drivers", "")
    return {name for name in given.split(",") if cluster.tag in name}


def told(guard: Guard) -> str:
    """What /readyz says about the registration."""
    (line,) = (line for line in guard.get("/readyz?verbose").text.splitlines() if "]registration" in line)
    return line.partition("registration ")[2]


def test_it_registers_itself_for_the_shipped_policies_and_follows_drivers(cluster: Cluster) -> None:
    guard = guarded(cluster)
    assert told(guard) == "ok"
    shipped_entries = {"mapped-slices", "other-slices", "other-allocations", "new-claims", "new-pods"}
    assert shipped_entries < set(entries(cluster))
    driver = cluster.driver("cpu.example", cluster.node("n1"))
    driver.publish([driver.device("d", costs={"cpu": each("1")})])
    eventually(lambda: drivers(cluster) == {driver.name})
    [condition] = [
        each for each in entries(cluster)["guarded-allocations"]["matchConditions"] if "listed" in each["name"]
    ]
    assert f"'{driver.name}'" in condition["expression"]
    # A driver that loses its mappings is the one to look at; one that is gone is not.
    driver.publish([driver.device("d")])
    steady(lambda: drivers(cluster) == {driver.name}, 2.5)
    driver.withdraw()
    eventually(lambda: drivers(cluster) == set())
    cluster.create(
        "DriverRollout",
        {
            "apiVersion": "allocguard.dev/v1alpha1",
            "kind": "DriverRollout",
            "metadata": {"name": driver.name},
            "spec": {"stage": "General"},
        },
    )
    eventually(lambda: drivers(cluster) == {driver.name})


def test_it_follows_policies(cluster: Cluster) -> None:
    guarded(cluster)
    assert "configmaps" not in entries(cluster)
    policy = never(cluster, "maps")
    cluster.create("AdmissionPolicy", policy)
    entry = eventually(lambda: entries(cluster).get("configmaps"))
    assert entry["rules"][0]["operations"] == ["CREATE"]
    where = path("AdmissionPolicy", cluster.name("maps"))
    wider = deepcopy(policy["spec"])
    wider["matchConstraints"]["resourceRules"][0]["operations"] = ["CREATE", "DELETE"]
    cluster.as_admin.patch(where, {"spec": wider})
    eventually(lambda: entries(cluster)["configmaps"]["rules"][0]["operations"] == ["CREATE", "DELETE"])
    cluster.delete("AdmissionPolicy", "maps")
    eventually(lambda: "configmaps" not in entries(cluster))


def test_conditions_that_the_api_server_does_not_take_are_left_out(cluster: Cluster) -> None:
    """An expression of a policy that only our CEL understands must not have the whole registration refused."""
    guard = guarded(cluster)
    policy = never(cluster, "ours", action="Warn", failurePolicy="Ignore")
    expression = "cel.bind(name, object.metadata.name, name != '') && math.abs(-1) == 1"
    policy["spec"]["matchConditions"] = [{"name": "ours", "expression": expression}]
    cluster.create("AdmissionPolicy", policy)
    entry = eventually(lambda: entries(cluster).get("configmaps"))
    assert "matchConditions" not in entry
    assert "registered without the policies' own match conditions" in told(guard)
    cluster.delete("AdmissionPolicy", "ours")
    eventually(lambda: told(guard) == "ok" and entries(cluster)["new-pods"].get("matchConditions"))


def test_edits_by_hand_are_put_back_and_the_users_fields_stay(cluster: Cluster) -> None:
    guard = guarded(cluster)
    admin = cluster.as_admin
    for kind in KINDS:
        where, whole = path(kind, NAME), webhooks(cluster, kind)
        entry, rule = whole[0], whole[0]["rules"][0]
        edits: list[Json] = [
            {"webhooks": [{**entry, "failurePolicy": "Ignore", "rules": [{**rule, "resources": ["pods"]}]}]},
            {"webhooks": []},
            {"webhooks": None, "metadata": {"labels": None}},
        ]
        for edit in edits:
            admin.patch(where, edit)
            eventually(lambda kind=kind, whole=whole: webhooks(cluster, kind) == whole)
        admin.delete(where)
        eventually(lambda kind=kind, whole=whole: webhooks(cluster, kind) == whole)
    eventually(lambda: len(guard.lines(event="registration put right")) >= 8)


def test_the_users_own_fields_stay(cluster: Cluster) -> None:
    guard = guarded(cluster)
    where, whole = path(KINDS[0], NAME), webhooks(cluster)
    mine = [{**each, "timeoutSeconds": 2} for each in whole]
    metadata = {"labels": {"team": "a"}, "annotations": {"note": "b"}}
    cluster.as_admin.patch(where, {"metadata": metadata, "webhooks": mine})
    steady(lambda: webhooks(cluster) == mine, 2)
    assert stored(cluster)["metadata"]["labels"]["team"] == "a"
    hands_off = {"metadata": {"annotations": {"allocguard.dev/unmanaged": "true"}}}
    cluster.as_admin.patch(where, {**hands_off, "webhooks": mine[:1]})
    steady(lambda: len(webhooks(cluster)) == 1, 2)
    assert "ValidatingWebhookConfiguration says allocguard.dev/unmanaged: left as it is" in told(guard)
    cluster.as_admin.patch(where, {"metadata": {"annotations": {"allocguard.dev/unmanaged": None}}})
    eventually(lambda: webhooks(cluster)[1:] == whole[1:])
    eventually(lambda: told(guard) == "ok")


def test_a_program_that_writes_against_it_is_told_of_and_not_raced(cluster: Cluster) -> None:
    guard = guarded(cluster)
    where = path(KINDS[1], NAME)
    for number in range(6):
        cluster.as_admin.patch(where, {"webhooks": []})
        eventually(lambda number=number: len(guard.lines(event="registration put right")) > number)
    eventually(lambda: "somebody writes it back again and again" in told(guard))


def test_one_of_two_replicas_keeps_it(cluster: Cluster) -> None:
    first = guarded(cluster)
    second = cluster.guard(*[each for each in first.process.command if str(each).startswith("--namespace=")])
    where, whole = path(KINDS[0], NAME), webhooks(cluster)
    cluster.as_admin.patch(where, {"webhooks": []})
    eventually(lambda: webhooks(cluster) == whole)
    assert second.lines(event="registered") == second.lines(event="registration put right") == []
    assert "registration" not in second.get("/readyz?verbose").text
    first.stop()
    cluster.as_admin.delete(where)
    eventually(lambda: webhooks(cluster))
    # It leads since before the first has ended, and has seen everything in place.
    eventually(lambda: second.lines(event="registered") or second.lines(event="registration put right"))


def test_who_is_told_to_stop_puts_nothing_back(cluster: Cluster) -> None:
    guard = guarded(cluster)
    with ThreadPoolExecutor() as threads:
        ending = threads.submit(guard.stop)
        eventually(lambda: guard.lines(event="stopping"))
        cluster.as_admin.delete(path(KINDS[0], NAME))
        assert ending.result() == 0
    assert webhooks(cluster) == []
    assert guard.lines(event="registration put right") == []


def test_while_it_is_away_only_what_must_be_judged_waits(cluster: Cluster) -> None:
    guard = guarded(cluster)
    node = cluster.node("n1")
    mapped, plain = cluster.driver("cpu.example", node), cluster.driver("nic.example", node)
    mapped.publish([mapped.device("d", costs={"cpu": each("1")}), mapped.device("e", costs={"cpu": each("1")})])
    plain.publish([plain.device("d")])
    eventually(lambda: drivers(cluster) == {mapped.name})
    cluster.device_class("none", cel="false")
    for name in ("held", "new", "free"):
        cluster.claim(name, "none")
    cluster.allocate("held", mapped, "d")
    guard.kill()

    def refused(write: Callable[[], object]) -> str:
        with pytest.raises(ApiError) as caught:
            write()
        assert caught.value.code == 500
        return caught.value.message

    assert "guarded-allocations.allocguard.dev" in refused(lambda: cluster.allocate("new", mapped, "e"))
    assert "mapped-slices" in refused(lambda: mapped.publish([mapped.device("d", costs={"cpu": each("2")})]))
    cluster.allocate("free", plain, "d")
    plain.publish([plain.device("e")])
    where = cluster.path("ResourceClaim", "held", "status")
    cluster.as_scheduler.patch(where, {"status": {"allocation": None, "reservedFor": None}})
    cluster.claim("more", "none")
    cluster.pod("p", claims=["more"])
    mapped.withdraw()


def test_in_audit_mode_nothing_waits(cluster: Cluster) -> None:
    guard = guarded(cluster, "--mode=audit")
    assert {entry["failurePolicy"] for entry in entries(cluster).values()} == {"Ignore"}
    driver = cluster.driver("cpu.example", cluster.node("n1"))
    guard.kill()
    driver.publish([driver.device("d", costs={"cpu": each("1")})])


def test_nothing_is_registered_before_the_cluster_is_seen(cluster: Cluster) -> None:
    """A server that may not list pods is never ready, so the API server must not be told to ask it."""
    definitions(cluster)
    namespace = cluster.namespace("guard")
    configurations = ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"]
    rules = [
        {"apiGroups": ["admissionregistration.k8s.io"], "resources": configurations, "verbs": ["*"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]},
        {"apiGroups": ["resource.k8s.io"], "resources": ["*"], "verbs": ["*"]},
    ]
    cluster.service_account("guard", rules, namespace)
    token = cluster.token("guard", namespace=namespace)
    guard = cluster.guard(f"--namespace={namespace}", user=("blind",), token=token, ready=False)
    eventually(lambda: guard.lines(event="view refused"))
    steady(lambda: cluster.as_admin.find(path(KINDS[0], NAME)) is None, 2)


@pytest.mark.parametrize("number", [600, 4000])
def test_many_drivers_fit_into_a_configuration(cluster: Cluster, number: int) -> None:
    """Names as long as they may be: the API server takes the size of it all, and what its conditions cost."""
    drivers = frozenset(f"d{each:04d}-{'x' * 45}.example.org" for each in range(number))
    assert {len(name) for name in drivers} == {63}
    revision = compile_files({each: everywhere(each) for each in ("validate", "mutate")})
    for obj in configurations(revision, Address(url="https://127.0.0.1:1"), b"", drivers):
        made = cluster.as_admin.create(path(obj["kind"]), obj, dryRun="All")
        listing = [entry["name"] for entry in made["webhooks"] if entry["name"].startswith("guarded-allocations")]
        if obj["kind"] == KINDS[0]:
            assert len(listing) == -(-number // 512)
            assert set(made["metadata"]["annotations"]["allocguard.dev/drivers"].split(",")) == drivers
