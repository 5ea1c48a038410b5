import pytest

from webhook.kube.claims import allocated_node, read_allocation, read_claim, read_template

SELECTOR = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}


def test_one_metadata_name_term_names_the_node() -> None:
    assert allocated_node(SELECTOR) == "n1"


@pytest.mark.parametrize(
    "selector",
    [
        None,
        {},
        {"nodeSelectorTerms": []},
        {"nodeSelectorTerms": SELECTOR["nodeSelectorTerms"] * 2},
        {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]}]},
        {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["a"]}]}]},
        {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "kubernetes.io/hostname"}], **SELECTOR["nodeSelectorTerms"][0]}
            ]
        },
        {"nodeSelectorTerms": [None]},
    ],
)
def test_anything_else_names_no_single_node(selector: object) -> None:
    assert allocated_node(selector) == ""


def test_prioritized_alternatives_are_named_main_slash_sub() -> None:
    claim = read_claim(
        {
            "spec": {
                "devices": {
                    "requests": [
                        {"name": "engine", "firstAvailable": [{"name": "a", "deviceClassName": "x"}, {"name": "b"}]},
                        {"name": "one", "exactly": {"deviceClassName": "y", "count": 2, "adminAccess": True}},
                    ]
                }
            }
        }
    )
    engine, one = claim.groups
    assert [a.name for a in engine.alternatives] == ["engine/a", "engine/b"]
    assert engine.prioritized
    assert (one.alternatives[0].count, one.alternatives[0].admin, one.alternatives[0].class_name) == (2, True, "y")


def test_v1beta1_requests_are_flat() -> None:
    claim = read_claim(
        {"spec": {"devices": {"requests": [{"name": "r", "deviceClassName": "x", "allocationMode": "All"}]}}}
    )
    assert claim.groups[0].alternatives[0].mode == "All"


def test_a_template_reads_as_the_claim_it_gives() -> None:
    template = {
        "metadata": {"name": "t", "namespace": "n"},
        "spec": {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "x"}}]}}},
    }
    claim = read_template(template)
    assert (claim.key, claim.groups[0].name, claim.allocation) == ("n/t", "r", None)


def test_the_identity_of_an_allocation_is_its_time_or_its_results() -> None:
    rows = [{"request": "r", "driver": "d", "pool": "p", "device": "x", "shareID": "1"}]
    timed = read_allocation({"allocationTimestamp": "2026-11-20T09:00:00Z", "devices": {"results": rows}})
    bare = read_allocation({"devices": {"results": rows}})
    other = read_allocation({"devices": {"results": [{**rows[0], "shareID": "2"}]}})
    assert timed is not None
    assert bare is not None
    assert other is not None
    assert timed.identity == "2026-11-20T09:00:00Z"
    assert bare.identity != other.identity


def test_consumed_capacity_that_is_no_quantity_is_named() -> None:
    allocation = read_allocation({"devices": {"results": [{"consumedCapacity": {"a": "2", "b": "x y"}}]}})
    assert allocation is not None
    assert allocation.results[0].consumed == {"a": 2}
    assert allocation.results[0].unreadable == ("b",)


@pytest.mark.parametrize(
    "status", [None, 7, {"allocation": 7}, {"reservedFor": {"a": 1}}, {"allocation": {"devices": 1}}]
)
def test_any_json_gives_a_claim(status: object) -> None:
    assert read_claim({"status": status, "spec": [], "metadata": None}).id == "/"
