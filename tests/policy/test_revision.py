import pytest

from webhook.policy.evaluate import FAILED
from webhook.policy.revision import audited

# A rule that is broken, one that fails to evaluate, and a condition that does.
BROKEN = {"validations": [{"name": "r", "expression": "false"}]}
FAILING = {"validations": [{"name": "r", "expression": "object.spec.nothing"}]}
UNMATCHED = {**BROKEN, "matchConditions": [{"name": "c", "expression": "object.spec.nothing"}]}


@pytest.mark.parametrize(("spec", "rule"), [(BROKEN, "r"), (FAILING, FAILED), (UNMATCHED, FAILED)])
@pytest.mark.parametrize("action", ["Deny", "Warn"])
def test_audited_policies_find_the_same_and_do_nothing_about_it(policy, compiled, judge, spec, rule, action) -> None:
    enforced = compiled(policy(action=action, **spec))
    before, after = (judge(revision).policies[0] for revision in (enforced, audited(enforced)))
    assert [finding.rule for finding in after.findings] == [rule]
    assert after.findings == before.findings
    assert (before.action, after.action) == (action, "Audit")


def test_the_time_that_is_spent_refuses_nobody_either(policy, compiled, judge) -> None:
    revision = audited(compiled(policy(**BROKEN)))
    (result,) = judge(revision, expired=lambda: True).policies
    assert (result.action, [finding.rule for finding in result.findings]) == ("Audit", [FAILED])


def test_the_hash_names_the_policies_and_says_that_they_are_audited(policy, compiled) -> None:
    one, other = compiled(policy(**BROKEN)), compiled(policy(**FAILING))
    assert audited(one).hash == f"{one.hash}-audit"
    assert audited(one).hash != audited(other).hash
    assert [compiled.name for compiled in audited(one).policies] == ["p"]
