"""The commands of docs/install.md, in order: those of a guard beside a cluster in one shell, and those that install it
in a cluster, but for what needs a container engine.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest
import yaml

from tests.e2e.client import Json
from tests.e2e.cluster import Cluster
from tests.e2e.guarding import admission_policy, kubelet
from tests.e2e.kinds import path
from tests.e2e.pages import ROOT, as_pattern, fails, follow, shown, steps, surroundings, text
from tests.e2e.waiting import eventually
from webhook.cli.deploying import files
from webhook.registration.manifests import IMAGE, NAMESPACE, Target, manifests
from webhook.registration.manifests import path as deployed

PAGE = text("install.md")
KUBECTL = shutil.which("kubectl")
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/allocguard"
STRICT = {"fieldValidation": "Strict", "dryRun": "All"}
_BLOCK = re.compile(r"^( *)```(sh|yaml)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
BLOCKS = [(kind, textwrap.dedent(body)) for _, kind, body in _BLOCK.findall(PAGE)]
# In the middle of a sentence: of the folder that has the recipe below it.
[APPLY] = re.findall(r"`(kubectl apply [^`]* -k)` of a folder", PAGE)


def test_the_page(cluster: Cluster, tmp_path: Path) -> None:
    if KUBECTL is None or shutil.which("curl") is None:
        pytest.skip("the page is for people with kubectl and curl")
    cluster.node("n1")
    with kubelet(cluster, NAMESPACE):
        follow(PAGE, cluster, tmp_path)


def test_every_command_is_read() -> None:
    assert shown(PAGE) == len(steps(PAGE, "1.36")) + 2 == len(steps(PAGE, "1.37")) + 2 > 15


class Reader:
    """Who installs by the page, from a copy of the repository below ``folder``. What is asked of ``kubectl`` is asked
    of the API server itself, and of ``kubectl`` as well where it is on the path.
    """

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.admin = cluster.as_admin
        self.copy = folder / "copy"
        for name in ("deploy", "policies"):
            shutil.copytree(ROOT / name, self.copy / name)
        (self.copy / "my-policies").mkdir()
        never = [{"name": "never", "expression": "true"}]
        mine = admission_policy("mine", ["pods"], ["CREATE"], validations=never)
        (self.copy / "my-policies" / "mine.yaml").write_text(yaml.safe_dump(mine))
        self.images: set[str] = set()
        self._environment = surroundings(cluster, folder)

    def run(self, command: str) -> str:
        """What the command prints; it has to succeed."""
        shell = ["bash", "--norc", "-c", command]
        done = subprocess.run(shell, cwd=self.copy, env=self._environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def command(self, command: str) -> None:
        """Do it, and see that it did what the page has it for."""
        match shlex.split(command, comments=True):
            case ["make", target]:
                assert f"\n{target}:" in (ROOT / "Makefile").read_text()
            case ["podman", "build", "-f", file, "-t", image, "."]:
                assert (ROOT / file).is_file()
                self.images.add(image)
            case ["podman", "push", image]:
                self.images.add(image)
            case ["allocguard", "install", *options]:
                self.run(command)
                self.deployed("audit" if "audit" in options else "enforce")
            case ["allocguard", *_]:
                self.run(command)
            case ["kubectl", *asked]:
                self._asked(asked)
                if KUBECTL is not None:
                    self.run(command)
            case _:
                pytest.fail(f"what is to be done with: {command}")

    def _asked(self, words: list[str]) -> None:
        """What ``kubectl`` with these words is to find or may write."""
        match words:
            case ["-n", namespace, "rollout", "status", target]:
                where = f"/apis/apps/v1/namespaces/{namespace}/{target.replace('/', 's/')}"
                assert where == DEPLOYMENT
                eventually(self.rolled_out)
            case ["explain", "driverrollout.spec"]:
                definition = self.admin.get(path("CustomResourceDefinition", "driverrollouts.allocguard.dev"))
                [version] = definition["spec"]["versions"]
                assert version["schema"]["openAPIV3Schema"]["properties"]["spec"]["description"]
            case ["create", "configmap", name, "--namespace", namespace, source]:
                folder = self.copy / source.removeprefix("--from-file=")
                body = {"metadata": {"name": name}, "data": {each.name: each.read_text() for each in folder.iterdir()}}
                self.admin.create(path("ConfigMap", namespace=namespace), body, **STRICT)
            case _:
                pytest.fail(f"what is to be done without kubectl for: {words}")

    def rolled_out(self) -> bool:
        """Whether every pod of the Deployment is of its last version, and ready."""
        there = self.admin.get(DEPLOYMENT)
        status, wanted = there["status"], there["spec"]["replicas"]
        return (
            status.get("observedGeneration") == there["metadata"]["generation"]
            and status.get("replicas") == status.get("updatedReplicas") == status.get("availableReplicas") == wanted
        )

    def deployed(self, mode: str) -> None:
        """The Deployment has the image that was pushed, and the mode."""
        [container] = self.admin.get(DEPLOYMENT)["spec"]["template"]["spec"]["containers"]
        assert {container["image"]} == self.images
        assert {"name": "MODE", "value": mode} in container["env"]

    def recipe(self, recipe: Json) -> None:
        """What kustomize makes of it can be applied; one without components changes nothing of what is there, whose
        fields are not taken from whoever applied them first.
        """
        resources = [each.replace("github.com/your/copy/", "") for each in recipe["resources"]]
        more = recipe.get("components", [])
        (self.copy / "kustomization.yaml").write_text(yaml.safe_dump({**recipe, "resources": resources}))
        for folder in (*resources, *more):
            assert (self.copy / folder / "kustomization.yaml").is_file()
        if KUBECTL is not None:
            objects = list(yaml.safe_load_all(self.run("kubectl kustomize .")))
            if not more:
                self.run(f"{APPLY} .")
        else:
            [mode] = [each.rpartition("/")[2] for each in resources]
            images = [f"{each['newName']}:{each['newTag']}" for each in recipe.get("images", [])]
            objects = manifests(files(), Target(mode, image=(images or [IMAGE])[0]))
        for obj in objects:
            # Of cert-manager there are no kinds here.
            if not obj["apiVersion"].startswith("cert-manager.io/"):
                there = self.admin.get(deployed(obj))["metadata"]
                made = self.admin.apply(deployed(obj), obj, **STRICT)["metadata"]
                assert more or made.get("generation") == there.get("generation"), obj

    def block(self, kind: str, body: str) -> None:
        """Every command of a block, or the object or recipe that it has."""
        if kind == "sh":
            for command in body.splitlines():
                self.command(command)
            return
        document = yaml.safe_load(body)
        if document.get("kind") == "DriverRollout":
            self.admin.create(path("DriverRollout"), document, fieldValidation="Strict")
        else:
            self.recipe(document)


def test_what_a_cluster_is_installed_with(cluster: Cluster, tmp_path: Path) -> None:
    """All blocks in order. Pods are said to be ready, and not run."""
    cluster.node("n1")
    reader = Reader(cluster, tmp_path)
    with kubelet(cluster, NAMESPACE, starts=True):
        try:
            for kind, body in BLOCKS:
                reader.block(kind, body)
            for command in re.findall(r"`(kubectl explain [^`]*)`", PAGE):
                reader.command(command)
            assert len(reader.images) == 1
            eventually(reader.rolled_out)
        finally:
            cluster.delete("DriverRollout", "cpu.ferrite.example")
            reader.run("allocguard uninstall --apply")


def test_what_dots_stand_for() -> None:
    assert re.fullmatch(as_pattern("a\n...\nb ... c"), "a\nany\nthing\nb 1 c\n")
    assert re.fullmatch(as_pattern("a\n...\nb"), "a\nb\n")
    assert not re.fullmatch(as_pattern("a ..."), "a 1\nError\n")
    assert not re.fullmatch(as_pattern("a"), "")
    assert re.fullmatch(as_pattern(""), "")
    assert fails("Error from server (Forbidden): ...")
