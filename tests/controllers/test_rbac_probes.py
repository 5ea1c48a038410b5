import asyncio

import pytest

from webhook.cluster.access_reviews import AccessReviews
from webhook.controllers.rbac_probes import OTHER, too_much
from webhook.facts.rbac_profile import Holder

GPU, FABRIC = "gpu.example.com", "fabric.example.com"


class Server:
    """Allows what ``allows`` says of the attributes."""

    def __init__(self, allows=lambda asked: False):
        self.allows, self.asked = allows, []

    async def create(self, path, obj, **params):
        asked = obj["spec"]["resourceAttributes"]
        self.asked.append(asked)
        assert obj["spec"]["user"] == "system:serviceaccount:team:writer"
        return {"status": {"allowed": self.allows(asked), "reason": "RBAC: by ClusterRole x"}}


def probed(server, **profiles):
    named = {name.replace("_", "."): profile for name, profile in profiles.items()}
    return asyncio.run(too_much(AccessReviews(server), Holder(named, "", ("team", "writer"))))


LOCAL, MULTI, ALLOCATES = {"gpu_example_com": "NodeLocal"}, {"fabric_example_com": "MultiNode"}, {"x_y": "Allocator"}


def asks_for(server):
    return {(each["verb"], f"{each['resource']}/{each['subresource']}", each["name"]) for each in server.asked}


def test_a_node_local_writer_is_asked_about_every_node_other_drivers_and_allocations():
    server = Server()
    assert probed(server, **LOCAL) == []
    driver = "resourceclaims/driver"
    both = [f"{prefix}-node:{verb}" for prefix in ("associated", "arbitrary") for verb in ("update", "patch")]
    assert asks_for(server) == {
        ("*", driver, ""),
        *((verb, driver, OTHER) for verb in both),
        *((f"arbitrary-node:{verb}", driver, GPU) for verb in ("update", "patch")),
        *((verb, "resourceclaims/binding", "") for verb in ("update", "patch")),
    }
    assert {each["namespace"] for each in server.asked} == {""}


def test_who_may_write_from_any_node_is_not_asked_about_that_nor_an_allocator_about_allocations():
    multi, allocates = Server(), Server()
    probed(multi, **MULTI)
    probed(allocates, **ALLOCATES)
    assert FABRIC not in {name for *_, name in asks_for(multi)}
    assert "resourceclaims/binding" in {what for _, what, _ in asks_for(multi)}
    assert "resourceclaims/binding" not in {what for _, what, _ in asks_for(allocates)}


@pytest.mark.parametrize(
    ("rule", "allows"),
    [
        ("rbac-everything", lambda asked: asked["verb"] == "*"),
        ("rbac-driver-without-names", lambda asked: asked["name"] == OTHER),
        ("rbac-arbitrary-node", lambda asked: asked["name"] == GPU),
        ("rbac-binding-in-node-plugin", lambda asked: asked["subresource"] == "binding"),
    ],
)
def test_each_yes_is_one_finding_that_names_who_allows_it_and_how_to_see_the_narrowest_role(rule, allows):
    [finding] = probed(Server(allows), **LOCAL)
    assert (finding.rule, finding.severity) == (rule, "error")
    assert "RBAC: by ClusterRole x" in finding.has
    assert finding.needs
    assert "--for-serviceaccount team/writer" in finding.fix


def test_whoever_may_do_everything_has_all_of_them():
    assert len(probed(Server(lambda asked: True), **LOCAL)) == 4
