import pytest

from webhook.facts.rbac_survey import Surveyed, survey, whole_survey
from webhook.kube.snapshot import Snapshot

RBAC, DRA, DRIVER = "rbac.authorization.k8s.io", "resource.k8s.io", "gpu.example.com"


def role(name, *rules, **annotations):
    metadata = {"name": name, "annotations": annotations}
    return {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": list(rules)}


def dra(resource, *verbs):
    return {"apiGroups": [DRA], "resources": [resource], "verbs": list(verbs)}


def binding(name, account="plugin"):
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "namespace": "gpu", "name": account}],
    }


ROLLOUT = {
    "apiVersion": "allocguard.dev/v1alpha1",
    "kind": "DriverRollout",
    "metadata": {"name": DRIVER},
    "spec": {"writers": [{"namespace": "gpu", "serviceAccount": "plugin", "profile": "NodeLocal"}]},
}
ANNOTATED = {"allocguard.dev/profile": "NodeLocal", "allocguard.dev/driver": DRIVER}


@pytest.fixture
def known():
    def known(*objects):
        snapshot = Snapshot()
        for obj in objects:
            snapshot = snapshot.put(obj)
        return snapshot

    return known


def unknown(account):
    return None


def test_everything_comes_in_order_with_nothing_wrong_too(known):
    snapshot = known(role("b"), role("a"), binding("a", "x"), ROLLOUT)
    assert list(whole_survey(snapshot, unknown)) == [
        Surveyed("ClusterRole", "", "a"),
        Surveyed("ClusterRole", "", "b"),
        Surveyed("ClusterRoleBinding", "", "a"),
        Surveyed("ServiceAccount", "gpu", "plugin"),
    ]


def test_only_what_is_asked_for_is_judged(known):
    snapshot = known(role("wide", dra("resourceclaims/driver", "*")), role("other", dra("resourceclaims/driver", "*")))
    [found] = survey(snapshot, [snapshot.roles["", "wide"]], [], [], unknown)
    assert found.name == "wide"
    assert "rbac-everything" in {each.rule for each in found.findings}


def test_what_a_role_shows_is_not_told_of_its_account_again(known):
    snapshot = known(role("plugin", dra("resourceclaims/driver", "associated-node:patch")), binding("plugin"), ROLLOUT)
    of_role, _, of_account = whole_survey(snapshot, unknown)
    assert "rbac-driver-without-names" in {each.rule for each in of_role.findings}
    assert "rbac-driver-without-names" not in {each.rule for each in of_account.findings}
    # Without the role beside it the account tells it all.
    [alone] = survey(snapshot, [], [], [("gpu", "plugin")], unknown)
    assert {each.rule for each in of_role.findings} <= {each.rule for each in alone.findings}


@pytest.mark.parametrize(("answer", "warned"), [(False, True), (True, False), (None, False)])
def test_whether_slices_are_guarded_is_asked_of_accounts_of_drivers_alone(known, answer, warned):
    asked = []

    def guarded(account):
        asked.append(account)
        return answer

    slices = role("plugin", dra("resourceslices", "create"))
    snapshot = known(slices, binding("plugin"), role("app", dra("resourceslices", "get")), binding("app", "x"), ROLLOUT)
    found = {each.rule for item in whole_survey(snapshot, guarded) for each in item.findings}
    assert ("rbac-unguarded-slices" in found) is warned
    assert set(asked) == {("gpu", "plugin")}


def test_a_binding_of_an_annotated_role_makes_an_account_one_of_a_drivers(known):
    snapshot = known(role("plugin", dra("resourceslices", "create"), **ANNOTATED), binding("plugin"))
    [found] = survey(snapshot, [], [snapshot.bindings["", "plugin"]], [], lambda account: False)
    assert {each.rule for each in found.findings} == {"rbac-unguarded-slices"}


def test_that_nobody_reports_is_passed_on(known):
    snapshot = known(role("plugin", dra("resourceclaims/status", "patch"), **ANNOTATED))
    rules = {each.rule for item in whole_survey(snapshot, unknown, {DRIVER: False}) for each in item.findings}
    assert "rbac-unused-status" in rules
    rules = {each.rule for item in whole_survey(snapshot, unknown, {DRIVER: True}) for each in item.findings}
    assert "rbac-unused-status" not in rules


def test_an_account_of_several_drivers_is_told_of_once_whatever_binds_it(known):
    other = {**ROLLOUT, "metadata": {"name": "nic.example.com"}}
    bindings = [binding(f"b{n}") for n in range(3)]
    snapshot = known(*(role(each["metadata"]["name"]) for each in bindings), *bindings, ROLLOUT, other)
    told = [(each.kind, found.rule) for each in whole_survey(snapshot, unknown) for found in each.findings]
    assert told == [("ServiceAccount", "rbac-shared-subject")]
