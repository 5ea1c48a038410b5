from itertools import chain

import msgspec
import pytest

from tests.ledger.builders import allocated, container, device, node, old, pod, result, slice_of
from webhook.kube.rbac import BINDINGS, ROLES
from webhook.kube.release import Release
from webhook.kube.snapshot import KINDS, build
from webhook.ledger.book import Book
from webhook.ledger.recorded import _FIELDS, digest, encoded, recorded
from webhook.ledger.statement import statement


def leaves(value, path=()):
    if isinstance(value, dict):
        return chain.from_iterable(leaves(part, (*path, name)) for name, part in value.items())
    if isinstance(value, list):
        return chain.from_iterable(leaves(part, path) for part in value)
    return iter([(path, value)])


def test_every_kind_of_a_snapshot_is_recorded_but_for_roles_and_bindings():
    assert {kind for _, kind in _FIELDS} == KINDS - {*ROLES, *BINDINGS}


def test_what_may_be_secret_is_left_out_wherever_it_stands():
    secret = "hunter2"
    made = pod("p", container("main", cpu="1", env=[{"name": "A", "value": secret}], command=[secret]), claims=("c",))
    made["spec"] |= {"volumes": [{"secret": secret}], "imagePullSecrets": [secret], "hostAliases": secret}
    made["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": secret}
    made["metadata"]["managedFields"] = [{"manager": secret, "time": "2026-11-20T09:00:00Z"}]
    made["status"] |= {"message": secret, "containerStatuses": [{"name": "main", "image": secret, "env": secret}]}
    claim = allocated("c", result())
    claim["spec"]["devices"]["config"] = [{"opaque": {"driver": "d", "parameters": {"key": secret}}}]
    claim["status"]["allocation"]["devices"]["config"] = [{"opaque": {"parameters": secret}}]
    claim["status"]["devices"] = [{"data": secret}]
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "t", "namespace": "ns"},
        "spec": {"metadata": {"annotations": {"a": secret}}, "spec": {"devices": {"config": [secret]}}},
    }
    kind = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "d"},
        "spec": {"config": [{"opaque": secret}], "selectors": [{"cel": {"expression": "true"}}]},
    }
    for obj in (made, claim, template, kind):
        assert secret.encode() not in encoded(recorded(obj))
    assert recorded(kind)["spec"] == {"selectors": [{"cel": {"expression": "true"}}]}
    assert recorded(made)["metadata"]["managedFields"] == [{"time": "2026-11-20T09:00:00Z"}]


def test_a_kind_that_no_account_depends_on_is_not_recorded():
    for version, kind in (("v1", "Secret"), ("v1", "ConfigMap"), ("example.org/v1", "Pod"), ("v1", "ResourceSlice")):
        assert recorded({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}}) is None


@pytest.mark.parametrize("junk", [7, "text", [], [3], None, {"a": "b"}])
def test_wrong_types_are_left_out_rather_than_passed_on(junk):
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": junk, "status": {"conditions": junk}}
    kept = recorded(made)
    values = [value for path, value in leaves(kept) if path[0] in ("spec", "status")]
    assert values == []


def test_accounts_are_the_same_by_what_is_recorded():
    objects = [
        node("n1", cpu="16", memory="64Gi"),
        slice_of(device("grp", old(key="cpus"), capacity={"cpus": "16"}, zone=1)),
        allocated("c", result("grp", consumed={"cpus": "3"}), pods=("p1",)),
        pod("p1", container(cpu="2", claims=("c",)), init=(container("i", cpu="4"),), claims=("c",)),
    ]  # fmt: skip
    whole, kept = build(objects, Release(36)), build(map(recorded, objects), Release(36))
    said = statement(Book(), whole)
    assert said == statement(Book(), kept)
    assert said["nodes"][0]["resources"]["cpu"]["claims"] == "3"


def test_devices_that_were_never_decoded_are_written_as_they_came():
    raw = slice_of(device("grp", old()))
    text = msgspec.json.encode(raw["spec"]["devices"][0])
    raw["spec"]["devices"] = [msgspec.Raw(text)]
    assert text in encoded(recorded(raw))


def test_the_digest_is_of_the_value_not_of_how_it_is_written():
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1})
    assert digest({"a": 1}) != digest({"a": "1"})


@pytest.mark.parametrize("odd", [2**70, "\ud800", {"\udfff": 2**64}])
def test_what_orjson_does_not_write_is_written_all_the_same(odd):
    assert encoded({"a": odd, "b": msgspec.Raw(b"[1]")}).endswith(b'"b":[1]}')
    assert digest(odd) == digest(odd)
