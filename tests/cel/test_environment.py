"""Compiling against facts: types, names, places, laziness."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from webhook import cel
from webhook.cel.quantity import Quantity

DEVICE = cel.StructType(
    "Device",
    fields={
        "name": cel.Field(cel.STRING, "name"),
        "costs": cel.Field(cel.map_of(cel.STRING, cel.QUANTITY), "costs"),
    },
)
CLAIM = cel.StructType(
    "Claim",
    fields={
        "node": cel.Field(cel.STRING, "node_name"),
        "poolProblems": cel.Field(cel.list_of(cel.STRING), "pool_problems"),
        "devices": cel.Field(cel.list_of(DEVICE), "devices"),
        "matrix": cel.Field(cel.list_of(cel.list_of(cel.INT)), "matrix"),
    },
)
ENV = cel.Environment({"object": cel.DYN, "claim": CLAIM})


def claim(**fields: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"node_name": "kiln-01", "pool_problems": [], "devices": [], "matrix": [], **fields})


def run(expression: str, **names: Any) -> object:
    return cel.compile(expression, ENV).evaluate(names, cel.Budget())


@pytest.mark.parametrize(
    ("expression", "place", "message", "hint"),
    [
        ("claim.poolProblem", (1, 7), "has no field `poolProblem` in Claim", "did you mean `poolProblems`?"),
        ("claim.poolproblems == []", (1, 7), "has no field `poolproblems` in Claim", "did you mean `poolProblems`?"),
        ("has(claim.nod)", (1, 11), "has no field `nod` in Claim", "did you mean `node`?"),
        ("claim.?nod", (1, 8), "has no field `nod` in Claim", "did you mean `node`?"),
        (
            "true &&\n  claim.devices.all(d, d.nam == '')",
            (2, 26),
            "has no field `nam` in Device",
            "did you mean `name`?",
        ),
        ("clam.node", (1, 1), "has the unknown name `clam`", "did you mean `claim`?"),
        ("object.a && quantitty('1')", (1, 13), "has the unknown name `quantitty`", "did you mean `quantity`?"),
        ("claim.node.startWith('a')", (1, 12), "has the unknown name `startWith`", "did you mean `startsWith`?"),
        ("math.gretest(1, 2)", (1, 1), "has the unknown name `math.gretest`", "did you mean `math.greatest`?"),
        ("sets.contain([1], [1])", (1, 1), "has the unknown name `sets.contain`", "did you mean `sets.contains`?"),
        ("object.map(x)", (1, 8), "has `map` with arguments that it does not take", ""),
        ("claim.node + 1", (1, 12), "has `+` of (string, int), which does not take these types", ""),
        ("claim.matrix[0][0] + 'a'", (1, 20), "has `+` of (int, string), which does not take these types", ""),
        ("claim.node.x", (1, 11), "has a field of string, which has no fields", ""),
        ("[1, 'a']", (1, 5), "has string among elements of type int", "wrap each in dyn()"),
        ("duration('1d')", (1, 9), "has the duration '1d', needs one like 1h30m or 1.5s", ""),
    ],
)
def test_a_mistake_is_named_where_it_is(expression: str, place: tuple[int, int], message: str, hint: str) -> None:
    with pytest.raises(cel.CelError) as raised:
        cel.compile(expression, ENV)
    error = raised.value
    assert ((error.line, error.column), error.message, error.hint) == (place, message, hint)


def test_quantities_are_not_compared_with_numbers() -> None:
    with pytest.raises(cel.CelError, match="compare quantities with quantities"):
        cel.compile("claim.devices[0].costs['cpu'] > 3", ENV)


def test_all_mistakes_are_known() -> None:
    with pytest.raises(cel.CelError) as raised:
        cel.compile("a && b", ENV)
    assert [other.message for other in raised.value.others] == ["has the unknown name `b`"]


@pytest.mark.parametrize(
    ("expression", "expected", "kind"),
    [
        ("claim.node == 'a'", cel.BOOL, cel.BOOL),
        ("object.enabled", cel.BOOL, cel.DYN),
        ("claim.devices", cel.list_of(DEVICE), cel.list_of(DEVICE)),
        ("claim.devices.map(d, d.costs['cpu'])", None, cel.list_of(cel.QUANTITY)),
        ("claim.devices[0]", DEVICE, DEVICE),
        ("claim.matrix", None, cel.list_of(cel.list_of(cel.INT))),
        ("claim.?node", None, cel.optional_of(cel.STRING)),
    ],
)
def test_the_type_of_an_expression(expression: str, expected: cel.Type | None, kind: cel.Type) -> None:
    assert cel.compile(expression, ENV, expected).type == kind


def test_another_type_than_expected_is_refused() -> None:
    with pytest.raises(cel.CelError, match="has type int, needs bool"):
        cel.compile("1", ENV, cel.BOOL)
    program = cel.compile("object.enabled", ENV, cel.BOOL)
    assert program.evaluate({"object": {"enabled": True}}, cel.Budget()) is True
    with pytest.raises(cel.EvaluationError, match="has string, needs bool"):
        program.evaluate({"object": {"enabled": "yes"}}, cel.Budget())


def test_fields_are_read_from_their_attributes() -> None:
    given = claim(devices=[SimpleNamespace(name="g0", costs={"cpu": Quantity(2)})], matrix=[[7]])
    assert run("claim.node", claim=given) == "kiln-01"
    assert run("claim.devices.exists(d, d.costs.cpu == quantity('2000m'))", claim=given) is True
    assert run("claim.matrix[0][0] + 1", claim=given) == 8
    assert run("claim.?node.orValue('x')", claim=given) == "kiln-01"


def test_a_field_without_a_value_is_null() -> None:
    given = claim(node_name=None)
    assert run("has(claim.node)", claim=given) is False
    assert run("claim.?node.orValue('none')", claim=given) == "none"
    assert run("claim == null ? 'no claim' : 'claim'", claim=None) == "no claim"
    with pytest.raises(cel.EvaluationError, match="no such field: node of null"):
        run("claim.node", claim=None)


def test_a_field_that_the_value_lacks_is_a_bug_and_no_answer() -> None:
    with pytest.raises(AttributeError):
        run("claim.node == '' || true", claim=object())


def test_only_what_is_read_is_computed_and_once() -> None:
    calls = []

    def compute() -> object:
        calls.append(1)
        return claim()

    names = {"object": {"a": True}, "claim": cel.Lazy(compute)}
    program = cel.compile("object.a || claim.node == ''", ENV)
    assert program.names == {"object", "claim"}
    assert program.evaluate(names, cel.Budget()) is True
    assert not calls
    twice = cel.compile("claim.node + claim.node + object.b", ENV)
    assert twice.evaluate({**names, "object": {"b": "!"}}, cel.Budget()) == "kiln-01kiln-01!"
    assert calls == [1]
    assert run("claim.node", claim=names["claim"]) == "kiln-01"
    assert calls == [1]


def test_a_lazy_dynamic_value_is_read_through_a_chain() -> None:
    lazy = cel.Lazy(lambda: {"spec": {"nodes": ["a"]}})
    assert run("object.spec.nodes[0]", object=lazy) == "a"
    assert run("has(object.spec) && object.spec.nodes.size() == 1", object=lazy) is True


def test_an_error_of_a_lazy_value_is_kept() -> None:
    calls = []

    def fail() -> object:
        calls.append(1)
        raise cel.EvaluationError("no such key: x", 3, 4)

    lazy = cel.Lazy(fail)
    for _ in range(2):
        with pytest.raises(cel.EvaluationError, match="3:4: no such key: x"):
            run("object.a", object=lazy)
    assert calls == [1]
    assert run("object.a || true", object=lazy) is True


def test_variables_are_a_record_of_lazy_values() -> None:
    calls = []

    def compute() -> object:
        calls.append(1)
        return Quantity(3)

    kind = cel.StructType("variables", fields={"q": cel.Field(cel.QUANTITY, "q"), "n": cel.Field(cel.INT, "n")})
    env = ENV.extend({"variables": kind})
    variables = cel.Record({"q": cel.Lazy(compute), "n": 1})
    program = cel.compile("variables.n == 1 || variables.q.isLessThan(quantity('1'))", env)
    assert program.evaluate({"variables": variables}, cel.Budget()) is True
    assert not calls
    program = cel.compile("variables.q.add(variables.q).asInteger()", env)
    assert program.evaluate({"variables": variables}, cel.Budget()) == 6
    assert calls == [1]
    with pytest.raises(cel.CelError, match="has no field `m` in variables"):
        cel.compile("variables.m", env)


def test_a_name_without_a_value_is_an_error_only_when_read() -> None:
    assert run("true || claim.node == ''") is True
    with pytest.raises(cel.EvaluationError, match="has no value for `claim`"):
        run("claim.node")


def test_a_variable_of_a_macro_hides_a_root_name() -> None:
    assert run("[{'matrix': 1}].map(claim, claim.matrix)", claim=claim()) == [1]


def test_two_structs_of_one_name_are_refused() -> None:
    other = cel.StructType("Claim", fields={})
    with pytest.raises(ValueError, match="two struct types named Claim"):
        cel.compile("true", ENV.extend({"other": other}))


def test_structs_may_refer_to_themselves() -> None:
    fields: dict[str, cel.Field] = {"name": cel.Field(cel.STRING, "name")}
    node = cel.StructType("Tree", fields=fields)
    fields["children"] = cel.Field(cel.list_of(node), "children")
    leaf = SimpleNamespace(name="leaf", children=[])
    program = cel.compile("tree.children.all(c, c.children.size() == 0)", cel.Environment({"tree": node}))
    assert program.evaluate({"tree": SimpleNamespace(name="root", children=[leaf])}, cel.Budget()) is True


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("object.a.b", "1:9: no such key: b"),
        ("object.a.c.d\n  == 1", "1:9: no such key: c"),
        ("object.s.x", "1:9: no such field: x of string"),
        ("1 +\n object.s", "1:3: no such overload: + of (int, string)"),
        ("object.l[5]", "1:9: index out of bounds: 5"),
        ("quantity(object.s)", "1:9: has the quantity 'text', which is not a number with an optional suffix"),
        ("object.l.all(x, x.y)", "1:18: no such field: y of int"),
        ("object.s", ""),
    ],
)
def test_an_error_of_evaluation_has_its_place(expression: str, message: str) -> None:
    names = {"object": {"a": {}, "s": "text", "l": [1]}}
    program = cel.compile(expression, ENV)
    if not message:
        assert program.evaluate(names, cel.Budget()) == "text"
        return
    with pytest.raises(cel.EvaluationError) as raised:
        program.evaluate(names, cel.Budget())
    assert str(raised.value) == message


def test_a_function_that_is_not_there() -> None:
    expression = "[1].includes(1)"
    assert cel.compile(expression, ENV).evaluate({}, cel.Budget()) is True
    without = cel.Environment({}, without=frozenset({"includes"}))
    for env in (without, without.extend({"x": cel.DYN})):
        with pytest.raises(cel.CelError):
            cel.compile(expression, env)


def test_literals_of_one_type_unless_mixing_is_asked_for() -> None:
    mixed = "[{'op': 'add', 'value': {'a': [1, true]}}, {'op': 'remove'}]"
    with pytest.raises(cel.CelError, match="among elements of type"):
        cel.compile(mixed, ENV)
    program = cel.compile(mixed, ENV, cel.list_of(cel.map_of(cel.STRING, cel.DYN)), mixing=True)
    assert program.evaluate({}, cel.Budget()) == [{"op": "add", "value": {"a": [1, True]}}, {"op": "remove"}]
