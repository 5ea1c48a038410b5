from datetime import UTC, datetime

import pytest
import yaml

from webhook.kube.admission import raw_request, read_request
from webhook.kube.release import Release
from webhook.kube.snapshot import build
from webhook.ledger.book import Book
from webhook.policy.compile import PolicyErrors, compile_files
from webhook.policy.evaluate import evaluate

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
PODS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["pods"]}


def _policy(name="p", **spec):
    whole = {"matchConstraints": {"resourceRules": [PODS]}, "action": "Deny", **spec}
    whole = {field: value for field, value in whole.items() if value is not None}
    return {
        "apiVersion": "allocguard.dev/v1alpha1",
        "kind": "AdmissionPolicy",
        "metadata": {"name": name},
        "spec": whole,
    }


def _text(*documents):
    return yaml.safe_dump_all(documents, sort_keys=False).encode()


@pytest.fixture
def policy():
    """A policy document about pods; keywords are fields of its spec, None leaves one out."""
    return _policy


@pytest.fixture
def compiled():
    """The revision of policy documents."""
    return lambda *documents: compile_files({"p.yaml": _text(*documents)})


@pytest.fixture
def problems():
    """The problems of a policy file, given as text or as documents."""

    def find(*documents):
        data = documents[0].encode() if isinstance(documents[0], str) else _text(*documents)
        with pytest.raises(PolicyErrors) as caught:
            compile_files({"p.yaml": data})
        return [problem.text for problem in caught.value.problems]

    return find


@pytest.fixture
def pod():
    """A raw pod; keywords are members of its spec."""
    return lambda **spec: {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p1", "namespace": "ns", "labels": {"app": "x"}},
        "spec": {"containers": [{"name": "main"}], **spec},
    }


@pytest.fixture
def judge(pod):
    """What a revision says about a write: (revision, object, operation, cluster objects, further fields)."""

    def run(revision, obj=None, operation="CREATE", cluster=(), now=NOW, release=None, endpoint="validate", **fields):
        old = fields.pop("old", None)
        options = {key: fields.pop(key) for key in ("budget", "expired") if key in fields}
        obj = pod() if obj is None and operation != "DELETE" else obj
        request = read_request(raw_request(operation, obj, old, **fields))
        return evaluate(revision, request, endpoint, build(cluster, release or Release(36)), Book(), now, **options)

    return run
