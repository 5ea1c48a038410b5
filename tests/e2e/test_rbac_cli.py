"""``allocguard rbac lint`` on a real cluster, the sweep of the guard, and what the guard itself may not do: everything
held against what the API server's own authorizer says.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from tests.e2e.client import ApiError, Json
from tests.e2e.cluster import Cluster
from tests.e2e.driver import role_rules
from tests.e2e.guarding import definitions, deployed
from tests.e2e.identity import kubeconfig
from tests.e2e.kinds import path
from tests.e2e.waiting import eventually
from webhook.cli.program import program

DRA, RBAC = "resource.k8s.io", "rbac.authorization.k8s.io"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
KINDS = ("clusterroles", "clusterrolebindings", "roles", "rolebindings")


def ran(cluster: Cluster, *arguments: str, user: str = "dana", groups: tuple[str, ...] = ("system:masters",)) -> Json:
    """Exit code, output and notes of `allocguard rbac lint`, as ``user`` of the live cluster."""
    kubeconfig = str(cluster.plane.kubeconfig(user, *groups))
    command = ["rbac", "lint", *arguments, "--kubeconfig", kubeconfig]
    result = CliRunner(catch_exceptions=False).invoke(program, command)
    return {"code": result.exit_code, "out": result.stdout, "err": result.stderr}


def scope(cluster: Cluster, account: str) -> Json:
    """What `rbac lint --for-serviceaccount` tells of the test's account."""
    told = ran(cluster, "--for-serviceaccount", f"{cluster.ns}/{account}", "-o", "json")
    assert told["out"], told["err"]
    found: Json = json.loads(told["out"])
    return found


def allowed(cluster: Cluster, user: str, verb: str, resource: str, group: str = DRA, **about: str) -> bool:
    """What the API server says that ``user``, a ServiceAccount, may do."""
    name, _, sub = resource.partition("/")
    space = user.split(":")[2]
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{space}", "system:authenticated"]
    attributes = {"verb": verb, "group": group, "resource": name, "subresource": sub, **about}
    body = {"spec": {"user": user, "groups": groups, "resourceAttributes": attributes}}
    answer: bool = cluster.as_admin.create(REVIEWS, body)["status"]["allowed"]
    return answer


def granted(rule: Json, verb: str, resource: str, name: str) -> bool:
    """Whether one rule of the printed scope, as people read it, allows this."""
    resources = rule.get("resources", [])
    named = resource in resources or "*" in resources or f"*/{resource.partition('/')[2]}" in resources
    names = rule.get("resourceNames", [])
    return (
        bool({verb, "*"} & set(rule["verbs"]))
        and bool({DRA, "*"} & set(rule.get("apiGroups", [])))
        and named
        and (not names or name in names)
    )


def role(name: str, rules: list[Json], **more: object) -> Json:
    return {"metadata": {"name": name, **more}, "rules": rules}


def bind(cluster: Cluster, kind: str, name: str, of: str, account: str) -> None:
    """Bind the ClusterRole ``of``."""
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": of}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": cluster.ns}
    cluster.create(kind, {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]})


def dra(resource: str, *verbs: str, names: tuple[str, ...] = ()) -> Json:
    rule: Json = {"apiGroups": [DRA], "resources": [resource], "verbs": list(verbs)}
    return {**rule, "resourceNames": list(names)} if names else rule


def rollout(cluster: Cluster, driver: str, account: str) -> None:
    """A DriverRollout that names the test's account as the node-local writer of ``driver``."""
    definitions(cluster)
    writers = [{"namespace": cluster.ns, "serviceAccount": account, "profile": "NodeLocal"}]
    document = {"apiVersion": "allocguard.dev/v1alpha1", "kind": "DriverRollout", "metadata": {"name": driver}}
    cluster.as_admin.create(path("DriverRollout"), {**document, "spec": {"writers": writers}})


def test_the_scope_of_an_account_is_what_the_api_server_says(cluster: Cluster) -> None:
    """Bindings of the cluster and of a namespace, and a role that has its rules from others: of every verb, resource,
    name and namespace the printed rules say what the authorizer says.
    """
    driver, other = cluster.name("gpu.example.org"), cluster.name("nic.example.org")
    user = cluster.service_account("plugin", role_rules(driver))
    label = {"e2e.allocguard.dev/collect": cluster.tag}
    extra = [
        dra("*/driver", "arbitrary-node:patch"),
        dra("resourceclaims/*", "update"),
        dra("resourceclaims/binding", "*"),
    ]
    cluster.create("ClusterRole", role(cluster.name("extra"), extra, labels=label))
    collecting = {"clusterRoleSelectors": [{"matchLabels": label}]}
    made = {"metadata": {"name": cluster.name("collects")}, "aggregationRule": collecting, "rules": []}
    cluster.create("ClusterRole", made)
    bind(cluster, "RoleBinding", "collected", cluster.name("collects"), "plugin")
    eventually(lambda: cluster.get("ClusterRole", "collects")["rules"])
    rollout(cluster, driver, "plugin")
    asked = list(
        itertools.product(
            [
                f"{prefix}{verb}"
                for prefix in ("", "associated-node:", "arbitrary-node:")
                for verb in ("update", "patch")
            ]
            + ["get", "create", "delete", "*"],
            [
                "resourceclaims",
                "resourceclaims/status",
                "resourceclaims/driver",
                "resourceclaims/binding",
                "resourceslices",
            ],
            ["", driver, other],
            ["", cluster.ns, "kube-system"],
        )
    )
    eventually(lambda: allowed(cluster, user, "arbitrary-node:patch", "resourceclaims/driver", namespace=cluster.ns))
    told = scope(cluster, "plugin")
    differ = []
    for verb, resource, name, namespace in asked:
        ours = any(
            granted(each["rule"], verb, resource, name)
            for each in told["grants"]
            if each["namespace"] in ("", namespace or None)
        )
        if ours != allowed(cluster, user, verb, resource, name=name, namespace=namespace):
            differ.append((verb, resource, name, namespace, ours))
    assert differ == []
    [collected] = [each for each in told["grants"] if each["rule"].get("resources") == ["*/driver"]]
    assert collected["role"]["name"] == cluster.name("extra")
    assert collected["bound"]["name"] == cluster.name("collects")
    assert collected["binding"] == {"kind": "RoleBinding", "namespace": cluster.ns, "name": "collected"}
    rules = {each["rule"]: each for each in told["findings"]}
    assert {"rbac-arbitrary-node", "rbac-binding-in-node-plugin", "rbac-driver-without-names"} <= rules.keys()
    assert cluster.name("extra") in rules["rbac-arbitrary-node"]["path"]


def test_the_narrowest_role_can_be_pasted_and_then_nothing_is_wrong(cluster: Cluster) -> None:
    """A driver with all rights on devices: what is printed is applied as it is, the binding it names taken away."""
    driver = cluster.name("gpu.example.org")
    wide = [dra("*", "*"), {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]}]
    user = cluster.service_account("plugin", wide)
    bind(cluster, "ClusterRoleBinding", cluster.name("second"), f"plugin-{cluster.ns}", "plugin")
    rollout(cluster, driver, "plugin")
    told = ran(cluster, "--for-serviceaccount", f"{cluster.ns}/plugin")
    assert told["code"] == 1
    before, *documents = told["out"].split("\n---\n")
    assert "rbac-everything" in before
    assert f"ClusterRoleBinding {cluster.name('second')}" in before
    objects = [yaml.safe_load(document) for document in documents]
    assert [obj["kind"] for obj in objects] == ["ClusterRole", "ClusterRoleBinding"]
    for obj in objects:
        cluster.as_admin.create(path(obj["kind"]), obj)
    for name in (cluster.name("second"), f"plugin-{cluster.ns}"):
        cluster.as_admin.gone(path("ClusterRoleBinding", name))
    eventually(lambda: not allowed(cluster, user, "patch", "resourceclaims/binding"))
    after = scope(cluster, "plugin")
    assert [each["rule"] for each in after["findings"] if each["severity"] == "error"] == []
    assert allowed(cluster, user, "patch", "resourceclaims/status", namespace=cluster.ns)
    assert allowed(cluster, user, "associated-node:patch", "resourceclaims/driver", name=driver)
    assert not allowed(cluster, user, "arbitrary-node:patch", "resourceclaims/driver", name=driver)
    last = ran(cluster, "--for-serviceaccount", f"{cluster.ns}/plugin")
    assert "is the narrowest role already" in last["out"]


def test_the_narrowest_roles_of_one_namespace_can_be_pasted_and_hold_there_alone(cluster: Cluster) -> None:
    """Slices are in no namespace, claims may be granted in one: nothing that is printed reaches the others."""
    driver, apart = cluster.name("gpu.example.org"), cluster.namespace("apart")
    user = cluster.service_account("plugin", [dra("resourceslices", "*")])
    report = dra("resourceclaims/driver", "associated-node:patch", names=(driver,))
    claims = [dra("resourceclaims", "get", "delete"), dra("resourceclaims/status", "patch"), report]
    cluster.create("ClusterRole", role(cluster.name("claims"), claims))
    bind(cluster, "RoleBinding", "claims", cluster.name("claims"), "plugin")
    rollout(cluster, driver, "plugin")
    told = ran(cluster, "--for-serviceaccount", f"{cluster.ns}/plugin")
    objects = [yaml.safe_load(document) for document in told["out"].split("\n---\n")[1:]]
    assert [obj["kind"] for obj in objects] == ["ClusterRole", "ClusterRoleBinding", "ClusterRole", "RoleBinding"]
    for obj in objects:
        cluster.as_admin.create(path(obj["kind"], namespace=obj["metadata"].get("namespace", "")), obj)
    cluster.as_admin.gone(path("ClusterRoleBinding", f"plugin-{cluster.ns}"))
    cluster.as_admin.gone(path("RoleBinding", "claims", namespace=cluster.ns))
    eventually(lambda: not allowed(cluster, user, "delete", "resourceclaims", namespace=cluster.ns))
    assert allowed(cluster, user, "create", "resourceslices")
    for space, holds in ((cluster.ns, True), (apart, False)):
        assert allowed(cluster, user, "get", "resourceclaims", namespace=space) is holds
        assert allowed(cluster, user, "patch", "resourceclaims/status", namespace=space) is holds
        reports = allowed(cluster, user, "associated-node:patch", "resourceclaims/driver", namespace=space, name=driver)
        assert reports is holds
    last = ran(cluster, "--for-serviceaccount", f"{cluster.ns}/plugin")
    assert "its roles are the narrowest already" in last["out"]


def test_lint_of_a_cluster_finds_the_role_and_says_nothing_about_those_of_kubernetes(cluster: Cluster) -> None:
    """Everything that a new control plane has, and one role of a driver that is too wide."""
    driver = cluster.name("gpu.example.org")
    cluster.service_account("plugin", [dra("resourceclaims/driver", "associated-node:patch")])
    rollout(cluster, driver, "plugin")
    told = ran(cluster, "-o", "json")
    assert told["code"] == 1
    found = json.loads(told["out"])["findings"]
    mine = {(each["kind"], each["rule"]) for each in found if each["name"] == f"plugin-{cluster.ns}"}
    assert ("ClusterRole", "rbac-driver-without-names") in mine
    assert [each for each in found if each["name"].startswith("system:")] == []
    assert [each for each in found if each["name"] in ("cluster-admin", "admin", "edit", "view")] == []


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--for-serviceaccount", "kube-system/nobody-of-that-name"), 2, "is not there"),
        ((), 3, "cannot list resource"),
    ],
)
def test_what_is_not_there_or_may_not_be_read_is_said(
    cluster: Cluster, arguments: tuple[str, ...], code: int, says: str
) -> None:
    """An account that does not exist, and somebody without the right to see roles."""
    groups = ("system:masters",) if code == 2 else ()
    told = ran(cluster, *arguments, user=f"eve-{code}", groups=groups)
    assert told["code"] == code
    assert says in told["err"]
    assert told["out"] == ""


def test_who_may_only_read_roles_has_them_judged_and_is_told_what_is_left_out(cluster: Cluster) -> None:
    """An auditor of roles, without the right to see claims, rollouts and admission policies, or to ask about others."""
    reads = {"apiGroups": [RBAC], "resources": list(KINDS), "verbs": ["list"]}
    user = cluster.service_account("auditor", [reads])
    annotations = {"allocguard.dev/profile": "NodeLocal", "allocguard.dev/driver": "gpu.example.org"}
    name = cluster.name("wide")
    rules = [dra("resourceclaims/driver", "arbitrary-node:patch", names=("gpu.example.org",))]
    cluster.create("ClusterRole", role(name, rules, annotations=annotations))
    eventually(lambda: allowed(cluster, user, "list", "clusterroles", group=RBAC))
    config = kubeconfig(
        cluster.folder / "auditor.json",
        cluster.url,
        cluster.plane.authority.certificate,
        token=cluster.token("auditor"),
    )
    command = ["rbac", "lint", "--kubeconfig", str(config), "-o", "json"]
    result = CliRunner(catch_exceptions=False).invoke(program, command)
    assert result.exit_code == 1
    found = [each for each in json.loads(result.stdout)["findings"] if each["name"] == name]
    assert "rbac-arbitrary-node" in {each["rule"] for each in found}
    assert "ResourceClaim: the API server refuses" in result.stderr
    assert "whether slices are guarded is not judged" in result.stderr


def test_the_sweep_finds_a_role_that_is_made_wider_and_tells_when_that_is_over(cluster: Cluster) -> None:
    """No review warns of it: whoever edits it is exempt, and the guard may have been away."""
    driver = cluster.name("gpu.example.org")
    cluster.service_account("plugin", role_rules(driver))
    name = f"plugin-{cluster.ns}"
    rollout(cluster, driver, "plugin")
    guard = deployed(cluster)

    def told(event: str) -> set[str]:
        return {line["rule"] for line in guard.lines(event=event, name=name)}

    eventually(lambda: "roles" in guard.get("/readyz?verbose").text)
    assert "rbac-arbitrary-node" not in told("role finding")
    before = guard.metric("allocguard_rbac_findings", rule="rbac-arbitrary-node", severity="error")
    wide = [*role_rules(driver), dra("resourceclaims/driver", "arbitrary-node:patch", names=(driver,))]
    cluster.as_admin.patch(path("ClusterRole", name), {"rules": wide})
    eventually(lambda: "rbac-arbitrary-node" in told("role finding"))
    [line] = [each for each in guard.lines(event="role finding", rule="rbac-arbitrary-node") if each["name"] == name]
    assert line["kind"] == "ClusterRole"
    assert "associated-node" in line["fix"]
    assert guard.metric("allocguard_rbac_findings", rule="rbac-arbitrary-node", severity="error") > before
    cluster.as_admin.patch(path("ClusterRole", name), {"rules": role_rules(driver)})
    eventually(lambda: "rbac-arbitrary-node" in told("role finding over"))
    eventually(lambda: guard.metric("allocguard_rbac_findings", rule="rbac-arbitrary-node", severity="error") == before)
    assert "SubjectAccessReview" not in guard.get("/readyz?verbose").text


def test_the_guard_cannot_write_a_role_or_become_somebody_who_can(cluster: Cluster) -> None:
    """The deployed account, by the API server's authorizer and by real tries with its token."""
    deployed(cluster)
    own = cluster.name("guard")
    user = f"system:serviceaccount:{own}:allocguard"
    eventually(lambda: allowed(cluster, user, "list", "nodes", group=""))
    for kind, namespace in itertools.product(KINDS, ("", own, "kube-system")):
        for verb in ("create", "update", "patch", "delete", "deletecollection", "escalate", "bind", "*"):
            for name in ("", "allocguard", "cluster-admin"):
                assert not allowed(cluster, user, verb, kind, group=RBAC, name=name, namespace=namespace), (verb, kind)
        assert allowed(cluster, user, "list", kind, group=RBAC, namespace=namespace)
    for verb, resource, group in (
        *(("impersonate", each, "") for each in ("users", "groups", "serviceaccounts")),
        ("impersonate", "userextras/authentication.kubernetes.io", "authentication.k8s.io"),
        ("create", "serviceaccounts/token", ""),
        ("create", "pods", ""),
        ("create", "pods/exec", ""),
        ("create", "deployments", "apps"),
        ("approve", "signers", "certificates.k8s.io"),
        ("create", "certificatesigningrequests", "certificates.k8s.io"),
        ("update", "clusterroles/status", RBAC),
        ("list", "secrets", ""),
        ("get", "secrets", ""),
    ):
        for namespace in ("", own, "kube-system"):
            assert not allowed(cluster, user, verb, resource, group=group, namespace=namespace), (verb, resource)
    as_guard = cluster.token_client(cluster.token("allocguard", namespace=own))
    body = role(cluster.name("mine"), [dra("resourceclaims/driver", "arbitrary-node:patch")])
    existing = path("ClusterRole", cluster.name("allocguard"))
    for write in (
        lambda: as_guard.create(path("ClusterRole"), body),
        lambda: as_guard.patch(existing, {"rules": body["rules"]}),
        lambda: as_guard.apply(existing, {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", **body}),
        lambda: as_guard.update(existing, {**as_guard.get(existing), "rules": body["rules"]}),
        lambda: as_guard.delete(existing),
    ):
        with pytest.raises(ApiError) as refused:
            write()
        assert refused.value.code == 403


def test_explain_shows_what_the_api_server_says_of_a_writer_who_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    """A plugin whose role has no names tells about another driver's device: the policy refuses what the API server's
    authorizer, asked the same, would let pass.
    """
    driver, other = cluster.name("gpu.example.org"), cluster.name("nic.example.org")
    node = cluster.node("n1")
    user = cluster.service_account("plugin", [dra("resourceclaims/driver", "associated-node:patch")])
    cluster.service_account("nic")
    rollout(cluster, driver, "plugin")
    rollout(cluster, other, "nic")
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    device = {"driver": other, "pool": node, "device": "d0"}
    allocation = {
        "devices": {"results": [{"request": "r", **device}]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    }
    request: Json = {"name": "r", "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}}
    claim: Json = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c1", "namespace": cluster.ns, "uid": "u1"},
        "spec": {"devices": {"requests": [request]}},
        "status": {"allocation": allocation},
    }
    told = {**claim, "status": {**claim["status"], "devices": [{**device, "data": {"ready": True}}]}}
    (tmp_path / "old.json").write_text(json.dumps(claim))
    (tmp_path / "new.json").write_text(json.dumps(told))
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{cluster.ns}", "system:authenticated")
    command = ["explain", "--object", str(tmp_path / "new.json"), "--old", str(tmp_path / "old.json")]
    command += ["--operation", "UPDATE", "--subresource", "status", "--user", user]
    command += [part for group in groups for part in ("--group", group)]
    command += ["--extra", f"authentication.kubernetes.io/node-name={node}"]
    command += ["--kubeconfig", str(cluster.plane.kubeconfig("dana", "system:masters"))]
    eventually(lambda: allowed(cluster, user, "associated-node:patch", "resourceclaims/driver", name=other))
    result = CliRunner(catch_exceptions=False).invoke(program, [*command, "-o", "json"])
    tree = json.loads(result.stdout)
    assert not tree["verdict"]["allowed"]
    assert "status-devices-other-driver" in tree["verdict"]["message"]
    answers = {each["asked"]: each for each in tree["access"]}
    place = f"resourceclaims/driver {cluster.ns}/{other}"
    assert {asked: each["allowed"] for asked, each in answers.items()} == {
        f"update resourceclaims/status {cluster.ns}/c1": False,
        f"patch resourceclaims/status {cluster.ns}/c1": False,
        f"associated-node:update {place}": False,
        f"arbitrary-node:update {place}": False,
        f"associated-node:patch {place}": True,
        f"arbitrary-node:patch {place}": False,
    }
    assert f"plugin-{cluster.ns}" in answers[f"associated-node:patch {place}"]["reason"]
    text = CliRunner(catch_exceptions=False).invoke(program, command).stdout
    assert "what the API server's authorizers say of the writer" in text
