import pytest

from webhook import cel
from webhook.cel.values import TypeValue
from webhook.policy.patching import applied, operations

POD = {"metadata": {"name": "p"}, "spec": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "x"}]}}


@pytest.mark.parametrize(
    ("operation", "spec"),
    [
        ({"op": "add", "path": "/spec/hostNetwork", "value": True}, {**POD["spec"], "hostNetwork": True}),
        (
            {"op": "add", "path": "/spec/tolerations/-", "value": {"key": "y"}},
            {**POD["spec"], "tolerations": [{"key": "x"}, {"key": "y"}]},
        ),
        ({"op": "replace", "path": "/spec/nodeSelector", "value": {}}, {**POD["spec"], "nodeSelector": {}}),
        ({"op": "remove", "path": "/spec/nodeSelector"}, {"tolerations": [{"key": "x"}]}),
        ({"op": "test", "path": "/spec/nodeSelector/a", "value": "b"}, POD["spec"]),
        (
            {"op": "copy", "from": "/spec/nodeSelector/a", "path": "/spec/nodeSelector/c~1d"},
            {**POD["spec"], "nodeSelector": {"a": "b", "c/d": "b"}},
        ),
        (
            {"op": "move", "from": "/spec/nodeSelector", "path": "/spec/overhead"},
            {"tolerations": [{"key": "x"}], "overhead": {"a": "b"}},
        ),
    ],
)
def test_every_operation_changes_a_copy(operation, spec) -> None:
    before = repr(POD)
    assert applied(POD, operations([operation], "p"))["spec"] == spec
    assert repr(POD) == before


def test_operations_keep_their_own_members_and_copies_of_values() -> None:
    value = {"a": (1, 2.5, None)}
    found = operations([{"op": "add", "path": "/x", "value": value, "from": "/y", "note": "z"}], "p")
    assert found == [{"op": "add", "path": "/x", "value": {"a": [1, 2.5, None]}}]
    value["a"] = ()
    assert found[0]["value"]["a"] == [1, 2.5, None]


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ({"op": "add"}, "p has no list"),
        (["x"], "p[0] has something else"),
        ([{"path": "/x"}], "p[0].op has None, needs add"),
        ([{"op": "append", "path": "/x"}], "p[0].op has 'append'"),
        ([{"op": ["add"], "path": "/x"}], "p[0].op has ['add']"),
        ([{"op": "remove"}], "p[0].path has None"),
        ([{"op": "remove", "path": ""}], "p[0].path has ''"),
        ([{"op": "remove", "path": 7}], "p[0].path has 7"),
        ([{"op": "move", "path": "/x"}], "p[0].from has None"),
        ([{"op": "add", "path": "/x"}], "p[0] has no value, needs one for add"),
        ([{"op": "add", "path": "/x", "value": b"x"}], "p[0].value has a value that is no JSON"),
        ([{"op": "add", "path": "/x", "value": float("nan")}], "p[0].value has a value that is no JSON"),
        ([{"op": "add", "path": "/x", "value": 1 << 64}], "p[0].value has a value that is no JSON"),
        ([{"op": "add", "path": "/x", "value": {1: 2}}], "p[0].value has a value that is no JSON"),
        ([{"op": "add", "path": "/x", "value": [TypeValue("int")]}], "p[0].value has a value that is no JSON"),
    ],
)
def test_what_is_no_patch(value, part) -> None:
    with pytest.raises(cel.EvaluationError) as caught:
        operations(value, "p")
    assert part in str(caught.value)


def test_a_value_without_end_is_refused() -> None:
    value: list[object] = []
    for _ in range(1000):
        value = [value]
    with pytest.raises(cel.EvaluationError, match="nested deeper than 64 levels"):
        operations([{"op": "add", "path": "/x", "value": value}], "p")


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "/spec/affinity/nodeAffinity", "value": {}},
        {"op": "add", "path": "/spec/tolerations/7", "value": {}},
        {"op": "add", "path": "/spec/tolerations/x", "value": {}},
        {"op": "add", "path": "/spec/tolerations/01", "value": {}},
        {"op": "add", "path": "/metadata/name/x", "value": {}},
        {"op": "add", "path": "/spec/~2", "value": {}},
        {"op": "remove", "path": "/spec/nothing"},
        {"op": "remove", "path": "/spec/tolerations/-"},
        {"op": "replace", "path": "/spec/nothing", "value": 1},
        {"op": "test", "path": "/spec/nodeSelector/a", "value": "c"},
        {"op": "test", "path": "/spec/nothing", "value": None},
        {"op": "move", "from": "/spec", "path": "/spec/x"},
        {"op": "copy", "from": "/nothing", "path": "/x"},
    ],
)
def test_a_patch_that_does_not_apply_is_an_evaluation_error(operation) -> None:
    with pytest.raises(cel.EvaluationError, match="the patch does not apply: "):
        applied(POD, operations([operation], "p"))


def test_there_is_nothing_to_change_on_delete() -> None:
    with pytest.raises(cel.EvaluationError, match="no new object"):
        applied(None, [{"op": "remove", "path": "/x"}])
