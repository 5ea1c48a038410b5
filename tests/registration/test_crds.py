"""The schemas of the custom resources against the readers of the same documents (API servers: tests/e2e)."""

from pathlib import Path

import pytest
import yaml

from webhook.facts import rollout_document
from webhook.kube.documents import load
from webhook.kube.rollout import DRILLS, EVIDENCE, PROFILES, STAGES
from webhook.policy import document, match
from webhook.policy.document import read_policy

FOLDER = Path(__file__).parents[2] / "deploy" / "crds"
POLICIES, ROLLOUTS, LEDGERS = "admissionpolicies", "driverrollouts", "nodeledgers"


def schema(plural):
    definition = yaml.safe_load((FOLDER / f"{plural}.yaml").read_text())
    [version] = definition["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]["properties"]


def walk(node, path=""):
    yield path, node
    for name, each in node.get("properties", {}).items():
        yield from walk(each, f"{path}.{name}".removeprefix("."))
    if "items" in node:
        yield from walk(node["items"], f"{path}[0]")


@pytest.mark.parametrize("plural", [POLICIES, ROLLOUTS, LEDGERS])
def test_schemas_are_bounded_and_drop_nothing_in_silence(plural):
    for part in ("spec", "status"):
        for path, node in walk(schema(plural)[part], part):
            assert "type" in node, path
            assert ("x-kubernetes-preserve-unknown-fields" in node) == (path == "spec.params"), path
            if node["type"] == "array":
                assert "x-kubernetes-list-type" in node, path
                assert "maxItems" in node or path == "status.conditions", path


def shape(node):
    """A schema in the form in which the reader of rollouts has its own."""
    match node:
        case {"properties": properties} if not set(properties) & {"matchLabels", "matchExpressions"}:
            return {name: shape(each) for name, each in properties.items()}
        case {"type": "array", "items": items}:
            return [shape(items)]
        case {"type": kind}:
            return {"string": str, "integer": int, "object": dict}[kind]


def read(known):
    match known:
        case rollout_document._Shape(fields=fields):
            return {name: read(each) for name, each in fields.items()}
        case [only]:
            return [read(only)]
    return known


def test_rollouts_have_the_fields_that_are_read():
    assert shape(schema(ROLLOUTS)["spec"]) == read(rollout_document._SPEC)


def test_rollouts_have_the_values_that_are_read():
    spec = schema(ROLLOUTS)["spec"]["properties"]
    assert spec["stage"]["enum"] == list(STAGES)
    assert spec["freshness"]["properties"]["evidence"]["items"]["enum"] == list(EVIDENCE)
    assert spec["writers"]["items"]["properties"]["profile"]["enum"] == list(PROFILES)
    assert spec["promotion"]["properties"]["override"]["properties"]["stage"]["enum"] == list(STAGES)
    assert spec["promotion"]["properties"]["drills"]["items"]["enum"] == list(DRILLS)


RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"], "scope": "*"}
SELECTOR = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]}
WHOLE = {
    "endpoint": "mutate",
    "matchConstraints": {
        "resourceRules": [RULE],
        "excludeResourceRules": [RULE],
        "namespaceSelector": SELECTOR,
        "objectSelector": SELECTOR,
        "matchPolicy": "Equivalent",
    },
    "matchConditions": [{"name": "a", "expression": "true"}],
    "params": {},
    "variables": [{"name": "a", "expression": "true"}],
    "validations": [{"name": "a", "expression": "true"}],
    "mutations": [{"patchType": "JSONPatch", "expression": "[]"}],
    "auditAnnotations": [{"key": "a", "valueExpression": "'a'"}],
    "action": "Warn",
    "failurePolicy": "Ignore",
    "exceptions": [{"name": "a", "expression": "true", "expires": "2027-01-01T00:00:00Z", "ticket": "T-1"}],
}


def fields_read(path):
    """The fields that the reader of policies takes at ``path``, as it names them when it meets another."""
    spec = yaml.safe_load(yaml.safe_dump(WHOLE))
    node = spec
    for step in path.removeprefix("spec").replace("[0]", ".0").strip(".").split("."):
        if step:
            node = node[int(step)] if step.isdigit() else node[step]
    node["zzz"] = 1
    whole = {"apiVersion": "allocguard.dev/v1alpha1", "kind": document.KIND, "metadata": {"name": "p"}, "spec": spec}
    [loaded] = load(yaml.safe_dump(whole).encode(), "p.yaml")
    _, problems = read_policy(loaded)
    [problem] = [each for each in problems if each.path == f"{path}.zzz"]
    names = problem.message.rpartition("needs ")[2].removeprefix("one of ").replace(" or ", ", ")
    return set(names.split(", "))


def test_policies_have_the_fields_that_are_read():
    seen = []
    for path, node in walk(schema(POLICIES)["spec"], "spec"):
        if "properties" in node:
            assert set(node["properties"]) == fields_read(path), path
            seen.append(path)
    assert len(seen) == 14


def test_policies_have_the_values_that_are_read():
    spec = schema(POLICIES)["spec"]["properties"]
    rule = spec["matchConstraints"]["properties"]["resourceRules"]["items"]["properties"]
    assert spec["endpoint"]["enum"] == list(document.ENDPOINTS)
    assert spec["action"]["enum"] == list(document.ACTIONS)
    assert spec["failurePolicy"]["enum"] == list(document.FAILURE_POLICIES)
    assert rule["operations"]["items"]["enum"] == list(match.OPERATIONS)
    assert rule["scope"]["enum"] == list(match.SCOPES)
