import re
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.kube.documents import Document, load
from webhook.kube.finding import Finding
from webhook.kube.release import Release
from webhook.kube.schema import problems

SLICE = "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\n"
CLAIM = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\n"


def findings(text: str, minor: int = 36) -> list[Finding]:
    (document,) = load(text.encode(), "f.yaml")
    assert isinstance(document, Document)
    return problems(document.value, Release(minor))


def one(text: str, minor: int = 36) -> Finding:
    (finding,) = findings(text, minor)
    return finding


GOOD = [
    SLICE
    + """\
metadata: {name: a, creationTimestamp: 2026-11-19T10:00:00Z, labels: {a: "1"}, annotations: null}
spec:
  driver: cpu.x
  nodeName: n1
  pool: {name: n1, generation: 1, resourceSliceCount: 1}
  devices:
  - name: d0
    attributes: {a: {int: 1}, b: {bool: true}, c: {string: x}, d: {version: 1.0.0}, e: null}
    capacity: {cpus: {value: 31, requestPolicy: {default: 0.5, validRange: {min: 1e3}}}}
  -
""",
    "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: c, resources: {requests: {cpu: ' 1 '}},"
    " livenessProbe: {httpGet: {port: 80}}, readinessProbe: {httpGet: {port: http}}}]}\n",
    "apiVersion: v1\nkind: Secret\ndata: {a: aGk=, b: null}\n",
    CLAIM + "spec: {devices: {config: [{opaque: {driver: d, parameters: {any: [1, {thing: ~}]}}}]}}\n",
    "apiVersion: allocguard.dev/v1alpha1\nkind: AdmissionPolicy\nspec: {whatever: 1}\n",
    "apiVersion: example.com/v1\nkind: ResourceSlice\nspec: 5\n",
    "apiVersion: v1\nkind: PodList\nitems: null\n",
    "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nrules: [{verbs: [get], nonResourceURLs: []}]\n",
]


@pytest.mark.parametrize("minor", [36, 37])
@pytest.mark.parametrize("text", GOOD)
def test_what_the_server_takes_gives_no_finding(text: str, minor: int) -> None:
    assert findings(text, minor) == []


def test_each_release_has_its_own_field() -> None:
    old = SLICE + "spec: {devices: [{name: a, nodeAllocatableResourceMappings: {cpu: {allocationMultiplier: 2}}}]}\n"
    new = SLICE + (
        "spec: {devices: [{name: a, nodeAllocatableResources:"
        " {cpu: {mapping: {capacityKey: cpu.x/cpus, capacityMultiplier: '1'}, overhead: {perPod: 1}}}}]}\n"
    )
    assert findings(old, 36) == []
    assert findings(new, 37) == []
    assert one(new, 36).text("p") == (
        "p/field-from-1.37: spec.devices[0].nodeAllocatableResources: has the field of 1.37, which 1.36 drops, needs "
        "nodeAllocatableResourceMappings; write nodeAllocatableResourceMappings: {cpu: {capacityKey: cpu.x/cpus, "
        'allocationMultiplier: "1"}}; overhead has no counterpart in 1.36'
    )
    assert one(old, 37).text("p") == (
        "p/field-from-1.36: spec.devices[0].nodeAllocatableResourceMappings: has the field of 1.36, which 1.37 drops, "
        "needs nodeAllocatableResources; write nodeAllocatableResources: {cpu: {mapping: "
        '{deviceMultiplier: "2"}}}'
    )
    assert one(new, 36).origin == "apiserver"
    assert one(new, 36).severity == "error"


def test_the_beta_versions_have_the_field_where_they_have_it() -> None:
    beta2 = "apiVersion: resource.k8s.io/v1beta2\nkind: ResourceSlice\n"
    beta1 = "apiVersion: resource.k8s.io/v1beta1\nkind: ResourceSlice\n"
    device = "nodeAllocatableResourceMappings: {cpu: {}}"
    assert findings(f"{beta2}spec: {{devices: [{{name: a, {device}}}]}}\n") == []
    assert findings(f"{beta1}spec: {{devices: [{{name: a, basic: {{{device}}}}}]}}\n") == []
    flat = one(f"{beta1}spec: {{devices: [{{name: a, {device}}}]}}\n")
    assert (flat.rule, flat.fix) == ("unknown-field", "move it into basic")
    nested = one(f"{SLICE}spec: {{devices: [{{name: a, basic: {{{device}}}}}]}}\n")
    assert (nested.rule, nested.fix) == ("unknown-field", "leave basic out, its fields belong to the device")
    assert one(f"{beta1}spec: {{devices: [{{basic: {{{device}}}}}]}}\n", 37).rule == "field-from-1.36"


def test_the_pod_status_of_the_other_release_is_named() -> None:
    pod = "apiVersion: v1\nkind: Pod\nstatus: {nodeAllocatableResourceClaimStatuses: [{resourceClaimName: c, %s}]}\n"
    old, new = pod % "resources: {cpu: 1}", pod % "mapping: [{name: cpu, quantity: 1}]"
    assert findings(old, 36) == []
    assert findings(new, 37) == []
    assert (one(old, 37).rule, one(old, 37).needs) == ("field-from-1.36", "a field of 1.37 (mapping, overhead)")
    assert (one(new, 36).rule, one(new, 36).needs) == ("field-from-1.37", "a field of 1.36 (resources)")


def test_an_entry_in_the_other_shape_is_named() -> None:
    text = SLICE + "spec: {devices: [{nodeAllocatableResourceMappings: {cpu: {mapping: {deviceMultiplier: 2}}}}]}\n"
    assert one(text).rule == "field-from-1.37"
    assert one(text).path == "spec.devices[0].nodeAllocatableResourceMappings[cpu].mapping"
    assert one(text).fix == 'write {allocationMultiplier: "2"}'
    text = SLICE + "spec: {devices: [{nodeAllocatableResources: {cpu: {allocationMultiplier: 2}}}]}\n"
    assert (one(text, 37).rule, one(text, 37).fix) == ("field-from-1.36", 'write {mapping: {deviceMultiplier: "2"}}')


WRITTEN = {
    36: '{name: NAME, nodeAllocatableResourceMappings: {cpu: {allocationMultiplier: "2"}}}',
    37: '{name: NAME, nodeAllocatableResources: {cpu: {mapping: {deviceMultiplier: "2"}}}}',
}


@pytest.mark.parametrize("minor", [36, 37])
@pytest.mark.parametrize(
    ("text", "path"),
    [
        (
            "resourceSlice: {nodeAllocatableResourceMappings: {cpu: {allocationMultiplier: 2}}}\n",
            "resourceSlice.nodeAllocatableResourceMappings",
        ),
        ("ResourceSlice: {cpu: {allocationMultiplier: 2}}\n", "ResourceSlice"),
        ("nodeAllocatableResourceMappings: {cpu: 2}\n", "nodeAllocatableResourceMappings"),
        (
            "kind: \nslices: [{x: {nodeAllocatableResources: {cpu: {mapping: {deviceMultiplier: 2}}}}}]\n",
            "slices[0].x.nodeAllocatableResources",
        ),
        (
            SLICE + "resourceSlice: {nodeAllocatableResourceMappings: {cpu: 2}}\n",
            "resourceSlice.nodeAllocatableResourceMappings",
        ),
        (
            SLICE + "nodeAllocatableResourceMappings: {cpu: {allocationMultiplier: 2}}\n",
            "nodeAllocatableResourceMappings",
        ),
        (
            SLICE + "spec: {nodeAllocatableResources: {cpu: {allocationMultiplier: 2}}}\n",
            "spec.nodeAllocatableResources",
        ),
        (
            SLICE + "spec: {pool: {nodeAllocatableResourceMappings: [{resourceName: cpu, allocationMultiplier: 2}]}}\n",
            "spec.pool.nodeAllocatableResourceMappings",
        ),
        (SLICE + "spec: {devices: [{cpu: {allocationMultiplier: 2}}]}\n", "spec.devices[0].cpu"),
        (SLICE + "spec: {devices: [{allocationMultiplier: 2}]}\n", "spec.devices[0].allocationMultiplier"),
        (
            SLICE + "spec: {devices: [{capacity: {c: {allocationMultiplier: 2}}}]}\n",
            "spec.devices[0].capacity[c].allocationMultiplier",
        ),
        (CLAIM + "spec: {nodeAllocatableResourceMappings: {cpu: 2}}\n", "spec.nodeAllocatableResourceMappings"),
    ],
)
def test_the_sketch_of_articles_is_shown_where_it_belongs(text: str, path: str, minor: int) -> None:
    finding = one(text, minor)
    assert (finding.rule, finding.path, finding.origin) == ("field-from-article", path, "apiserver")
    assert finding.fix == (
        "write apiVersion: resource.k8s.io/v1, kind: ResourceSlice, spec: {devices: [" + WRITTEN[minor] + "]}"
    )


@pytest.mark.parametrize(
    ("value", "suffix", "fix"),
    [
        ("cpu: 2", "[cpu]", 'write cpu: {allocationMultiplier: "2"}'),
        ("memory: 4Gi", "[memory]", 'write memory: {allocationMultiplier: "4Gi"}'),
        ("cpu: [1]", "[cpu]", 'write cpu: {allocationMultiplier: "1"}'),
    ],
)
def test_a_bare_number_in_the_place_of_an_entry_is_shown_written_out(value: str, suffix: str, fix: str) -> None:
    finding = one(SLICE + f"spec: {{devices: [{{nodeAllocatableResourceMappings: {{{value}}}}}]}}\n")
    assert finding.rule == "field-from-article"
    assert finding.path == "spec.devices[0].nodeAllocatableResourceMappings" + suffix
    assert finding.fix == fix


def test_a_list_of_mappings_is_shown_as_a_map() -> None:
    entries = "[{resourceName: cpu, allocationMultiplier: '2'}, {resourceName: memory, capacityKey: size}]"
    finding = one(SLICE + f"spec: {{devices: [{{nodeAllocatableResourceMappings: {entries}}}]}}\n")
    assert (finding.rule, finding.path) == ("mapping-is-list", "spec.devices[0].nodeAllocatableResourceMappings")
    assert finding.fix == (
        'write nodeAllocatableResourceMappings: {cpu: {allocationMultiplier: "2"}, '
        'memory: {capacityKey: size, allocationMultiplier: "1"}}'
    )
    assert one(SLICE + "spec: {devices: [{nodeAllocatableResources: []}]}\n", 37).rule == "mapping-is-list"


def test_a_multiplier_that_is_no_quantity() -> None:
    finding = one(
        SLICE + "spec: {devices: [{nodeAllocatableResourceMappings: {memory: {allocationMultiplier: 8 GB}}}]}\n"
    )
    assert finding.rule == "multiplier-not-quantity"
    assert finding.path == "spec.devices[0].nodeAllocatableResourceMappings[memory].allocationMultiplier"
    assert finding.message == (
        "has the text '8 GB', which has the unknown suffix ' GB' (write G (1000³) or Gi (1024³)), "
        'needs a quantity ("2", "500m", "4Gi")'
    )


def test_a_quantity_that_only_the_guard_refuses_is_the_guards() -> None:
    finding = one("apiVersion: v1\nkind: Pod\nspec: {overhead: {cpu: 1e400000000}}\n")
    assert (finding.rule, finding.origin, finding.path) == ("decode", "guard", "spec.overhead[cpu]")


def test_a_request_in_the_form_of_v1beta1() -> None:
    text = "spec: {devices: {requests: [{name: a, count: 2, deviceClassName: c}, {name: b, exactly: {}}]}}\n"
    finding = one(CLAIM + text)
    assert (finding.rule, finding.path, finding.needs) == (
        "request-shape",
        "spec.devices.requests[0].deviceClassName",
        "exactly:",
    )
    assert finding.fix == "write exactly: {count: 2, deviceClassName: c}"
    beta = one("apiVersion: resource.k8s.io/v1beta1\nkind: ResourceClaim\n" + text)
    assert (beta.rule, beta.path) == ("unknown-field", "spec.devices.requests[1].exactly")
    assert beta.fix == "leave exactly out, its fields belong to the request"


@pytest.mark.parametrize(
    ("text", "rule", "path", "fix"),
    [
        (SLICE + "spec: {Driver: x}\n", "unknown-field", "spec.Driver", "write driver"),
        (SLICE + "spec: {devises: []}\n", "unknown-field", "spec.devises", "write devices"),
        (SLICE + "driver: x\n", "unknown-field", "driver", "move it into spec"),
        (SLICE + "spec: {qqqq: 1}\n", "unknown-field", "spec.qqqq", "remove it"),
        (SLICE + "spec: {skipNodeOperations: []}\n", "field-from-1.37", "spec.skipNodeOperations", ""),
        (SLICE + "spec: []\n", "decode", "spec", ""),
        (SLICE + "spec: {devices: {a: {}}}\n", "decode", "spec.devices", ""),
        (SLICE + "spec: {devices: [x]}\n", "decode", "spec.devices[0]", ""),
        (SLICE + "spec: {devices: [{attributes: [1]}]}\n", "decode", "spec.devices[0].attributes", ""),
        (
            SLICE + "spec: {devices: [{attributes: {a: 1}}]}\n",
            "decode",
            "spec.devices[0].attributes[a]",
            "write a: {int: 1}",
        ),
        (
            SLICE + "spec: {devices: [{attributes: {a: b}}]}\n",
            "decode",
            "spec.devices[0].attributes[a]",
            "write a: {string: b}",
        ),
        (
            SLICE + "spec: {devices: [{attributes: {a: no}}]}\n",
            "decode",
            "spec.devices[0].attributes[a]",
            "write a: {bool: false}",
        ),
        (
            SLICE + "spec: {devices: [{capacity: {a: 8}}]}\n",
            "decode",
            "spec.devices[0].capacity[a]",
            'write a: {value: "8"}',
        ),
        (SLICE + "spec: {nodeName: no}\n", "decode", "spec.nodeName", "put it in quotes"),
        (SLICE + "spec: {nodeName: 017}\n", "decode", "spec.nodeName", "put it in quotes"),
        (SLICE + "spec: {allNodes: 'true'}\n", "decode", "spec.allNodes", ""),
        (SLICE + "spec: {pool: {generation: 1.5}}\n", "decode", "spec.pool.generation", ""),
        (SLICE + "spec: {pool: {generation: '1'}}\n", "decode", "spec.pool.generation", ""),
        (SLICE + "spec: {pool: {generation: true}}\n", "decode", "spec.pool.generation", ""),
        (SLICE + "spec: {pool: {generation: 9223372036854775808}}\n", "decode", "spec.pool.generation", ""),
        (SLICE + "metadata: {labels: {a: 1}}\n", "decode", "metadata.labels[a]", "put it in quotes"),
        (SLICE + "metadata: {creationTimestamp: 2026-11-19}\n", "decode", "metadata.creationTimestamp", ""),
        (SLICE + "metadata: {creationTimestamp: '2026-13-01T00:00:00Z'}\n", "decode", "metadata.creationTimestamp", ""),
        ("apiVersion: v1\nkind: Secret\ndata: {a: 'x y'}\n", "decode", "data[a]", ""),
        ('apiVersion: v1\nkind: Secret\ndata: {a: "é"}\n', "decode", "data[a]", ""),
        (
            "apiVersion: v1\nkind: Pod\nspec: {containers: [{livenessProbe: {httpGet: {port: no}}}]}\n",
            "decode",
            "spec.containers[0].livenessProbe.httpGet.port",
            "",
        ),
        ("kind: ResourceSlice\n", "decode", "apiVersion", "write apiVersion: resource.k8s.io/v1"),
        ("apiVersion: 1\nkind: Pod\n", "decode", "apiVersion", "write apiVersion: v1"),
        ("apiVersion: v1\n", "decode", "kind", ""),
        ("apiVersion: v1\nkind: ResourceClaim\n", "decode", "apiVersion", "write apiVersion: resource.k8s.io/v1"),
        (
            "apiVersion: resource.k8s.io/v1alpha2\nkind: DeviceClass\n",
            "decode",
            "apiVersion",
            "write apiVersion: resource.k8s.io/v1",
        ),
        ("apiVersion: resource.k8s.io/v1\nkind: resourceslice\n", "decode", "kind", "write kind: ResourceSlice"),
        ("apiVersion: resource.k8s.io/v1\nkind: ResourceSlize\n", "decode", "kind", "write kind: ResourceSlice"),
        ("apiVersion: resource.k8s.io/v9\nkind: Nothing\n", "decode", "kind", ""),
        ("apiVersion: v1\nkind: PodList\nitems: {}\n", "decode", "items", ""),
    ],
)
def test_what_strict_decoding_refuses(text: str, rule: str, path: str, fix: str) -> None:
    finding = one(text)
    assert (finding.rule, finding.path, finding.fix) == (rule, path, fix)
    assert finding.origin == "apiserver"
    assert finding.message.startswith("has ")


def test_a_kind_that_only_the_other_release_serves() -> None:
    rule = "apiVersion: resource.k8s.io/v1\nkind: DeviceTaintRule\n"
    assert findings(rule, 37) == []
    assert one(rule, 36).fix == "write apiVersion: resource.k8s.io/v1alpha3"


def test_a_document_without_type_says_both() -> None:
    assert [finding.path for finding in findings("a: 1\n")] == ["kind", "apiVersion"]
    shaped = findings("spec: {devices: [{nodeAllocatableResourceMappings: {cpu: {}}}]}\n")
    assert [finding.rule for finding in shaped] == ["decode", "decode"]


def test_every_problem_is_reported_in_one_go() -> None:
    text = SLICE + "spec: {driver: 1, devices: [{name: 2, foo: 3}, {capacity: {c: {value: 1K}}}]}\n"
    assert [finding.path for finding in findings(text)] == [
        "spec.driver",
        "spec.devices[0].name",
        "spec.devices[0].foo",
        "spec.devices[1].capacity[c].value",
    ]


def test_the_object_is_left_as_it_was() -> None:
    obj: dict[str, Any] = {"resourceSlice": {"nodeAllocatableResourceMappings": {"cpu": {"overhead": {"perPod": 1}}}}}
    before = repr(obj)
    problems(obj, Release(37))
    assert repr(obj) == before


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"mapping": value, "overhead": [value]}
    return value


def test_values_without_bounds_are_no_traceback() -> None:
    nested = deep(12)
    for _ in range(600):
        nested = [nested]
    for value in (nested, 10**5000, "x" * 10**6, float("inf"), {1: 2}):
        for key in ("nodeAllocatableResources", "nodeAllocatableResourceMappings", "cpu", "basic", "name"):
            obj = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "spec": {"devices": [{key: value}]}}
            for minor in (36, 37):
                assert all(len(finding.text("p")) < 2000 for finding in problems(obj, Release(minor)))
        assert problems({"resourceSlice": value, "x": value}, Release(36))


KEYS = st.sampled_from(
    [
        *("apiVersion", "kind", "metadata", "spec", "devices", "requests", "exactly", "basic", "name", "labels", "cpu"),
        *(
            "nodeAllocatableResourceMappings",
            "nodeAllocatableResources",
            "mapping",
            "overhead",
            "capacityKey",
            "status",
        ),
        *("allocationMultiplier", "deviceMultiplier", "capacity", "value", "resourceSlice", "items", "deviceClassName"),
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.sampled_from(["1Gi", "Pod"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=15,
)
TYPES = st.sampled_from(
    [
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"},
        {"apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceSlice"},
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"},
        {"apiVersion": "v1", "kind": "Pod"},
        {},
    ]
)


@given(TYPES, st.dictionaries(KEYS, VALUES, max_size=4), st.sampled_from([36, 37]))
def test_any_json_gives_findings_with_paths_on_one_line(kind: dict[str, str], obj: dict[str, Any], minor: int) -> None:
    for finding in problems({**obj, **kind}, Release(minor)):
        assert finding.path
        assert "\n" not in finding.text("p")
        assert re.fullmatch(r"[a-z0-9.-]+", finding.rule)


def test_the_tables_are_read_only_when_they_are_needed() -> None:
    code = "import webhook.kube.schema as s; print(s._table.cache_info().currsize)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "0\n"
