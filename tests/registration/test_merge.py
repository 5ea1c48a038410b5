from copy import deepcopy

import pytest

from webhook.registration.configurations import Address, configurations
from webhook.registration.merge import wanted
from webhook.store.policies import read, shipped


@pytest.fixture(scope="module")
def generated():
    return configurations(read([shipped()]), Address(url="https://localhost:8443"), b"PEM", frozenset({"a.example"}))[0]


@pytest.fixture
def stored(generated):
    """As an API server gives it back."""
    more = {"uid": "1", "resourceVersion": "7", "generation": 1, "managedFields": []}
    return {**deepcopy(generated), "metadata": {**deepcopy(generated["metadata"]), **more}}


def test_missing_is_made(generated):
    assert wanted(None, generated) == generated


def test_what_is_right_is_left_alone(generated, stored):
    assert wanted(stored, generated) == stored


@pytest.mark.parametrize(
    "edit",
    [
        lambda each: each["webhooks"].pop(),
        lambda each: each["webhooks"].clear(),
        lambda each: each["webhooks"].reverse(),
        lambda each: each["webhooks"].append({**each["webhooks"][0], "name": "mine.example.com"}),
        lambda each: each["webhooks"][0].update(failurePolicy="Ignore"),
        lambda each: each["webhooks"][0].update(timeoutSeconds=30),
        lambda each: each["webhooks"][0].update(matchConditions=[]),
        lambda each: each["webhooks"][5].update(matchConditions=[{"name": "x", "expression": "false"}]),
        lambda each: each["webhooks"][0].update(objectSelector={"matchLabels": {"a": "b"}}),
        lambda each: each["webhooks"][0]["namespaceSelector"]["matchExpressions"].pop(),
        lambda each: each["webhooks"][0]["rules"][0]["operations"].pop(),
        lambda each: each["webhooks"][0]["clientConfig"].update(caBundle="AAAA"),
        lambda each: each["metadata"]["labels"].pop("app.kubernetes.io/name"),
        lambda each: each["metadata"]["annotations"].update({"allocguard.dev/drivers": "b.example"}),
        lambda each: each.pop("webhooks"),
        lambda each: each["metadata"].update(labels=None, annotations=[]),
    ],
)
def test_a_hand_edit_is_put_back(generated, stored, edit):
    edited = deepcopy(stored)
    edit(edited)
    assert edited != stored
    put_back = wanted(edited, generated)
    assert put_back["webhooks"] == generated["webhooks"]
    assert put_back["metadata"] == stored["metadata"]
    assert wanted(put_back, generated) == put_back


def test_the_users_own_fields_stay(generated, stored):
    stored["metadata"]["labels"]["team"] = "platform"
    stored["metadata"]["annotations"]["cert-manager.io/inject-ca-from"] = "ns/guard"
    stored["metadata"]["finalizers"] = ["example.com/wait"]
    stored["webhooks"][0]["timeoutSeconds"] = 2
    stored["webhooks"][0]["fieldOfTomorrow"] = {"a": 1}
    assert wanted(stored, generated) == stored


def test_annotations_of_ours_that_are_set_no_longer_go(generated, stored):
    stored["metadata"]["annotations"]["allocguard.dev/old"] = "1"
    assert "allocguard.dev/old" not in wanted(stored, generated)["metadata"]["annotations"]


def test_hands_off(generated, stored):
    stored["metadata"]["annotations"]["allocguard.dev/unmanaged"] = "true"
    stored["webhooks"].clear()
    assert wanted(stored, generated) == stored
    stored["metadata"]["annotations"]["allocguard.dev/unmanaged"] = "false"
    assert wanted(stored, generated) != stored
