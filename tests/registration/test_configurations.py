import re
from base64 import b64decode

import pytest

from webhook.kube.names import dns_subdomain
from webhook.registration.configurations import Address, configurations, unregistered
from webhook.store.policies import read, shipped

HERE = Address(url="https://127.0.0.1:8443/")
PEM = b"-----BEGIN CERTIFICATE-----\n"
DRIVERS = frozenset({"cpu.example", "gpu.example"})


def entries(revision, drivers=DRIVERS, **options):
    """The entries of both configurations by name."""
    pair = configurations(revision, HERE, PEM, drivers, **options)
    return {entry["name"].removesuffix(".allocguard.dev"): entry for each in pair for entry in each["webhooks"]}


@pytest.fixture(scope="module")
def revision():
    return read([shipped()])


def test_the_shipped_policies_need_these_entries_and_no_more(revision):
    assert list(entries(revision)) == [
        "mapped-slices",
        "guarded-slices",
        "other-slices",
        "unchanged-slices",
        "slice-deletions",
        "guarded-allocations",
        "other-allocations",
        "claim-releases",
        "new-claims",
        "new-pods",
        "pod-claim-status",
        "pod-bindings",
        "pod-resizes",
        "node-changes",
        "role-changes",
        "token-requests",
        "deviceclasses.resource.k8s.io",
        "sent-mapped-slices.mutate",
        "sent-pods.mutate",
    ]


def test_what_changes_pods_is_asked_again_and_about_pods_with_claims_only(revision):
    found = entries(revision)
    assert found["sent-pods.mutate"]["reinvocationPolicy"] == "IfNeeded"
    assert found["sent-mapped-slices.mutate"]["reinvocationPolicy"] == "Never"
    assert found["sent-pods.mutate"]["rules"][0]["operations"] == ["CREATE"]
    [condition] = found["sent-pods.mutate"]["matchConditions"]
    assert condition == {"name": "policies", "expression": "(has(object.spec.resourceClaims)\n)"}


def test_tokens_of_accounts_that_write_for_no_driver_stay_away(revision, compiled, policy, rule):
    """Each pod has a token, which its kubelet asks for again and again."""
    accounts = frozenset({("gpu", "plugin"), ("net", "cni")})
    found = entries(revision, accounts=accounts)
    assert "other-tokens" not in found
    [condition] = found["driver-tokens"]["matchConditions"]
    assert condition["expression"] == "(request.namespace + '/' + request.name) in ['gpu/plugin', 'net/cni']"
    assert found["driver-tokens"]["timeoutSeconds"] == 1
    # A policy of somebody's own about tokens is asked about all of them.
    other = compiled(policy("p", [rule("", "serviceaccounts/token", "CREATE")]))
    assert list(entries(other, accounts=accounts)) == ["driver-tokens", "other-tokens"]
    assert list(entries(other)) == ["token-requests"]
    many = frozenset({("n" * 60, f"{'a' * 200}{number}") for number in range(400)})
    assert "matchConditions" not in entries(revision, accounts=many)["token-requests"]


def test_accounts_of_a_policys_params_have_tokens_too(compiled, policy, rule):
    rules = [rule("", "serviceaccounts/token", "CREATE")]
    conditions = [{"name": "drivers", "expression": "writer.driverToken"}]
    params = {"drivers": {"gpu.example": [{"namespace": "gpu", "serviceAccount": "plugin"}]}}
    found = entries(compiled(policy("p", rules, matchConditions=conditions, params=params)), accounts=frozenset())
    assert list(found) == ["driver-tokens"]
    [condition] = found["driver-tokens"]["matchConditions"]
    assert condition["expression"].endswith("in ['gpu/plugin']")


def test_heartbeats_and_other_changes_of_nodes_stay_away(revision):
    entry = entries(revision)["node-changes"]
    assert [each["name"] for each in entry["matchConditions"]] == ["no-heartbeat", "policies"]
    assert "?labels" in entry["matchConditions"][1]["expression"]
    assert entry["failurePolicy"] == "Ignore"
    assert {(name, *each["operations"]) for each in entry["rules"] for name in each["resources"]} == {
        ("nodes", "CREATE", "UPDATE"),
        ("nodes/status", "UPDATE"),
    }


def test_a_policy_about_pods_without_claims_widens_the_entry(compiled, policy, rule):
    every = policy("every", [rule("", "pods", "CREATE")], endpoint="mutate", action="Warn")
    entry = entries(compiled(every))["sent-pods.mutate"]
    assert "matchConditions" not in entry
    assert entry["reinvocationPolicy"] == "Never"


def test_what_is_sent_without_a_driver_list(revision):
    assert not [name for name in entries(revision, frozenset()) if name.startswith("guarded")]


def test_failure_policies_timeouts_and_side_effects(revision):
    found = {
        name: (entry["failurePolicy"], entry["timeoutSeconds"], entry["sideEffects"])
        for name, entry in entries(revision).items()
    }
    assert found["guarded-allocations"] == ("Fail", 5, "NoneOnDryRun")
    assert found["other-allocations"] == ("Ignore", 5, "NoneOnDryRun")
    assert found["mapped-slices"] == found["guarded-slices"] == ("Fail", 5, "None")
    assert found["pod-claim-status"] == found["pod-bindings"] == ("Ignore", 1, "None")
    assert {failure for name, (failure, _, _) in found.items() if "slices" not in name and "guarded" not in name} == {
        "Ignore"
    }
    assert found["sent-mapped-slices.mutate"][0] == "Ignore"


def test_audit_fails_open_everywhere(revision):
    assert {entry["failurePolicy"] for entry in entries(revision, audit=True).values()} == {"Ignore"}


def test_every_entry_is_written_whole(revision):
    for entry in entries(revision, namespace="guard").values():
        assert entry["matchPolicy"] == "Equivalent"
        assert entry["admissionReviewVersions"] == ["v1"]
        [namespaces] = entry["namespaceSelector"]["matchExpressions"]
        assert namespaces["operator"] == "NotIn"
        assert "guard" in namespaces["values"]
        for rule in entry["rules"]:
            assert rule["apiVersions"] == ["v1"]
            assert "*" not in [*rule["apiGroups"], *rule["resources"]]
            assert rule["scope"] == "*"


def test_addresses(revision):
    by_url, _ = configurations(revision, HERE, PEM)
    assert by_url["webhooks"][0]["clientConfig"]["url"] == "https://127.0.0.1:8443/validate/mapped-slices"
    assert b64decode(by_url["webhooks"][0]["clientConfig"]["caBundle"]) == PEM
    _, by_service = configurations(revision, Address(namespace="ns", name="guard", port=8443), PEM)
    assert by_service["webhooks"][0]["clientConfig"]["service"] == {
        "namespace": "ns",
        "name": "guard",
        "port": 8443,
        "path": "/mutate/sent-mapped-slices",
    }


def test_the_drivers_are_written_down(revision):
    validating, mutating = configurations(revision, HERE, PEM, DRIVERS)
    assert validating["metadata"]["annotations"] == {"allocguard.dev/drivers": "cpu.example,gpu.example"}
    assert "annotations" not in mutating["metadata"]


def test_policies_for_files_register_nothing(compiled, policy, rule):
    rules = [rule("resource.k8s.io", "resourceslices", "CREATE")]
    assert entries(compiled(policy("p", rules, endpoint="check"))) == {}


def test_a_resource_without_a_row_gets_an_entry_of_its_own(compiled, policy, rule):
    deployments = rule("apps", "deployments", "CREATE", "UPDATE")
    selector = {"matchLabels": {"team": "a"}}
    first = policy("a", [deployments], constraints={"namespaceSelector": selector})
    found = entries(compiled(first), namespace="guard")
    entry = found["deployments.apps"]
    assert (entry["failurePolicy"], entry["timeoutSeconds"], entry["sideEffects"]) == ("Ignore", 5, "None")
    assert entry["rules"] == [
        {
            "apiGroups": ["apps"],
            "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE"],
            "resources": ["deployments"],
            "scope": "*",
        }
    ]
    assert entry["namespaceSelector"] == {
        "matchLabels": {"team": "a"},
        "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["guard"]}],
    }
    assert entry["clientConfig"]["url"].endswith("/validate/deployments.apps")
    second = policy("b", [rule("apps", "deployments", "DELETE")])
    entry = entries(compiled(first, second))["deployments.apps"]
    assert "matchLabels" not in entry["namespaceSelector"]
    assert entry["rules"][0]["operations"] == ["CREATE", "DELETE", "UPDATE"]


def test_versions_of_other_peoples_groups_are_theirs(compiled, policy, rule):
    rules = [
        rule("widgets.example", "widgets", "CREATE", version="v1alpha1"),
        rule("widgets.example", "widgets", "CREATE", "UPDATE", version="v2"),
    ]
    found = entries(compiled(policy("p", rules)))["widgets.widgets.example"]["rules"]
    assert [(each["apiVersions"], each["operations"]) for each in found] == [
        (["v1alpha1"], ["CREATE"]),
        (["v2"], ["CREATE", "UPDATE"]),
    ]


def test_of_built_in_groups_v1_is_always_registered(compiled, policy, rule):
    rules = [
        rule("resource.k8s.io", "deviceclasses", "CREATE", version="v1beta1"),
        rule("apps", "deployments", "CREATE", version="*"),
    ]
    found = entries(compiled(policy("p", rules)))
    assert found["deviceclasses.resource.k8s.io"]["rules"][0]["apiVersions"] == ["v1", "v1beta1"]
    assert found["deployments.apps"]["rules"][0]["apiVersions"] == ["v1"]


def test_a_status_is_only_updated(compiled, policy, rule):
    both = rule("", "pods/status", "CREATE", "UPDATE", "DELETE")
    assert set(entries(compiled(policy("p", [{**both, "resources": ["pods/status", "services/status"]}])))) == {
        "pod-claim-status",
        "services-status",
    }


def test_names_stay_names(compiled, policy, rule):
    found = entries(compiled(policy("p", [rule(f"{'x' * 60}.example", "things/status", "UPDATE")], endpoint="mutate")))
    [entry] = found.values()
    tail = entry["clientConfig"]["url"].rpartition("/mutate/")[2]
    assert len(tail) <= 63
    assert entry["name"] == f"{tail}.mutate.allocguard.dev"


@pytest.mark.parametrize("group", ["Bad_Group", "a..b", "-a-", "x.-y", "a b", "é", "_", "k" * 300])
def test_any_group_gives_a_name_that_the_api_server_takes(compiled, policy, rule, group):
    found = entries(compiled(policy("p", [rule(group, "things", "CREATE"), rule(f"{group}x", "things", "CREATE")])))
    assert len(found) == 2
    for entry in found.values():
        tail = entry["clientConfig"]["url"].rpartition("/validate/")[2]
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?", tail)
        assert dns_subdomain(entry["name"]) is None


def test_operations_of_a_row_that_nobody_asks_for_are_left_out(compiled, policy, rule):
    found = entries(compiled(policy("p", [rule("resource.k8s.io", "resourceslices", "CREATE")])))
    assert {tuple(each["rules"][0]["operations"]) for each in found.values()} == {("CREATE",)}
    found = entries(compiled(policy("p", [rule("resource.k8s.io", "resourceclaims", "CREATE", "UPDATE")])))
    assert set(found) == {"new-claims", "resourceclaims.resource.k8s.io"}
    assert found["resourceclaims.resource.k8s.io"]["rules"][0]["operations"] == ["UPDATE"]


def test_a_policy_about_releases_brings_their_entry(compiled, policy, rule):
    rules = [rule("resource.k8s.io", "resourceclaims/status", "UPDATE")]
    found = entries(compiled(policy("p", rules)))
    assert set(found) == {"guarded-allocations", "other-allocations", "claim-releases"}
    assert found["claim-releases"]["failurePolicy"] == "Ignore"


def test_our_own_group_and_the_servers_own_are_never_registered(compiled, policy, rule):
    never = [
        rule("allocguard.dev", "driverrollouts", "*"),
        rule("authorization.k8s.io", "subjectaccessreviews", "CREATE"),
        rule("coordination.k8s.io", "leases", "UPDATE"),
        rule("*", "*", "*"),
    ]
    revision = compiled(policy("p", never))
    groups = {group for entry in entries(revision).values() for each in entry["rules"] for group in each["apiGroups"]}
    assert groups == {"", "resource.k8s.io", "rbac.authorization.k8s.io"}
    told = unregistered(revision)
    assert len(told) == 4
    assert told[0] == "p: allocguard.dev is not registered: it is our own"
    assert told[3] == "p: * is registered for the guard's own resources only; name the others"


def test_own_conditions_are_narrowed_and_can_be_left_out(revision):
    assert entries(revision)["new-pods"]["matchConditions"][0]["name"] == "policies"
    assert "matchConditions" not in entries(revision, narrow=False)["new-pods"]
