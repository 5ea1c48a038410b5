import json
from datetime import UTC, datetime

import pytest
import yaml

from certs.files import ensure


@pytest.fixture
def authority(tmp_path):
    ensure(tmp_path / "certs", ["127.0.0.1"], datetime.now(UTC))
    return tmp_path / "certs" / "ca.crt"


def test_it_prints_what_kubectl_applies(run):
    ran = run("install")
    assert (ran.code, ran.err) == (0, "")
    objects = list(yaml.safe_load_all(ran.out))
    listed = json.loads(run("install", "-o", "json").out)
    assert (listed["kind"], listed["items"]) == ("List", objects)
    assert objects[0] == {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": "allocguard-system",
            "labels": {
                "app.kubernetes.io/name": "allocguard",
                **{f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")},
            },
        },
    }


def test_mode_namespace_and_image(run):
    objects = json.loads(run("install", "--mode=audit", "--namespace=guard", "--image=r/g:1", "-o", "json").out)[
        "items"
    ]
    [deployment] = [each for each in objects if each["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert deployment["metadata"]["namespace"] == "guard"
    assert container["image"] == "r/g:1"
    assert container["env"][0] == {"name": "MODE", "value": "audit"}


@pytest.mark.parametrize("name", ["1e3", "0e1", "y", "n", "0o17", "0b1", "0x1f", "true", "null", "12", "2026-01-01"])
def test_names_that_look_like_something_else_are_quoted(run, name):
    """kubectl reads more words as numbers and booleans than we do."""
    lines = run("install", f"--namespace={name}").out.splitlines()
    assert {line.strip() for line in lines if line.strip().startswith("namespace: ")} == {f"namespace: '{name}'"}


def test_uninstall_prints_what_goes_in_order_and_keeps_what_users_write(run):
    ran = run("uninstall", "--namespace=guard", "-o", "json")
    items = json.loads(ran.out)["items"]
    assert [(each["kind"], each["metadata"]["name"]) for each in items[:4]] == [
        ("ClusterRoleBinding", "allocguard-registration"),
        ("ValidatingWebhookConfiguration", "allocguard"),
        ("MutatingWebhookConfiguration", "allocguard"),
        ("ClusterRoleBinding", "allocguard-steering"),
    ]
    assert [(each["kind"], each["metadata"]) for each in items[-3:]] == [
        ("Secret", {"namespace": "guard", "name": "allocguard-certs"}),
        ("Lease", {"namespace": "guard", "name": "allocguard"}),
        ("Namespace", {"name": "guard"}),
    ]
    definitions = [each["metadata"]["name"] for each in items if each["kind"] == "CustomResourceDefinition"]
    assert definitions == ["nodeledgers.allocguard.dev"]
    assert ran.err == (
        "allocguard: pods that wait with the scheduling gate go on; DeviceTaintRules and reports of the guard are "
        "deleted, too\n"
        "allocguard: the definitions of policies and rollouts are left out: who deletes them deletes your policies and "
        "rollouts\n"
    )


def test_static_files(run, authority):
    arguments = ("--static", "--url=https://127.0.0.1:8443", f"--ca-file={authority}", "--driver=cpu.example")
    ran = run("install", *arguments, "-o", "json")
    assert (ran.code, ran.err) == (0, "")
    assert list(json.loads(ran.out)) == [
        f"/etc/kubernetes/allocguard/{name}"
        for name in ("admission.yaml", "validating/allocguard.yaml", "mutating/allocguard.yaml")
    ]
    text = run("install", *arguments).out
    assert text.startswith("# /etc/kubernetes/allocguard/admission.yaml\napiVersion: apiserver.config.k8s.io/v1\n")
    assert len(list(yaml.safe_load_all(text))) == 3


def test_static_files_are_written_over(run, authority, tmp_path):
    folder = tmp_path / "static"
    arguments = ("--static", "--url=https://127.0.0.1:8443", f"--ca-file={authority}", f"--folder={folder}", "--apply")
    assert "no --driver" in run("install", *arguments).err
    ran = run("install", *arguments, "--mode=audit")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[0] == f"{folder}/admission.yaml written"
    written = yaml.safe_load((folder / "validating" / "allocguard.yaml").read_text())
    assert {entry["failurePolicy"] for entry in written["webhooks"]} == {"Ignore"}
    assert sorted(each.name for each in folder.rglob("*")) == [
        "admission.yaml",
        "allocguard.yaml",
        "allocguard.yaml",
        "mutating",
        "validating",
    ]


@pytest.mark.parametrize("folder", ["//x//", "/x/./", "/y/../x", "///x"])
def test_a_folder_has_one_name(run, authority, folder):
    ran = run("install", "--static", "--url=https://x", f"--ca-file={authority}", "--driver=d", f"--folder={folder}")
    assert [line for line in ran.out.splitlines() if line.startswith("# ")] == [
        f"# /x/{name}" for name in ("admission.yaml", "validating/allocguard.yaml", "mutating/allocguard.yaml")
    ]
    assert "staticManifestsDir: /x/validating" in ran.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--namespace", "Not_One"], "needs lower case letters"),
        (["--static"], "--static needs --url"),
        *(
            (["--static", "--url", url, "--ca-file", "f"], "is not https://HOST:PORT")
            for url in (
                "http://x",
                "https://",
                "https://a b:1",
                "https://u@h",
                "https://h:99999",
                "https://h\nx",
                "h:1",
            )
        ),
        (["--image="], "'' is empty, needs an image reference"),
        (["--image=r/g: 1"], "'r/g: 1' has white space"),
        (["--static", "--url", "https://x", "--ca-file", "/nowhere"], "/nowhere: cannot be read: no such file"),
        (["--static", "--url", "https://x", "--ca-file", "f", "--folder", "here"], "needs an absolute path"),
        *(
            (["--static", "--url", "https://x", "--ca-file", "f", "--folder", folder], says)
            for folder, says in (
                ("", "needs an absolute path"),
                ("/", "is the root, needs a folder of its own"),
                ("//", "is the root"),
                ("/x/..", "is the root"),
                ("/a\nb", "has a control character"),
            )
        ),
        (["--static", "--url", "https://x", "--ca-file", "f", "--driver", "'] || true"], "needs a DNS subdomain"),
        (["--url", "https://x"], "go with --static"),
        (["--mode", "warn"], "'warn' is not one of"),
    ],
)
def test_usage(run, arguments, says):
    ran = run("install", *arguments)
    assert ran.code == 2
    assert says in ran.err
    assert ran.out == ""


def test_a_policy_that_does_not_compile_is_named(run, authority, tmp_path):
    (tmp_path / "p.yaml").write_text("kind: AdmissionPolicy\n")
    arguments = ("--static", "--url=https://x", f"--ca-file={authority}", f"--policies={tmp_path / 'p.yaml'}")
    ran = run("install", *arguments)
    assert ran.code == 2
    assert "p.yaml:1:1: " in ran.err


@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_nothing_to_reach(run, tmp_path, monkeypatch, command):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert run(command, "--apply").code == 3
    missing = run(command, "--apply", f"--kubeconfig={tmp_path / 'none'}")
    assert (missing.code, missing.out) == (2, "")
    cluster = {"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    access = {"clusters": [cluster], "contexts": [context], "users": [{"name": "u", "user": {}}]}
    (tmp_path / "config").write_text(yaml.safe_dump({"current-context": "c", **access}))
    away = run(command, "--apply", f"--kubeconfig={tmp_path / 'config'}")
    assert (away.code, away.out) == (3, "")
    assert "127.0.0.1" in away.err
