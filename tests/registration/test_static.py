import pytest

from webhook.registration.configurations import Address, configurations
from webhook.registration.static import static_files
from webhook.store.policies import read, shipped


@pytest.fixture(scope="module")
def revision():
    return read([shipped()])


def test_names_and_folders(revision):
    found = static_files(revision, "https://127.0.0.1:8443", b"PEM", "/etc/guard/", frozenset({"a.example"}))
    assert list(found) == ["admission.yaml", "validating/allocguard.yaml", "mutating/allocguard.yaml"]
    plugins = {each["name"]: each["configuration"] for each in found["admission.yaml"]["plugins"]}
    assert plugins["ValidatingAdmissionWebhook"]["staticManifestsDir"] == "/etc/guard/validating"
    assert plugins["MutatingAdmissionWebhook"]["staticManifestsDir"] == "/etc/guard/mutating"
    assert found["validating/allocguard.yaml"]["metadata"]["name"] == "allocguard.static.k8s.io"


def test_entries_are_those_of_the_other_way(revision):
    found = static_files(revision, "https://127.0.0.1:8443", b"PEM", "/etc/guard", audit=True, namespace="guard")
    pair = configurations(revision, Address(url="https://127.0.0.1:8443"), b"PEM", audit=True, namespace="guard")
    static = [found["validating/allocguard.yaml"], found["mutating/allocguard.yaml"]]
    assert [each["webhooks"] for each in static] == [each["webhooks"] for each in pair]
    assert all("service" not in entry["clientConfig"] for each in static for entry in each["webhooks"])
