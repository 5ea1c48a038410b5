import asyncio
from pathlib import Path

import pytest
import yaml

from webhook.cluster.api import ApiError, Unreachable
from webhook.cluster.slice_guards import read_slice_guards
from webhook.policy.revision import revision_of
from webhook.registration.configurations import Address, configurations
from webhook.store.policies import PolicyStore, shipped

SAMPLE = Path(__file__).parents[1] / "cases" / "samples" / "22-vap-slices.yaml"
BASE = "/apis/admissionregistration.k8s.io/v1"
OURS = f"{BASE}/validatingwebhookconfigurations/allocguard"


class Server:
    """Has the objects of ``kept`` by path; items of a list have no kind, as the API server sends them."""

    def __init__(self):
        policy, binding = yaml.safe_load_all(SAMPLE.read_text())
        self.kept = {
            f"{BASE}/validatingadmissionpolicies": {"items": [_bare(policy)]},
            f"{BASE}/validatingadmissionpolicybindings": {"items": [_bare(binding)]},
        }
        self.error = None

    async def get(self, path, **params):
        if self.error is not None:
            raise self.error
        if path not in self.kept:
            raise ApiError(404, "NotFound", "not found")
        return self.kept[path]


def _bare(obj):
    return {key: value for key, value in obj.items() if key not in ("apiVersion", "kind")}


def read(server, revision=None):
    return asyncio.run(read_slice_guards(server, revision or revision_of([])))


def test_policies_and_bindings_are_read_and_our_registration_need_not_be_there():
    found = read(Server())
    assert [revision.policies[0].name for revision in found.policies] == ["slices-of-own-node-granite"]
    assert (found.asked, found.unread) == (frozenset(), ())


def test_our_registration_says_which_slices_are_sent():
    server, revision = Server(), PolicyStore([shipped()]).revision
    server.kept[OURS] = _bare(configurations(revision, Address(url="https://guard.example"), b"")[0])
    found = read(server, revision)
    assert found.asked == {"CREATE", "UPDATE", "DELETE"}
    assert "slice-writers" in [policy.name for policy in found.own.policies]


@pytest.mark.parametrize("error", [ApiError(403, "Forbidden", "no"), Unreachable("timed out")])
def test_what_is_refused_is_not_taken_for_no_guard(error):
    server = Server()
    server.error = error
    with pytest.raises(type(error)):
        read(server)
