"""The exported policies, evaluated by our own CEL; tests/e2e/test_vap_twin.py asks the API server the same."""

from collections import Counter
from dataclasses import replace

import pytest
from msgspec import structs

from tests.registration.slice_writes import NOW, World, Write, account, actors, judged, rollout, writers
from webhook.admission.decide import decide
from webhook.kube.names import dns_subdomain
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book
from webhook.policy.compile import compile_object
from webhook.policy.revision import revision_of
from webhook.registration.slice_guards import slice_guards
from webhook.registration.vap import BINDING, POLICY, slice_policies

DRIVERS = [f"{name}.twin.example" for name in ("gpu", "fabric", "nic", "bare", "unknown")]


@pytest.fixture(scope="module")
def world():
    return World(*DRIVERS)


def as_ours(objects):
    """The exported policies as policies of ours, which have the same fields; rules are told by their messages."""
    actions = {
        each["spec"]["policyName"]: each["spec"]["validationActions"] for each in objects if each["kind"] == BINDING
    }
    for each in objects:
        if each["kind"] == POLICY:
            name, spec = each["metadata"]["name"], each["spec"]
            [action] = actions[name]
            validations = [
                {
                    "name": rule["messageExpression"].partition(":")[0].rpartition("/")[2],
                    "expression": rule["expression"],
                    "messageExpression": rule["messageExpression"],
                }
                for rule in spec["validations"]
            ]
            yield compile_object(
                {
                    "apiVersion": "allocguard.dev/v1alpha1",
                    "kind": "AdmissionPolicy",
                    "metadata": {"name": name},
                    "spec": {**spec, "validations": validations, "action": action},
                },
                name,
            )


def test_they_say_what_ours_says(world):
    theirs = revision_of(as_ours(slice_policies(world.snapshot.rollouts, world.policy)))
    ours = revision_of([world.policy])
    counted = Counter()
    for actor in actors():
        for write in world.writes():
            request = write.request(actor)
            verdict, rules = judged(request, ours, world.snapshot)
            found, named = judged(request, theirs, world.snapshot)
            rules = {"slice-by-stranger" if each == "slice-of-other-driver" else each for each in rules}
            assert (found, named) == (verdict, rules), f"{actor} {write}: {rules} {named}"
            counted[found] += 1
    assert min(counted.values()) > 100
    assert set(counted) == {"allow", "warn", "deny"}


def test_each_driver_has_a_policy_of_its_own_and_all_others_have_one(world):
    objects = slice_policies(world.snapshot.rollouts, world.policy)
    bound = {each["metadata"]["name"]: each["spec"] for each in objects if each["kind"] == BINDING}
    assert [each["metadata"]["name"] for each in objects if each["kind"] == POLICY] == list(bound)
    assert {name: spec["validationActions"] for name, spec in bound.items()} == {
        "allocguard-slices.fabric.twin.example": ["Deny"],
        "allocguard-slices.gpu.twin.example": ["Deny"],
        "allocguard-slices.nic.twin.example": ["Deny"],
        "allocguard-slices-of-others": ["Warn"],
    }
    assert all(name == spec["policyName"] for name, spec in bound.items())


def test_a_policy_that_only_warns_or_audits_is_exported_as_such(world):
    for action in ("Warn", "Audit"):
        policy = replace(world.policy, policy=replace(world.policy.policy, action=action))
        objects = slice_policies(world.snapshot.rollouts, policy)
        actions = [each["spec"]["validationActions"] for each in objects if each["kind"] == BINDING]
        assert actions == [[action]] * 4


def test_drivers_that_differ_in_upper_case_alone_have_policies_of_their_own(world):
    named = world.policy.writers.drivers[DRIVERS[2]]
    params = structs.replace(world.policy.writers, drivers={"gpu.example": named, "GPU.example": named})
    objects = slice_policies({}, replace(world.policy, writers=params))
    names = {each["metadata"]["name"] for each in objects}
    assert len(names) == 3
    assert all(dns_subdomain(name) is None for name in names)


def test_names_that_nobody_can_have_stay_text(world):
    """A quotation mark in a file ends no string of an expression."""
    odd = rollout("gpu.example", writers(('a"b\\', "NodeLocal"), ("x\n' + 'y", "MultiNode"), ("a:b", "NodeLocal")))
    snapshot = Snapshot().put(odd)
    theirs = revision_of(as_ours(slice_policies(snapshot.rollouts, world.policy)))
    for name, verdict in (('a"b\\', "allow"), ("x\n' + 'y", "deny"), ("a:b", "deny"), ("other", "deny")):
        request = Write("CREATE", "gpu.example", new="n1").request(account(name, "n1"))
        assert judged(request, theirs, snapshot)[0] == verdict
        assert judged(request, revision_of([world.policy]), snapshot)[0] == verdict


def test_thousands_of_drivers_are_asked_for_in_conditions_of_bounded_length(world):
    snapshot = Snapshot()
    for number in range(1200):
        snapshot = snapshot.put(rollout(f"driver-{number:04}.{'x' * 43}.example", writers(("plugin", "NodeLocal"))))
    objects = slice_policies(snapshot.rollouts, world.policy)
    conditions = objects[-2]["spec"]["matchConditions"]
    assert len(conditions) == 5
    assert max(len(each["expression"]) for each in conditions) < 50_000


def test_the_guard_finds_the_accounts_guarded_by_them(world):
    """As ``rbac lint`` asks, with nothing of ours registered."""
    gpu, fabric, *_ = DRIVERS
    objects = slice_policies(world.snapshot.rollouts, world.policy)
    guards = slice_guards(objects, revision_of([]))
    assert guards.unread == ()
    for name, driver, profile in (("gpu-plugin", gpu, "NodeLocal"), ("fabric", fabric, "MultiNode")):
        assert guards.guarded("acme", name, driver, profile, world.snapshot, NOW)
    assert not slice_guards([], revision_of([])).guarded("acme", "gpu-plugin", gpu, "NodeLocal", world.snapshot, NOW)


@pytest.mark.parametrize(
    ("actor", "write", "rule", "message"),
    [
        (
            account("gpu-plugin", "n1"),
            Write("CREATE", DRIVERS[0], new="n2"),
            "slice-of-other-node",
            "spec.nodeName: has n2, by system:serviceaccount:acme:gpu-plugin on node n1, needs n1",
        ),
        (
            account("gpu-plugin"),
            Write("DELETE", DRIVERS[0], old="n1"),
            "slice-writer-without-node",
            "spec.nodeName: has n1, by system:serviceaccount:acme:gpu-plugin, needs a writer whose node is known: a "
            "token that names one node",
        ),
        (
            account("gpu-plugin", "n1"),
            Write("CREATE", DRIVERS[0], new="all"),
            "slice-of-several-nodes",
            "spec.nodeName: has none, by system:serviceaccount:acme:gpu-plugin, which writes for its own node only, "
            "needs that node",
        ),
        (
            account("fabric"),
            Write("CREATE", DRIVERS[1], new="n1"),
            "slice-not-its-profile",
            "spec.nodeName: has n1, by system:serviceaccount:acme:fabric with profile MultiNode, needs no node name, "
            "or profile AnyNode",
        ),
        (
            account("allocator"),
            Write("CREATE", DRIVERS[0], new="all"),
            "slice-not-its-profile",
            "spec.nodeName: has none, by system:serviceaccount:acme:allocator with profile Allocator, needs a writer "
            "with profile NodeLocal, MultiNode or AnyNode",
        ),
        (
            account("stranger"),
            Write("CREATE", DRIVERS[1], new="all"),
            "slice-by-stranger",
            "spec.driver: has fabric.twin.example, written by system:serviceaccount:acme:stranger, needs one of its "
            "writers: acme/both, acme/fabric; spec.writers of DriverRollout fabric.twin.example names them",
        ),
    ],
)
def test_the_message_says_what_is_wrong(world, actor, write, rule, message):
    theirs = revision_of(as_ours(slice_policies(world.snapshot.rollouts, world.policy)))
    verdict = decide(write.request(actor), "validate", theirs, world.snapshot, Book(), NOW)
    [told] = [each.text.partition(" slice-writers/")[2] for each in verdict.judged]
    assert told == f"{rule}: {message}"
