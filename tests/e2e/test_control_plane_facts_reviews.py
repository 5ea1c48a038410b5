"""What a webhook is asked, in which order, and what it may answer."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.client import ApiError, Json
from tests.e2e.cluster import Cluster
from tests.e2e.kinds import path
from tests.e2e.recorder import Seen, refuse
from tests.e2e.scenes import WRITES, cpu_claim, shared_cpus
from tests.e2e.waiting import eventually

BOTH = ("mutate", "validate")
CLAIMS, SLICES, PODS = "resource.k8s.io/resourceclaims", "resource.k8s.io/resourceslices", "/pods"
NOTHING: Json = {"devices": {"requests": []}}


def patch(*operations: Json) -> Json:
    """An answer that allows, and changes the object."""
    content = b64encode(json.dumps(operations).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": content}


def label(request: Json) -> Json:
    """A patch that gives the object a label."""
    labels = {**request["object"]["metadata"].get("labels", {}), "seen": "yes"}
    return patch({"op": "add", "path": "/metadata/labels", "value": labels})


def whole(asks: list[str]) -> list[str]:
    """``asks`` once each of them was made at both endpoints."""
    assert asks.count("mutate") == asks.count("validate"), asks
    return asks


def test_the_writes_of_the_scheduler(cluster: Cluster) -> None:
    """For a pod with one claim the scheduler writes the claim's finalizer, its allocation and consumer at once, the
    pod's entries, and the binding, in this order, and each write is asked about at mutating webhooks first.
    """
    shared_cpus(cluster)
    recorder = cluster.recorder(resources=WRITES, endpoints=BOTH)
    cpu_claim(cluster, "c1", 3)
    pod = cluster.pod("p1", claims=["c1"])
    cluster.scheduled("p1")

    def writes() -> list[Seen]:
        return [seen for seen in recorder.seen if seen.user == "system:kube-scheduler"]

    # Writes about pods run beside those about claims, and a patch that meets another one is asked about again.
    kinds = {seen.what for seen in writes()}
    for what in kinds:
        asks = eventually(lambda what=what: whole([seen.endpoint for seen in writes() if seen.what == what]))
        assert all(asks[:end].count("mutate") >= asks[:end].count("validate") for end in range(len(asks)))
    asked = [seen for seen in writes() if seen.endpoint == "validate"]

    def booked(seen: Seen) -> bool:
        return "nodeAllocatableResourceClaimStatuses" in seen.request["object"].get("status", {})

    # It may also write down first which node it has in mind.
    needed = {seen.what: seen for seen in asked if seen.what != "pods/status UPDATE" or booked(seen)}
    assert list(needed) == [
        "resourceclaims UPDATE",
        "resourceclaims/status UPDATE",
        "pods/status UPDATE",
        "pods/binding CREATE",
    ]
    finalizer, allocation, entries, binding = (seen.request for seen in needed.values())
    assert finalizer["object"]["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    assert "allocation" not in finalizer["object"].get("status", {})
    status = allocation["object"]["status"]
    assert status["reservedFor"] == [{"resource": "pods", "name": "p1", "uid": pod["metadata"]["uid"]}]
    assert status["allocation"]["nodeSelector"]["nodeSelectorTerms"] == [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [cluster.name("n1")]}]}
    ]
    assert "allocationTimestamp" in status["allocation"]
    assert "nodeName" not in entries["object"]["spec"]
    assert binding["object"]["metadata"]["uid"] == pod["metadata"]["uid"]
    assert binding["object"]["target"]["name"] == cluster.name("n1")
    assert binding["name"] == "p1"
    assert binding["object"]["kind"] == "Binding"
    assert binding["oldObject"] is None


def test_the_end_of_a_pod(cluster: Cluster) -> None:
    """After the pod the claim controller takes consumer and allocation away in one write, then the finalizer."""
    shared_cpus(cluster)
    cpu_claim(cluster, "c1", 3)
    cluster.pod("p1", claims=["c1"])
    cluster.scheduled("p1")
    recorder = cluster.recorder(resources=WRITES)
    cluster.delete("Pod", "p1")
    user = "system:serviceaccount:kube-system:resource-claim-controller"
    eventually(lambda: [seen for seen in recorder.of("resourceclaims UPDATE") if seen.user == user])
    [release] = recorder.of("resourceclaims/status UPDATE")
    assert release.user == user
    assert release.request["oldObject"]["status"].keys() >= {"allocation", "reservedFor"}
    assert not release.request["object"].get("status")
    [last] = recorder.of("resourceclaims UPDATE")
    assert not last.request["object"]["metadata"].get("finalizers")


def test_names_and_uids_on_create(cluster: Cluster) -> None:
    """A mutating review of a CREATE has no uid, and no name where that is generated; the validating one has both."""
    recorder = cluster.recorder(resources=(CLAIMS,), endpoints=BOTH)
    made = cluster.create("ResourceClaim", {"metadata": {"generateName": "c-"}, "spec": NOTHING})
    mutating, validating = (recorder.of("resourceclaims CREATE", endpoint)[0].request for endpoint in BOTH)
    assert not mutating["object"]["metadata"].keys() & {"name", "uid"}
    assert not mutating.get("name")
    assert validating["object"]["metadata"]["name"] == made["metadata"]["name"]
    assert validating["object"]["metadata"]["uid"] == made["metadata"]["uid"]
    assert validating["name"] == made["metadata"]["name"]
    assert validating["oldObject"] is None


def test_what_is_thrown_away_is_seen_before_it_is(cluster: Cluster) -> None:
    """A status in the body of a CREATE is there for mutating webhooks and gone for validating ones."""
    recorder = cluster.recorder(resources=(CLAIMS,), endpoints=BOTH)
    reserved = [{"resource": "pods", "name": "p", "uid": "u"}]
    body = {"metadata": {"name": "c1"}, "spec": NOTHING, "status": {"reservedFor": reserved}}
    cluster.create("ResourceClaim", body)
    mutating, validating = (recorder.of("resourceclaims CREATE", endpoint)[0].request for endpoint in BOTH)
    assert mutating["object"]["status"] == {"reservedFor": reserved}
    assert not validating["object"].get("status")


def test_a_patch_of_a_claim_update_breaks_it(cluster: Cluster) -> None:
    """Any patch of a claim's UPDATE makes the server write opaque parameters anew, and whoever wrote the claim is told
    that its spec is immutable: allocguard returns none.
    """

    def claim(**metadata: str) -> bytes:
        opaque = '{"driver":"any.example.org","parameters":{"kind": "Any", "b": 1, "a": "<"}}'
        spec = f'{{"devices":{{"config":[{{"opaque":{opaque}}}]}}}}'
        return f'{{"metadata":{json.dumps({"name": "c1", **metadata})},"spec":{spec}}}'.encode()

    def put() -> None:
        version = cluster.get("ResourceClaim", "c1")["metadata"]["resourceVersion"]
        cluster.as_admin.raw("PUT", there, claim(resourceVersion=version))

    there = cluster.path("ResourceClaim", "c1")
    cluster.as_admin.raw("POST", cluster.path("ResourceClaim"), claim())
    recorder = cluster.recorder(resources=(CLAIMS,), endpoints=("mutate",), operations=("UPDATE",))
    put()
    recorder.answer = label
    with pytest.raises(ApiError, match="immutable") as raised:
        put()
    assert raised.value.code == 422
    recorder.answer = None
    put()
    assert len(recorder.seen) == 3


@pytest.mark.parametrize("refused", [False, True])
def test_one_request_can_give_several_reviews(cluster: Cluster, refused: bool) -> None:
    """A PATCH whose object changes while it is judged is judged again, also when the first answer refused it: settles
    that a stale refusal is not final.
    """
    cluster.create("ResourceClaim", {"metadata": {"name": "c1"}, "spec": NOTHING})
    other = cluster.client("somebody-else", "system:masters")

    def interfere(request: Json) -> Json | None:
        if len(recorder.seen) > 1:
            return None
        other.patch(cluster.path("ResourceClaim", "c1"), {"metadata": {"labels": {"interfered": "yes"}}})
        return refuse() if refused else None

    recorder = cluster.recorder(resources=(CLAIMS,), answer=interfere)
    cluster.as_admin.patch(cluster.path("ResourceClaim", "c1"), {"metadata": {"annotations": {"by": "admin"}}})
    first, second = (seen.request for seen in recorder.seen if seen.user == "admin")
    assert first["uid"] != second["uid"]
    assert "labels" not in first["oldObject"]["metadata"]
    assert second["oldObject"]["metadata"]["labels"] == {"interfered": "yes"}


def test_a_patch_that_does_not_apply_refuses_whatever_the_policy(cluster: Cluster) -> None:
    """A patch whose path is missing, or one on DELETE, is an error that failurePolicy Ignore does not forgive."""
    recorder = cluster.recorder(resources=(CLAIMS,), endpoints=("mutate",), failure_policy="Ignore")
    recorder.answer = lambda request: patch({"op": "remove", "path": "/metadata/nowhere"})
    with pytest.raises(ApiError) as raised:
        cluster.create("ResourceClaim", {"metadata": {"name": "c1"}, "spec": NOTHING})
    assert raised.value.code == 500
    recorder.answer = None
    cluster.create("ResourceClaim", {"metadata": {"name": "c1"}, "spec": NOTHING})
    recorder.answer = lambda request: patch({"op": "add", "path": "/metadata/labels", "value": {}})
    with pytest.raises(ApiError) as raised:
        cluster.as_admin.delete(cluster.path("ResourceClaim", "c1"))
    assert raised.value.code == 500
    recorder.answer = lambda request: {"allowed": True, "patchType": "JSONPatch", "patch": b64encode(b"[]").decode()}
    cluster.create("ResourceClaim", {"metadata": {"name": "c2"}, "spec": NOTHING})


def test_deletes(cluster: Cluster) -> None:
    """A DELETE has an oldObject and no object; a pod that is deleted without grace is asked about more than once."""
    cluster.node("n1")
    cluster.pod("p1", node="n1")
    cluster.create("ResourceClaim", {"metadata": {"name": "c1"}, "spec": NOTHING})
    recorder = cluster.recorder(resources=(CLAIMS, PODS), operations=("DELETE",))
    cluster.as_admin.delete(cluster.path("ResourceClaim", "c1"))
    [claim] = [seen.request for seen in recorder.of("resourceclaims DELETE")]
    assert (claim["name"], claim["object"], claim["oldObject"]["metadata"]["name"]) == ("c1", None, "c1")
    cluster.delete("Pod", "p1")
    assert 1 < len(recorder.of("pods DELETE")) <= 3


def test_the_delete_of_a_collection(cluster: Cluster) -> None:
    """It is asked about each object, which has no name but in the oldObject, and ends at the first refusal."""
    names = ("c1", "c2", "c3")
    for name in names:
        cluster.create("ResourceClaim", {"metadata": {"name": name}, "spec": NOTHING})
    recorder = cluster.recorder(resources=(CLAIMS,), operations=("DELETE",))
    recorder.answer = lambda request: refuse() if request["oldObject"]["metadata"]["name"] == "c2" else None
    with pytest.raises(ApiError) as raised:
        cluster.as_admin.delete(cluster.path("ResourceClaim"))
    assert raised.value.code == 403
    asked = [seen.request for seen in recorder.seen]
    assert {request.get("name", "") for request in asked} == {""}
    assert {request["oldObject"]["metadata"]["name"] for request in asked} == {"c1", "c2"}
    assert [name for name in names if cluster.as_admin.find(cluster.path("ResourceClaim", name))] == ["c2", "c3"]


def test_an_eviction_is_no_delete(cluster: Cluster) -> None:
    """An evicted pod is asked about as a CREATE of pods/eviction, and no DELETE of the pod follows."""
    cluster.node("n1")
    cluster.pod("p1", node="n1")
    recorder = cluster.recorder(resources=(PODS, "/pods/eviction"))
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p1"}}
    cluster.as_admin.create(cluster.path("Pod", "p1", "eviction"), body)
    [seen] = recorder.seen
    assert (seen.what, seen.request["name"], seen.request["object"]["kind"]) == (
        "pods/eviction CREATE",
        "p1",
        "Eviction",
    )


def test_the_slices_of_a_node_that_is_gone(cluster: Cluster) -> None:
    """The garbage collector deletes slices after the node that owns them, and is asked about it."""
    node = cluster.node("n1")
    driver = cluster.driver("cpu.example.org", node)
    uid = cluster.get("Node", "n1")["metadata"]["uid"]
    owned = driver.slice([driver.device("d0")])
    owned["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": True}
    ]
    driver.client.create(path("ResourceSlice"), owned)
    recorder = cluster.recorder(resources=(SLICES,))
    cluster.delete("Node", "n1")
    [seen, *_] = eventually(lambda: recorder.of("resourceslices DELETE"))
    assert seen.user == "system:serviceaccount:kube-system:generic-garbage-collector"
    eventually(lambda: cluster.as_admin.find(path("ResourceSlice", owned["metadata"]["name"])) is None)


def test_a_write_of_another_version_arrives_as_the_one_registered(cluster: Cluster) -> None:
    """A claim that is written as v1beta1 is asked about as v1, and requestKind keeps the version that was used."""
    recorder = cluster.recorder(resources=(CLAIMS,), versions=("v1",))
    beta = cluster.path("ResourceClaim").replace("/v1/", "/v1beta1/")
    requests = [{"name": "a", "deviceClassName": "any"}]
    cluster.as_admin.create(beta, {"metadata": {"name": "c1"}, "spec": {"devices": {"requests": requests}}})
    [seen] = recorder.seen
    assert (seen.request["kind"]["version"], seen.request["requestKind"]["version"]) == ("v1", "v1beta1")
    assert seen.request["object"]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "any"


def test_a_namespace_selector_does_not_hold_for_cluster_scoped_objects(cluster: Cluster) -> None:
    """Slices are asked about whatever the namespaceSelector says."""
    recorder = cluster.recorder(
        resources=(SLICES,), namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "nowhere"}}
    )
    driver = shared_cpus(cluster)
    assert recorder.of("resourceslices CREATE")
    driver.withdraw()
    [deleted] = recorder.of("resourceslices DELETE")
    assert deleted.request["object"] is None


def test_a_dry_run_says_so(cluster: Cluster) -> None:
    """A dry run is asked about with dryRun true, and nothing of it is stored."""
    recorder = cluster.recorder(resources=(CLAIMS,))
    body = {"metadata": {"name": "c1"}, "spec": NOTHING}
    cluster.as_admin.create(cluster.path("ResourceClaim"), body, dryRun="All")
    [seen] = recorder.seen
    assert seen.request["dryRun"] is True
    assert cluster.as_admin.find(cluster.path("ResourceClaim", "c1")) is None


def test_what_a_refusal_looks_like(cluster: Cluster) -> None:
    """Code, reason, causes and the message behind the webhook's name arrive as they are; without a code it is 400."""
    recorder = cluster.recorder(resources=(CLAIMS,), failure_policy="Ignore")
    body = {"metadata": {"name": "c1"}, "spec": NOTHING}
    cause = {"field": "spec.devices", "reason": "FieldValueInvalid", "message": "has X, needs Y"}

    def asked() -> ApiError:
        with pytest.raises(ApiError) as raised:
            cluster.create("ResourceClaim", body)
        return raised.value

    recorder.answer = lambda request: refuse(403, "Forbidden", "our words", causes=[cause])
    error = asked()
    assert (error.code, error.reason, error.causes) == (403, "Forbidden", [cause])
    assert error.message == 'admission webhook "validate.recorder-0.test" denied the request: our words'
    recorder.answer = lambda request: {"allowed": False, "status": {"message": "our words"}}
    assert asked().code == 400
    recorder.answer = lambda request: {"allowed": False, "status": {"reason": "Forbidden"}}
    error = asked()
    assert (error.code, error.reason) == (400, "Forbidden")


def test_how_the_server_asks(cluster: Cluster) -> None:
    """The time that is left is in the query, whole seconds; connections are kept; uids are new for each review."""
    recorder = cluster.recorder(resources=(CLAIMS,), timeoutSeconds=7)
    for name in ("c1", "c2", "c3"):
        cluster.create("ResourceClaim", {"metadata": {"name": name}, "spec": NOTHING})
    assert {seen.query for seen in recorder.seen} == {"timeout=7s"}
    assert len({seen.peer for seen in recorder.seen}) == 1
    assert len({seen.request["uid"] for seen in recorder.seen}) == 3


def test_match_conditions(cluster: Cluster) -> None:
    """A condition that is false means not asked, also beside one that fails; a failing one without a false one refuses
    under Fail and is passed over under Ignore.
    """
    fails = {"name": "fails", "expression": "object.metadata.labels['nowhere'] == 'x'"}
    true, false = ({"name": str(value).lower(), "expression": f"{value}".lower()} for value in (True, False))

    def answer(conditions: list[Json], policy: str) -> tuple[int, int]:
        """How often it was asked, and the code of the refusal."""
        recorder = cluster.recorder(resources=(CLAIMS,), matchConditions=conditions, failure_policy=policy)
        code = 0
        try:
            cluster.as_admin.create(cluster.path("ResourceClaim"), body, dryRun="All")
        except ApiError as error:
            code = error.code
        recorder.unregister()
        return len(recorder.seen), code

    body = {"metadata": {"name": "c1"}, "spec": NOTHING}
    assert answer([true], "Fail") == (1, 0)
    assert answer([true, false], "Fail") == (0, 0)
    assert answer([fails, false], "Fail") == (0, 0)
    assert answer([fails, true], "Fail") == (0, 403)
    assert answer([fails, true], "Ignore") == (0, 0)


def test_warnings_arrive_with_either_answer(cluster: Cluster) -> None:
    """Warnings reach the client, whether the write is allowed or refused."""
    recorder = cluster.recorder(resources=(CLAIMS,))
    body = {"metadata": {"name": "c1"}, "spec": NOTHING}
    recorder.answer = lambda request: {"allowed": True, "warnings": ["one of ours", "and another"]}
    cluster.create("ResourceClaim", body)
    assert cluster.as_admin.warnings == ["one of ours", "and another"]
    recorder.answer = lambda request: {**refuse(), "warnings": ["one of ours"]}
    with pytest.raises(ApiError):
        cluster.create("ResourceClaim", {**body, "metadata": {"name": "c2"}})
    assert cluster.as_admin.warnings == ["one of ours"]


def test_many_warnings_are_cut(cluster: Cluster) -> None:
    """Once warnings have more than 4096 characters together, each is cut to 256 and what is beyond is dropped: settles
    what becomes of longer ones.
    """
    recorder = cluster.recorder(resources=(CLAIMS,))
    body = {"metadata": {"name": "c1"}, "spec": NOTHING}
    recorder.answer = lambda request: {"allowed": True, "warnings": [f"{n:03} " + "x" * 396 for n in range(30)]}
    cluster.as_admin.create(cluster.path("ResourceClaim"), body, dryRun="All")
    lengths = [len(each) for each in cluster.as_admin.warnings]
    assert sum(lengths) <= 4096
    assert max(lengths) <= 400
    assert len(lengths) < 30


def test_audit_annotations(fresh_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    """Annotations are in the audit log under the webhook's name; one whose key is none is dropped: settles both."""
    policy, log = tmp_path / "policy.json", tmp_path / "audit.log"
    rules = [{"level": "Metadata", "resources": [{"group": "resource.k8s.io", "resources": ["resourceclaims"]}]}]
    policy.write_text(json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}))
    flags = [f"--audit-policy-file={policy}", f"--audit-log-path={log}"]
    cluster = fresh_cluster(flags={"kube-apiserver": flags})
    annotations = {"revision": "abc", "rule.one": "x", "no/key": "y"}
    cluster.recorder(resources=(CLAIMS,), answer=lambda request: {"allowed": True, "auditAnnotations": annotations})
    cluster.create("ResourceClaim", {"metadata": {"name": "c1"}, "spec": NOTHING})

    def logged() -> Json:
        lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        found = [line for line in lines if line["verb"] == "create" and line["stage"] == "ResponseComplete"]
        assert found
        given: Json = found[0]["annotations"]
        return given

    ours = {key: value for key, value in eventually(logged).items() if "recorder" in key}
    assert ours == {"validate.recorder-0.test/revision": "abc", "validate.recorder-0.test/rule.one": "x"}


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
def test_nobody_answers(cluster: Cluster, policy: str) -> None:
    """When the server behind a webhook is gone, Fail refuses with 500 and Ignore lets the write pass, deletes too."""
    recorder = cluster.recorder(resources=(CLAIMS,), failure_policy=policy)
    cluster.create("ResourceClaim", {"metadata": {"name": "c1"}, "spec": NOTHING})
    recorder.close()
    if policy == "Ignore":
        cluster.as_admin.delete(cluster.path("ResourceClaim", "c1"))
        cluster.create("ResourceClaim", {"metadata": {"name": "c2"}, "spec": NOTHING})
    else:
        with pytest.raises(ApiError, match="failed calling webhook") as raised:
            cluster.as_admin.delete(cluster.path("ResourceClaim", "c1"))
        assert raised.value.code == 500
