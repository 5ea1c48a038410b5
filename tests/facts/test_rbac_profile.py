import pytest

from tests.facts.roles import GPU, binding_object, role_object, rollout, rule, said, world
from webhook.facts import rbac_profile
from webhook.facts.rbac_profile import account_holder, annotated, bound_accounts, holders, listed
from webhook.kube.rbac import read_binding, read_role

OTHER = {"kind": "ServiceAccount", "name": "other", "namespace": "net"}


@pytest.mark.parametrize(
    ("annotations", "profiles", "told"),
    [
        (said("NodeLocal", GPU), {GPU: "NodeLocal"}, "a NodeLocal writer of gpu.example"),
        (
            said("MultiNode", "b.example", "a.example"),
            {"a.example": "MultiNode", "b.example": "MultiNode"},
            "a MultiNode writer of a.example, b.example",
        ),
        (said("Allocator"), {}, "an Allocator writer"),
        # Nothing is wider than what is said.
        (said("", GPU), {GPU: "NodeLocal"}, "a NodeLocal writer of gpu.example"),
        (said("nodelocal", GPU), {GPU: "NodeLocal"}, "a NodeLocal writer of gpu.example"),
    ],
)
def test_whom_annotations_name(annotations, profiles, told) -> None:
    holder = annotated(read_role(role_object(annotations=annotations)))
    assert holder is not None
    assert (holder.profiles, holder.told) == (profiles, told)


def test_a_role_without_annotations_is_for_nobody() -> None:
    assert annotated(read_role(role_object(annotations={"other": "x"}))) is None


def test_no_more_drivers_than_there_may_be() -> None:
    holder = annotated(read_role(role_object(annotations=said("NodeLocal", *(f"d{n}.example" for n in range(100))))))
    assert holder is not None
    assert len(holder.profiles) == rbac_profile.MOST_DRIVERS


def test_an_account_has_the_profiles_that_rollouts_name() -> None:
    snapshot = world(rollout(GPU), rollout("b.example", "MultiNode"), rollout("c.example", "Allocator", "other", "net"))
    holder = account_holder(("gpu", "plugin"), snapshot)
    assert holder is not None
    assert (holder.drivers, holder.allocates, holder.drives, holder.proxy) == (("b.example", GPU), False, True, False)
    other = account_holder(("net", "other"), snapshot)
    assert other is not None
    assert (other.drivers, other.allocates, other.drives) == ((), True, False)
    assert account_holder(("net", "plugin"), snapshot) is None


def test_whom_a_role_is_for() -> None:
    plain, named = role_object(rule("a", "get")), role_object(rule("a", "get"), annotations=said("MultiNode", GPU))
    snapshot = world(rollout(), binding_object("b1"), binding_object("b2", OTHER, namespace="ns"))
    assert holders(read_role(plain), world(rollout())) == ()
    assert [each.account for each in holders(read_role(plain), snapshot)] == [("gpu", "plugin")]
    assert [each.account for each in holders(read_role(named), world(rollout()))] == [("", "")]
    found = [(each.account, each.profiles) for each in holders(read_role(named), snapshot)]
    assert found == [
        (("gpu", "plugin"), {GPU: "NodeLocal"}),
        (("gpu", "plugin"), {GPU: "MultiNode"}),
        (("net", "other"), {GPU: "MultiNode"}),
    ]


def test_no_more_of_a_role_is_looked_at_than_costs_little(monkeypatch) -> None:
    subjects = [{"kind": "ServiceAccount", "name": f"s{n}", "namespace": "ns"} for n in range(9)]
    bindings = [read_binding(binding_object("b", *subjects)), read_binding(binding_object("c", OTHER))]
    assert len(bound_accounts(bindings)) == 10
    monkeypatch.setattr(rbac_profile, "MOST_SUBJECTS", 9)
    assert bound_accounts(bindings) == [("ns", f"s{n}") for n in range(9)]


def test_names_are_listed_in_order_and_not_without_end() -> None:
    assert listed(["b", "a"]) == "a, b"
    assert listed("fedcba") == "a, b, c and 3 more"
