import copy
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from webhook.kube.snapshot import Snapshot
from webhook.policy.revision import audited, revision_of
from webhook.registration.configurations import Address, configurations
from webhook.registration.slice_guards import remembered, slice_guards
from webhook.store.policies import PolicyStore, shipped

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
    assert guarded(own, driver="fabric.example", profile="AnyNode") is True
    assert guarded(sample, driver="fabric.example", profile="MultiNode") is False
    assert guarded(sample, driver="fabric.example", profile="AnyNode") is False


@pytest.mark.parametrize("broken", [{"spec": None}, {"spec": {"matchConstraints": []}}, {"spec": "x"}])
def test_what_no_api_server_stores_is_no_guard(sample, broken):
    policy, binding = sample
    assert guarded([{**policy, **broken}, binding]) is False
    assert guarded([{**policy, "metadata": None}, binding]) is False
    assert guarded([policy, {**binding, **broken}]) is False


@pytest.fixture(scope="module")
def shipped_revision():
    return PolicyStore([shipped()]).revision


def registered(revision, **edit):
    """Our registration for these policies, as the API has it."""
    found, _ = configurations(revision, Address(url="https://guard.example"), b"")
    return [{**found, **edit}]


def rollout(profile="NodeLocal"):
    writers = [{"namespace": "granite-system", "serviceAccount": PLUGIN[1], "profile": profile}]
    metadata = {"name": "mem.granite.example"}
    spec = {"writers": writers}
    return {"apiVersion": "allocguard.dev/v1alpha1", "kind": "DriverRollout", "metadata": metadata, "spec": spec}


def ours(objects, revision, *there, profile="NodeLocal"):
    snapshot = Snapshot()
    for obj in there:
        snapshot = snapshot.put(obj)
    return slice_guards(objects, revision).guarded(*PLUGIN, "mem.granite.example", profile, snapshot, NOW)


@pytest.mark.parametrize("profile", ["NodeLocal", "MultiNode", "AnyNode"])
def test_we_keep_the_accounts_that_a_rollout_names_where_the_api_server_asks_us(shipped_revision, profile):
    asked = registered(shipped_revision)
    assert ours(asked, shipped_revision, rollout(profile), profile=profile) is True
    assert ours([], shipped_revision, rollout(profile), profile=profile) is False


def test_we_keep_nobody_whom_no_rollout_names(shipped_revision):
    assert ours(registered(shipped_revision), shipped_revision) is False


def test_we_keep_nobody_with_a_policy_that_only_warns_or_is_not_there(shipped_revision):
    asked = registered(shipped_revision)
    assert ours(asked, audited(shipped_revision), rollout()) is False
    without = revision_of(each for each in shipped_revision.policies if each.name != "slice-writers")
    assert ours(asked, without, rollout()) is False


def test_a_guard_that_is_registered_in_audit_mode_keeps_nobody(shipped_revision):
    """Whoever looks from outside has the policies as they are written: the registration alone tells the mode."""
    found, _ = configurations(shipped_revision, Address(url="https://guard.example"), b"", audit=True)
    assert ours([found], shipped_revision, rollout()) is False
    assert slice_guards([found], shipped_revision).asked == {"CREATE", "UPDATE", "DELETE"}


def test_an_audit_of_ours_takes_nothing_from_a_policy_of_the_drivers_own(shipped_revision, sample):
    found, _ = configurations(shipped_revision, Address(url="https://guard.example"), b"", audit=True)
    assert ours([found, *sample], shipped_revision, rollout()) is True


@pytest.mark.parametrize("gone", ["mapped-slices", "other-slices", "slice-deletions"])
def test_one_entry_less_and_some_slices_are_not_seen(shipped_revision, gone):
    [asked] = registered(shipped_revision)
    entries = [each for each in asked["webhooks"] if not each["name"].startswith(f"{gone}.")]
    assert len(entries) == len(asked["webhooks"]) - 1
    assert ours([{**asked, "webhooks": entries}], shipped_revision, rollout()) is False
    for each in asked["webhooks"]:
        if each["name"].startswith(f"{gone}."):
            old = {**each, "rules": [{**rule, "apiVersions": ["v1beta1"]} for rule in each["rules"]]}
            assert ours([{**asked, "webhooks": [*entries, old]}], shipped_revision, rollout()) is False


def test_somebody_elses_webhooks_are_none_of_ours(shipped_revision):
    [asked] = registered(shipped_revision)
    named = [{**each, "name": each["name"].replace("allocguard.dev", "other.dev")} for each in asked["webhooks"]]
    assert ours([{**asked, "webhooks": named}], shipped_revision, rollout()) is False


def test_each_account_is_tried_for_all_its_drivers_and_once(sample):
    snapshot = Snapshot().put(rollout())
    tried = []

    class Counted:
        def guarded(self, namespace, account, driver, profile, snapshot, now):
            tried.append((namespace, account, driver, profile))
            return driver != "open.example" and (None if driver == "unknown.example" else True)

    def asked(*drivers, guards=None):
        there = snapshot
        for driver in drivers:
            there = there.put({**rollout(), "metadata": {"name": driver}})
        guarded = remembered(guards or Counted(), there, NOW)
        assert guarded(PLUGIN) == guarded(PLUGIN)
        return guarded(PLUGIN)

    assert asked() is True
    assert tried == [(*PLUGIN, "mem.granite.example", "NodeLocal")]
    assert asked("open.example") is False
    assert asked("unknown.example") is None
    assert asked("unknown.example", "open.example") is False
    assert remembered(None, snapshot, NOW)(PLUGIN) is None
