"""Roles, bindings and accounts for tests of the facts about them, written short."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from webhook.facts.rbac_lint import role_problems
from webhook.kube.finding import Finding
from webhook.kube.rbac import Role, RoleBinding, read_binding, read_role
from webhook.kube.release import Release
from webhook.kube.snapshot import Snapshot, build

Json = dict[str, Any]

DRA, RBAC = "resource.k8s.io", "rbac.authorization.k8s.io/v1"
ACCOUNT = {"kind": "ServiceAccount", "name": "plugin", "namespace": "gpu"}
GPU = "gpu.example"


def rule(resources: str, verbs: str, *names: str, group: str = DRA) -> Json:
    """``rule("resourceclaims/driver", "associated-node:update", "gpu.example")``; words are separated by spaces."""
    made: Json = {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()}
    return {**made, "resourceNames": list(names)} if names else made


def status(verbs: str = "update patch") -> Json:
    return rule("resourceclaims/status", verbs)


def driver(*verbs: str, names: Sequence[str] = (GPU,), prefix: str = "associated-node") -> Json:
    return rule("resourceclaims/driver", " ".join(f"{prefix}:{verb}" for verb in verbs), *names)


def role_object(*rules: Json, name: str = "plugin", namespace: str = "", **metadata: Any) -> Json:
    where = {"namespace": namespace} if namespace else {}
    kind = "Role" if namespace else "ClusterRole"
    return {"apiVersion": RBAC, "kind": kind, "metadata": {"name": name, **where, **metadata}, "rules": list(rules)}


def said(profile: str = "", *drivers: str) -> Json:
    """Annotations that say whom a role is for."""
    found = {"allocguard.dev/profile": profile, "allocguard.dev/driver": ",".join(drivers)}
    return {name: value for name, value in found.items() if value}


def binding_object(
    name: str = "plugin", *subjects: Json, role: str = "plugin", namespace: str = "", kind: str = "ClusterRole"
) -> Json:
    where = {"namespace": namespace} if namespace else {}
    return {
        "apiVersion": RBAC,
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": {"name": name, **where},
        "roleRef": {"kind": kind, "name": role},
        "subjects": list(subjects or [ACCOUNT]),
    }


def rollout(driver: str = GPU, profile: str = "NodeLocal", account: str = "plugin", namespace: str = "gpu") -> Json:
    writers = [{"namespace": namespace, "serviceAccount": account, "profile": profile}]
    metadata = {"name": driver}
    return {
        "apiVersion": "allocguard.dev/v1alpha1",
        "kind": "DriverRollout",
        "metadata": metadata,
        "spec": {"writers": writers},
    }


def world(*objects: Json) -> Snapshot:
    return build(objects, Release())


def role_of(obj: Json) -> Role:
    return read_role(obj)


def binding_of(obj: Json) -> RoleBinding:
    return read_binding(obj)


def judged(*rules: Json, profile: str = "NodeLocal", drivers: Sequence[str] = (GPU,), **more: Any) -> list[Finding]:
    """What is wrong with a role of these rules whose annotations name a profile and drivers."""
    role = role_object(*rules, annotations=said(profile, *drivers))
    return role_problems(read_role(role), Snapshot(), **more)


def rules_of(found: Sequence[Finding]) -> set[str]:
    return {each.rule.removeprefix("rbac-") for each in found}
