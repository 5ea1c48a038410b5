import pytest
import yaml

from webhook.policy.compile import compile_files


def _rule(group, resource, *operations, version="v1"):
    return {"apiGroups": [group], "apiVersions": [version], "operations": list(operations), "resources": [resource]}


def _policy(name, rules, **spec):
    constraints = {"resourceRules": rules, **spec.pop("constraints", {})}
    validations = [{"name": "never", "expression": "true"}]
    whole = {"matchConstraints": constraints, "validations": validations, "action": "Warn", "failurePolicy": "Ignore"}
    metadata = {"name": name}
    return {
        "apiVersion": "allocguard.dev/v1alpha1",
        "kind": "AdmissionPolicy",
        "metadata": metadata,
        "spec": whole | spec,
    }


@pytest.fixture
def rule():
    """A resourceRule."""
    return _rule


@pytest.fixture
def policy():
    """A policy of a name and resourceRules; keywords are fields of its spec."""
    return _policy


@pytest.fixture
def compiled():
    """The revision of policy documents."""
    return lambda *documents: compile_files({"p.yaml": yaml.safe_dump_all(documents, sort_keys=False).encode()})
