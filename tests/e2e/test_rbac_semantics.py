"""What roles grant, as the API server's own authorizer says it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.e2e.client import ApiError
from tests.e2e.cluster import Cluster
from tests.e2e.kinds import path
from tests.e2e.waiting import eventually
from webhook.facts.rbac import covers, grants, role_rules
from webhook.facts.rbac_lint import account_problems, binding_problems, role_problems
from webhook.kube.rbac import BINDINGS, ROLES, account_user
from webhook.kube.release import Release
from webhook.kube.snapshot import Snapshot, build

Json = dict[str, Any]
# Group, resource/subresource, verb, whether within a namespace, name.
Question = tuple[str, str, str, bool, str]

DRA, RBAC = "resource.k8s.io", "rbac.authorization.k8s.io"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
GROUPS = ["", DRA, "*", "apps"]
RESOURCES = [
    "*",
    "*/*",
    "*/driver",
    "*/status",
    "driver",
    "drivers",
    "nodes",
    "nodes/*",
    "pods/exec",
    "resourceclaims",
    "resourceclaims/*",
    "resourceclaims/binding",
    "resourceclaims/driver",
    "resourceclaims/status",
    "resourceslices",
]
VERBS = [
    "*",
    "update",
    "patch",
    "get",
    "associated-node:*",
    "associated-node:update",
    "associated-node:patch",
    "arbitrary-node:update",
    "ASSOCIATED-NODE:update",
    "",
]
NAMES = ["*", "", "d.example", "c1", "D.example"]
QUESTIONS: list[Question] = [
    *(
        (DRA, f"resourceclaims/{sub}", verb, True, name)
        for sub, verbs, names in (
            (
                "driver",
                ("update", "associated-node:update", "arbitrary-node:update", "x"),
                ("d.example", "o.example", "*"),
            ),
            ("status", ("update", "patch"), ("c1", "")),
        )
        for verb in verbs
        for name in names
    ),
    *((DRA, "resourceclaims/binding", verb, False, name) for verb in ("update", "patch") for name in ("", "d.example")),
    (DRA, "resourceclaims", "update", True, "c1"),
    (DRA, "resourceclaims", "list", True, ""),
    (DRA, "resourceslices", "get", False, "c1"),
    (DRA, "resourceclaims", "get", False, ""),
    ("", "nodes", "patch", False, "n1"),
    ("", "nodes/status", "patch", False, "n1"),
    ("", "pods/exec", "get", True, "p"),
    ("apps", "deployments/status", "update", True, "x"),
]


def rules() -> list[Json]:
    """Rules of one role each: those that decide something here, and random ones."""
    choose = random.Random(7)

    def some(of: list[str], most: int) -> list[str]:
        return choose.sample(of, choose.randint(1, most))

    plain = [
        {"apiGroups": [DRA], "resources": ["resourceclaims/driver"], "verbs": verbs, **names}
        for verbs in (["*"], ["update"], ["associated-node:*"], ["associated-node:update"], ["arbitrary-node:update"])
        for names in ({}, {"resourceNames": ["d.example"]}, {"resourceNames": ["*"]}, {"resourceNames": [""]})
    ]
    plain += [
        {"apiGroups": [DRA], "resources": ["resourceclaims/binding"], "verbs": ["update"], "resourceNames": names}
        for names in ([], ["d.example"], ["*"], [""])
    ]
    plain += [{"apiGroups": ["*"], "resources": [resource], "verbs": ["*"]} for resource in RESOURCES]
    return plain + [
        {
            "apiGroups": some(GROUPS, 2),
            "resources": some(RESOURCES, 3),
            "verbs": some(VERBS, 3),
            **({"resourceNames": some(NAMES, 2)} if choose.random() < 0.4 else {}),
        }
        for _ in range(24)
    ]


def named(kind: str, name: str, **more: Any) -> Json:
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": {"name": name}, **more}


def bound(cluster: Cluster, kind: str, name: str, role: tuple[str, str], *subjects: Json) -> None:
    reference = {"apiGroup": RBAC, "kind": role[0], "name": role[1]}
    whom = [each if each["kind"] == "ServiceAccount" else {"apiGroup": RBAC, **each} for each in subjects]
    cluster.create(kind, named(kind, name, roleRef=reference, subjects=whom))


def seen(cluster: Cluster) -> Snapshot:
    """The roles and bindings of the API server, with those that it makes for itself."""
    found = []
    for kind in (*ROLES, *BINDINGS):
        plural = path(kind)
        found += [{**obj, "apiVersion": f"{RBAC}/v1", "kind": kind} for obj in cluster.as_admin.items(plural)]
    return build(found, Release(cluster.minor))


def allowed(cluster: Cluster, account: str, question: Question) -> bool:
    group, resource, verb, inside, name = question
    plural, _, sub = resource.partition("/")
    attributes = {"group": group, "resource": plural, "subresource": sub, "verb": verb, "name": name}
    attributes["namespace"] = cluster.ns if inside else ""
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{cluster.ns}", "system:authenticated"]
    spec = {"user": account_user(cluster.ns, account), "groups": groups, "resourceAttributes": attributes}
    made = cluster.as_admin.create(
        REVIEWS,
        {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec},
    )
    answer: bool = made["status"]["allowed"]
    return answer


def ours(cluster: Cluster, snapshot: Snapshot, account: str, question: Question) -> bool:
    group, resource, verb, inside, name = question
    return any(
        covers(grant.rule, group, resource, verb, name)
        for grant in grants((cluster.ns, account), snapshot)
        if grant.namespace in (("", cluster.ns) if inside else ("",))
    )


def disagreements(cluster: Cluster, accounts: list[str]) -> list[tuple[str, Question, bool]]:
    snapshot = seen(cluster)
    found: list[tuple[str, Question, bool]] = []
    granted = 0
    for account in accounts:
        for question in QUESTIONS:
            theirs = allowed(cluster, account, question)
            granted += theirs
            if theirs != ours(cluster, snapshot, account, question):
                found.append((account, question, theirs))
    assert 0 < granted < len(accounts) * len(QUESTIONS)
    return found


def test_rules_mean_what_the_api_server_takes_them_for(cluster: Cluster) -> None:
    accounts = []
    for index, rule in enumerate(rules()):
        name = f"{cluster.name('rule')}-{index}"
        cluster.create("ClusterRole", named("ClusterRole", name, rules=[rule]))
        bound(cluster, "ClusterRoleBinding", name, ("ClusterRole", name), account(cluster, f"a{index}"))
        accounts.append(f"a{index}")
    settled(cluster)
    assert disagreements(cluster, accounts) == []


def test_what_is_made_has_the_empty_name_but_by_server_side_apply(cluster: Cluster) -> None:
    """An empty name lets things be made and listed, none be read; create and patch by name let that one be applied."""
    for account_name, rule in (
        ("unnamed", {"resourceNames": [""], "verbs": ["*"]}),
        ("named", {"resourceNames": ["mine"], "verbs": ["create", "patch"]}),
    ):
        rule = {"apiGroups": [""], "resources": ["configmaps"], **rule}
        cluster.create("ServiceAccount", {"metadata": {"name": account_name}})
        cluster.create("Role", named("Role", account_name, rules=[rule]))
        bound(cluster, "RoleBinding", account_name, ("Role", account_name), account(cluster, account_name))
    settled(cluster)
    unnamed, one = (cluster.token_client(cluster.token(each)) for each in ("unnamed", "named"))
    maps = path("ConfigMap", namespace=cluster.ns)

    def body(name: str) -> Json:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}

    unnamed.create(maps, body("any"))
    assert [each["metadata"]["name"] for each in unnamed.items(maps) if each["metadata"]["name"] == "any"]
    with pytest.raises(ApiError, match="cannot get"):
        unnamed.get(f"{maps}/any")
    with pytest.raises(ApiError, match="cannot create"):
        one.create(maps, body("mine"))
    assert one.apply(f"{maps}/mine", body("mine"))["metadata"]["uid"]
    with pytest.raises(ApiError, match="cannot patch"):
        one.apply(f"{maps}/yours", body("yours"))


def test_bindings_reach_whom_the_api_server_says(cluster: Cluster) -> None:
    role = cluster.name("all")
    rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    cluster.create("ClusterRole", named("ClusterRole", role, rules=[rule]))
    cluster.create("Role", named("Role", "all", rules=[rule]))
    other = cluster.namespace("other")
    user = {"kind": "User", "name": account_user(cluster.ns, "by-user")}
    bound(cluster, "ClusterRoleBinding", cluster.name("user"), ("ClusterRole", role), user)
    bound(cluster, "RoleBinding", "cluster-role", ("ClusterRole", role), account(cluster, "inside"))
    bound(cluster, "RoleBinding", "role", ("Role", "all"), account(cluster, "inside-role"))
    bound(cluster, "RoleBinding", "here", ("Role", "all"), {"kind": "ServiceAccount", "name": "no-namespace"})
    bound(cluster, "RoleBinding", "gone", ("Role", "gone"), account(cluster, "no-role"))
    bound(cluster, "ClusterRoleBinding", cluster.name("gone"), ("ClusterRole", "gone"), account(cluster, "no-role"))
    elsewhere = {"kind": "ServiceAccount", "name": "elsewhere", "namespace": cluster.ns}
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}
    body = named("RoleBinding", "elsewhere", roleRef=reference, subjects=[elsewhere])
    cluster.create("RoleBinding", body, namespace=other)
    settled(cluster)
    accounts = ["by-user", "inside", "inside-role", "no-namespace", "no-role", "elsewhere"]
    assert disagreements(cluster, accounts) == []
    crowd = {"kind": "Group", "name": f"system:serviceaccounts:{cluster.ns}"}
    bound(cluster, "ClusterRoleBinding", cluster.name("crowd"), ("ClusterRole", role), crowd)
    eventually(lambda: allowed(cluster, "anybody", ("", "nodes", "patch", False, "n1")))
    assert ours(cluster, seen(cluster), "anybody", ("", "nodes", "patch", False, "n1"))


def test_rules_of_others_are_known_before_the_controller_writes_them(cluster: Cluster) -> None:
    """Roles that collect each other's rules go round in a circle and have all of them in the end."""
    first, second, plain = cluster.name("first"), cluster.name("second"), cluster.name("plain")
    rule = {"apiGroups": [DRA], "resources": ["resourceclaims/driver"], "verbs": ["associated-node:update"]}
    label = f"e2e.allocguard.dev/{cluster.name('collect')}"
    roles = [named("ClusterRole", plain, rules=[rule])]
    for name, wanted in ((first, "second"), (second, "first")):
        selectors = [
            {"matchLabels": {label: wanted}},
            {"matchExpressions": [{"key": label, "operator": "In", "values": ["plain"]}]},
        ]
        roles.append(named("ClusterRole", name, aggregationRule={"clusterRoleSelectors": selectors}))
    for role, value in zip(roles, ("plain", "first", "second"), strict=True):
        role["metadata"]["labels"] = {label: value}
    before = build(roles, Release(cluster.minor))
    for role in reversed(roles):
        cluster.create("ClusterRole", role)

    def collected() -> bool:
        return all(cluster.get("ClusterRole", name).get("rules") for name in (first, second))

    eventually(collected)
    after = seen(cluster)
    for name in (first, second):
        wanted = set(after.roles["", name].rules)
        assert {each for each, _ in role_rules(before.roles["", name], before)} == wanted
        assert {source.name for _, source in role_rules(after.roles["", name], after)} == {plain}


def test_nothing_is_said_about_the_roles_of_kubernetes_itself(cluster: Cluster) -> None:
    snapshot = seen(cluster)
    roles = [role for role in snapshot.roles.values() if cluster.tag not in role.name]
    assert len(roles) > 50
    assert [(role.name, role_problems(role, snapshot)) for role in roles if role_problems(role, snapshot)] == []
    bindings = [each for each in snapshot.bindings.values() if cluster.tag not in each.name]
    unseen = Snapshot(snapshot.release, roles=snapshot.roles)
    assert [each.name for each in bindings if binding_problems(each, snapshot) or binding_problems(each, unseen)] == []
    assert account_problems(cluster.ns, "anybody", snapshot) == []


def account(cluster: Cluster, name: str) -> Json:
    return {"kind": "ServiceAccount", "name": name, "namespace": cluster.ns}


def settled(cluster: Cluster) -> None:
    """Wait until the authorizer has seen what was written up to now: a role and a binding that came last."""
    full = cluster.name("last")
    rule = {"apiGroups": ["last.example"], "resources": ["things"], "verbs": ["get"]}
    cluster.create("ClusterRole", named("ClusterRole", full, rules=[rule]))
    bound(cluster, "ClusterRoleBinding", full, ("ClusterRole", full), account(cluster, "last"))
    cluster.create("Role", named("Role", "last", rules=[rule]))
    bound(cluster, "RoleBinding", "last", ("Role", "last"), account(cluster, "last-inside"))
    for whom, inside in (("last", False), ("last-inside", True)):
        eventually(
            lambda whom=whom, inside=inside: allowed(cluster, whom, ("last.example", "things", "get", inside, "x"))
        )
