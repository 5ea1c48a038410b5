import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from webhook.cli.deploying import files
from webhook.registration.manifests import IMAGE, MODES, NAMESPACE, Target, manifests, path

DEPLOY = Path(__file__).parents[2] / "deploy"


def by_kind(objects):
    return {(each["kind"], each["metadata"]["name"]): each for each in objects}


def container(objects):
    return by_kind(objects)["Deployment", "allocguard"]["spec"]["template"]["spec"]["containers"][0]


@pytest.mark.parametrize("mode", MODES)
def test_the_overlays_as_kustomize_reads_them(mode):
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not on the path")
    command = [kubectl, "kustomize", DEPLOY / "overlays" / mode]
    rendered = subprocess.run(command, check=True, capture_output=True).stdout
    assert by_kind(yaml.safe_load_all(rendered)) == by_kind(manifests(files(), Target(mode)))


def test_the_components_as_kustomize_reads_them(tmp_path):
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not on the path")
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    components = [
        f"../deploy/components/{name}"
        for name in ("cert-manager", "network-policy", "free-claims", "gate-probe", "policies", "audit")
    ]
    image = {"name": "allocguard", "newName": "registry.example/allocguard", "newTag": "2"}
    recipe = {"resources": ["../deploy/overlays/audit"], "components": components, "images": [image]}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "kustomization.yaml").write_text(yaml.safe_dump(recipe))
    rendered = subprocess.run([kubectl, "kustomize", tmp_path / "mine"], check=True, capture_output=True).stdout
    objects = list(yaml.safe_load_all(rendered))
    [role] = [each for each in objects if each["kind"] == "Role"]
    assert {verb for rule in role["rules"] for verb in rule["verbs"] if "secrets" in rule["resources"]} == {
        "get",
        "list",
        "watch",
    }
    assert container(objects)["image"] == "registry.example/allocguard:2"
    named = {each["spec"]["secretName"]: each["spec"] for each in objects if each["kind"] == "Certificate"}
    assert "--certs-secret=$(NAMESPACE)/allocguard-certs" in container(objects)["args"]
    assert container(objects)["args"][-1] == "--audit-token-file=/run/allocguard-audit/token"
    assert container(objects)["volumeMounts"][-1]["mountPath"] == "/run/allocguard-audit"
    assert container(objects)["args"][-3:-1] == [
        "--policies=/opt/allocguard/policies",
        "--policies=/etc/allocguard/policies",
    ]
    assert container(objects)["volumeMounts"][-2] == {
        "name": "policies",
        "mountPath": "/etc/allocguard/policies",
        "readOnly": True,
    }
    volumes = by_kind(objects)["Deployment", "allocguard"]["spec"]["template"]["spec"]["volumes"]
    assert volumes[-2] == {"name": "policies", "configMap": {"name": "allocguard-policies"}}
    assert volumes[-1]["secret"]["secretName"] == "allocguard-audit"
    assert named["allocguard-certs"]["dnsNames"][0] == f"allocguard.{NAMESPACE}.svc"
    assert by_kind(objects)["NetworkPolicy", "allocguard"]
    [rule] = by_kind(objects)["ClusterRole", "allocguard-gate-probe"]["rules"]
    assert (rule["resources"], rule["verbs"]) == (["resourceslices"], ["create"])
    beside = by_kind(objects)["Deployment", "allocguard-free-claims"]["spec"]["template"]
    assert beside["spec"]["containers"][0]["image"] == "registry.example/allocguard:2"
    selected = by_kind(objects)["Service", "allocguard"]["spec"]["selector"]
    assert not selected.items() <= beside["metadata"]["labels"].items()


def test_the_mode_of_each_overlay():
    for mode in MODES:
        assert {"name": "MODE", "value": mode} in container(manifests(files(), Target(mode)))["env"]
    [enforce, audit] = (by_kind(manifests(files(), Target(mode))) for mode in MODES)
    assert {key for key in audit if audit[key] != enforce[key]} == {("Deployment", "allocguard")}


def test_namespace_and_image_are_replaced_everywhere():
    objects = manifests(files(), Target(namespace="guard", image="registry.example/guard:2"))
    text = yaml.safe_dump_all(objects)
    assert NAMESPACE not in text
    assert IMAGE not in text
    assert container(objects)["image"] == "registry.example/guard:2"
    assert by_kind(objects)["Namespace", "guard"]
    [rule] = by_kind(objects)["FlowSchema", "allocguard"]["spec"]["rules"]
    assert rule["subjects"][0]["serviceAccount"] == {"name": "allocguard", "namespace": "guard"}


def test_every_object_has_a_place():
    for obj in manifests(files(), Target()):
        assert re.fullmatch(r"/apis?/[a-z0-9./]+(/namespaces/[a-z-]+)?/[a-z]+/[a-z.-]+", path(obj))
        assert obj["apiVersion"] in path(obj)


def test_order_of_applying():
    kinds = [obj["kind"] for obj in manifests(files(), Target())]
    assert kinds[0] == "Namespace"
    assert kinds.index("CustomResourceDefinition") < kinds.index("ClusterRole") < kinds.index("Deployment")


def test_pods_are_restricted():
    spec = by_kind(manifests(files(), Target()))["Deployment", "allocguard"]["spec"]
    pod, [guard] = spec["template"]["spec"], spec["template"]["spec"]["containers"]
    assert spec["replicas"] == 2
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert guard["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    # Whatever the server writes is on a volume.
    folder = next(each for each in guard["args"] if each.startswith("--certs=")).removeprefix("--certs=")
    assert any(folder.startswith(f"{mount['mountPath']}/") for mount in guard["volumeMounts"])


def test_what_it_may_do():
    """Every rule that writes, in one place: a longer list needs a reason."""
    writes = []
    for (kind, _), obj in by_kind(manifests(files(), Target())).items():
        if kind in ("Role", "ClusterRole"):
            for rule in obj["rules"]:
                if "nonResourceURLs" in rule:
                    assert rule["verbs"] == ["get"]
                    continue
                assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
                verbs = set(rule["verbs"]) - {"get", "list", "watch"}
                writes += [(kind, name, tuple(rule.get("resourceNames", ())), verbs) for name in rule["resources"]]
    configurations = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
    reports = ("clusterreports", "reports", "clusterpolicyreports", "policyreports")
    assert [each for each in writes if each[3]] == [
        ("ClusterRole", "nodeledgers", (), {"create", "delete"}),
        ("ClusterRole", "admissionpolicies/status", (), {"patch"}),
        ("ClusterRole", "driverrollouts/status", (), {"patch"}),
        ("ClusterRole", "nodeledgers/status", (), {"patch"}),
        ("ClusterRole", "events", (), {"create", "patch"}),
        *(("ClusterRole", name, (), {"create", "update", "delete"}) for name in reports),
        # A question: nothing is stored.
        ("ClusterRole", "subjectaccessreviews", (), {"create"}),
        *(("ClusterRole", name, ("allocguard",), {"update"}) for name in configurations),
        *(("ClusterRole", name, (), {"create"}) for name in configurations),
        ("ClusterRole", "pods", (), {"patch"}),
        ("ClusterRole", "events", (), {"create"}),
        ("ClusterRole", "devicetaintrules", (), {"create", "update", "delete"}),
        ("Role", "secrets", ("allocguard-certs",), {"update"}),
        ("Role", "leases", ("allocguard",), {"update"}),
        ("Role", "secrets", (), {"create"}),
        ("Role", "leases", (), {"create"}),
    ]


def test_it_may_read_what_it_watches():
    from webhook.cluster.kinds import KINDS

    rules = by_kind(manifests(files(), Target()))["ClusterRole", "allocguard"]["rules"]
    allowed = {
        (group, name)
        for rule in rules
        if {"list", "watch"} <= set(rule["verbs"])
        for group in rule["apiGroups"]
        for name in rule["resources"]
    }
    assert allowed == {(kind.group, kind.plural) for kind in KINDS}
