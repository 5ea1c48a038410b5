"""Writes webhook/kube/schemas/1.NN.json from the OpenAPI documents in the k8s.io/kubernetes module.

    go mod download k8s.io/kubernetes@v1.36.3 k8s.io/kubernetes@v1.37.2
    python tests/tools/make_schemas.py "$(go env GOMODCACHE)"

Only names and types of fields are kept. A type is written as one of: string, bool, int32, int64, number, quantity,
time, bytes, int-or-string, any; `[T` a list of T; `{T` a map of T; `#name` a struct of the table.
"""

import json
import sys
from pathlib import Path
from typing import Any

RELEASES = {"1.36": "v1.36.3", "1.37": "v1.37.2"}
GROUPS = ("api__v1", "apis__resource.k8s.io__*", "apis__rbac.authorization.k8s.io__v1", "apis__apps__v1")
GROUPS += ("apis__admissionregistration.k8s.io__v1",)
PREFIXES = ("io.k8s.apimachinery.pkg.apis.", "io.k8s.apimachinery.pkg.", "io.k8s.api.")
SPECIAL = {
    "api.resource.Quantity": "quantity",
    "meta.v1.Time": "time",
    "meta.v1.MicroTime": "time",
    "meta.v1.FieldsV1": "any",
    "runtime.RawExtension": "any",
    "util.intstr.IntOrString": "int-or-string",
}


def short(ref: str) -> str:
    name = ref.removeprefix("#/components/schemas/")
    for prefix in PREFIXES:
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name


def type_of(schema: dict[str, Any]) -> str:
    if "allOf" in schema:
        return type_of(schema["allOf"][0])
    if "$ref" in schema:
        name = short(schema["$ref"])
        return SPECIAL.get(name, "#" + name)
    kind = schema.get("type")
    if kind == "array":
        return "[" + type_of(schema["items"])
    if kind == "object":
        return "{" + type_of(schema["additionalProperties"]) if "additionalProperties" in schema else "any"
    if kind == "string":
        return {"byte": "bytes", "date-time": "time"}.get(schema.get("format", ""), "string")
    if kind == "integer":
        return str(schema.get("format", "int64"))
    return {"boolean": "bool", "number": "number"}[kind or ""]


def table(folder: Path) -> dict[str, Any]:
    types: dict[str, dict[str, str]] = {}
    kinds: dict[str, dict[str, str]] = {}
    for pattern in GROUPS:
        for file in sorted(folder.glob(pattern + "_openapi.json")):
            schemas = json.loads(file.read_text(encoding="utf-8"))["components"]["schemas"]
            for ref, schema in schemas.items():
                name = short(ref)
                if name not in SPECIAL:
                    types[name] = {field: type_of(inner) for field, inner in schema.get("properties", {}).items()}
                known = schema.get("x-kubernetes-group-version-kind", [])
                if ref.startswith("io.k8s.api.") and len(known) == 1 and not known[0]["kind"].endswith("List"):
                    group, version, kind = known[0]["group"], known[0]["version"], known[0]["kind"]
                    kinds.setdefault(f"{group}/{version}" if group else version, {})[kind] = name
    return {"kinds": kinds, "types": reachable(types, [name for group in kinds.values() for name in group.values()])}


def reachable(types: dict[str, dict[str, str]], names: list[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    while names:
        name = names.pop()
        if name not in found:
            found[name] = types[name]
            names.extend(inner.lstrip("[{")[1:] for inner in types[name].values() if inner.lstrip("[{").startswith("#"))
    return found


def main(cache: str) -> None:
    target = Path(__file__).parents[2] / "webhook" / "kube" / "schemas"
    for release, tag in RELEASES.items():
        folder = Path(cache) / "k8s.io" / f"kubernetes@{tag}" / "api" / "openapi-spec" / "v3"
        text = json.dumps(table(folder), separators=(",", ":"), sort_keys=True).replace('},"', '},\n"')
        (target / f"{release}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
