"""What a person reads: from the verdict down to where to look next."""

import json
import shlex

import pytest

from tests.bench import fleet
from webhook.cli.explain_text import render

AT = ("--at", "2026-11-20T09:00:00Z")
SECTIONS = [
    "denied: UPDATE resourceclaims/status studio/batch",
    "what was asked",
    "what the ledger had for node anvil-1",
    "sums",
    "policy claim-allocation (Deny)",
    "policy claim-blobs: does not match, matchConditions: stores-blobs",
    "policy claim-writers: does not match, matchConditions: not-the-clusters-own-work",
    "what would make it fit",
    "where to look next",
    "facts that were read",
]
NODE_FULL = """
what was asked
  by system:kube-scheduler, in review f0000003-0000-4000-8000-000000000003
  judged at validate by revision REVISION
  claim studio/batch (uid c0000003-0000-4000-8000-000000000003)
  pod studio/batch (uid e0000003-0000-4000-8000-000000000003)
  on node anvil-1
  request cores gets cpu.ferrite.example/anvil-1/group-1, share
      5a000003-0000-4000-8000-000000000003, 12 of cpu.ferrite.example/cpus
what the ledger had for node anvil-1
  resource  allocatable  pods  claims  overhead  reserved   free
  cpu                30    12       8         0         0     10
  memory          120Gi  16Gi       0         0         0  104Gi
  zone    resource  capacity  claims  reserved  free
  zone 0  cpu             15       8         0     7
  zone 1  cpu             15       0         0    15
sums
  cpu: 30 allocatable - 12 pods - 8 claims - 12 this claim - 1 this pod = -3, does not fit
    6 pods: pod studio/web-0
    6 pods: pod studio/web-1
    8 claims: claim studio/render, bound: 8 \N{MULTIPLICATION SIGN} 1 of cpu.ferrite.example/anvil-1/group-0, zone 0
      by slice cpu.ferrite.example-anvil-1-k7d2p, generation 2, version 1001, mapping
          sha256:e4812aa69e4934010768218f7da617b761b90093e157e56a7eec39aa831bf79d
    12 this claim: request cores: 12 \N{MULTIPLICATION SIGN} 1 of cpu.ferrite.example/anvil-1/group-1, zone 1
    1 this pod: pod studio/batch
"""
REMEDY = """
what would make it fit
  as things are now no node takes it; 2 nodes with such devices tried: node-overcommit on 1,
      pool-incomplete on 1
  give anvil-1 3 more of cpu
  ask for 3 less of cpu in studio/batch, for anvil-1
  release studio/render, which holds 8 of cpu on anvil-1
where to look next
"""


def test_it_is_read_from_top_to_bottom(run, example):
    options = (example / "reviews" / "06-claim-node-full.yaml", "--cluster", example / "cluster", *AT)
    ran = run("explain", *options)
    lines = ran.out.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == SECTIONS
    revision = json.loads(run("explain", *options, "-o", "json").out)["revision"]
    assert NODE_FULL.replace("REVISION", revision) in ran.out
    assert REMEDY in ran.out
    assert "  passed: rollout, pools, devices, constraints, sharing, siblings, headroom" in lines
    assert "  what to do about it: docs/runbooks/claims-pending.md" in lines
    trace = "c0000003000040008000000000000003"
    assert f"  everything that is decided and charged for it: trace {trace}" in lines


def test_commands_to_look_further_run_as_they_stand(run, example):
    cluster = example / "cluster"
    for review in sorted((example / "reviews").iterdir()):
        tree = json.loads(run("explain", review, "--cluster", cluster, *AT, "-o", "json").out)
        commands = [shlex.split(each["run"]) for each in tree["next"]]
        assert commands
        for name, *arguments in commands:
            assert name == "allocguard"
            ran = run(*arguments, *AT)
            assert (ran.code, ran.err) == (0, ""), arguments
            assert ran.out


def test_findings_that_are_alike_are_one(run, tmp_path):
    review = fleet.slice_review()
    for item in review["request"]["object"]["spec"]["devices"][:20]:
        item["nodeAllocatableResourceMappings"] = {"cpus": {}}
    (tmp_path / "review.json").write_text(json.dumps(review))
    (tmp_path / "cluster.json").write_text(json.dumps({"kind": "List", "items": list(fleet.cluster(1))}))
    ran = run("explain", tmp_path / "review.json", "--cluster", tmp_path / "cluster.json", *AT)
    assert ran.out.count("error key-unknown denies") == 1
    path = "spec.devices[{}].nodeAllocatableResourceMappings[cpus]"
    same = f"the same at {', '.join(path.format(number) for number in range(1, 5))} and 15 more"
    assert same in " ".join(ran.out.split())
    assert "rule mappings: 20 findings" in ran.out
    assert "  slice.mappingProblems: key-unknown (20 times)" in ran.out


def test_what_there_is_no_room_for_is_counted(run, tmp_path):
    review = fleet.allocation_review(2, 3)
    status = review["request"]["object"]["status"]
    status["reservedFor"] = [{"resource": "pods", "name": f"p-{i}", "uid": f"u-{i}"} for i in range(40)]
    status["allocation"]["devices"]["results"] *= 17
    (tmp_path / "review.json").write_text(json.dumps(review))
    (tmp_path / "cluster.json").write_text(json.dumps({"kind": "List", "items": list(fleet.cluster(4))}))
    lines = run("explain", tmp_path / "review.json", "--cluster", tmp_path / "cluster.json", *AT).out.splitlines()
    assert lines[lines.index("  and 8 more pods") - 1].startswith("  pod bench/p-31")
    assert lines[lines.index("  and 2 more devices") - 1].startswith("  request gpu gets")


@pytest.mark.parametrize(
    ("found", "line"),
    [
        ({"fits": 1, "fit": ["b"]}, "  elsewhere: b takes it as things are now"),
        ({"fits": 2, "fit": ["b", "c"]}, "  elsewhere: b, c take it as things are now"),
        ({"fits": 3, "fit": ["b"]}, "  elsewhere: b and 2 more take it as things are now"),
        ({"fits": 1, "fit": ["a"], "here": True}, "  node a takes it now, if it gets other devices there"),
        ({"nodes": 90}, "  88 nodes more with such devices not tried"),
    ],
)
def test_other_nodes_are_named_before_what_would_have_to_change(run, example, found, line):
    options = (example / "reviews" / "06-claim-node-full.yaml", "--cluster", example / "cluster", *AT, "-o", "json")
    tree = json.loads(run("explain", *options).out)
    tree["asked"]["node"] = "a"
    tree["remedy"].update({"smallestChange": [], **found})
    assert line in render(tree).splitlines()


def test_room_on_a_node_does_not_help_against_a_condition_of_a_policy(run, example, tmp_path):
    rule = {"apiGroups": ["resource.k8s.io"], "apiVersions": ["v1"], "operations": ["UPDATE"]}
    spec = {
        "matchConstraints": {"resourceRules": [{**rule, "resources": ["resourceclaims/status"]}]},
        "validations": [{"name": "not-there", "expression": 'claim.node != "anvil-1"', "message": "not there"}],
        "action": "Deny",
    }
    policy = {"apiVersion": "allocguard.dev/v1alpha1", "kind": "AdmissionPolicy", "metadata": {"name": "own"}}
    (tmp_path / "own.yaml").write_text(json.dumps({**policy, "spec": spec}))
    review = example / "reviews" / "05-claim-fits.yaml"
    ran = run("explain", review, "--cluster", example / "cluster", "--policies", tmp_path, *AT)
    assert "  node anvil-1 has room for it, and it is refused there by own/not-there" in ran.out.splitlines()


def test_a_write_nobody_judges_says_so(run, tmp_path):
    made = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}}
    (tmp_path / "x.json").write_text(json.dumps(fleet.review("CREATE", made)))
    (tmp_path / "cluster.json").write_text(json.dumps({"kind": "List", "items": []}))
    ran = run("explain", tmp_path / "x.json", "--cluster", tmp_path / "cluster.json", *AT)
    lines = ran.out.splitlines()
    assert lines[0] == "allowed: CREATE deployments x"
    assert "no policy is about this resource and operation" in lines


def test_a_pod_that_is_made_to_wait_is_told_so(run, tmp_path):
    spec = {"stage": "General", "hold": {"reason": "books half", "by": "x", "since": "2026-11-20T00:00:00Z"}}
    rollout = {"apiVersion": "allocguard.dev/v1alpha1", "kind": "DriverRollout", "spec": spec}
    objects = [each for each in fleet.cluster(4) if each["kind"] != "DriverRollout"]
    objects += [fleet.claim(900), {**rollout, "metadata": {"name": "cpu.bench.example"}}]
    (tmp_path / "cluster.json").write_text(json.dumps({"kind": "List", "items": objects}))
    (tmp_path / "pod.json").write_text(json.dumps(fleet.pod_review(900)))
    options = ("--endpoint", "mutate", "--cluster", tmp_path / "cluster.json", "--kubernetes-version", "1.36", *AT)
    ran = run("explain", tmp_path / "pod.json", *options)
    lines = ran.out.splitlines()
    assert lines[0] == "allowed, to wait: CREATE pods bench/encoder-900"
    assert '  patch: add /spec/schedulingGates: [{"name":"allocguard.dev/claims"}]' in lines
    assert "    error driver-held holds: spec.resourceClaims" in lines
    assert "  mutations: change nothing" in lines
    assert "  its claim cpus: claim-900" in lines
    assert "  as things are now no node takes it; 4 nodes with such devices tried: driver-held on 4" in lines
