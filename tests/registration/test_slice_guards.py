import copy
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from webhook.kube.snapshot import Snapshot
from webhook.policy.revision import revision_of
from webhook.registration.slice_guards import slice_guards

SAMPLES = Path(__file__).parents[1] / "cases" / "samples"
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
NONE = revision_of([])
PLUGIN = ("granite-system", "mem-granite-node-plugin")


@pytest.fixture
def sample():
    """A driver's own policy, as its chart has it, and its binding."""
    return list(yaml.safe_load_all((SAMPLES / "22-vap-slices.yaml").read_text()))


def guarded(objects, namespace=PLUGIN[0], account=PLUGIN[1], driver="mem.granite.example", profile="NodeLocal"):
    return slice_guards(objects, NONE).guarded(namespace, account, driver, profile, Snapshot(), NOW)


def changed(objects, **spec):
    made = copy.deepcopy(objects)
    made[0]["spec"].update(spec)
    return made


def rules(**fields):
    every = {
        "apiGroups": ["resource.k8s.io"],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE", "DELETE"],
        "resources": ["resourceslices"],
    }
    return {"resourceRules": [{**every, **fields}]}


def test_a_policy_of_the_drivers_own_keeps_its_account_to_its_node_and_nobody_else(sample):
    assert guarded(sample) is True
    assert guarded(sample, account="another") is False


def test_without_any_policy_nobody_is_kept():
    assert guarded([]) is False


@pytest.mark.parametrize(
    "edit",
    [
        {"matchConstraints": rules(apiVersions=["v1beta1", "v1beta2"])},
        {"matchConstraints": rules(operations=["CREATE", "UPDATE"])},
        {"matchConstraints": rules(resources=["resourceclaims"])},
        {"matchConstraints": rules(apiGroups=["apps"])},
        {"matchConstraints": {**rules(), "objectSelector": {"matchLabels": {"guarded": "true"}}}},
        {"matchConstraints": {**rules(), "excludeResourceRules": rules()["resourceRules"]}},
        # It takes whatever it is asked about, or nothing at all: whose slice it is does not matter.
        {"validations": [{"expression": "true"}]},
        {"validations": [{"expression": "false"}]},
        # Its conditions, or what it reads, fail for every write, and are passed over.
        {"failurePolicy": "Ignore", "validations": [{"expression": "object.spec.nothing == oldObject.spec.nothing"}]},
    ],
)
def test_a_policy_that_does_not_tell_slices_of_others_apart_keeps_nobody(sample, edit):
    assert guarded(changed(sample, **edit)) is False


def test_every_group_and_version_is_this_one_too(sample):
    assert guarded(changed(sample, matchConstraints=rules(apiGroups=["*"], apiVersions=["*"]))) is True


@pytest.mark.parametrize("bindings", [[], [{"validationActions": ["Warn", "Audit"]}], [{"policyName": "another"}]])
def test_a_policy_counts_where_a_binding_denies(sample, bindings):
    policy, binding = sample
    edited = [{**binding, "spec": {**binding["spec"], **edit}} for edit in bindings]
    assert guarded([policy, *edited]) is False


@pytest.mark.parametrize(
    "edit",
    [
        {
            "matchConditions": [
                {"name": "asks", "expression": "authorizer.group('').resource('x').check('y').allowed()"}
            ]
        },
        {"variables": [], "validations": [{"expression": "params.allowed == true"}]},
    ],
)
def test_what_cannot_be_tried_here_is_not_known(sample, edit):
    assert guarded(changed(sample, **edit)) is None


def test_of_a_binding_that_takes_some_slices_only_nothing_is_known(sample):
    policy, binding = sample
    labelled = {"objectSelector": {"matchLabels": {"a": "b"}}}
    narrow = {**binding, "spec": {**binding["spec"], "matchResources": labelled}}
    assert guarded([policy, narrow]) is None
    assert guarded([policy, narrow, binding]) is True
    namespaces = {"namespaceSelector": {}, "matchPolicy": "Equivalent"}
    assert guarded([policy, {**binding, "spec": {**binding["spec"], "matchResources": namespaces}}]) is True


def test_two_policies_may_share_the_operations(sample):
    policy, binding = sample
    both = []
    for name, operations in (("written", ["CREATE", "UPDATE"]), ("deleted", ["DELETE"])):
        part = changed([policy], matchConstraints=rules(operations=operations))[0]
        both.append({**part, "metadata": {"name": name}})
        both.append({**binding, "metadata": {"name": name}, "spec": {**binding["spec"], "policyName": name}})
    assert guarded(both) is True
    assert guarded(both[:2]) is False


def test_a_controller_of_many_nodes_is_kept_by_a_policy_that_keeps_it_to_its_driver(sample):
    expression = "(request.operation == 'DELETE' ? oldObject : object).spec.driver == 'fabric.example'"
    own = changed(sample, variables=[], validations=[{"expression": expression}])
    assert guarded(own, driver="fabric.example", profile="MultiNode") is True
    assert guarded(own, driver="fabric.example") is False
    assert guarded(sample, driver="fabric.example", profile="MultiNode") is False


@pytest.mark.parametrize("broken", [{"spec": None}, {"spec": {"matchConstraints": []}}, {"spec": "x"}])
def test_what_no_api_server_stores_is_no_guard(sample, broken):
    policy, binding = sample
    assert guarded([{**policy, **broken}, binding]) is False
    assert guarded([{**policy, "metadata": None}, binding]) is False
    assert guarded([policy, {**binding, **broken}]) is False
