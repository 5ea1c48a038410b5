"""``writer``: judged by the params of the policy that asks, once for all that have the same."""

from pathlib import Path

import pytest

from webhook.policy.compile import compile_files

POLICIES = Path(__file__).parents[2] / "policies"
ASKS = [{"name": "known", "expression": "writer.kind != 'Unknown'", "messageExpression": "writer.evidence"}]


def found(evaluation):
    return {result.policy: [finding.has for finding in result.findings] for result in evaluation.policies}


def test_each_policy_judges_by_its_own_params(policy, compiled, judge) -> None:
    revision = compiled(
        policy("a", validations=ASKS),
        policy("b", validations=ASKS, params={"schedulers": ["batch"]}),
        policy("c", validations=ASKS, params={"breakGlass": {"groups": ["sre"]}, "headroom": {}}),
        policy("d", validations=ASKS, params={"headroom": 3}),
    )
    evaluation = judge(revision, user="batch")
    stranger = ["batch, somebody the guard does not know"]
    assert found(evaluation) == {"a": stranger, "b": [], "c": stranger, "d": stranger}
    # Two with the same params about writers, and two of their own.
    assert len(evaluation.facts.writers) == 3
    assert found(judge(revision, user="joe", groups=("sre",)))["c"] == []


def test_no_writer_is_made_out_that_nobody_asks_for(policy, compiled, judge) -> None:
    evaluation = judge(compiled(policy(validations=[{"name": "x", "expression": "true"}])), user="jane")
    assert evaluation.facts.writers == ()


def test_what_is_known_of_a_writer(policy, compiled, judge) -> None:
    rollout = {
        "apiVersion": "allocguard.dev/v1alpha1",
        "kind": "DriverRollout",
        "metadata": {"name": "d.example"},
        "spec": {"writers": [{"namespace": "sys", "serviceAccount": "plugin"}]},
    }
    said = (
        "[writer.kind, writer.user, writer.namespace, writer.serviceAccount, writer.node, writer.nodeProblem].join('|')"
    )
    rule = {"name": "x", "expression": "false", "messageExpression": f"{said} + writer.profiles['d.example']"}
    revision = compiled(policy(validations=[rule]))
    user = "system:serviceaccount:sys:plugin"
    extra = {"authentication.kubernetes.io/node-name": ["n1"]}
    (text,) = found(judge(revision, cluster=[rollout], user=user, extra=extra))["p"]
    assert text == f"Driver|{user}|sys|plugin|n1|NodeLocal"
    (text,) = found(judge(revision, cluster=[rollout], user=user))["p"]
    assert text == f"Driver|{user}|sys|plugin||names no node: it is bound to neither a pod nor a nodeNodeLocal"


def test_what_is_no_slice_and_no_claim_status_has_no_problems(policy, compiled, judge) -> None:
    names = ("slice", "claim", "takeover", "pod", "binding", "token", "blob", "wiped")
    rules = [{"name": name, "findings": f"writer.{name}Problems"} for name in names]
    rules.append({"name": "other", "expression": "!writer.driverToken && writer.wiped == []"})
    evaluation = judge(compiled(policy(validations=rules)), user="jane")
    assert [finding for result in evaluation.policies for finding in result.findings] == []


def test_an_allocation_that_takes_statuses_with_it_is_noted_in_the_audit_log(judge) -> None:
    revision = compile_files({"p.yaml": (POLICIES / "claim-writers.yaml").read_bytes()})
    device = {"driver": "d.example", "pool": "n1", "device": "gpu"}
    status = {"allocation": {"devices": {"results": [device]}}, "devices": [device]}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"namespace": "ns", "name": "c"}}
    fields = {"user": "system:kube-scheduler", "sub_resource": "status", "operation": "UPDATE"}
    (result,) = judge(revision, {**claim, "status": {}}, old={**claim, "status": status}, **fields).policies
    assert result.annotations == {"claim-writers.device-statuses-wiped": "d.example"}
    assert [finding.rule for finding in result.findings] == ["device-statuses-wiped"]
    (result,) = judge(
        revision, {**claim, "status": {**status, "devices": []}}, old={**claim, "status": status}, **fields
    ).policies
    assert result.annotations == {}


def test_a_token_of_a_drivers_account(policy, compiled, judge) -> None:
    token = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token["metadata"] = {"namespace": "sys", "name": "plugin"}
    tokens = [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["serviceaccounts/token"]}
    ]
    rules = [{"name": "x", "expression": "!writer.driverToken"}]
    document = policy(validations=rules, matchConstraints={"resourceRules": tokens})
    writers = [{"namespace": "sys", "serviceAccount": "plugin", "profile": "NodeLocal"}]
    named = {"apiVersion": "allocguard.dev/v1alpha1", "kind": "DriverRollout", "metadata": {"name": "d.example"}}
    named["spec"] = {"writers": writers}
    by_params = compiled({**document, "spec": {**document["spec"], "params": {"drivers": {"d.example": writers}}}})
    plain = compiled(document)
    assert [len(found(judge(*case))["p"]) for case in ((plain, token), (by_params, token))] == [0, 1]
    assert len(found(judge(plain, token, cluster=[named]))["p"]) == 1


def test_params_of_a_wrong_shape_do_not_load_where_somebody_asks_who_writes(policy, problems, compiled) -> None:
    account = {"namespace": "sys", "serviceAccount": "p", "profile": "X"}
    wrong = {"schedulers": "batch", "drivers": {"d.example": [account]}}
    assert compiled(policy(validations=[{"name": "x", "expression": "true"}], params=wrong))
    texts = problems(policy(validations=ASKS, params=wrong))
    assert texts == [
        "p.yaml:23:5: spec.params.schedulers: has no list, needs a list of names",
        "p.yaml:28:9: spec.params.drivers[d.example][0].profile: has 'X', needs one of NodeLocal, MultiNode, AnyNode, "
        "Allocator",
    ]


@pytest.mark.parametrize("member", ["matchConditions", "variables", "auditAnnotations"])
def test_wherever_it_asks(policy, problems, member) -> None:
    named = {"key": "k", "valueExpression": "writer.user"} if member == "auditAnnotations" else None
    named = named or {"name": "k", "expression": "writer.user == ''"}
    rules = [{"name": "x", "expression": "true"}]
    (text,) = problems(policy(validations=rules, params={"breakGlass": []}, **{member: [named]}))
    assert "spec.params.breakGlass: has no map" in text
