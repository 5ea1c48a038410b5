import json
import re
from pathlib import Path

import pytest
import yaml

from webhook.facts.narrow_role import narrow_rules
from webhook.kube.rollout import PROFILES
from webhook.registration.configurations import Address, configurations
from webhook.store.policies import read, shipped

SAMPLES = Path(__file__).parents[1] / "cases" / "samples"
GOOD, BROAD, POLICY = (SAMPLES / name for name in ("20-rbac-good.yaml", "21-rbac-too-broad.yaml", "22-vap-slices.yaml"))
GOLDEN = Path(__file__).parent / "golden" / "rbac"
RBAC, DRA = "rbac.authorization.k8s.io", "resource.k8s.io"
DRIVER, ACCOUNT = "gpu.example.com", "gpu-system/gpu-plugin"


def dra(resources, *verbs, names=()):
    named = {"resourceNames": list(names)} if names else {}
    return {"apiGroups": [DRA], "resources": resources.split(), "verbs": list(verbs), **named}


def role(name, *rules, kind="ClusterRole", **metadata):
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": {"name": name, **metadata}, "rules": list(rules)}


def binding(name, of, *subjects, namespace=""):
    kind = "RoleBinding" if namespace else "ClusterRoleBinding"
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    named = [{"kind": "ServiceAccount", "namespace": "gpu-system", "name": "gpu-plugin"}]
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": of}
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": kind,
        "metadata": metadata,
        "roleRef": reference,
        "subjects": list(subjects) or named,
    }


def rollout(profile="NodeLocal", driver=DRIVER):
    writers = [{"namespace": "gpu-system", "serviceAccount": "gpu-plugin", "profile": profile}]
    metadata, spec = {"name": driver}, {"writers": writers}
    return {"apiVersion": "allocguard.dev/v1alpha1", "kind": "DriverRollout", "metadata": metadata, "spec": spec}


NARROW = role("gpu-plugin", *narrow_rules("NodeLocal", [DRIVER], ["patch"], True))
WIDE = role(
    "gpu-plugin",
    dra("resourceslices", "*"),
    dra("resourceclaims/status resourceclaims/binding", "patch"),
    dra("resourceclaims/driver", "associated-node:patch", "arbitrary-node:patch"),
)


@pytest.fixture
def lint(run, tmp_path, monkeypatch):
    """Runs `rbac lint` on a file of objects (none: without FILES); gives exit code, output and what was told."""
    monkeypatch.chdir(tmp_path)

    def lint(*objects, options=()):
        files = []
        if objects:
            Path("roles.yaml").write_text(yaml.safe_dump_all(objects, sort_keys=False))
            files = ["roles.yaml"]
        return run("rbac", "lint", *files, *options)

    return lint


@pytest.fixture
def found(lint):
    """The findings by (kind, rule)."""

    def found(*objects, options=()):
        ran = lint(*objects, options=("-o", "json", *options))
        assert ran.out, ran.err
        return {(each["kind"], each["rule"]): each for each in json.loads(ran.out)["findings"]}

    return found


@pytest.fixture
def scope(lint):
    """The scope of an account as JSON."""

    def scope(*objects, options=(), account=ACCOUNT):
        ran = lint(*objects, options=("--for-serviceaccount", account, "-o", "json", *options))
        assert ran.out, ran.err
        return json.loads(ran.out)

    return scope


@pytest.mark.parametrize("output", ["txt", "json", "github"])
@pytest.mark.parametrize("what", ["lint", "scope"])
def test_what_is_printed_is_what_the_golden_files_hold(run, monkeypatch, what, output):
    """In tests/cli/golden/rbac: `allocguard rbac lint roles.yaml --cluster rollout.yaml --at 2026-11-20T09:00:00Z` with
    `-o` of each format, also with `--for-serviceaccount gpu-system/gpu-plugin`.
    """
    monkeypatch.chdir(GOLDEN)
    scoped = ("--for-serviceaccount", ACCOUNT) if what == "scope" else ()
    command = ("lint", "roles.yaml", "--cluster", "rollout.yaml", "--at", "2026-11-20T09:00:00Z", *scoped)
    ran = run("rbac", *command, "-o", output.replace("txt", "text"))
    assert (ran.code, ran.err) == (1, "")
    assert ran.out == (GOLDEN / f"{what}.{output}").read_text()


def test_the_golden_role_to_paste_is_yaml_as_it_stands():
    pasted = yaml.safe_load((GOLDEN / "scope.txt").read_text().partition("\n---\n")[2])
    assert pasted == json.loads((GOLDEN / "scope.json").read_text())["narrowest"][0]


def test_good_roles_are_fine(run):
    ran = run("rbac", "lint", GOOD)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("6 documents: 0 errors, 0 warnings, 0 infos")


def test_each_sample_that_is_too_broad_is_found_for_its_reason_at_its_place(run):
    ran = run("rbac", "lint", BROAD, "-o", "json")
    assert ran.code == 1
    expected = [line.split("\t") for line in (SAMPLES / "expected.tsv").read_text().splitlines()]
    wanted = {(each[3], each[5]) for each in expected if each[0] == BROAD.name}
    findings = json.loads(ran.out)["findings"]
    assert wanted <= {(each["name"], each["rule"]) for each in findings}
    lines = BROAD.read_text().splitlines()
    for each in findings:
        assert each["fix"]
        assert lines[each["line"] - 1].strip()
        assert each["policy"] == "rbac-scope"


def test_whose_a_role_is_may_be_said_by_a_rollout_in_the_cluster(found, tmp_path):
    objects = (WIDE, binding("gpu-plugin", "gpu-plugin"))
    unsaid = found(*objects)
    assert ("ClusterRole", "rbac-arbitrary-node") not in unsaid
    (tmp_path / "rollouts.yaml").write_text(yaml.safe_dump(rollout()))
    said = found(*objects, options=("--cluster", "rollouts.yaml"))
    assert said["ClusterRole", "rbac-arbitrary-node"]["severity"] == "error"
    assert ("ClusterRole", "rbac-binding-in-node-plugin") in said


def test_a_rollout_beside_the_roles_has_its_accounts_judged_over_all_of_them(found):
    """Half of what is asked for a status write stands in each role: together they do."""
    halves = (
        role("one", dra("resourceclaims/status", "patch")),
        role("two", dra("resourceclaims/driver", "associated-node:patch", names=[DRIVER])),
    )
    bindings = (binding("one", "one"), binding("two", "two"))
    assert [key for key, each in found(rollout(), *halves, *bindings).items() if each["severity"] == "error"] == []
    one = found(rollout(), halves[0], bindings[0])
    assert ("ServiceAccount", "rbac-missing-driver") in one or ("ClusterRole", "rbac-missing-driver") in one


def test_without_files_all_of_the_cluster_is_judged(found, tmp_path):
    objects = [rollout(), WIDE, binding("gpu-plugin", "gpu-plugin")]
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(objects))
    told = found(options=("--cluster", "all.yaml"))
    finding = told["ClusterRole", "rbac-arbitrary-node"]
    assert (finding["file"], finding["line"]) == ("all.yaml", 0)


@pytest.mark.parametrize("output", ["text", "sarif", "github", "junit", "markdown", "yaml"])
def test_no_format_makes_up_a_line_for_an_object_of_a_cluster(lint, tmp_path, output):
    objects = [rollout(), WIDE, binding("gpu-plugin", "gpu-plugin")]
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(objects))
    ran = lint(options=("--cluster", "all.yaml", "-o", output))
    assert ran.code == 1
    assert "rbac-arbitrary-node" in ran.out
    assert not re.search(r"line 0|line=0|:0:0|\"startLine\": 0|document 1\)", ran.out)


def test_what_a_policy_of_the_api_server_guards_is_not_warned_of(found):
    """Slices cannot be told apart by a role: a policy that can keeps the account, and only that one."""
    account = {"namespace": "granite-system", "serviceAccount": "mem-granite-node-plugin", "profile": "NodeLocal"}
    named = {**rollout(driver="mem.granite.example"), "spec": {"writers": [account]}}
    good = list(yaml.safe_load_all(GOOD.read_text()))
    policy, bound = yaml.safe_load_all(POLICY.read_text())

    def unguarded(*objects):
        return [key for key in found(named, *good, *objects) if key[1] == "rbac-unguarded-slices"]

    assert unguarded() == []
    assert unguarded(policy, bound) == []
    warns = {**bound, "spec": {**bound["spec"], "validationActions": ["Warn"]}}
    assert unguarded(policy, warns) != []


@pytest.mark.parametrize(("audit", "told"), [(False, []), (True, [("ServiceAccount", "rbac-unguarded-slices")])])
def test_a_registration_in_audit_mode_is_no_guard(found, audit, told):
    slices = role("slices", dra("resourceslices", "create", "update", "delete"))
    ours, _ = configurations(read([shipped()]), Address(url="https://guard.example"), b"", audit=audit)
    ran = found(rollout(), slices, binding("slices", "slices"), ours)
    assert [key for key in ran if key[1] == "rbac-unguarded-slices"] == told


def test_the_scope_has_every_rule_with_its_role_and_binding(scope):
    extra = role("extra", dra("resourceclaims/driver", "*"), labels={"collect": "me"})
    collects = {**role("collects"), "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"collect": "me"}}]}}
    group = {"kind": "Group", "name": "system:serviceaccounts:gpu-system"}
    told = scope(
        rollout(), NARROW, extra, collects,
        binding("gpu-plugin", "gpu-plugin"), binding("more", "collects", group, namespace="team"),
    )  # fmt: skip
    assert told["serviceAccount"] == {"namespace": "gpu-system", "name": "gpu-plugin"}
    assert told["profiles"] == [{"driver": DRIVER, "profile": "NodeLocal"}]
    assert told["by"] == "DriverRollout"
    assert len(told["grants"]) == len(NARROW["rules"]) + 1
    [more] = [each for each in told["grants"] if each["namespace"] == "team"]
    assert more["rule"] == dra("resourceclaims/driver", "*")
    assert (more["role"]["name"], more["bound"]["name"]) == ("extra", "collects")
    assert more["binding"] == {"kind": "RoleBinding", "namespace": "team", "name": "more"}
    assert {"rbac-everything", "rbac-shared-subject"} <= {each["rule"] for each in told["findings"]}


def test_the_text_says_who_what_is_wrong_and_what_to_paste(lint):
    ran = lint(rollout(), WIDE, binding("gpu-plugin", "gpu-plugin"), options=("--for-serviceaccount", ACCOUNT))
    assert ran.code == 1
    assert ran.out.startswith(f"ServiceAccount {ACCOUNT}: a NodeLocal writer of {DRIVER}, as a DriverRollout says")
    assert "arbitrary-node" in ran.out
    before, pasted = ran.out.split("\n---\n")
    assert "to replace ClusterRole gpu-plugin" in before
    made = yaml.safe_load(pasted)
    assert made["metadata"]["annotations"] == {
        "allocguard.dev/profile": "NodeLocal",
        "allocguard.dev/driver": DRIVER,
    }
    again = lint(rollout(), made, binding("gpu-plugin", "gpu-plugin"), options=("--for-serviceaccount", ACCOUNT))
    assert again.code == 0
    assert "ClusterRole gpu-plugin is the narrowest role already" in again.out


def test_an_allocator_is_told_to_keep_its_right_to_set_finalizers(lint):
    wide = role("gpu-plugin", dra("resourceclaims/status resourceclaims/binding resourceclaims/driver", "patch"))
    objects = rollout("Allocator"), wide, binding("gpu-plugin", "gpu-plugin")
    ran = lint(*objects, options=("--for-serviceaccount", ACCOUNT))
    assert "patch on resourceclaims for the finalizer" in " ".join(ran.out.split())


@pytest.mark.parametrize(
    ("more", "replaced"),
    [
        ((), True),
        # Whoever else has the role would lose what it needs.
        ((binding("second", "gpu-plugin", {"kind": "User", "name": "dana"}),), False),
        ((binding("second", "gpu-plugin"),), False),
    ],
)
def test_a_role_is_replaced_where_it_is_the_accounts_own(scope, more, replaced):
    told = scope(rollout(), WIDE, binding("gpu-plugin", "gpu-plugin"), *more)
    kinds = [(each["kind"], each["metadata"]["name"]) for each in told["narrowest"]]
    if replaced:
        assert kinds == [("ClusterRole", "gpu-plugin")]
    else:
        assert kinds == [("ClusterRole", "gpu-plugin-narrow"), ("ClusterRoleBinding", "gpu-plugin-narrow")]
        assert told["narrowest"][1]["subjects"] == [
            {"kind": "ServiceAccount", "namespace": "gpu-system", "name": "gpu-plugin"}
        ]


@pytest.mark.parametrize("name", ["cluster-admin", "edit", "system:node"])
def test_a_role_of_kubernetes_is_never_to_be_replaced(scope, name):
    told = scope(rollout(), {**WIDE, "metadata": {"name": name}}, binding("of-the-plugin", name))
    assert [each["metadata"]["name"] for each in told["narrowest"]] == ["gpu-plugin", "gpu-plugin"]


def flat(rules):
    return {
        (group, resource, verb, tuple(rule.get("resourceNames", ())))
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(
    "rules",
    [
        WIDE["rules"],
        [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
        [dra("resourceclaims", "get"), dra("resourceslices", "get", "create")],
        [dra("resourceclaims/status", "update")],
        [dra("resourceclaims/binding", "patch"), dra("deviceclasses resourceclaims", "list", "delete")],
        [],
    ],
)
def test_what_is_printed_is_no_wider_than_the_reference(scope, profile, rules):
    told = scope(rollout(profile), role("gpu-plugin", *rules), binding("gpu-plugin", "gpu-plugin"))
    printed = flat(rule for obj in told["narrowest"] for rule in obj.get("rules", ()))
    assert printed <= flat(narrow_rules(profile, [DRIVER], ["update", "patch"], True))
    held = flat(rules)
    if not any("*" in part for each in held for part in each[:3]):
        # Of reading, and of slices, nothing that it does without today.
        assert {each for each in printed if "/" not in each[1]} <= held


CLAIMS, REPORT = (
    dra("resourceclaims", "get", "delete"),
    (dra("resourceclaims/status", "patch"), dra("resourceclaims/driver", "associated-node:patch", names=[DRIVER])),
)


def placed(objects):
    """What the bindings among ``objects`` grant: namespace (empty: everywhere), resource and verb."""
    rules = {each["metadata"]["name"]: each["rules"] for each in objects if "rules" in each}
    return {
        (bound["metadata"].get("namespace", ""), resource, verb)
        for bound in objects
        if "roleRef" in bound
        for _, resource, verb, _ in flat(rules[bound["roleRef"]["name"]])
    }


def test_what_an_account_has_in_namespaces_alone_is_shown_for_these_alone(scope, lint):
    objects = [
        rollout(),
        role("slices", dra("resourceslices", "create")),
        role("claims", CLAIMS, *REPORT),
        role("reads", dra("resourceclaims", "get")),
        binding("slices", "slices"),
        *(binding("claims", "claims", namespace=each) for each in ("red", "blue")),
        binding("reads", "reads", namespace="green"),
    ]
    told = scope(*objects)
    report = {("resourceclaims/status", "patch"), ("resourceclaims/driver", "associated-node:patch")}
    assert placed(told["narrowest"]) == {
        ("", "resourceslices", "create"),
        *((space, "resourceclaims", "get") for space in ("red", "blue", "green")),
        *((space, *each) for space in ("red", "blue") for each in report),
    }
    # One role for the namespaces in which it is the same; pasted, with the old bindings gone, nothing is left to do.
    kinds = [each["kind"] for each in told["narrowest"]]
    assert kinds == [
        "ClusterRole",
        "ClusterRoleBinding",
        "ClusterRole",
        *["RoleBinding"] * 2,
        "ClusterRole",
        "RoleBinding",
    ]
    text = lint(rollout(), *told["narrowest"], options=("--for-serviceaccount", ACCOUNT)).out
    assert "its roles are the narrowest already" in text


@pytest.mark.parametrize(
    ("status", "driver", "both"),
    [
        ("", "", {""}),
        # A report takes both halves, and is possible where both are.
        ("", "red", {"red"}),
        ("red", "", {"red"}),
        # Who has one half is to have the other, and not elsewhere.
        ("red", None, {"red"}),
        (None, "red", {"red"}),
        (None, "", {""}),
        ("red", "blue", {"red", "blue"}),
    ],
)
def test_a_report_is_shown_where_it_is_possible_today(scope, status, driver, both):
    parts = [(name, where) for name, where in (("status", status), ("driver", driver)) if where is not None]
    rules = dict(zip(("status", "driver"), REPORT, strict=True))
    told = scope(
        rollout(),
        *(role(name, rules[name]) for name, _ in parts),
        *(binding(name, name, namespace=where) for name, where in parts),
    )
    objects = told["narrowest"]
    if [each["kind"] for each in objects] == ["ClusterRole"]:
        objects = [*objects, binding("own", objects[0]["metadata"]["name"])]
    found = placed(objects)
    assert {where for where, resource, _ in found if resource == "resourceclaims/status"} == both
    assert {where for where, resource, _ in found if resource == "resourceclaims/driver"} == both


def test_an_allocator_within_a_namespace_is_shown_the_status_there_alone(scope):
    allocates = role("allocates", dra("resourceclaims/binding", "patch"), dra("resourceslices", "list"))
    status = role("status", dra("resourceclaims/status", "patch"), dra("resourceclaims", "get", "list"))
    bound = binding("allocates", "allocates"), binding("status", "status", namespace="red")
    told = scope(rollout("Allocator"), allocates, status, *bound)
    assert placed(told["narrowest"]) == {
        ("", "resourceslices", "list"),
        ("", "resourceclaims/binding", "patch"),
        ("red", "resourceclaims", "get"),
        ("red", "resourceclaims", "list"),
        ("red", "resourceclaims/status", "patch"),
    }


def test_an_allocator_is_shown_of_each_object_what_it_has_of_that(scope):
    allocates = role("a", dra("resourceclaims", "get", "watch"), dra("resourceslices", "list"))
    told = scope(rollout("Allocator"), allocates, binding("a", "a"))
    assert flat(told["narrowest"][0]["rules"]) == flat(allocates["rules"])
    # Within a namespace a right to allocate is none, and no reason for one everywhere.
    inside = role("a", dra("resourceclaims/binding", "patch"), dra("resourceclaims", "list"))
    told = scope(rollout("Allocator"), inside, binding("a", "a", namespace="red"))
    assert placed(told["narrowest"]) == {("red", "resourceclaims", "list")}


@pytest.mark.parametrize("profile", PROFILES)
def test_a_writer_without_any_right_is_shown_none(lint, profile):
    text = lint(rollout(profile), options=("--for-serviceaccount", ACCOUNT)).out
    assert "no role is shown: it has none of the rights" in " ".join(text.split())


@pytest.mark.parametrize(
    ("obj", "rule"),
    [
        (role("r", {"apiGroup": [DRA], "resources": ["resourceclaims/driver"], "verbs": ["*"]}), "unknown-field"),
        ({**role("r"), "rules": {"apiGroups": [DRA]}}, "decode"),
        ({**role("r"), "rules": [{"apiGroups": DRA, "verbs": ["*"]}]}, "decode"),
        ({**binding("b", "r"), "subjects": {"kind": "User", "name": "x"}}, "decode"),
        ({**rollout(), "spec": {"writer": []}}, "unknown-field"),
    ],
)
def test_what_does_not_decode_is_not_right(lint, found, obj, rule):
    """It would count as absent, and grant nothing."""
    assert (obj["kind"], rule) in found(obj)
    assert lint(obj).code == 1
    told = lint(obj, options=("--for-serviceaccount", ACCOUNT))
    assert told.code == 2
    assert f"/{rule}: " in told.err
    assert re.search(r"roles.yaml:\d+:\d+: ", told.err)


def test_an_account_of_which_nobody_says_what_it_is_for_gets_no_role(lint, scope):
    plain = role("gpu-plugin", dra("resourceclaims/driver", "associated-node:patch"))
    told = scope(plain, binding("gpu-plugin", "gpu-plugin"))
    assert (told["profiles"], told["by"], told["narrowest"]) == ([], "", [])
    text = lint(plain, binding("gpu-plugin", "gpu-plugin"), options=("--for-serviceaccount", ACCOUNT)).out
    assert "the narrowest role is not known" in " ".join(text.split())


def test_an_account_without_any_right_is_told(lint):
    ran = lint(rollout(), options=("--for-serviceaccount", "gpu-system/other"))
    assert "has no right of its own" in ran.out
    assert ran.code == 0


def test_what_every_account_has_is_counted_not_listed(lint):
    everybody = {"kind": "Group", "name": "system:authenticated"}
    discovery = role("system:discovery", {"nonResourceURLs": ["/api"], "verbs": ["get"]})
    ran = lint(
        rollout(), NARROW, binding("gpu-plugin", "gpu-plugin"),
        discovery, binding("system:discovery", "system:discovery", everybody),
        options=("--for-serviceaccount", ACCOUNT),
    )  # fmt: skip
    assert "and 1 rule that every account has (system:discovery)" in ran.out
    assert "/api" not in ran.out


@pytest.mark.parametrize("output", ["sarif", "junit", "github", "markdown"])
def test_findings_of_a_scope_come_in_the_other_formats_too(lint, output):
    options = ("--for-serviceaccount", ACCOUNT, "-o", output)
    ran = lint(rollout(), WIDE, binding("gpu-plugin", "gpu-plugin"), options=options)
    assert ran.code == 1
    assert "rbac-arbitrary-node" in ran.out


@pytest.mark.parametrize(
    "value", ["gpu-plugin", "gpu-system/", "/x", "a/b/c", "Gpu/x", "system:serviceaccount:gpu-system"]
)
def test_an_account_is_a_namespace_and_a_name(lint, value):
    ran = lint(NARROW, options=("--for-serviceaccount", value))
    assert ran.code == 2
    assert "is no NAMESPACE/NAME of a ServiceAccount" in ran.err


def test_an_account_may_be_given_as_its_user_name(scope):
    told = scope(rollout(), NARROW, account="system:serviceaccount:gpu-system:gpu-plugin")
    assert told["serviceAccount"] == {"namespace": "gpu-system", "name": "gpu-plugin"}


# Bad input


def test_files_without_a_role_are_told(lint, run):
    ran = run("rbac", "lint", SAMPLES / "01-nodes.yaml")
    assert ran.code == 2
    assert "has no role, no binding and no DriverRollout" in ran.err
    missing = run("rbac", "lint", "nothing.yaml")
    assert missing.code == 2
    assert missing.err.count("\n") == 1


def test_a_role_with_thousands_of_rules_has_a_few_findings_of_each_rule(found):
    many = [
        dra("resourceclaims/driver", "arbitrary-node:patch", names=[f"d{number}.example"]) for number in range(5000)
    ]
    annotations = {"allocguard.dev/profile": "NodeLocal", "allocguard.dev/driver": DRIVER}
    told = found(role("large", *many, annotations=annotations))
    assert "more like it" in " ".join(each["message"] for each in told.values())


def test_roles_that_collect_each_other_end(scope):
    def collecting(name, label, other):
        selector = {"clusterRoleSelectors": [{"matchLabels": {other: "x"}}]}
        return {**role(name, labels={label: "x"}), "aggregationRule": selector}

    told = scope(
        rollout(), collecting("a", "a", "b"), collecting("b", "b", "a"), binding("a", "a"),
        role("c", dra("pods", "get"), labels={"a": "x"}),
    )  # fmt: skip
    assert [each["role"]["name"] for each in told["grants"]] == ["c"]


def test_a_binding_to_a_role_that_is_not_there_yet_is_a_warning(lint):
    ran = lint(rollout(), binding("gpu-plugin", "to-come"), options=("-o", "json"))
    [finding] = [each for each in json.loads(ran.out)["findings"] if each["kind"] == "ClusterRoleBinding"]
    assert finding["severity"] == "warning"
    assert ran.code == 0


@pytest.mark.parametrize(
    "broken",
    [
        {"rules": "all"},
        {"rules": [None, "x", {"verbs": "patch", "resources": {"a": 1}}]},
        {"rules": None},
        {"aggregationRule": ["x"]},
        {"metadata": {"name": "broken\nname", "annotations": {"allocguard.dev/driver": ["x"]}}},
        {"metadata": {}},
    ],
)
def test_whatever_stands_in_a_role_is_no_traceback(lint, broken):
    ran = lint({**WIDE, **broken}, rollout(), binding("gpu-plugin", "gpu-plugin"))
    assert ran.code in (0, 1)
    assert "Traceback" not in ran.err


def test_names_with_line_breaks_do_not_break_the_lines(lint):
    odd = {**WIDE, "metadata": {"name": "gpu\n---\nplugin"}}
    odd["rules"] = [dra("resourceclaims/driver\nx", "patch\n- y")]
    made = binding("gpu-plugin", "gpu\n---\nplugin")
    for options in ((), ("--for-serviceaccount", ACCOUNT)):
        ran = lint(rollout(), odd, made, options=options)
        assert "\nx" not in ran.out
        assert "\n- y" not in ran.out


def test_a_role_given_twice_counts_as_the_later_one(found):
    told = found(rollout(), WIDE, NARROW, binding("gpu-plugin", "gpu-plugin"))
    assert ("ClusterRole", "rbac-arbitrary-node") not in told


def test_what_is_told_of_a_role_as_a_whole_is_not_told_of_its_account_again(found):
    status = role("gpu-plugin", dra("resourceclaims/status", "patch"))
    told = found(rollout(), status, binding("gpu-plugin", "gpu-plugin"))
    assert [kind for kind, rule in told if rule == "rbac-missing-driver"] == ["ClusterRole"]


@pytest.mark.parametrize(
    "half", [dra("resourceclaims/status", "patch"), dra("resourceclaims/driver", "arbitrary-node:patch", names=["x"])]
)
def test_the_narrowest_role_has_both_halves_of_a_report_where_the_account_has_one(scope, half):
    told = scope(rollout(), role("gpu-plugin", half), binding("gpu-plugin", "gpu-plugin"))
    assert told["narrowest"][0]["rules"] == [
        dra("resourceclaims/status", "patch"),
        dra("resourceclaims/driver", "associated-node:patch", names=[DRIVER]),
    ]


def test_an_account_that_gets_something_by_what_the_files_hold_is_judged_with_all_that_it_has(found, tmp_path):
    """The right to allocate comes by a group, from a role that another one collects: no object alone shows it."""
    extra = role("extra", dra("resourceclaims/binding", "patch"), labels={"collect": "me"})
    collects = {**role("collects"), "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"collect": "me"}}]}}
    group = {"kind": "Group", "name": "system:serviceaccounts:gpu-system"}
    (tmp_path / "rest.yaml").write_text(yaml.safe_dump_all([rollout(), collects, binding("more", "collects", group)]))
    told = found(extra, options=("--cluster", "rest.yaml"))
    finding = told["ServiceAccount", "rbac-binding-in-node-plugin"]
    assert (finding["namespace"], finding["name"], finding["file"]) == ("gpu-system", "gpu-plugin", "roles.yaml")
    assert finding["message"].startswith("has patch on resourceclaims/binding")
    untouched = found(role("x", dra("resourceclaims", "get")), options=("--cluster", "rest.yaml"))
    assert untouched == {}
