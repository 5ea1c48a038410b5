import pytest

from webhook.kube import labels

HAS = {"zone": "a", "canary": "enabled"}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({}, True),
        ({"matchLabels": {"zone": "a"}}, True),
        ({"matchLabels": {"zone": "b"}}, False),
        ({"matchLabels": {"zone": "a", "other": "x"}}, False),
        ({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}, True),
        ({"matchExpressions": [{"key": "other", "operator": "In", "values": ["a"]}]}, False),
        ({"matchExpressions": [{"key": "other", "operator": "NotIn", "values": ["a"]}]}, True),
        ({"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]}, False),
        ({"matchExpressions": [{"key": "zone", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}, False),
        ({"matchExpressions": [{"key": "zone", "operator": "Almost", "values": ["a"]}]}, False),
        ({"matchExpressions": [None]}, False),
        ({"matchLabels": {"zone": "a"}, "matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}, False),
    ],
)
def test_a_selector_matches_as_the_api_server_says(selector: dict, expected: bool) -> None:
    assert labels.matches(selector, HAS) is expected


@pytest.mark.parametrize(
    ("selector", "paths"),
    [
        ({"matchLabels": {"example.org/zone": "a"}}, []),
        (7, ["s"]),
        ({"matchLabel": {}}, ["s.matchLabel"]),
        ({"matchLabels": [], "matchExpressions": {}}, ["s.matchLabels", "s.matchExpressions"]),
        ({"matchLabels": {"bad key": "a", "zone": True}}, ["s.matchLabels[bad key]", "s.matchLabels[zone]"]),
        ({"matchExpressions": [7]}, ["s.matchExpressions[0]"]),
        (
            {"matchExpressions": [{"key": None, "operator": "x"}]},
            [f"s.matchExpressions[0].{n}" for n in ("key", "operator")],
        ),
        ({"matchExpressions": [{"key": "a", "operator": "In"}]}, ["s.matchExpressions[0].values"]),
        ({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}, ["s.matchExpressions[0].values"]),
        ({"matchExpressions": [{"key": "a", "operator": "Exists", "extra": 1}]}, ["s.matchExpressions[0].extra"]),
    ],
)
def test_every_problem_of_a_selector_has_its_path(selector: object, paths: list[str]) -> None:
    assert [finding.path for finding in labels.problems(selector, "s")] == paths


@pytest.mark.parametrize("selector", [{"matchLabels": "a=b"}, {"matchLabels": []}, {"matchExpressions": {}}])
def test_a_selector_of_a_wrong_type_matches_nothing(selector: dict) -> None:
    assert not labels.matches(selector, {"a": "b"})
