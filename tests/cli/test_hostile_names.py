"""Whoever names an object, or writes any text of one, does not write lines of his own, nor to the terminal."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from click.testing import CliRunner

from webhook.cli import console
from webhook.cli.output import dump
from webhook.cli.program import program

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "webhook" / "cli" / "example"
AT = ("--at", "2026-11-20T09:00:00Z")
# A line break with a line of one's own, a colour that nothing here has, the separators and the controls that some
# terminals obey in their one-byte form, and letters that run from right to left.
PAYLOAD = "\nFORGED\x1b[35m\u2028FORGED\x85FORGED\u202e\x9b2J\x07\r"
NAMES = {
    "name", "namespace", "uid", "driver", "pool", "device", "request", "nodeName", "deviceClassName", "reason", "by",
    "resourceClaimName", "serviceAccount", "serviceAccountName", "shareID", "username", "resourceVersion", "image",
}  # fmt: skip
REVIEWS = sorted((EXAMPLE / "reviews").iterdir())
OURS = re.compile(r"\x1b\[(?:[0-2]|3[1-46])m")


def texts(value, found):
    """The values of members that name something, and the names of capacities, in ``found``."""
    if isinstance(value, dict):
        for member, part in value.items():
            if member in NAMES and isinstance(part, str) and not part.startswith(("metadata.", "kubernetes.io/")):
                found.add(part)
            if member == "capacity" and isinstance(part, dict):
                found.update(name for name in part if "/" in name)
            texts(part, found)
    elif isinstance(value, list):
        for part in value:
            texts(part, found)


def hostile(value, names):
    """``value`` in which everything that is called by one of ``names`` has the payload in its name, everywhere."""
    if isinstance(value, dict):
        return {hostile(member, names): hostile(part, names) for member, part in value.items()}
    if isinstance(value, list):
        return [hostile(part, names) for part in value]
    if value in names:
        return value + PAYLOAD
    if isinstance(value, str) and "==" in value:
        for name in names:
            value = value.replace(f'"{name}"', json.dumps(name + PAYLOAD)).replace(
                f"'{name}'", json.dumps(name + PAYLOAD)
            )
    return value


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """The example, every name of it hostile: the cluster, the manifests and the reviews."""
    folder = tmp_path_factory.mktemp("hostile")
    files = {path: list(yaml.safe_load_all(path.read_text())) for path in sorted(EXAMPLE.rglob("*.yaml"))}
    names: set[str] = set()
    texts(list(files.values()), names)
    for path, documents in files.items():
        made = folder / path.relative_to(EXAMPLE)
        made.parent.mkdir(exist_ok=True)
        made.write_text(yaml.safe_dump_all(hostile(documents, names)))
    (folder / "manifests" / f"x{PAYLOAD}.yaml").write_text((EXAMPLE / "manifests" / "slice.yaml").read_text())
    for name in ("wrong", "right"):
        (folder / name).mkdir()
    (folder / "wrong" / f"x{PAYLOAD}.yaml").write_text(yaml.safe_dump(WRONG))
    for part in ("yaml", "test.yaml"):
        shipped = ROOT / "policies" / f"claim-blobs.{part}"
        (folder / "right" / f"x{PAYLOAD}.{part}").write_text(shipped.read_text())
    (folder / "cluster" / "rights.yaml").write_text(yaml.safe_dump_all(RIGHTS))
    command = ["ledger", "export", "--cluster", str(folder / "cluster"), *AT]
    (folder / "export.json").write_text(CliRunner(catch_exceptions=False).invoke(program, command).stdout)
    (folder / "empty.yaml").write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": []}))
    return folder


# The name of an account is read from the command line, where it has to be one.
RBAC = "rbac.authorization.k8s.io"
RIGHTS = [
    {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": f"wide{PAYLOAD}", "annotations": {"allocguard.dev/driver": f"d{PAYLOAD}"}},
        "rules": [
            {
                "apiGroups": ["resource.k8s.io"],
                "resources": ["resourceslices", "resourceclaims/status"],
                "verbs": ["*"],
            },
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": [f"p{PAYLOAD}"]},
        ],
    },
    {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"bound{PAYLOAD}"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": f"wide{PAYLOAD}"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "outside", "name": "writer"}],
    },
]
# What a policy and a case are called is read where it is written, and refused; a file is called as it likes.
WRONG = {
    "apiVersion": "allocguard.dev/v1alpha1",
    "kind": "AdmissionPolicy",
    "metadata": {"name": f"p{PAYLOAD}"},
    "spec": {"validations": [{"name": f"r{PAYLOAD}", "expression": f"object.x == 'a{PAYLOAD}'"}], PAYLOAD: 1},
}
REPORT = ("text", "github", "markdown", "junit", "sarif", "json", "yaml")
VALUES = ("text", "json", "yaml")
DRIVER, CLAIM = f"cpu.ferrite.example{PAYLOAD}", f"studio{PAYLOAD}/render{PAYLOAD}"
# What prints something of objects; paths of the hostile example begin with @.
PLAN = [
    (("check", "@manifests", "@cluster", "@reviews"), REPORT),
    *((("explain", f"@reviews/{each.name}", "--cluster", "@cluster"), VALUES) for each in REVIEWS),
    (("explain", "@reviews", "--endpoint", "mutate", "--cluster", "@cluster"), VALUES),
    (("explain", "--claim", CLAIM, "--cluster", "@cluster"), VALUES),
    (("ledger", "show", "--cluster", "@cluster"), VALUES),
    (("ledger", "explain", f"claim/{CLAIM}", "--cluster", "@cluster"), VALUES),
    (("ledger", "explain", f"pod/{CLAIM}", "--cluster", "@cluster"), VALUES),
    (("ledger", "explain", f"node/anvil-1{PAYLOAD}", "--cluster", "@cluster"), VALUES),
    (("ledger", "fit", "--claim", "@manifests/claim.yaml", "--cluster", "@cluster"), VALUES),
    (("ledger", "export", "--cluster", "@cluster"), ("",)),
    (("ledger", "diff", "@export.json", "--cluster", "@empty.yaml"), VALUES),
    (("rollout", "status", "--cluster", "@cluster"), VALUES),
    (("rollout", "check", DRIVER, "--cluster", "@cluster"), (*VALUES, "markdown")),
    (("rollout", "drill", DRIVER, "NodeRestart", "--cluster", "@cluster"), VALUES),
    (("rollout", "resume", DRIVER, "--cluster", "@cluster"), VALUES),
    (("rollout", "hold", DRIVER, "--reason", PAYLOAD, "--by", PAYLOAD, "--cluster", "@cluster"), VALUES),
    (("policy", "lint", "@wrong"), (*VALUES, "junit")),
    (("policy", "lint", "@right"), (*VALUES, "junit")),
    (("policy", "test", "@right"), (*VALUES, "junit")),
    (("rbac", "lint", "@manifests/role.yaml", "--cluster", "@cluster"), REPORT),
    (("rbac", "lint", "--for-serviceaccount", "outside/writer", "--cluster", "@cluster"), VALUES),
]


def clean(text: str) -> None:
    stray = {character for character in text if not character.isprintable() and character != "\n"}
    assert not stray, repr(stray)
    assert not re.search("^FORGED", text, re.MULTILINE), re.findall("^FORGED.*", text, re.MULTILINE)


def loads_all(text: str) -> list[object]:
    """The JSON documents of ``text``, one after the other."""
    found, decoder = [], json.JSONDecoder()
    while text := text.lstrip():
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:]
    return found


@pytest.mark.parametrize("colours", [False, True])
@pytest.mark.parametrize(("arguments", "formats"), PLAN, ids=range(len(PLAN)))
def test_what_is_printed_has_no_line_and_no_control_of_a_name(run, world, monkeypatch, arguments, formats, colours):
    monkeypatch.setattr(console, "coloured", lambda _: colours)
    options = [str(world / each[1:]) if each.startswith("@") else each for each in arguments]
    told = []
    for name in formats:
        ran = run(*options, *(("-o", name) if name else ()), *(AT if options[0] != "policy" else ()))
        told.append(ran.out + ran.err)
        clean(ran.err)
        clean(OURS.sub("", ran.out) if colours else ran.out)
        if name in ("json", "sarif", ""):
            assert loads_all(ran.out)
        elif name == "yaml":
            list(yaml.safe_load_all(ran.out))
        elif name == "junit":
            ElementTree.fromstring(ran.out)
    assert any("FORGED" in each for each in told)


@pytest.mark.parametrize("name", ["json", "yaml"])
@pytest.mark.parametrize(
    "text", [PAYLOAD, "\u202e", "\x9b", "\x7f", "\u2028", "\U000e0041", "\xa0", "\t", "\x85", "\ufeff"]
)
def test_what_is_escaped_comes_back_as_it_was(name, text):
    value = {f"k{text}": [text, f"a{text}b", f"caf\N{LATIN SMALL LETTER E WITH ACUTE}{text}"]}
    made = dump(value, name)
    clean(made)
    assert "caf\N{LATIN SMALL LETTER E WITH ACUTE}" in made
    assert (json.loads if name == "json" else yaml.safe_load)(made) == value


def test_half_of_a_surrogate_pair_is_told_as_it_is_written():
    assert json.loads(dump(["\ud800"], "json")) == ["\ud800"]
    assert yaml.safe_load(dump(["\ud800"], "yaml")) == ["\\ud800"]


def test_what_the_api_server_is_told_is_text_on_one_line(run, world):
    """It hands warnings and messages on to whoever wrote the object, and keeps the annotations."""
    told = []
    for endpoint in ("validate", "mutate"):
        ran = run("review", world / "reviews", "--endpoint", endpoint, "--cluster", world / "cluster", *AT)
        for answer in loads_all(ran.out):
            response = answer["response"]
            told += strings([response.get(each) for each in ("status", "warnings", "auditAnnotations")])
    assert any("FORGED" in each for each in told)
    assert [each for each in told if not each.isprintable()] == []


def strings(value):
    """Every string in ``value``, names of members too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from strings(part[1])
            yield from strings(part[0])
