"""Values that somebody might write into a field, right and wrong ones, by the kind of the field."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

LABEL: Final = "a" * 63
QUANTITIES: Final[Sequence[Any]] = (
    "0", "1", "2", "3", "4", "8", "12", "16", "64", "128", "1500", "-1", "-4", "+3", "500m", "1500m", "333m", "-500m",
    "1k", "1Ki", "4Gi", "1.5Gi", "80Gi", "1G", "2M", "64Mi", "3Mi", "1e3", "1E3", "12e-1", "1e-3", ".5", "5.", "007",
    "1n", "100u", "0.0000000001", "1.0", "2.50", "9E", "8Ei", "7Ei", "1e30", "1e18", "9223372036854775807",
    "9223372036854775808", "-9223372036854775808", "4611686018427387904", "18446744073709551616", "1000E", " 1", "1 ",
    0, 1, 7, -2, 1.5, 0.25, 1e3, 10**20,
)  # fmt: skip
# Nothing that decodes; a share of the trials is enough, since the server says no more than that it does not.
NO_QUANTITIES: Final[Sequence[Any]] = (
    "", "1K", "1KB", "8 GB", "1Gib", "NaN", "Inf", "0x10", "1_000", "one", "-", "e3", "1e", "1ee3", "٣", "1,5", True,
    [], {}, "1e3Ki", "--1", "1.2.3", "E",
)  # fmt: skip
LABELS: Final = ("a", "x-1", "0", LABEL)
SUBDOMAINS: Final = ("a", "n1", "a.b", "x-1.example.org", f"{LABEL}.{LABEL}.{LABEL}.{'a' * 61}")
NAMES: Final = (
    *LABELS, *SUBDOMAINS, "", "A", "a_b", "-a", "a-", "a..b", ".a", "a.", f"{LABEL}a",
    f"{LABEL}.{LABEL}.{LABEL}.{'a' * 62}", "a/b", "a/b/c", "a//b", "/a", "a/", "é", "a b", "Node_1", "a:b",
    "N1.example.org", "a\tb", "日本", "*", "a\\b",
)  # fmt: skip
QUALIFIED: Final = (
    "cores", "memory", "numaNode", "a", "_", "_x1", "A9", "dra.example.org/cores", "resource.kubernetes.io/numaNode",
    "Dra.Example.org/x", "numa-node", "1a", "", "a.b", "a/b", "a/b/c", "/a", "a/", "a" * 32, "a" * 33, f"{LABEL}/a",
    f"{LABEL}a/a", f"{LABEL}/{'a' * 32}", f"{LABEL}/{'a' * 33}", f"-a/{'b' * 33}", "é", "a b", "a-b.c/d",
    f"{'d' * 100}", f"{'d' * 100}/{'e' * 100}", "a_b/c", "../a",
)  # fmt: skip
LABEL_KEYS: Final = (
    "a", "example.org/a", "a.b_c-d", "A", "", "a/b/c", "/a", "a/", "-a", "a-", f"{LABEL}a", LABEL, "Example.org/a",
    "é", "a b", "kubernetes.io/x", f"{LABEL}/{LABEL}", "a_b/c",
)  # fmt: skip
LABEL_VALUES: Final = ("", "v", "V.1_x-y", LABEL, f"{LABEL}a", "-a", "a-", "a b", "é", "a/b", "1", "true")
VERSIONS: Final = (
    "1.2.3", "0.0.0", "1.2.3-rc.1+b.5", "10.20.30-alpha", "1.2", "1.2.3.4", "v1.2.3", "01.2.3", "1.2.3-01", "1.2.3-",
    "", "1.2.3+", "1.2.3-é", "99999999999999999999.0.0", f"1.2.3-{'a' * 60}", f"1.2.3-{'a' * 58}", "1.2.3 ",
    "1.2.3+a..b",
)  # fmt: skip
STRINGS: Final = ("", "gpu", "a" * 64, "a" * 65, "é" * 32, "é" * 33, "a\nb", "日" * 21 + "a", "日" * 22)
WHOLE: Final = (0, 1, 2, 3, 7, -1, 31, 32, 33, 2**31 - 1, 2**31, 2**63 - 1, -(2**63))
NO_WHOLE: Final = (2**63, 1.5, "1", True, [], 10**30)
RESOURCES: Final = (
    "cpu", "memory", "hugepages-2Mi", "hugepages-1Gi", "hugepages-", "hugepages-2M", "ephemeral-storage", "pods",
    "foo", "", "nvidia.com/gpu", "x.kubernetes.io/y", "C P U", "kubernetes.io/z", "Hugepages-2Mi", "requests.cpu",
    "storage", "é",
)  # fmt: skip
EFFECTS: Final = ("NoSchedule", "NoExecute", "None", "", "Evict", "PreferNoSchedule", "noschedule")
OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "", "in", "Equal")
MODES: Final = ("ExactCount", "All", "", "Some", "all", "exactcount")
EXPRESSIONS: Final = (
    "true", "device.driver == 'cpu.example.org'", "device.attributes['cpu.example.org'].numaNode == 0",
    "device.capacity['cpu.example.org'].cores.compareTo(quantity('4')) >= 0", "device.allowMultipleAllocations",
    "device.attributes['a'].v.isGreaterThan(semver('1.2.3'))", "", "1", "device", "device.foo", "device.driver ==",
    "'a'", "device.driver", "device.driver == 1", "true && (", "device.capacity['x'].y > 3", "unknown()",
    "has(device.attributes.a)", "device.attributes['a'].b in [1, 2]", "device.driver.matches('[')",
    "[1].all(x, x > 0)", "x", "device.driver.startsWith('c')", "true\n&& false", "'é' == device.driver",
    "cel.bind(x, 1, x == 1)", "quantity('x') == quantity('1')", "semver('1') == semver('2')",
    "device.attributes['a'].all(k, k != '')", "device.attributes['a'].?b.orValue(1) == 1", f"{'true && ' * 40}true",
    "device.capacity", "// comment\ntrue", "dyn(device.driver) == 1", "device.driver == 'a' ? true : false",
    "b'a' == b'a'", "1u == 1u", "null == null", "device.attributes['a'].b.c == 1", "ip('1.2.3.4').family() == 4",
    "device.attributes[0]", "duration('1s') < duration('2s')", f"{' ' * 10300}true",
    f"device.driver == '{'a' * 10000}'", "device.driver == '\\x'", "1 / 0 == 1", "this", "self == 1",
    "includes(device.attributes['a'].b, 1)", "device.attributes['a'].b.includes(1)", "[1, 2].isSorted()",
    "type(1) == int", "math.abs(-1) == 1", "device.attributes['a'].b.all(x, x == 1)",
    "device.attributes['a'].b.exists(x, x == 1)", "1 in device.attributes['a'].b", "device.attributes['a'].b[0] == 1",
    "device.attributes['a'].b.size() == 1", "size(device.attributes['a'].b) == 1",
    "device.attributes['a'].b + 1 == 2", "device.attributes['a'].b", "device.attributes['a'].b.startsWith('x')",
    "device.attributes['a'].b.map(x, x) == [1]", "!device.attributes['a'].b",
    "device.attributes['a'].b ? true : false", "device.attributes['a'].b && true", "-device.attributes['a'].b == 1",
    "device.attributes['a'].b.lowerAscii() == 'x'", "has(device.attributes['a'].b.c)", "device.attributes['a'].b > 1",
    "device.attributes['a'].?b.?c.hasValue()", "device.attributes['a'].?b.hasValue()",
    "device.attributes['a'].b == 'x'", "device.capacity['a'].b == quantity('1')",
    "device.capacity['a'].?b.hasValue()", "device.capacity['a'].b.c", "device.attributes['a'].b in ['x']",
    "device.attributes['a'].b.isGreaterThan(semver('1.0.0'))", "[device.attributes['a'].b] == [1]",
    "string(device.attributes['a'].b) == '1'", "'a' in device.attributes", "int(device.attributes['a'].b) == 1",
    "device.attributes['a'].b == device.attributes['c'].d",
)  # fmt: skip
JUNK: Final[Sequence[Any]] = (
    None,
    True,
    False,
    0,
    -1,
    7,
    2**70,
    1.5,
    "",
    "x",
    "1",
    [],
    [None],
    [[]],
    {},
    {"a": None},
    ["a", 1],
)

EXTENDED: Final = (
    "example.org/gpu", "gpu", "", "requests.example.org/gpu", "example.org/requests.x", "cpu", "kubernetes.io/x",
    "a.b/c/d", f"{LABEL}a/b", f"example.org/{LABEL}", f"example.org/{LABEL}a", "example.org/é", "pods",
    "hugepages-2Mi", "Example.org/x", f"{'a.' * 120}b/{'c' * 50}", "x.kubernetes.io/y", "example.org/a_b", "/x", "x/",
)  # fmt: skip
_BY_FIELD: Final[dict[str, Sequence[Any]]] = {
    "driver": (*NAMES, "dra.cpu", "Cpu.Example.org", "a." * 31 + "a", "a." * 32 + "a"),
    "deviceClassName": NAMES,
    "nodeName": NAMES,
    "counterSet": NAMES,
    "extendedResourceName": EXTENDED,
    "matchAttribute": QUALIFIED,
    "distinctAttribute": QUALIFIED,
    "capacityKey": QUALIFIED,
    "effect": EFFECTS,
    "allocationMode": MODES,
    "expression": EXPRESSIONS,
    "version": VERSIONS,
    "versions": VERSIONS,
    "string": STRINGS,
    "strings": STRINGS,
    "bindingConditions": LABEL_KEYS,
    "bindingFailureConditions": LABEL_KEYS,
    "requests": (*NAMES, "r0", "r1", "r2", "r0/s0", "r1/s0", "r0/s1", "r1/", "/s0", "r0/s0/x"),
    "namespace": ("", "plain", "admins", "A", f"{LABEL}a"),
    "generateName": ("", "a-", "a", "A-", "-", "a--", "a.", "a/-", "5%-", f"{LABEL}-", f"{'a' * 250}-", "a.-", "é-"),
    "finalizers": (
        "kubernetes",
        "orphan",
        "foregroundDeletion",
        "example.org/f",
        "f",
        "",
        "a/b/c",
        "é/x",
        "example.org/",
        "A/b",
    ),
    "apiVersion": ("v1", "apps/v1", "", "a/b/c", "/", "v1/", "/v1"),
    "uid": ("", "u-1", "0a", "é"),
    "generation": (0, 1, -1, 7, 2**63 - 1),
    "resourceSliceCount": (0, 1, 2, -1, 2**31, 2**63 - 1),
    "count": (0, 1, 2, -1, 33, 2**63 - 1),
    "parameters": (
        {},
        {"a": 1},
        {"a": "x" * 10300},
        1,
        "x",
        [],
        True,
        {"a": "x" * 10231},
        {"a": "<&>" * 2000},
        {"é": "é" * 5000},
    ),
    "timeAdded": (
        "2026-11-20T09:00:00Z",
        "2026-11-20",
        "",
        "yesterday",
        "2026-11-20T09:00:00+01:00",
        "2026-02-30T00:00:00Z",
    ),
    "creationTimestamp": ("2026-11-20T09:00:00Z", "2026-11-20", "soon"),
}


def scalar(kind: str, field: str, parent: str, rng: random.Random) -> Any:
    """A value for a field of the schema's type ``kind``; ``parent`` is the name of the object around it."""
    if kind == "quantity":
        return rng.choice(NO_QUANTITIES if rng.random() < 0.04 else QUANTITIES)
    if kind in ("int64", "int32"):
        return rng.choice(NO_WHOLE if rng.random() < 0.04 else _BY_FIELD.get(field, WHOLE))
    if kind == "bool":
        return rng.choice((True, True, False, "true") if rng.random() < 0.1 else (True, False))
    if field in ("key", "value", "values", "operator"):
        of_selector = parent in ("matchExpressions", "matchFields")
        if field == "operator":
            return rng.choice(OPERATORS if of_selector else ("Exists", "Equal", "", "In"))
        if field == "key":
            return rng.choice((*LABEL_KEYS, "metadata.name") if of_selector else LABEL_KEYS)
        return rng.choice((*LABEL_VALUES, "n1", "5", "-5"))
    return rng.choice(_BY_FIELD.get(field, NAMES if kind == "string" else JUNK))


def key_of(field: str, rng: random.Random) -> str:
    """A key for the map in ``field``."""
    match field:
        case "attributes" | "capacity" | "requests":
            return rng.choice(QUALIFIED)
        case "nodeAllocatableResourceMappings" | "nodeAllocatableResources":
            return rng.choice(RESOURCES)
        case "counters":
            return rng.choice(NAMES)
        case "labels" | "annotations":
            return rng.choice(LABEL_KEYS)
    return rng.choice(NAMES)
