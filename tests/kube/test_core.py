from fractions import Fraction

import pytest

from webhook.kube.core import read_node, read_pod, read_topology


def test_a_claim_named_directly_joins_by_the_spec_and_a_template_by_the_status() -> None:
    pod = read_pod(
        {
            "spec": {
                "resourceClaims": [
                    {"name": "a", "resourceClaimName": "named"},
                    {"name": "b", "resourceClaimTemplateName": "t"},
                    {"name": "c", "resourceClaimTemplateName": "t"},
                ]
            },
            "status": {"resourceClaimStatuses": [{"name": "b", "resourceClaimName": "p-b-x1"}, {"name": "c"}]},
        }
    )
    assert pod.claim_names == {"a": "named", "b": "p-b-x1"}


def test_requests_default_to_limits() -> None:
    pod = read_pod({"spec": {"containers": [{"name": "m", "resources": {"limits": {"cpu": "500m"}}}]}})
    assert pod.containers[0].requests == {"cpu": Fraction(1, 2)}


def test_pod_level_limits_give_pod_level_requests() -> None:
    pod = read_pod({"spec": {"resources": {"limits": {"cpu": "3"}, "requests": {"memory": "1Gi"}}}})
    assert pod.pod_requests == {"cpu": 3, "memory": 2**30}
    assert read_pod({"spec": {}}).pod_requests is None


def test_users_of_a_claim_are_named_once_in_spec_order() -> None:
    pod = read_pod(
        {
            "spec": {
                "initContainers": [{"name": "i", "restartPolicy": "Always", "resources": {"claims": [{"name": "c"}]}}],
                "containers": [
                    {
                        "name": "m",
                        "resources": {"claims": [{"name": "c", "request": "a"}, {"name": "c", "request": "b"}]},
                    }
                ],
            }
        }
    )
    assert pod.users("c") == ("i", "m")
    assert pod.init_containers[0].sidecar


def test_node_readiness_is_unknown_without_a_condition() -> None:
    assert read_node({}).ready is None
    assert read_node({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}).ready is False


def test_zones_of_a_node_resource_topology() -> None:
    topology = read_topology(
        {
            "metadata": {"name": "n1"},
            "zones": [
                {
                    "name": "node-0",
                    "type": "Node",
                    "resources": [{"name": "cpu", "capacity": "32", "allocatable": "31"}],
                },
                {"name": "socket-0", "type": "Socket", "resources": []},
            ],
        }
    )
    assert topology.zones == {0: {"cpu": 31}}


@pytest.mark.parametrize("broken", [None, [], 7, "x", {"metadata": [], "spec": 7, "status": "x", "zones": {}}])
def test_any_json_gives_models(broken: object) -> None:
    assert read_pod(broken).key == "/"
    assert read_node(broken).allocatable == {}
    assert read_topology(broken).zones == {}
