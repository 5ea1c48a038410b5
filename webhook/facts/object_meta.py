"""The API server's rules of ``metadata`` that every object follows."""

from __future__ import annotations

from collections.abc import Iterator

from webhook.facts.field_names import length
from webhook.kube.finding import Finding, cause
from webhook.kube.names import NEEDS_LABEL_KEY, NEEDS_SUBDOMAIN, dns_label, dns_subdomain, label_key, label_value
from webhook.kube.raw import Json, flag, indexed, mapping, sequence, text

STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
ANNOTATIONS_MAX = 256 * 1024
_GENERATED_MAX = 58  # what the server keeps of generateName before it adds its five characters
_FIX_OWNER = "copy apiVersion, kind, name and uid from the owning object"
_OWNER = ("apiVersion", "kind", "name", "uid")
_NOT_IN_TEMPLATES = (
    "name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp",
    "deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences", "finalizers", "managedFields",
)  # fmt: skip
# What counts as left out, and a field that the server calls by another name than people do.
_ZERO = {"generation": 0}
_GO_NAMES = {"uid": "uID"}


def metadata_problems(metadata: Json, namespaced: bool, newer: bool, path: str = "metadata") -> list[Finding]:
    """Problems of an object's name, namespace, labels, annotations, owners and finalizers, as at its creation.

    ``newer``: by 1.37, which says more exactly what is wrong with an owner. A namespace of what has none
    (``namespaced`` false) is dropped by the server before it looks.
    """
    found = [*_names(metadata, path)]
    namespace = text(metadata.get("namespace"))
    if namespaced and namespace and dns_label(namespace):
        has = f"{namespace!r}, which {dns_label(namespace)}"
        found.append(cause("name-invalid", f"{path}.namespace", "FieldValueInvalid", has, "a DNS label"))
    return found + _shared(metadata, newer, path)


def update_metadata_problems(metadata: Json, newer: bool, path: str = "metadata") -> list[Finding]:
    """Problems of the parts of ``metadata`` that an update may change: labels, annotations, owners, finalizers."""
    found = _shared(metadata, newer, path)
    # Of a name that is not made up any more only what would break a URL is looked at.
    prefix = text(metadata.get("generateName"))
    if "/" in prefix or "%" in prefix:
        found.append(_invalid(f"{path}.generateName", repr(prefix), "no '/' and no '%'", "name-invalid"))
    return found


def _shared(metadata: Json, newer: bool, path: str) -> list[Finding]:
    found = label_problems(metadata, path)
    found += _owners(metadata.get("ownerReferences"), f"{path}.ownerReferences", newer)
    finalizers = [text(name) for name in sequence(metadata.get("finalizers"))]
    found += [
        _invalid(f"{path}.finalizers", f"{name!r}, which {reason}", NEEDS_LABEL_KEY)
        for name in finalizers
        if (reason := label_key(name))
    ]
    if {"orphan", "foregroundDeletion"} <= set(finalizers):
        found.append(_invalid(f"{path}.finalizers", "orphan and foregroundDeletion", "one of them"))
    for index, name in enumerate(finalizers):
        if "/" not in name and name not in STANDARD_FINALIZERS:
            has = f"{name!r}, which has no domain"
            found.append(_invalid(f"{path}.finalizers[{index}]", has, "domain/name"))
    return found


def template_metadata_problems(metadata: Json, path: str) -> list[Finding]:
    """Problems of the metadata inside a template, which has labels and annotations and nothing else."""
    return label_problems(metadata, path) + [
        cause(
            "metadata-invalid",
            f"{path}.{_GO_NAMES.get(name, name)}",
            "FieldValueForbidden",
            f"the field {name}",
            "labels and annotations alone",
        )
        for name in _NOT_IN_TEMPLATES
        if metadata.get(name) not in (None, "") and metadata.get(name) != _ZERO.get(name)
    ]


def label_problems(metadata: Json, path: str) -> list[Finding]:
    """Problems of labels and annotations."""
    found: list[Finding] = []
    labels, annotations = metadata.get("labels"), metadata.get("annotations")
    for key, value in mapping(labels).items():
        if reason := label_key(key):
            found.append(_invalid(f"{path}.labels", f"{key!r}, which {reason}", NEEDS_LABEL_KEY))
        if reason := label_value(text(value)):
            needs = "at most 63 letters, digits, '-', '_' and '.', a letter or digit at both ends"
            found.append(_invalid(f"{path}.labels", f"{text(value)!r}, which {reason}", needs))
    size = 0
    for key, value in mapping(annotations).items():
        size += length(key) + length(text(value))
        if reason := label_key(key.lower()):
            found.append(_invalid(f"{path}.annotations", f"{key!r}, which {reason}", NEEDS_LABEL_KEY))
    if size > ANNOTATIONS_MAX:
        has, needs = f"annotations of {size} bytes", f"at most {ANNOTATIONS_MAX} bytes"
        found.append(cause("metadata-invalid", f"{path}.annotations", "FieldValueTooLong", has, needs))
    return found


def _invalid(path: str, has: str, needs: str, rule: str = "metadata-invalid", fix: str = "") -> Finding:
    return cause(rule, path, "FieldValueInvalid", has, needs, fix)


def _names(metadata: Json, path: str) -> Iterator[Finding]:
    name, prefix = text(metadata.get("name")), text(metadata.get("generateName"))
    if prefix:
        if reason := dns_subdomain(_masked(prefix)):
            has = f"{prefix!r}, which {reason}"
            yield _invalid(f"{path}.generateName", has, NEEDS_SUBDOMAIN, "name-invalid")
        name = name or f"{prefix[:_GENERATED_MAX]}00000"
    if not name:
        needs = "a name or generateName"
        yield cause("name-invalid", f"{path}.name", "FieldValueRequired", "no name", needs)
    elif reason := dns_subdomain(name):
        yield _invalid(f"{path}.name", f"{name!r}, which {reason}", NEEDS_SUBDOMAIN, "name-invalid")


def _once(owners: list[Json]) -> list[Json]:
    decoded = [
        (*(text(owner.get(name)) for name in _OWNER), owner.get("controller"), owner.get("blockOwnerDeletion"))
        for owner in owners
    ]
    return [owner for index, owner in enumerate(owners) if decoded[index] not in decoded[:index]]


def _masked(prefix: str) -> str:
    """``prefix`` as the server looks at it: a dash at its end is fine, so the last two bytes give way to one letter."""
    raw = prefix.encode("utf-8", "surrogatepass")
    return (raw[:-2] + b"a").decode("utf-8", "replace") if len(raw) > 1 and raw.endswith(b"-") else prefix


def _owners(owners: object, path: str, newer: bool) -> Iterator[Finding]:
    controllers = 0
    # The server drops an owner that is given again in the same words before it looks.
    for index, owner in enumerate(_once([owner for _, owner in indexed(owners)])):
        controllers += flag(owner.get("controller"))
        where, missing = (f"{path}[{index}]", "FieldValueRequired") if newer else (path, "FieldValueInvalid")
        for member in _OWNER:
            if not text(owner.get(member)):
                needs = "a full owner reference"
                yield cause("metadata-invalid", f"{where}.{member}", missing, f"no {member}", needs, _FIX_OWNER)
        version = text(owner.get("apiVersion"))
        if version and (version.count("/") > 1 or version.endswith("/")):
            yield _invalid(f"{where}.apiVersion", repr(version), "group/version, or version")
        if version == "v1" and owner.get("kind") == "Event":
            yield _invalid(where, "an Event as owner", "another kind of owner")
    if controllers > 1:
        yield _invalid(path, f"{controllers} controllers", "at most one owner with controller: true")
