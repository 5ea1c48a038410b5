import pytest

from webhook.registration.needs import may_judge, pushed, takes


@pytest.fixture
def one(compiled, policy, rule):
    """The compiled policy about slices with these match conditions."""

    def make(*expressions, **spec):
        conditions = [{"name": f"c{number}", "expression": text} for number, text in enumerate(expressions)]
        rules = [rule("resource.k8s.io", "resourceslices", "CREATE", "UPDATE")]
        return compiled(policy("p", rules, matchConditions=conditions, **spec)).policies[0]

    return make


@pytest.mark.parametrize(
    ("expression", "may"),
    [
        ("slice.mapped", False),
        ("slice.changed && slice.mapped", False),
        ("slice.mapped && slice.changed", False),
        ("slice.mapped || slice.wasMapped", False),
        ("slice.mapped || slice.changed", True),
        ("!slice.mapped", True),
        ("!(slice.mapped || slice.wasMapped)", True),
        ("!(!slice.mapped)", False),
        ("slice.changed ? slice.mapped : slice.wasMapped", False),
        ("slice.changed ? slice.mapped : true", True),
        ("slice.mapped ? true : slice.changed", True),
        ("slice.mapped ? slice.changed : false", False),
        ("true", True),
        ("false", False),
        ("slice.driver == 'x'", True),
        ("slice.mapped == true", True),
        ("size(slice.digests) > 0 && slice.mapped", False),
    ],
)
def test_conditions_are_settled_by_what_is_implied(one, expression, may):
    implied = {"slice.mapped": False, "slice.wasMapped": False}
    assert may_judge(one(expression), implied) is may
    assert may_judge(one("true", expression), implied) is may
    assert may_judge(one(expression), {}) is True


def test_conditions_without_facts_are_asked_of_the_api_server(one):
    first = one("has(object.spec.nodeName) // bound\n", "request.dryRun == false")
    second = one("has(object.spec.allNodes)", "slice.changed")
    assert pushed("Ignore", [first]) == "(has(object.spec.nodeName) // bound\n\n) && (request.dryRun == false\n)"
    assert pushed("Ignore", [first, second]).endswith(") ||\n(has(object.spec.allNodes)\n)")
    assert pushed("Ignore", [first, first]) == pushed("Ignore", [first])


def test_nothing_is_asked_where_it_would_change_the_answer(one):
    bare, facts = one(), one("slice.changed")
    fine, strict = one("has(object.spec.nodeName)"), one("has(object.spec.nodeName)", failurePolicy="Fail")
    assert pushed("Ignore", [fine]) != ""
    assert pushed("Fail", [fine]) == ""
    for other in (bare, facts, strict):
        assert pushed("Ignore", [other]) == ""
        assert pushed("Ignore", [fine, other]) == ""


def test_rules_name_cells(compiled, policy, rule):
    def asks(*rules):
        return compiled(policy("p", list(rules))).policies[0].policy

    beta = asks(rule("resource.k8s.io", "resourceclaims/status", "UPDATE", version="v1beta1"))
    assert takes(beta, "resource.k8s.io", "resourceclaims/status", "UPDATE")
    assert not takes(beta, "resource.k8s.io", "resourceclaims", "UPDATE")
    every = asks(rule("*", "*", "*"))
    assert takes(every, "", "pods", "CREATE")
    assert not takes(every, "", "pods/status", "UPDATE")
    assert takes(asks(rule("", "pods/*", "*")), "", "pods/status", "UPDATE")
