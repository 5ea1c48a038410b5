from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from webhook.kube.admission import raw_request, read_request
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book
from webhook.policy.compile import PolicyErrors, compile_object
from webhook.policy.evaluate import evaluate
from webhook.policy.revision import Revision, revision_of
from webhook.store.policies import PolicyStore, read, shipped

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
TEXT = """
apiVersion: allocguard.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: NAME}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  validations: [{name: rule, expression: "EXPRESSION"}]
  action: Deny
"""


def write(path: Path, name: str = "one", expression: str = "true") -> Path:
    path.write_text(TEXT.replace("NAME", name).replace("EXPRESSION", expression))
    return path


def looked(store: PolicyStore) -> str:
    store.refresh()
    return store.refresh()


@pytest.mark.parametrize("text", ["", "# to be written\n", "---\n"])
def test_a_file_cut_short_to_nothing_does_not_take_its_policies_out_of_the_set(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "a.yaml")
    write(tmp_path / "b.yaml", "two")
    store = PolicyStore([str(tmp_path)])
    path.write_text(text)
    assert looked(store) == "refused"
    assert [problem.text for problem in store.problems] == [
        f"{path}:1:1: has no document; write an object with apiVersion and kind"
    ]
    assert len(store.revision.policies) == 2
    path.unlink()
    assert looked(store) == "loaded"
    assert [policy.name for policy in store.revision.policies] == ["two"]


def test_the_shipped_set_compiles() -> None:
    assert len(read([shipped()]).policies) > 5


def test_the_shipped_set_is_for_the_guards_own_account_in_whatever_namespace() -> None:
    """What `allocguard-free-claims` takes away it may, beside a guard in another namespace and only there; and a
    recording has these policies as they judged.
    """
    store = PolicyStore([shipped()], namespace="guard")
    ours, others = (f"system:serviceaccount:{each}:allocguard-free-claims" for each in ("guard", "allocguard-system"))
    assert allocating(store.revision, ours) == []
    assert allocating(store.revision, others) == ["allocation-by-stranger"]
    again = revision_of(compile_object(each.policy.document, each.name) for each in store.revision.policies)
    assert again.hash == store.revision.hash != PolicyStore([shipped()]).revision.hash
    assert allocating(again, ours) == []
    # An object in place of it, as a copy that only warns, is for the same account.
    [copied] = [each.policy.document for each in read([shipped()]).policies if each.name == "claim-writers"]
    store.set_objects({"claim-writers": {**copied, "metadata": {"name": "claim-writers", "uid": "1", "generation": 1}}})
    assert store.replaced == ("claim-writers",)
    assert allocating(store.revision, ours) == []


def test_who_is_named_as_an_allocator_stays_so(tmp_path: Path) -> None:
    [document] = [each.policy.document for each in read([shipped()]).policies if each.name == "claim-writers"]
    spec = {**document["spec"], "params": {**document["spec"]["params"], "allocators": ["queue"]}}
    (tmp_path / "a.yaml").write_text(yaml.safe_dump({**document, "spec": spec}))
    revision = PolicyStore([str(tmp_path)], namespace="guard").revision
    assert allocating(revision, "queue") == []
    assert allocating(revision, "system:serviceaccount:guard:allocguard-free-claims") == ["allocation-by-stranger"]
    assert revision.hash == read([str(tmp_path)]).hash


def allocating(revision: Revision, user: str) -> list[str]:
    """The rules that keep ``user`` from clearing an allocation of a driver whose writers are named."""
    writers = [{"namespace": "gpu", "serviceAccount": "plugin", "profile": "NodeLocal"}]
    rollout = {
        "apiVersion": "allocguard.dev/v1alpha1",
        "kind": "DriverRollout",
        "metadata": {"name": "gpu.example"},
        "spec": {"writers": writers},
    }
    result = {"request": "r", "driver": "gpu.example", "pool": "n", "device": "d"}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"namespace": "team", "name": "c"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
    }
    allocated = {**claim, "status": {"allocation": {"devices": {"results": [result]}}}}
    raw = raw_request("UPDATE", {**claim, "status": {}}, allocated, user=user, sub_resource="status")
    judged = evaluate(revision, read_request(raw), "validate", Snapshot().put(rollout), Book(), NOW)
    return [
        each.rule for policy in judged.policies if policy.compiled.name == "claim-writers" for each in policy.findings
    ]


def test_an_edit_is_taken_and_gives_another_revision(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml")
    store = PolicyStore([str(tmp_path)])
    before = store.revision
    assert looked(store) == ""
    write(tmp_path / "a.yaml", expression="1 == 1")
    assert looked(store) == "loaded"
    assert store.revision.hash != before.hash
    write(tmp_path / "b.yaml", "two")
    assert looked(store) == "loaded"
    assert [policy.name for policy in store.revision.policies] == ["one", "two"]


@pytest.mark.parametrize("text", ["kind: [", "", "kind: Pod\n", TEXT.replace("EXPRESSION", "objct == null")])
def test_a_bad_edit_is_refused_and_the_last_good_set_serves(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "a.yaml")
    store = PolicyStore([str(tmp_path)])
    before = store.revision
    path.write_text(text)
    assert looked(store) == "refused"
    assert store.revision is before
    assert store.problems
    write(path)
    assert looked(store) == "loaded"
    assert (store.revision.hash, store.problems) == (before.hash, ())


def test_no_policy_is_no_set(tmp_path: Path) -> None:
    with pytest.raises(PolicyErrors, match="has no policy"):
        PolicyStore([str(tmp_path)])
    path = write(tmp_path / "a.yaml")
    store = PolicyStore([str(tmp_path)])
    path.unlink()
    assert looked(store) == "refused"
    assert len(store.revision.policies) == 1


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.yaml")
    with pytest.raises(PolicyErrors) as caught:
        PolicyStore([str(write(tmp_path / "a.yaml")), missing])
    assert [(p.file, p.message) for p in caught.value.problems] == [
        (missing, "cannot be read: no such file or directory")
    ]


@pytest.mark.parametrize("audit", [False, True])
def test_what_would_be_refused_is_known_also_where_nothing_is_more_than_audited(tmp_path: Path, audit: bool) -> None:
    write(tmp_path / "a.yaml")
    store = PolicyStore([str(tmp_path)], audit)
    assert [each.policy.action for each in store.enforced.policies] == ["Deny"]
    assert [each.policy.action for each in store.revision.policies] == ["Audit" if audit else "Deny"]
    write(tmp_path / "a.yaml", expression="1 == 1")
    assert looked(store) == "loaded"
    assert store.enforced.policies[0].policy.digest == store.revision.policies[0].policy.digest
